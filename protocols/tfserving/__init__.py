"""TensorFlow Serving, which OpenVINO Model Server and, as its version 1, KServe speak too."""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.tfserving import kserve
from interlingua.protocols.tfserving.capability import OVER_GRPC, OVER_HTTP
from interlingua.protocols.tfserving.client import GRPC_CALLS, HTTP_CALLS, KSERVE_CALLS
from interlingua.protocols.tfserving.codec import DIALECT_NAME
from interlingua.protocols.tfserving.http_endpoint import unmatched
from interlingua.protocols.tfserving.manifest import MANIFEST
from interlingua.protocols.tfserving.server import HTTP_ENDPOINTS
from interlingua.protocols.tfserving.server_grpc import GRPC_ENDPOINTS

_HTTP = Binding(
    DIALECT_NAME, "http", OVER_HTTP, HTTP_ENDPOINTS, HTTP_CALLS, unmatched=unmatched, prefixes=("/v1/models",)
)
_KSERVE = replace(_HTTP, endpoints=kserve.HTTP_ENDPOINTS, calls=KSERVE_CALLS, unmatched=kserve.unmatched)

DIALECT = Dialect.of(
    replace(_HTTP, flavors={"kserve": _KSERVE}),
    Binding(
        DIALECT_NAME,
        "grpc",
        OVER_GRPC,
        GRPC_ENDPOINTS,
        GRPC_CALLS,
        contracts=(("interlingua.schemas.tfserving", "serving.desc"),),
    ),
    manifest=MANIFEST,
)
