"""grps: one message that holds tensors, text, bytes or a map, over HTTP, gRPC and bRPC."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from interlingua.protocols.dialect import Binding, Dialect, HttpEndpoint
from interlingua.protocols.grps import json_quirks, outcome
from interlingua.protocols.grps.capability import OVER_BRPC, OVER_GRPC, OVER_HTTP
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

_py_status = partial(outcome.failure_code, PY)
_cpp_status = partial(outcome.failure_code, CPP)

_PREFIXES = ("/grps/", *(f"/{service}/" for service in BRPC_NAMES))


def _http_endpoints(flavor: Flavor, options: PredictOptions) -> tuple[HttpEndpoint, ...]:
    # only the C++ server has the stub; a client of the other does not know that it is there
    return (*http_endpoints(flavor, options), *stub_endpoints(CPP, options, json_quirks.CPP))


def dialect(options: PredictOptions | None = None) -> Dialect:
    """The dialect under ``options``: a listener has the quirks of the Python server, over bRPC those of the
    C++ server, which alone has that."""
    chosen = options or PredictOptions()
    http = Binding(
        DIALECT_NAME,
        "http",
        OVER_HTTP,
        _http_endpoints(PY, chosen),
        HTTP_CALLS,
        unmatched=PY.unmatched,
        prefixes=_PREFIXES,
        failure_status=_py_status,
    )
    cpp_http = replace(
        http,
        endpoints=_http_endpoints(CPP, chosen),
        calls=HTTP_CPP_CALLS,
        unmatched=CPP.unmatched,
        failure_status=_cpp_status,
    )
    grpc = Binding(
        DIALECT_NAME,
        "grpc",
        OVER_GRPC,
        grpc_endpoints(PY, chosen),
        GRPC_CALLS,
        contracts=(("interlingua.schemas.grps", "grps.desc"),),
        failure_status=_py_status,
    )
    cpp_grpc = replace(grpc, endpoints=grpc_endpoints(CPP, chosen), failure_status=_cpp_status)
    brpc = Binding(
        DIALECT_NAME,
        "brpc",
        OVER_BRPC,
        brpc_endpoints(CPP, chosen),
        BRPC_CALLS,
        multiplexed={
            "http": replace(cpp_http, endpoints=stub_endpoints(CPP, chosen), calls=HTTP_CALLS),
            "grpc": replace(cpp_grpc, endpoints=brpc_grpc_endpoints(CPP, chosen), contracts=()),
        },
        failure_status=_cpp_status,
    )
    return Dialect.of(
        replace(http, flavors={CPP.name: cpp_http}),
        replace(grpc, flavors={CPP.name: cpp_grpc}),
        brpc,
        manifest=MANIFEST,
        configure=_configured,
    )


def _configured(section: GrpsOptions, listener: Any) -> Dialect:
    return dialect(section.build())


DIALECT = dialect()
