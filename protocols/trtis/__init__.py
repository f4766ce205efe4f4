"""The TensorRT Inference Server, version 1: releases 1.0 to 1.15, before it was called Triton."""

from __future__ import annotations

from interlingua.protocols.dialect import Dialect
from interlingua.protocols.trtis.capability import CAPABILITY
from interlingua.protocols.trtis.client import GRPC_CALLS, HTTP_CALLS
from interlingua.protocols.trtis.codec import DIALECT_NAME
from interlingua.protocols.trtis.manifest import MANIFEST
from interlingua.protocols.trtis.server import HTTP_ENDPOINTS, unmatched
from interlingua.protocols.trtis.server_grpc import GRPC_ENDPOINTS

DIALECT = Dialect(
    name=DIALECT_NAME,
    capability=CAPABILITY,
    manifest=MANIFEST,
    prefixes=("/api",),
    http_endpoints=HTTP_ENDPOINTS,
    grpc_endpoints=GRPC_ENDPOINTS,
    contracts=(("interlingua.schemas.trtis", "grpc_service.desc"),),
    unmatched=unmatched,
    http_calls=HTTP_CALLS,
    grpc_calls=GRPC_CALLS,
)
