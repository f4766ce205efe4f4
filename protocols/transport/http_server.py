"""An HTTP/1.1 listener on aiohttp's low-level server, for an ``HttpHandler``.

It decides nothing that a dialect could decide: paths, statuses, content codings and the words of an
error are the handler's. What it does decide is how much is read, how long it waits and when a
connection ends.
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from aiohttp import StreamReader, web

from protocols.transport.address import Address
from protocols.transport.http_answer import Answer, size_of
from protocols.transport.http_body import READ_BYTES, read_body
from protocols.transport.sockets import SocketFile, bound, listen
from protocols.wire import HttpAnswer, HttpHandler, HttpRequest
from schemas import Context, ErrorCode, InferenceError

IDLE_SECS = 300.0
"""How long a connection may stay without a complete request head, its first or its next."""

STALL_SECS = 60.0
"""How long a body, or a client that takes its answer, may stand still."""

HALF_CLOSED_SECS = 5.0
"""How long a request goes on whose client has closed its side of a TCP connection: it may only have said that
it sends no more, and read on; but most have gone, and TCP does not tell one from the other before something
is written. A streamed answer ends at the first write that fails; a unix socket tells at once."""

LINGER_SECS = 2.0
"""How long what still comes is thrown away after an early answer. Closing at once would reset the
connection, and most clients would lose the answer that says why."""

_CUT_SECS = 1.0
"""How long a request that was cut may take to notice."""

_MAX_HEAD_FIELD = 1 << 16
"""Longest request line and header: the v1 protocol carries whole requests in one header."""

_log = logging.getLogger(__name__)


class HttpServer:
    """Listens at one address. Start it once, stop it once."""

    def __init__(
        self,
        handler: HttpHandler,
        address: Address,
        *,
        max_response_bytes: int | None = None,
        idle_secs: float = IDLE_SECS,
        stall_secs: float = STALL_SECS,
        half_closed_secs: float = HALF_CLOSED_SECS,
    ) -> None:
        self.address = address
        self._handler = handler
        self._max_response_bytes = max_response_bytes
        self._stall_secs = stall_secs
        self._half_closed_secs = half_closed_secs
        self._options: dict[str, Any] = {
            "keepalive_timeout": idle_secs,
            "lingering_time": LINGER_SECS,
            "access_log": None,
            "auto_decompress": False,
            "read_bufsize": READ_BYTES,
            "max_line_size": _MAX_HEAD_FIELD,
            "max_field_size": _MAX_HEAD_FIELD,
        }
        self._running: set[web.RequestHandler] = set()
        self._stopping = False
        self._idle = asyncio.Event()
        self._listener: asyncio.AbstractServer | None = None
        self._file: SocketFile | None = None

    async def start(self) -> Address:
        """Listen. The bound address, port filled in; ``OSError`` where that cannot be."""
        sock = listen(self.address)
        self.address = bound(sock)
        self._file = SocketFile(self.address)
        self.open()
        loop = asyncio.get_running_loop()
        create = loop.create_unix_server if self.address.path else loop.create_server
        self._listener = await create(self._connection, sock=sock)
        return self.address

    @property
    def at_work(self) -> int:
        """How many requests are not answered yet."""
        return len(self._running)

    def open(self) -> None:
        """Be ready for connections that another server hands over, without an address of one's own."""
        self._server = web.Server(self._exchange, handler_cancellation=True)

    def adopt(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection on which ``data`` has arrived already."""
        connection = self._connection()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)

    async def stop(self, grace_secs: float) -> int:
        """Accept nothing more, let running requests end for ``grace_secs``, then cut the rest.

        How many requests were cut. Answers on the way say ``Connection: close``; idle connections are
        closed at once.
        """
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in self._server.connections:
            if connection not in self._running:
                connection.close()
        for _ in range(3):  # a request that had just arrived takes as many turns of the loop to begin
            await asyncio.sleep(0)
        for connection in self._server.connections:
            if connection not in self._running:
                connection.force_close()
        if self._running:
            self._idle.clear()
            try:
                async with asyncio.timeout(grace_secs):
                    await self._idle.wait()
            except TimeoutError:
                _log.warning("%s: %d requests were cut", self.address, len(self._running))
        cut = len(self._running)
        for connection in self._running:
            if connection.transport is not None:
                connection.transport.abort()  # close would wait for a client that takes nothing
        await self._server.shutdown(_CUT_SECS)
        if self._file is not None:
            self._file.remove()
        return cut

    def _connection(self) -> web.RequestHandler:
        connection = _Connection(self._server, loop=asyncio.get_running_loop(), **self._options)
        connection.half_closed_secs = self._half_closed_secs
        return connection

    async def _exchange(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, up to the answer that aiohttp then asks to be written."""
        connection = request.protocol
        self._running.add(connection)
        asked = _head(request)
        try:
            answer, early = await self._answer(request, asked)
        except BaseException as end:
            self._ended(connection)
            if isinstance(end, asyncio.CancelledError | ConnectionError):
                asked.context.cancel.cancel()
                raise asyncio.CancelledError from end
            raise
        close = self._stopping or (early and not request.content.is_eof())
        return Answer(answer, close, self._stall_secs, partial(self._ended, connection))

    async def _answer(self, request: web.BaseRequest, asked: HttpRequest) -> tuple[HttpAnswer, bool]:
        """The answer, and whether it was given before the body was read."""
        handler = self._handler
        answer = handler.head(asked)
        if answer is not None:
            return answer, True
        try:
            asked.body = await self._body(request, asked.max_body_bytes)
        except InferenceError as error:
            return handler.refuse(asked, error), True
        answer = await handler.serve(asked)
        limit = self._max_response_bytes
        if limit is not None and not isinstance(answer.parts, AsyncIterator):
            size = sum(map(size_of, answer.parts))
            if size > limit:
                return handler.refuse(asked, _too_large("answer", size, "max_response_bytes", limit)), False
        return answer, False

    async def _body(self, request: web.BaseRequest, limit: int | None) -> bytes:
        """The whole body. Raises the ``InferenceError`` to refuse the request with."""
        content = request.content
        if content.is_eof():
            body: bytes = content.read_nowait()
            if limit is not None and len(body) > limit:
                raise _request_too_large(limit, len(body))
            return body
        claimed = request.headers.get("Content-Length")
        if claimed is not None and limit is not None and int(claimed) > limit:
            raise _request_too_large(limit, int(claimed))
        if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= (1, 1):
            transport = request.transport
            if transport is not None:
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection = request.protocol
        if isinstance(connection, _Connection):
            connection.await_body(content)
        try:
            return await read_body(content, limit, partial(_request_too_large, limit), self._stall_secs)
        except TimeoutError as silence:
            raise InferenceError(
                ErrorCode.DEADLINE_EXCEEDED,
                f"no byte of the request body arrived for {self._stall_secs:g} seconds",
            ) from silence
        except web.RequestPayloadError as broken:
            raise InferenceError(ErrorCode.MALFORMED, "the request body is not framed as HTTP") from broken

    def _ended(self, connection: web.RequestHandler) -> None:
        self._running.discard(connection)
        if not self._running:
            self._idle.set()


class _Connection(web.RequestHandler):
    """aiohttp's connection, with our words for what is not HTTP."""

    half_closed_secs = HALF_CLOSED_SECS
    _awaited: StreamReader | None = None
    _latest: StreamReader | None = None
    _giving_up: asyncio.TimerHandle | None = None

    def eof_received(self) -> bool:  # type: ignore[override] # None is the same as False there
        """The client sends no more. Whether the connection stays open for an answer, and no longer."""
        idle = self._waiter is not None and not self._waiter.done()
        if idle or self._latest is None or not self._latest.is_eof() or _has_gone(self.transport):
            return False
        self.close()
        self._giving_up = asyncio.get_running_loop().call_later(self.half_closed_secs, self.force_close)
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        """Nobody is left to answer."""
        if self._giving_up is not None:
            self._giving_up.cancel()
        super().connection_lost(exc)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Go on reading where that was paused; aiohttp asks for it after every read."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def await_body(self, body: StreamReader) -> None:
        """Fail ``body`` as soon as its framing breaks. aiohttp only queues that error behind the
        request, which in turn would wait for the rest of its body."""
        self._awaited = body
        self._look_for_an_error()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        super().data_received(data)
        if self._messages:
            self._latest = self._messages[-1][1]
        if self._awaited is not None:
            self._look_for_an_error()

    def _look_for_an_error(self) -> None:
        # no request can follow a body that has not ended: what was queued is the error
        if self._awaited is not None and not self._awaited.is_eof() and getattr(self, "_messages", None):
            self._awaited.set_exception(web.RequestPayloadError())

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a head that cannot be read (400), or to a fault of the handler (500)."""
        if status >= 500:
            _log.error("unforeseen failure while answering %s", request.path, exc_info=exc)
            message = "internal error; the server's log has the details"
        text = f"{(message or 'not HTTP').strip()}\n".encode()
        answer = HttpAnswer(status, (("content-type", "text/plain; charset=utf-8"),), (text,))
        return Answer(answer, close=True, stall_secs=STALL_SECS, written=_nothing)


def _has_gone(transport: asyncio.BaseTransport | None) -> bool:
    """Whether the client reads no more either, as far as its socket tells."""
    if transport is None:
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _head(request: web.BaseRequest) -> HttpRequest:
    target = request.raw_path
    if target[:1] != "/":  # absolute form, as sent to a proxy
        target = request.rel_url.raw_path_qs
    path, _, query = target.partition("?")
    headers = request.headers
    context = Context(
        traceparent=headers.get("traceparent", ""),
        tracestate=headers.get("tracestate", ""),
        peer=request.remote or "",
        headers=headers,
    )
    return HttpRequest(request.method, path, query, headers, context=context)


def _request_too_large(limit: int | None, size: int) -> InferenceError:
    return _too_large("request body", size, "max_request_bytes", limit)


def _too_large(what: str, size: int, key: str, limit: int | None) -> InferenceError:
    return InferenceError(
        ErrorCode.TOO_LARGE,
        f"the {what} has {size} bytes, more than the {limit} that {key} of this listener allows",
    )


def _nothing() -> None:
    """Answers to what is no request belong to nobody."""
