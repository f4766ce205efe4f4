"""The Open Inference Protocol, version 2: as Triton, KServe, MLServer and OpenVINO Model Server speak it."""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Dialect
from interlingua.protocols.oip.capability import CAPABILITY
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

_TRITON = Dialect(
    name=DIALECT_NAME,
    capability=CAPABILITY,
    manifest=MANIFEST,
    prefixes=("/v2",),
    http_endpoints=HTTP_ENDPOINTS,
    grpc_endpoints=GRPC_ENDPOINTS,
    contracts=(("interlingua.schemas.oip", "grpc_service.desc"), ("interlingua.schemas.oip", "health.desc")),
    unmatched=http_unmatched,
    http_calls=HTTP_CALLS,
    grpc_calls=GRPC_CALLS,
    http_flavors={"mlserver": HTTP_JSON_CALLS},
    grpc_flavors={"kserve": GRPC_KSERVE_CALLS, "mlserver": GRPC_MLSERVER_CALLS},
)

DIALECT = replace(
    _TRITON,
    flavors={
        name: replace(
            _TRITON,
            http_endpoints=http_endpoints(HTTP_ENDPOINTS, habits),
            grpc_endpoints=grpc_endpoints(GRPC_ENDPOINTS, habits),
            contracts=(*_TRITON.contracts, *habits.contracts),
        )
        for name, habits in HABITS.items()
    },
)
