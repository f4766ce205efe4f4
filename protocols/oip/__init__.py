"""The Open Inference Protocol, version 2: as Triton, KServe, MLServer and OpenVINO Model Server speak it."""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.oip.capability import OVER_GRPC, OVER_HTTP
from interlingua.protocols.oip.client import (
    GRPC_CALLS,
    GRPC_KSERVE_CALLS,
    GRPC_MLSERVER_CALLS,
    HTTP_CALLS,
    HTTP_JSON_CALLS,
)
from interlingua.protocols.oip.codec import DIALECT_NAME
from interlingua.protocols.oip.flavors import HABITS, grpc_endpoints, http_endpoints
from interlingua.protocols.oip.manifest import MANIFEST
from interlingua.protocols.oip.server import GRPC_ENDPOINTS, HTTP_ENDPOINTS, http_unmatched

_HTTP = Binding(
    DIALECT_NAME,
    "http",
    OVER_HTTP,
    HTTP_ENDPOINTS,
    HTTP_CALLS,
    unmatched=http_unmatched,
    prefixes=("/v2",),
)
_GRPC = Binding(
    DIALECT_NAME,
    "grpc",
    OVER_GRPC,
    GRPC_ENDPOINTS,
    GRPC_CALLS,
    contracts=(("interlingua.schemas.oip", "grpc_service.desc"), ("interlingua.schemas.oip", "health.desc")),
)

_HTTP_FLAVOR_CALLS = {"mlserver": HTTP_JSON_CALLS}
_GRPC_FLAVOR_CALLS = {"kserve": GRPC_KSERVE_CALLS, "mlserver": GRPC_MLSERVER_CALLS}

DIALECT = Dialect.of(
    replace(
        _HTTP,
        flavors={
            name: replace(
                _HTTP,
                endpoints=http_endpoints(HTTP_ENDPOINTS, habits),
                calls=_HTTP_FLAVOR_CALLS.get(name, HTTP_CALLS),
            )
            for name, habits in HABITS.items()
        },
    ),
    replace(
        _GRPC,
        flavors={
            name: replace(
                _GRPC,
                endpoints=grpc_endpoints(GRPC_ENDPOINTS, habits),
                calls=_GRPC_FLAVOR_CALLS.get(name, GRPC_CALLS),
                contracts=(*_GRPC.contracts, *habits.contracts),
            )
            for name, habits in HABITS.items()
        },
    ),
    manifest=MANIFEST,
)
