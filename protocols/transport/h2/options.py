"""What a server grants the clients of HTTP/2, and when it looks whether they are still there."""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.protocols.transport.h2.hpack import MAX_HEADER_LIST

MAX_STREAMS = 1024
STREAM_WINDOW, CONNECTION_WINDOW = 640 << 10, 16 << 20
KEEPALIVE_SECS, KEEPALIVE_TIMEOUT_SECS = 7200.0, 20.0


@dataclass(frozen=True, slots=True)
class Http2Options:
    """``max_streams``: how many requests of one connection may be at work, reset ones included, and those
    whose answers wait for the client. ``max_header_list``: SETTINGS_MAX_HEADER_LIST_SIZE. ``stream_window``:
    the initial flow-control window of a stream, enough for an image of 3 x 224 x 224 floats.
    ``connection_window``: that of the connection, and what larger messages share (``h2.credit``).
    ``keepalive_secs``: after how long without a byte a client with calls gets a PING, and
    ``keepalive_timeout_secs``: how long it may take to answer; Triton's values, which clients are tuned
    to."""

    max_streams: int = MAX_STREAMS
    max_header_list: int = MAX_HEADER_LIST
    stream_window: int = STREAM_WINDOW
    connection_window: int = CONNECTION_WINDOW
    keepalive_secs: float = KEEPALIVE_SECS
    keepalive_timeout_secs: float = KEEPALIVE_TIMEOUT_SECS


DEFAULT_OPTIONS = Http2Options()
