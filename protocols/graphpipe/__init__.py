"""GraphPipe: tensors in FlatBuffers over HTTP, or over tcp with their size before them, one model each."""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Dialect
from interlingua.protocols.graphpipe.capability import CAPABILITY
from interlingua.protocols.graphpipe.client import HTTP_CALLS, TCP_CALLS
from interlingua.protocols.graphpipe.manifest import MANIFEST
from interlingua.protocols.graphpipe.server import (
    FRAMED_ENDPOINT,
    HTTP_ENDPOINTS,
    IN_BAND_ENDPOINTS,
    unmatched,
)

DIALECT = Dialect(
    name="graphpipe",
    capability=CAPABILITY,
    manifest=MANIFEST,
    prefixes=("/graphpipe/",),
    http_endpoints=HTTP_ENDPOINTS,
    framed_endpoint=FRAMED_ENDPOINT,
    unmatched=unmatched,
    http_calls=HTTP_CALLS,
    tcp_calls=TCP_CALLS,
)

IN_BAND = replace(DIALECT, http_endpoints=IN_BAND_ENDPOINTS)
"""The dialect with the errors of messages in band over HTTP too."""
