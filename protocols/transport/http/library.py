"""aiohttp's low-level server as the engine of an HTTP listener: a second opinion to our own.

Answers are written by hand: aiohttp's own response classes build a header mapping, guess a content type and
add Server and Date.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter

from interlingua.protocols.transport.http.body import READ_BYTES, read_body
from interlingua.protocols.transport.http.engine import (
    FAULT,
    Settings,
    badly_framed,
    request_too_large,
    stalled,
    within,
)
from interlingua.protocols.transport.http1.answer import (
    BODILESS,
    flat,
    head_of,
    size_of,
    text_answer,
)
from interlingua.protocols.transport.http1.headers import MAX_FIELD_BYTES
from interlingua.protocols.transport.listener import CUT_SECS
from interlingua.protocols.transport.load import BodyLoad, ListenerLoad
from interlingua.protocols.transport.sockets import has_gone
from interlingua.protocols.transport.stall import StallWatch
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Timeouts
from interlingua.protocols.transport.turns import TURN_CHUNKS, Turn, turns_of
from interlingua.protocols.transport.writes import JOINED_BYTES, batches, write_pieces
from interlingua.protocols.wire import Buffer, HttpAnswer, HttpRequest
from interlingua.schemas import Context, InferenceError

_NO_TRAILERS = b"\r\n0\r\n\r\n"
"""The end of a chunked body without trailers. A trailer section ends otherwise: its last line has a colon."""

_PIECE_BYTES = 1 << 10
"""How much of what may be many chunks is parsed in one turn: some 170 chunks of one byte."""

_log = logging.getLogger(__name__)


class LibraryEngine:
    """An ``Engine``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._options: dict[str, Any] = {
            "keepalive_timeout": settings.timeouts.idle(),
            "lingering_time": settings.linger_secs,
            "access_log": None,
            "auto_decompress": False,
            "read_bufsize": READ_BYTES,
            "max_line_size": MAX_FIELD_BYTES,
            "max_field_size": MAX_FIELD_BYTES,
        }
        self._running: set[web.RequestHandler] = set()
        self._stopping = False
        self._idle = asyncio.Event()
        self._server = web.Server(self._exchange, handler_cancellation=True)

    @property
    def at_work(self) -> int:
        """The number of requests in flight."""
        return len(self._running)

    def connection(self) -> web.RequestHandler:
        """The protocol of a new connection."""
        connection = _Connection(self._server, loop=asyncio.get_running_loop(), **self._options)
        connection.half_closed_secs = self._settings.half_closed_secs
        connection.load = self._settings.load
        connection.held = BodyLoad(self._settings.load)
        return connection

    def retire(self) -> None:
        """See ``Engine``."""
        self._stopping = True

    async def stop(self, grace_secs: float) -> int:
        """Close idle connections, let running requests end for ``grace_secs``, cut the rest: how many these
        were."""
        self._stopping = True
        await _turns(2)
        for connection in self._server.connections:
            if connection not in self._running:
                connection.close()
        await _turns(3)  # as many as a request that has just arrived takes to begin
        for connection in self._server.connections:
            if connection not in self._running:
                connection.force_close()
        if self._running:
            self._idle.clear()
            try:
                async with asyncio.timeout(grace_secs):
                    await self._idle.wait()
            except TimeoutError:
                pass
        cut = len(self._running)
        for connection in self._running:
            if connection.transport is not None:
                connection.transport.abort()  # close would wait for a client that takes nothing
        await self._server.shutdown(CUT_SECS)
        return cut

    async def _exchange(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request, up to the answer that aiohttp then writes."""
        connection = request.protocol
        assert isinstance(connection, _Connection)  # noqa: S101
        self._running.add(connection)
        if connection.pipelined:
            turns_of(asyncio.get_running_loop()).yield_to_threads()
        head = _head(request)
        try:
            answer, early = await self._answer(request, head)
        except BaseException as end:
            self._ended(connection)
            if isinstance(end, asyncio.CancelledError | ConnectionError):
                head.context.cancel.cancel()
                raise asyncio.CancelledError from end
            raise
        close = (
            self._stopping
            or connection.may_leak_trailers(request)
            or (early and not request.content.is_eof())
        )
        return _Answer(answer, close, self._settings.timeouts, partial(self._ended, connection))

    async def _answer(self, request: web.BaseRequest, head: HttpRequest) -> tuple[HttpAnswer, bool]:
        """The answer, and whether it was given before the body was read."""
        handler = self._settings.handler
        answer = handler.head(head)
        if answer is not None:
            return answer, True
        try:
            head.body = await self._body(request, head.max_body_bytes)
        except InferenceError as error:
            return handler.refuse(head, error), True
        answer = await handler.serve(head)
        return within(self._settings.max_response_bytes, head, answer, handler), False

    async def _body(self, request: web.BaseRequest, limit: int | None) -> bytes:
        """The whole body. Raises the ``InferenceError`` to refuse the request with."""
        content, timeouts = request.content, self._settings.timeouts
        connection = request.protocol
        assert isinstance(connection, _Connection)  # noqa: S101
        if content.is_eof():
            body: bytes = content.read_nowait()
            if limit is not None and len(body) > limit:
                raise request_too_large(limit, len(body))
            if (overloaded := connection.held.grow(len(body))) is not None:
                raise overloaded
            return body
        claimed = request.headers.get("Content-Length")
        if claimed is not None and limit is not None and int(claimed) > limit:
            raise request_too_large(limit, int(claimed))
        if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= (1, 1):
            transport = request.transport
            if transport is not None:
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.await_body(content)
        try:
            too_large = partial(request_too_large, limit)
            return await read_body(content, limit, too_large, timeouts, connection.held)
        except TimeoutError as silence:
            raise stalled(timeouts.body_secs) from silence
        except web.RequestPayloadError as broken:
            raise badly_framed() from broken

    def _ended(self, connection: _Connection) -> None:
        connection.held.release()
        self._running.discard(connection)
        if not self._running:
            self._idle.set()


class _Connection(web.RequestHandler):
    """aiohttp's connection, with our answers to malformed input."""

    half_closed_secs: float
    load: ListenerLoad
    held: BodyLoad
    _paced: _Paced
    _waiting: memoryview | None = None
    _admitted: asyncio.BaseTransport | None = None
    _tail = b""
    _awaited: StreamReader | None = None
    _latest: StreamReader | None = None
    _giving_up: asyncio.TimerHandle | None = None

    def eof_received(self) -> bool:  # type: ignore[override] # None is the same as False there
        """The client has closed its side. Whether the connection stays open, for an answer and no longer."""
        idle = self._waiter is not None and not self._waiter.done()
        if idle or self._latest is None or not self._latest.is_eof() or has_gone(self.transport):
            return False
        self.close()
        self._giving_up = asyncio.get_running_loop().call_later(self.half_closed_secs, self.force_close)
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._paced = _Paced(cast(asyncio.Transport, transport), self._go_on)
        super().connection_made(cast(asyncio.Transport, self._paced))
        if self.load.admit(transport):
            self._admitted = transport

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the timer."""
        if self._admitted is not None:
            self.load.release(self._admitted)
        self._waiting = None
        if self._giving_up is not None:
            self._giving_up.cancel()
        super().connection_lost(exc)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume paused reading; aiohttp calls this after every read."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    @property
    def pipelined(self) -> bool:
        """Whether another request has arrived behind this one."""
        return bool(self._messages)

    def may_leak_trailers(self, request: web.BaseRequest) -> bool:
        """Whether ``request`` may have trailers (RFC 9112, 7.1.2). aiohttp 3.14 adds them to the headers of
        the next request on the connection, which must not follow."""
        chunked = "chunked" in request.headers.get("Transfer-Encoding", "").lower()
        return chunked and (self._latest is not request.content or self._tail != _NO_TRAILERS)

    def await_body(self, body: StreamReader) -> None:
        """Fail ``body`` as soon as its framing breaks. aiohttp only queues that error behind the
        request, which in turn would wait for the rest of its body."""
        self._awaited = body
        self._look_for_an_error()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, as much in one turn as a connection may."""
        self._paced.turn.received(len(data))
        if len(data) > _PIECE_BYTES and data.count(b"\r\n") > TURN_CHUNKS:
            # reading pauses until the last piece
            self._waiting = memoryview(data)
            self._go_on()
        else:
            self._parse(data)

    def _go_on(self) -> None:
        if self._waiting is None:
            return
        piece, rest = self._waiting[:_PIECE_BYTES], self._waiting[_PIECE_BYTES:]
        self._waiting = rest or None
        if rest:
            self._paced.turn.end()
        self._parse(bytes(piece))

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        self._tail = (self._tail + data[-len(_NO_TRAILERS) :])[-len(_NO_TRAILERS) :]
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
            _log.error("unexpected error", exc_info=exc, extra={"facts": {"path": request.path}})
            message = FAULT
        answer = text_answer(status, (message or "not HTTP").strip())
        return _Answer(answer, close=True, timeouts=DEFAULT_TIMEOUTS, written=_nothing)


class _Paced:
    """``transport`` for aiohttp, which reads while aiohttp wants input and the connection has its turn."""

    def __init__(self, transport: asyncio.Transport, go_on: Callable[[], None]) -> None:
        self._transport = transport
        self.turn = Turn(asyncio.get_running_loop(), transport, go_on)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self.turn.read(False)

    def resume_reading(self) -> None:
        self.turn.read(True)


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


class _Answer(web.StreamResponse):
    """An answer as aiohttp wants it: ``prepare`` writes all of it.

    ``close`` ends the connection afterwards; ``written`` is called once, whatever happens.
    """

    def __init__(
        self, answer: HttpAnswer, close: bool, timeouts: Timeouts, written: Callable[[], None]
    ) -> None:
        super().__init__(status=answer.status)
        self._answer = answer
        self._close = close
        self._timeouts = timeouts
        self._written = written

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write head and body. Raises ``ConnectionError`` where the client is gone."""
        try:
            parts = self._answer.parts
            if isinstance(parts, AsyncIterator):
                await self._stream(request, parts)
            else:
                await self._whole(request, parts)
        finally:
            self._written()
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write after ``prepare``."""

    async def _whole(self, request: web.BaseRequest, parts: Sequence[Buffer]) -> None:
        size = self._answer.size
        bodiless = self._answer.status in BODILESS
        head = self._head(request, "" if bodiless else f"content-length: {size}\r\n")
        transport = _transport(request)
        if bodiless or request.method == "HEAD":
            transport.write(head)
        elif size <= JOINED_BYTES:
            transport.write(b"".join((head, *parts)) if size else head)
        else:
            await self._large(request, (head, *map(flat, parts)))

    async def _large(self, request: web.BaseRequest, pieces: Sequence[Buffer]) -> None:
        transport = _transport(request)
        try:
            for batch, size in batches(pieces):
                write_pieces(_transport(request), batch, size)
                await self._drain(request)
                await asyncio.sleep(0)  # others have their turn, even if the client has taken everything
        except BaseException:
            transport.abort()  # nothing may follow half an answer
            raise

    async def _stream(self, request: web.BaseRequest, parts: AsyncIterator[Buffer]) -> None:
        chunked = request.version >= (1, 1)
        if not chunked:  # HTTP/1.0 knows no chunks: the end of the connection is the end of the body
            self._close = True
        transport = _transport(request)
        transport.write(self._head(request, "transfer-encoding: chunked\r\n" if chunked else ""))
        try:
            if request.method != "HEAD":
                async for part in parts:
                    if size := size_of(part):
                        # not writelines: asyncio's forgets to pause before Python 3.12.9 and 3.13.2
                        transport = _transport(request)
                        if chunked:
                            transport.write(b"%x\r\n" % size)
                        transport.write(flat(part))
                        if chunked:
                            transport.write(b"\r\n")
                        await self._drain(request)
                if chunked:
                    _transport(request).write(b"0\r\n\r\n")
        except BaseException:
            # half an answer must not look like a whole one
            transport.abort()
            raise
        finally:
            if (close := getattr(parts, "aclose", None)) is not None:
                await close()

    def _head(self, request: web.BaseRequest, framing: str) -> bytes:
        answer = self._answer
        self._keep_alive = request.keep_alive and not self._close
        return head_of(answer.status, answer.headers, framing, request.version.minor, self._keep_alive)

    async def _drain(self, request: web.BaseRequest) -> None:
        """Wait until the client has taken most of it."""
        transport = _transport(request)
        if transport.get_write_buffer_size():
            watch = StallWatch(transport, self._timeouts)
            watch.start()
            try:
                await request.writer.drain()
            finally:
                watch.cancel()


async def _turns(count: int) -> None:
    """Give the event loop ``count`` turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def _transport(request: web.BaseRequest) -> asyncio.Transport:
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client closed the connection")
    return transport


def _nothing() -> None:
    """For answers to malformed input, which belong to no request."""
