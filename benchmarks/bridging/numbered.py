"""The bare relays, which put an ``x-request-id`` into each answer, with another value each time.

``python -m benchmarks.bridging.numbered UPSTREAM http|grpc`` prints the address.
"""

from __future__ import annotations

import itertools
import sys

from benchmarks.bridging import http1_relay, http2_relay
from interlingua.protocols.transport import loop

_NUMBERS = itertools.count()
_NAME = b"x-request-id"


def _value() -> bytes:
    return b"%032x" % next(_NUMBERS)


class Http1Upstream(http1_relay.Upstream):
    """Small answers, each of which arrives at once."""

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 "):
            status, rest = data.split(b"\r\n", 1)
            data = b"\r\n".join((status, _NAME + b": " + _value(), rest))
        super().data_received(data)


class Http1Caller(http1_relay.Caller):
    """Its upstream numbers the answers."""

    upstream = Http1Upstream


class Http2Caller(http2_relay.Caller):
    """The header is a literal that enters no table, as grpcio writes it; trailers have none."""

    def send_headers(self, stream: int, block: bytes, end: int) -> None:
        if not end:
            block += b"\0" + http2_relay.string(_NAME) + http2_relay.string(_value())
        super().send_headers(stream, block, end)


async def main(upstream: str, transport: str) -> None:
    """Serve until the process is ended."""
    if transport == "http":
        await http1_relay.main(upstream, Http1Caller)
    else:
        await http2_relay.main(upstream, Http2Caller)


if __name__ == "__main__":
    loop.run(main(*sys.argv[1:3]))
