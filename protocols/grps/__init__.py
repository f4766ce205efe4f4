"""grps: one message that holds tensors, text, bytes or a map, over HTTP, gRPC and bRPC."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import Dialect
from interlingua.protocols.grps import json_habits
from interlingua.protocols.grps.capability import CAPABILITY
from interlingua.protocols.grps.client_http import HTTP_CALLS, HTTP_CPP_CALLS
from interlingua.protocols.grps.client_rpc import BRPC_CALLS, GRPC_CALLS
from interlingua.protocols.grps.flavors import CPP, PY, Flavor
from interlingua.protocols.grps.manifest import MANIFEST
from interlingua.protocols.grps.message import DIALECT_NAME
from interlingua.protocols.grps.options import PredictOptions
from interlingua.protocols.grps.server import http_endpoints
from interlingua.protocols.grps.server_rpc import (
    BRPC_NAMES,
    brpc_endpoints,
    brpc_grpc_endpoints,
    grpc_endpoints,
    stub_endpoints,
)
from interlingua.protocols.grps.settings import GrpsOptions

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
        manifest=MANIFEST,
        prefixes=("/grps/", *(f"/{service}/" for service in BRPC_NAMES)),
        brpc_endpoints=brpc_endpoints(CPP, chosen),
        brpc_http_endpoints=stub_endpoints(CPP, chosen),
        brpc_grpc_endpoints=brpc_grpc_endpoints(CPP, chosen),
        brpc_unmatched=CPP.unmatched,
        contracts=(("interlingua.schemas.grps", "grps.desc"),),
        http_calls=HTTP_CALLS,
        grpc_calls=GRPC_CALLS,
        brpc_calls=BRPC_CALLS,
        http_flavors={"cpp": HTTP_CPP_CALLS},
        configure=_configured,
    )
    return replace(_flavored(common, PY, chosen), flavors={CPP.name: _flavored(common, CPP, chosen)})


def _configured(section: GrpsOptions, listener: Any) -> Dialect:
    return dialect(section.build())


DIALECT = dialect()
