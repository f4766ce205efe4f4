"""The TensorRT Inference Server, version 1: releases 1.0 to 1.15, before it was called Triton."""

from __future__ import annotations

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.trtis.capability import OVER_GRPC, OVER_HTTP
from interlingua.protocols.trtis.client import GRPC_CALLS, HTTP_CALLS
from interlingua.protocols.trtis.codec import DIALECT_NAME
from interlingua.protocols.trtis.manifest import MANIFEST
from interlingua.protocols.trtis.server import HTTP_ENDPOINTS, unmatched
from interlingua.protocols.trtis.server_grpc import GRPC_ENDPOINTS
from interlingua.protocols.trtis.status import status_name

DIALECT = Dialect.of(
    Binding(
        DIALECT_NAME,
        "http",
        OVER_HTTP,
        HTTP_ENDPOINTS,
        HTTP_CALLS,
        unmatched=unmatched,
        prefixes=("/api",),
        failure_status=status_name,
    ),
    Binding(
        DIALECT_NAME,
        "grpc",
        OVER_GRPC,
        GRPC_ENDPOINTS,
        GRPC_CALLS,
        contracts=(("interlingua.schemas.trtis", "grpc_service.desc"),),
        failure_status=status_name,
    ),
    manifest=MANIFEST,
)
