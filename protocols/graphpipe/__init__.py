"""GraphPipe: tensors in FlatBuffers over HTTP, one model to a server."""

from __future__ import annotations

from protocols.dialect import Dialect
from protocols.graphpipe.capability import CAPABILITY
from protocols.graphpipe.client import HTTP_CALLS
from protocols.graphpipe.server import HTTP_ENDPOINTS, unmatched

DIALECT = Dialect(
    name="graphpipe",
    capability=CAPABILITY,
    prefixes=("/graphpipe/",),
    http_endpoints=HTTP_ENDPOINTS,
    unmatched=unmatched,
    http_calls=HTTP_CALLS,
)
