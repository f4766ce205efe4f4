"""GraphPipe: tensors in FlatBuffers, over HTTP or each with its size before it over tcp, one model to a server."""

from __future__ import annotations

from protocols.dialect import Dialect
from protocols.graphpipe.capability import CAPABILITY
from protocols.graphpipe.client import HTTP_CALLS, TCP_CALLS
from protocols.graphpipe.server import FRAMED_ENDPOINT, HTTP_ENDPOINTS, unmatched

DIALECT = Dialect(
    name="graphpipe",
    capability=CAPABILITY,
    prefixes=("/graphpipe/",),
    http_endpoints=HTTP_ENDPOINTS,
    framed_endpoint=FRAMED_ENDPOINT,
    unmatched=unmatched,
    http_calls=HTTP_CALLS,
    tcp_calls=TCP_CALLS,
)
