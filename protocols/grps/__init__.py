"""grps: one message that holds tensors, text, bytes or a map, over HTTP, gRPC and bRPC."""

from __future__ import annotations

from dataclasses import replace

from protocols.dialect import Dialect
from protocols.grps import json_habits
from protocols.grps.capability import CAPABILITY
from protocols.grps.client_http import HTTP_CALLS, HTTP_CPP_CALLS
from protocols.grps.client_rpc import BRPC_CALLS, GRPC_CALLS
from protocols.grps.flavors import CPP, PY, Flavor
from protocols.grps.message import DIALECT_NAME
from protocols.grps.options import PredictOptions
from protocols.grps.server import http_endpoints
from protocols.grps.server_rpc import (
    BRPC_NAMES,
    brpc_endpoints,
    brpc_grpc_endpoints,
    grpc_endpoints,
    stub_endpoints,
)

__all__ = ["DIALECT", "DIALECT_NAME", "dialect"]


def _flavored(over: Dialect, flavor: Flavor, options: PredictOptions) -> Dialect:
    return replace(
        over,
        # only the C++ server has the stub; a client of the other does not know that it is there
        http_endpoints=(*http_endpoints(flavor, options), *stub_endpoints(CPP, options, json_habits.CPP)),
        grpc_endpoints=grpc_endpoints(flavor, options),
        unmatched=flavor.unmatched,
    )


def dialect(options: PredictOptions | None = None) -> Dialect:
    """The dialect under ``options``: a listener has the habits of the Python server, over bRPC those of the
    C++ server, which alone has that."""
    chosen = options or PredictOptions()
    common = Dialect(
        name=DIALECT_NAME,
        capability=CAPABILITY,
        prefixes=("/grps/", *(f"/{service}/" for service in BRPC_NAMES)),
        brpc_endpoints=brpc_endpoints(CPP, chosen),
        brpc_http_endpoints=stub_endpoints(CPP, chosen),
        brpc_grpc_endpoints=brpc_grpc_endpoints(CPP, chosen),
        brpc_unmatched=CPP.unmatched,
        contracts=(("schemas.grps", "grps.desc"),),
        http_calls=HTTP_CALLS,
        grpc_calls=GRPC_CALLS,
        brpc_calls=BRPC_CALLS,
        http_flavors={"cpp": HTTP_CPP_CALLS},
    )
    return replace(_flavored(common, PY, chosen), flavors={CPP.name: _flavored(common, CPP, chosen)})


DIALECT = dialect()
