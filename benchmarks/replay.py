"""A server elsewhere, as far as one machine can have one: it answers at once, with what another server
answered to the first request of that kind. What it takes is little beside what it stands for.

``python -m benchmarks.replay HOST:PORT`` prints the address that it listens on, over HTTP.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from typing import cast

from interlingua.protocols.transport import loop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def _whole(data: bytes) -> int:
    """How many bytes the first message in ``data`` has, 0 while it is not whole."""
    head = data.find(b"\r\n\r\n") + 4
    if head < 4:
        return 0
    length = _LENGTH.search(data, 0, head)
    if b"chunked" in data[:head].lower():
        end = data.find(b"\r\n0\r\n\r\n", head - 2)
        return end + 7 if end >= 0 else 0
    size = head + (int(length[1]) if length else 0)
    return size if len(data) >= size else 0


class Replay(asyncio.Protocol):
    """A connection; ``answers`` by the first lines of requests, from the server at ``address``."""

    def __init__(self, address: str, answers: dict[bytes, bytes]) -> None:
        self._address = address
        self._answers = answers
        self._got = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        while size := _whole(self._got):
            request, self._got = self._got[:size], self._got[size:]
            what = request.split(b"\r\n", 1)[0]
            if what not in self._answers:
                self._answers[what] = self._ask(request)
            self._transport.write(self._answers[what])

    def _ask(self, request: bytes) -> bytes:
        host, _, port = self._address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request)
            answer = b""
            while not _whole(answer):
                answer += connection.recv(1 << 16)
        return answer


async def main(address: str) -> None:
    """Serve until the process is ended."""
    answers: dict[bytes, bytes] = {}
    here = asyncio.get_running_loop()
    server = await here.create_server(lambda: Replay(address, answers), "127.0.0.1", 0)
    sys.stdout.write("{}:{}\n".format(*server.sockets[0].getsockname()))
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    loop.run(main(sys.argv[1]))
