"""The target for HTTP over HTTP/2: whole requests, from frames to the handler.

However the bytes are cut, the handler gets the same requests. Each of them, written as HTTP/1, is one request
there too, the same, or is refused: no field of HTTP/2 forges a line or a second request (RFC 9113, 10.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from interlingua.protocols.transport.h2.frames import PREFACE, Code, data_header, frame, header_frames
from interlingua.protocols.transport.h2.hpack_encoder import literal
from interlingua.protocols.transport.h2.http_headers import HttpHeaders, read_request
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.transport.http.exchange import HttpExchange
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpRequest
from interlingua.schemas import InferenceError
from tests.fuzz.framings import however_cut, http_requests
from tests.fuzz.target import Target

_MAX_BODY_BYTES = 1 << 12
_TURNS = 4
"""How often the event loop turns, enough for every answer that the client's windows permit."""

_loop = asyncio.new_event_loop()


class _Handler:
    """Records what it serves and refuses. It answers with the body; below ``/parts`` as a stream, and
    ``/early`` before the body."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        request.max_body_bytes = _MAX_BODY_BYTES
        return HttpAnswer(404) if request.path.startswith("/early") else None

    def prefix(self, request: HttpRequest) -> int | None:
        return None

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        head = request.method, request.path, request.query, dict(request.headers)
        self.found.append((*head, bytes(request.body)))
        if request.path.startswith("/parts"):
            return HttpAnswer(200, (), self._parts(request))
        return HttpAnswer(200, (("x-a", request.path),), (request.body,))

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        self.found.append((request.path, error.code))
        return HttpAnswer(413)

    @staticmethod
    async def _parts(request: HttpRequest) -> AsyncIterator[Buffer]:
        for byte in bytes(request.body):
            yield bytes((byte,))


class _Host:
    """An ``ExchangeHost``. ``calls`` are the requests in flight, each of which has to end once."""

    def __init__(self, handler: _Handler) -> None:
        self.load, self.loop, self.client, self.identity = ListenerLoad(), _loop, "192.0.2.1", None
        self.max_response_bytes = None
        self.calls: set[HttpExchange] = set()
        self._handler = handler

    def call_began(self, call: HttpExchange) -> None:
        self.calls.add(call)

    def call_ended(self, call: HttpExchange) -> None:
        if call.held is not None:
            call.held.release()
        self.calls.discard(call)

    def accept(
        self, connection: ServerConnection[Any], number: int, headers: HttpHeaders | None, ended: bool
    ) -> Stream | None:
        if headers is None:
            connection.sender.reject(number, Code.PROTOCOL_ERROR)
            return None
        return HttpExchange(self, self._handler, connection, number, headers, ended)


def _requests(pieces: Iterable[bytes]) -> list[Any]:
    return _loop.run_until_complete(_handled(pieces))


async def _handled(pieces: Iterable[bytes]) -> list[Any]:
    handler = _Handler()
    host = _Host(handler)
    connection: ServerConnection[Any] = ServerConnection(read_request, host.accept, lambda *parts: None)
    for piece in pieces:
        connection.receive(piece)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    handler.found.append(connection.closed)
    connection.connection_lost()
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    assert not host.calls, "a request in flight has not ended"
    assert not host.load.body_bytes, "memory of a body is still counted"
    return handler.found


def _check(data: bytes) -> None:
    however_cut(_requests)(data)
    for request in _requests((data,))[:-1]:
        if len(request) != 5:  # a refusal
            continue
        method, path, query, headers, body = request
        if body:
            headers.setdefault("content-length", str(len(body)))
        again = http_requests((_as_http1(method, path, query, headers, body),))
        assert again == [request] or isinstance(again[0], type), f"{request} is {again} in HTTP/1"


def _as_http1(method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> bytes:
    target = f"{path}?{query}" if query else path
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join([*lines, "", ""])
    return head.encode("utf-8", "surrogateescape") + body


_SETTINGS = frame(4, 0, 0)


def _head(
    number: int, ended: bool, *more: tuple[bytes, bytes], path: bytes = b"/v2/models/m/infer?a=%20b"
) -> bytes:
    own = ((b":method", b"POST"), (b":scheme", b"https"), (b":path", path), (b":authority", b"a:80"))
    block = b"".join(literal(*pair) for pair in (*own, *more))
    return header_frames(block, number, ended=ended, largest=1 << 14)


def _seeds() -> Iterator[bytes]:
    start = PREFACE + _SETTINGS
    body = data_header(5, 1, 1) + b"hello"
    yield start + _head(1, ended=True)
    yield start + _head(1, False, (b"content-length", b"5"), (b"x-a", b"1"), (b"x-a", b"2")) + body
    yield start + _head(1, False, (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"te", b"trailers")) + body
    yield (
        start
        + _head(1, False, (b"expect", b"100-continue"), path=b"/parts")
        + data_header(2, 1, 0)
        + b"ab"
        + body
    )
    yield start + _head(1, False, path=b"/early") + _head(3, ended=True) + frame(3, 0, 1, bytes(4))
    # padded, in two pieces, with trailers
    trailers = header_frames(literal(b"x-t", b"1"), 1, ended=True, largest=1 << 14)
    yield (
        start
        + _head(1, ended=False)
        + frame(0, 8, 1, b"\x02abc\0\0")
        + data_header(1, 1, 0)
        + b"d"
        + trailers
    )
    # above the limit of bodies
    yield start + _head(1, ended=False) + data_header(_MAX_BODY_BYTES + 1, 1, 1) + bytes(_MAX_BODY_BYTES + 1)
    yield start + header_frames(
        literal(b":method", b"CONNECT") + literal(b":authority", b"a:1"), 1, ended=True, largest=1 << 14
    )


TARGETS = (Target("http2-request", _check, _seeds),)
