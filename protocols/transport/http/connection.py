"""One HTTP/1 connection: requests in, one at a time and in order, their answers out.

What arrives is cut in the event loop's own calls; a task per connection asks the handler and writes, and
waits between requests. What a client sends ahead of an answer waits, most of it in its own socket.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from typing import cast

from interlingua.protocols.transport.http.engine import (
    FAULT,
    Settings,
    badly_framed,
    request_too_large,
    stalled,
    within,
)
from interlingua.protocols.transport.http.writer import AnswerWriter
from interlingua.protocols.transport.http1.answer import text_answer
from interlingua.protocols.transport.http1.body import BodyError, ChunkedBody, SizedBody
from interlingua.protocols.transport.http1.headers import END, Head, HeadError, HeadScout, parse_head
from interlingua.protocols.transport.listener import ConnectionSet
from interlingua.protocols.transport.sockets import has_gone, send_at_once
from interlingua.protocols.wire import HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import Context, InferenceError

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_KNOWN_BYTES = 1 << 12
"""Longest head that a connection keeps, to know it again."""

_NO_HEAD = Head(b"", "", "", "", 1, {}, False, 0, False)

_log = logging.getLogger(__name__)


class HttpConnection(asyncio.Protocol):
    """One connection. Its request is ``None`` between requests, and ``_body`` is there while that of the
    request arrives."""

    def __init__(self, settings: Settings, connections: ConnectionSet[HttpConnection]) -> None:
        self._connections = connections
        self._settings = settings
        self._head = _NO_HEAD
        self._scout: HeadScout | None = None
        self._ahead = bytearray()  # what has arrived of requests that have not begun
        self._request: HttpRequest | None = None
        self._body: SizedBody | ChunkedBody | None = None
        self._early: HttpAnswer | None = None  # an answer that the handler is not asked for
        self._unread = False  # the answer is given before the body has arrived
        self._answering = False  # a byte of the answer has been written
        self._client_done = False
        self._ended = False
        self._task: asyncio.Task[None] | None = None
        self._waiting: asyncio.Future[None] | None = None  # the task, for a request
        self._reading = True
        self._timer: asyncio.TimerHandle | None = None

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self._writer = AnswerWriter(self._transport, self._settings.stall_secs)
        send_at_once(transport)
        peer = transport.get_extra_info("peername")
        self._peer: str = peer[0] if isinstance(peer, tuple) else ""
        self._connections.open.add(self)
        self._expires = self._loop.time() + self._settings.idle_secs

    def data_received(self, data: bytes) -> None:
        """Begin a request, go on with its body, or keep what comes ahead of its answer."""
        if self._request is None:
            if self._ended:
                return  # thrown away, so that the client gets to its answer
            if self._ahead:
                self._ahead += data
                self._begin_next()
            elif (taken := self._begin(data)) < len(data):
                self._ahead += data[taken:]
        elif self._body is not None:
            self._expires = self._loop.time() + self._settings.stall_secs
            if (taken := self._receive(data, 0)) < len(data):
                self._ahead += data[taken:]
        else:
            self._ahead += data
            if self._reading:
                self._reading = False
                self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The client sends no more. Whether the connection stays open for an answer, and no longer."""
        if self._request is None or self._body is not None or has_gone(self._transport):
            return False
        self._client_done = True
        self._timer = self._loop.call_later(self._settings.half_closed_secs, self._give_up)
        return True

    def pause_writing(self) -> None:
        """The client takes its answer slower than it is written."""
        self._writer.pause()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is left to answer."""
        self._ended = True
        self._connections.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None:
            self._request.context.cancel.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._task is None or self._waiting is not None:
            self._connections.in_flight.discard(self)
        self._connections.changed()

    # what the listener calls

    def check(self, now: float) -> None:
        """Give up a client that has been silent for too long; ``now`` is the loop's time."""
        if now < self._expires:
            return
        if self._ended:
            self._transport.abort()
        elif self._request is None:
            self._end()
        else:
            self._refuse(stalled(self._settings.stall_secs))

    def drain(self) -> None:
        """Close unless a request is at work, or was and its client is still sending."""
        if self._request is None and not self._ended:
            self._transport.close()

    @property
    def unsent(self) -> bool:
        """See ``Accepted``."""
        return self not in self._connections.in_flight and self._transport.get_write_buffer_size() > 0

    def cut(self) -> None:
        """Close the socket now: an orderly close would wait for a client that reads nothing."""
        self._transport.abort()

    abort = cut

    # requests

    def _begin(self, data: bytes | bytearray) -> int:
        """Begin the request that ``data`` begins with: how many bytes of it were taken, none where its head
        is not whole."""
        head, at = self._head, 0
        if not head.raw or not data.startswith(head.raw):  # clients repeat themselves
            try:
                at, found = self._find_head(data)
            except HeadError as error:
                self._decline(str(error))
                return len(data)
            if found is None:
                return at
            self._head = head = found
        self._scout = None
        at += len(head.raw)
        headers = head.headers
        context = Context(
            traceparent=headers.get("traceparent", ""),
            tracestate=headers.get("tracestate", ""),
            peer=self._peer,
            headers=headers,
        )
        self._request = request = HttpRequest(head.method, head.path, head.query, headers, context=context)
        self._expires = math.inf
        self._connections.in_flight.add(self)
        try:
            self._early = self._settings.handler.head(request)
        except Exception:
            self._early = self._fault(request)
        length = head.length
        if 0 <= length <= len(data) - at:
            limit = request.max_body_bytes
            if limit is not None and length > limit and self._early is None:
                self._early = self._settings.handler.refuse(request, request_too_large(limit, length))
            request.body = bytes(data[at : at + length])
            self._wake()
            return at + length
        return self._begin_body(request, data, at)

    def _find_head(self, data: bytes | bytearray) -> tuple[int, Head | None]:
        """Where the head begins, behind empty lines that some clients send, and the head if it is whole.
        Raises ``HeadError``."""
        scout, at = self._scout, 0
        while data.startswith(b"\r\n", at):
            at += 2
        end = data.find(END, at if scout is None else max(at, scout.seen - len(END)))
        if end >= 0:
            return at, parse_head(bytes(data[at : end + len(END)]), self._settings.accept_te_with_length)
        if scout is None:
            if at == len(data):
                return at, None
            self._scout = scout = HeadScout(self._settings.accept_te_with_length)
        scout.look(data)
        return 0, None

    def _begin_body(self, request: HttpRequest, data: bytes | bytearray, at: int) -> int:
        """Take what is there of a body that has not arrived whole, as far as anybody can tell."""
        length, limit = self._head.length, request.max_body_bytes
        self._body = ChunkedBody() if length < 0 else SizedBody(length)
        if limit is not None and length > limit and self._early is None:
            self._refuse(request_too_large(limit, length))
            return len(data)
        taken = self._receive(data, at)
        if self._body is not None:
            if self._early is not None:
                self._answer_early()
            else:
                self._expires = self._loop.time() + self._settings.stall_secs
                if self._head.expects_continue:
                    self._transport.write(_CONTINUE)
        return taken

    def _receive(self, data: bytes | bytearray, at: int) -> int:
        """Go on with the body: up to where ``data`` belongs to it."""
        body, request = self._body, self._request
        assert body is not None and request is not None, "a body has a request"  # noqa: S101, PT018
        try:
            taken = body.feed(data, at)
        except BodyError:
            self._refuse(badly_framed())
            return len(data)
        limit = request.max_body_bytes
        if limit is not None and body.size > limit and self._early is None:
            if not body.complete:
                self._refuse(request_too_large(limit, body.size))
                return len(data)
            self._early = self._settings.handler.refuse(request, request_too_large(limit, body.size))
        if body.complete:
            request.body, self._body, self._expires = body.whole(), None, math.inf
            self._wake()
        return taken

    def _refuse(self, error: InferenceError) -> None:
        """Answer the request that is arriving with ``error``."""
        if self._early is None:
            assert self._request is not None, "there is something to refuse"  # noqa: S101
            self._early = self._settings.handler.refuse(self._request, error)
        self._answer_early()

    def _answer_early(self) -> None:
        """Answer before the body has arrived. What is still to come of it is not read."""
        self._body, self._unread, self._expires = None, True, math.inf
        self._wake()

    def _begin_next(self) -> None:
        """Begin a request with what is there ahead of it."""
        taken = self._begin(self._ahead)
        del self._ahead[:taken]

    def _decline(self, text: str) -> None:
        """Answer what is no request."""
        answer = text_answer(400, text)
        self._unread = True
        self._writer.whole(answer, parts_of(answer), 1, keep_alive=False, bodiless=False)
        self._end()

    # the task

    def _wake(self) -> None:
        """The request is to be answered."""
        if self._task is None:
            self._task = self._loop.create_task(self._work())
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _work(self) -> None:
        """Answer one request after the other."""
        try:
            while not self._ended:
                if self._request is None or self._body is not None:
                    self._waiting = self._loop.create_future()
                    await self._waiting
                    self._waiting = None
                request = self._request
                assert request is not None, "whoever wakes the task has a request for it"  # noqa: S101
                self._go_on(await self._answer(request))
                if self._request is not None:
                    await asyncio.sleep(0)  # many requests at once leave others their turn
        except ConnectionError:
            pass  # the client has gone, and has been told to whoever works for it
        except Exception:
            _log.exception("unexpected error")
        finally:
            if not self._ended:
                self._transport.abort()  # half an answer must not look like a whole one
            self._connections.in_flight.discard(self)
            self._connections.changed()
            self._task = None

    async def _answer(self, request: HttpRequest) -> bool:
        """Answer ``request``. Whether the connection goes on."""
        settings = self._settings
        answer = self._early
        if answer is None:
            try:
                answer = await settings.handler.serve(request)
                if settings.max_response_bytes is not None:
                    answer = within(settings.max_response_bytes, request, answer, settings.handler)
            except Exception:
                answer = self._fault(request)
        self._answering = True
        keep_alive = (
            self._head.keep_alive
            and not self._unread
            and not self._connections.stopping
            and not (self._client_done and not self._ahead)
        )
        parts, minor, bodiless = answer.parts, self._head.minor, request.method == "HEAD"
        if isinstance(parts, AsyncIterator):
            keep_alive = keep_alive and minor > 0
            await self._writer.stream(answer, parts, minor, keep_alive=keep_alive, bodiless=bodiless)
        else:
            self._writer.whole(answer, parts, minor, keep_alive=keep_alive, bodiless=bodiless)
            if self._writer.is_paused:
                await self._writer.drain()
        return keep_alive

    def _go_on(self, keep_alive: bool) -> None:
        """An answer is written: close, or begin the next request if it has arrived."""
        self._connections.in_flight.discard(self)
        self._request = self._early = None
        self._answering = False
        if len(self._head.raw) > _KNOWN_BYTES:
            self._head = _NO_HEAD
        if not keep_alive or self._connections.stopping:
            self._end()
            return
        self._expires = self._loop.time() + self._settings.idle_secs
        if self._ahead:
            self._begin_next()
        if self._request is None or self._body is not None:
            if self._client_done:
                self._end()
            else:
                self._read_on()

    def _fault(self, request: HttpRequest) -> HttpAnswer:
        """The answer where the handler breaks its promise not to raise."""
        _log.exception("unexpected error", extra={"facts": {"path": request.path}})
        self._unread = True
        return text_answer(500, FAULT)

    # the end

    def _end(self) -> None:
        """Close the connection, not before the client has had time to read an answer to what it is still
        sending: to close at once would reset it, and the answer be lost."""
        if self._ended:
            return
        self._ended = True
        unread = self._unread or bool(self._ahead)
        self._ahead.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._expires = self._loop.time() + self._settings.stall_secs
        if not unread or self._client_done or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        self._timer = self._loop.call_later(self._settings.linger_secs, self._transport.close)
        self._read_on()

    def _read_on(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def _give_up(self) -> None:
        """A client that had closed its side has had its time; a write tells whether it is still there."""
        if not self._answering:
            self._transport.close()
