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
from interlingua.protocols.graphpipe.settings import GraphpipeListenerOptions


def _configured(section: None, listener: GraphpipeListenerOptions) -> Dialect:
    in_band = listener.graphpipe_errors == "inband"
    return replace(
        DIALECT,
        http_endpoints=IN_BAND_ENDPOINTS if in_band else HTTP_ENDPOINTS,
        te_with_length=listener.accept_te_with_length,
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
    configure=_configured,
)
