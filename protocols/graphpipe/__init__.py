"""GraphPipe: tensors in FlatBuffers over HTTP, or over tcp with their size before them, one model each."""

from __future__ import annotations

from dataclasses import replace

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.graphpipe.capability import OVER_HTTP, OVER_TCP
from interlingua.protocols.graphpipe.manifest import MANIFEST
from interlingua.protocols.graphpipe.passthrough import HTTP_CALLS, TCP_CALLS
from interlingua.protocols.graphpipe.server import (
    FRAMED_ENDPOINT,
    HTTP_ENDPOINTS,
    IN_BAND_ENDPOINTS,
    unmatched,
)
from interlingua.protocols.graphpipe.settings import GraphpipeListenerOptions

_HTTP = Binding(
    "graphpipe", "http", OVER_HTTP, HTTP_ENDPOINTS, HTTP_CALLS, unmatched=unmatched, prefixes=("/graphpipe/",)
)
_TCP = Binding("graphpipe", "tcp", OVER_TCP, (FRAMED_ENDPOINT,), TCP_CALLS)


def _configured(section: None, listener: GraphpipeListenerOptions) -> Dialect:
    in_band = listener.graphpipe_errors == "inband"
    http = replace(
        _HTTP,
        endpoints=IN_BAND_ENDPOINTS if in_band else HTTP_ENDPOINTS,
        te_with_length=listener.accept_te_with_length,
    )
    return replace(DIALECT, bindings={"http": http, "tcp": _TCP})


DIALECT = Dialect.of(_HTTP, _TCP, manifest=MANIFEST, configure=_configured)
