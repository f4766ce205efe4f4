"""The TensorRT Inference Server, version 1: releases 1.0 to 1.15, before it was called Triton."""

from __future__ import annotations

from protocols.dialect import Dialect
from protocols.trtis.capability import CAPABILITY
from protocols.trtis.codec import DIALECT_NAME
from protocols.trtis.server import HTTP_ENDPOINTS, unmatched

DIALECT = Dialect(
    name=DIALECT_NAME,
    capability=CAPABILITY,
    prefixes=("/api",),
    http_endpoints=HTTP_ENDPOINTS,
    unmatched=unmatched,
)
