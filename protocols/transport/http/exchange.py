"""A request of HTTP on a stream of HTTP/2, and its answer (RFC 9113, 8.1).

The handler gets the request when its body is complete, or earlier to refuse it or to pass a large one on
while it arrives. A stream that is reset cancels its request, which counts as running until its task is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from time import monotonic_ns
from typing import Protocol

from interlingua.protocols.transport.closing import ended_by
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.h2.http_headers import CONTINUE, HttpHeaders, answer_block
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.transport.http.body_buffer import BodyBuffer
from interlingua.protocols.transport.http.engine import (
    FAULT,
    broken_body,
    request_too_large,
    slow_body,
    stalled,
    within,
)
from interlingua.protocols.transport.http1.answer import BODILESS, flat, text_answer
from interlingua.protocols.transport.http1.arriving import STREAMED_BYTES, ArrivingBody
from interlingua.protocols.transport.listener import LINGER_SECS
from interlingua.protocols.transport.load import SMALL_BYTES, BodyLoad, ListenerLoad
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import (
    NO_PARAMS,
    WHOLE,
    BodyRest,
    Buffer,
    HttpAnswer,
    HttpHandler,
    HttpRequest,
    parts_of,
)
from interlingua.schemas import CancelToken, Context, InferenceError

_COPIED_BYTES = 1 << 14
"""Up to this size a body in one DATA frame is copied out of the received bytes; a larger one is a view."""

_CREDITS = 4
"""In how many parts a client gets a stream's window back, at least."""

_WAITING_BYTES = 1 << 18
"""How much of an answer may be queued before its next part is taken."""

_log = logging.getLogger(__name__)


class ExchangeHost(Protocol):
    """The connection of a request: what its requests share."""

    load: ListenerLoad
    loop: asyncio.AbstractEventLoop
    client: str
    identity: str | None
    max_response_bytes: int | None

    def call_began(self, call: HttpExchange) -> None:
        """Count a request as running."""

    def call_ended(self, call: HttpExchange) -> None:
        """Count it no longer."""


class HttpExchange(Stream):
    """``_early`` replaces the handler's answer. ``_over``: the answer is complete, or no client waits for it.
    ``_reset_at_work``: the connection counts the request among those reset whose task still runs.
    ``_arriving`` is a body of which the handler needs only ``_prefix`` bytes before the rest; ``_behind``: it
    reads that more slowly than the client sends."""

    __slots__ = (
        "_arriving",
        "_behind",
        "_early",
        "_handler",
        "_host",
        "_length",
        "_linger",
        "_over",
        "_prefix",
        "_request",
        "_reset_at_work",
        "_task",
        "_waiter",
        "_working",
        "connection",
        "context",
        "deadline",
        "held",
    )

    def __init__(
        self,
        host: ExchangeHost,
        handler: HttpHandler,
        connection: ServerConnection[HttpHeaders],
        number: int,
        headers: HttpHeaders,
        ended: bool,
    ) -> None:
        super().__init__(number, connection.sender.initial_window, ended)
        self.connection = connection
        self.body_left = self._length = headers.length
        self.deadline: float | None = None  # HTTP has none
        self.held: BodyLoad | None = None
        self._host = host
        self._handler = handler
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._arriving: ArrivingBody | None = None
        self._prefix = 0
        self._working = self._over = self._reset_at_work = self._behind = False
        fields = headers.fields
        trace = fields.get("traceparent", ""), fields.get("tracestate", "")
        self.context = context = Context(None, CancelToken(), *trace, host.client, fields)
        context.identity = host.identity
        context.reports_write = True
        if not ended:
            context.arrived = monotonic_ns()
        self._request = HttpRequest(
            headers.method, headers.path, headers.query, fields, b"", NO_PARAMS, context
        )
        host.call_began(self)
        self._early = headers.refusal or self._head()
        if self._early is not None:
            self._begin()
        elif not ended:
            if headers.expects_continue:  # RFC 9110, 10.1.1
                connection.sender.send_headers(self, CONTINUE)
            if headers.length is not None and headers.length > STREAMED_BYTES:
                self._expect(headers.length)

    # called by the connection

    def data_received(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        """See ``Stream``."""
        if self._arriving is not None:
            self._arrive(self._arriving, memoryview(data)[start:stop])
            return
        if self._task is not None or self._over:
            if ended and self._linger is not None:
                self._end()
            return
        body: BodyBuffer | None = self.sink
        if body is None and ended:  # nearly every body fits one DATA frame
            if self._holds(stop - start):
                view = memoryview(data)[start:stop]
                copied = len(view) <= _COPIED_BYTES or not isinstance(data, bytes)
                self._request.body = bytes(view) if copied else view
                self._begin()
            return
        try:
            if body is None:
                self.sink = body = BodyBuffer(self._length, self._host.load.allocate)
            body.take(memoryview(data)[start:stop])
        except MemoryError as fault:
            self._refuse(broken_body(fault))
            return
        if self._holds(body.filled) and ended:
            self._request.body = body.whole()
            self._begin()

    def count_arrived(self) -> None:
        """See ``Stream``."""
        self._holds(self.sink.filled)

    @property
    def missing(self) -> int:
        """See ``Stream``."""
        return 0 if self._length is None or self.sink is None else self._length - self.sink.filled

    @property
    def arrived(self) -> int:
        """See ``Stream``."""
        return super().arrived if self._arriving is None else self._arriving.size

    def on_reset(self, code: int) -> None:
        """See ``Stream``."""
        self._over = True
        self._end_body()
        self._stop_arriving(asyncio.CancelledError())
        if self._linger is not None:
            self._linger.cancel()
        if self._reset_at_work:
            return
        self._request.context.cancel.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._working:
            self._reset_at_work = True
            self.connection.reset_at_work += 1
        else:
            self._task = None
            self._host.call_ended(self)

    def on_drained(self) -> None:
        """See ``Stream``."""
        if self.half_closed_local:
            self._close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # called by the host

    @property
    def awaits_body(self) -> bool:
        """Whether the client may send the rest of the body."""
        if self._over or self.half_closed_remote:
            return False
        if self._arriving is not None:
            return not (self._arriving.complete or self._behind)
        return self._task is None and not self.window_held

    def end_body(self, slow: bool, timeouts: Timeouts) -> None:
        """The client has stopped sending the body, or sends it too slowly."""
        self._refuse(slow_body(timeouts.min_bytes_per_sec) if slow else stalled(timeouts.body_secs))

    def expire(self) -> None:
        """It has no deadline."""

    def cut(self) -> None:
        """End the request: the server stops."""
        self.connection.cancel(self)

    # the body

    def _head(self) -> HttpAnswer | None:
        """The answer to the headers alone, if there is one."""
        request, handler = self._request, self._handler
        try:
            early = handler.head(request)
        except Exception:
            return self._fault()
        limit, length = request.max_body_bytes, self._length
        if early is None and limit is not None and length is not None and length > limit:
            return handler.refuse(request, request_too_large(limit, length))
        return early

    def _holds(self, size: int) -> bool:
        """Count ``size`` bytes of the body that are here. Whether the request may go on."""
        limit, error = self._request.max_body_bytes, None
        if limit is not None and size > limit:
            error = request_too_large(limit, size)
        elif size > SMALL_BYTES:
            if self.held is None:
                self.held = BodyLoad(self._host.load)
            error = self.held.grow(size)
        if error is not None:
            self._refuse(error)
        return error is None

    def _refuse(self, error: InferenceError) -> None:
        """Answer with ``error``, also a request that is served while its body arrives. What follows of the
        body is thrown away."""
        self._early = self._handler.refuse(self._request, error)
        self._stop_arriving(error)
        if self._task is None:
            self._begin()

    def _expect(self, length: int) -> None:
        """Serve the request while its body arrives, if the handler may."""
        prefix = self._handler.prefix(self._request)
        if prefix is not None and prefix < length:
            self._prefix = prefix
            window, loop = self.connection.stream_window, self._host.loop
            self._arriving = ArrivingBody(length, self._flow, loop, window)

    def _arrive(self, body: ArrivingBody, data: memoryview) -> None:
        """Take more of a body that is served while it arrives."""
        request, held = self._request, self.held
        if (held is None or held.size != body.held) and not self._holds(body.held):
            return
        try:
            body.feed(data, 0)
        except MemoryError as fault:
            self._refuse(broken_body(fault))
            return
        if request.rest is None and self._task is None and body.size >= self._prefix:
            self.window_held = True  # from now on the client gets credit for what is taken
            request.body, request.rest = body.split(self._prefix), body
            self._task = self._host.loop.create_task(self._run())
        elif self.window_held:
            self._return_credit(body)

    def _flow(self, read: bool) -> None:
        """The handler keeps up with the client again, or no more."""
        self._behind = not read
        if read and self._arriving is not None:
            self._return_credit(self._arriving)

    def _return_credit(self, body: ArrivingBody) -> None:
        """Let the client send as much again as was taken of ``body``, if that is worth a frame."""
        assert self._length is not None and self.body_left is not None, "it has a length"  # noqa: S101, PT018
        unconsumed = self._length - self.body_left - body.taken  # data of the frame under way are to come
        if self.received - unconsumed >= self.connection.stream_window // _CREDITS:
            self.connection.replenish(self, unconsumed)

    def _stop_arriving(self, fault: BaseException) -> None:
        """Take no more of the body; its reader gets ``fault``, unless the body is complete."""
        if self._arriving is not None:
            self._arriving.fail(fault)
            self._arriving, self.window_held = None, False
            self.connection.replenish(self)

    def _end_body(self) -> None:
        self.sink = None
        if self.loan or self.window_held:
            self.connection.message_ended(self)

    # the task

    def _begin(self) -> None:
        """Have the request answered."""
        self._end_body()
        self._task = self._host.loop.create_task(self._run())

    async def _run(self) -> None:
        self._working = True
        try:
            answer = await self._answer()
            if self._over:  # the client is gone, and the handler has not noticed
                raise ConnectionResetError
            await self._send(answer)
        except (ConnectionError, InferenceError):
            self._break_off()
        except Exception:
            _log.exception("unexpected error", extra={"facts": {"path": self._request.path}})
            self._break_off()
        finally:
            self._stop_arriving(asyncio.CancelledError())  # the answer came early
            self._done()

    async def _answer(self) -> HttpAnswer:
        early = self._early
        if early is not None:
            return early
        request, handler = self._request, self._handler
        try:
            answer = await handler.serve(request)
            if self._early is not None:  # the body has stopped arriving
                if answer.rest is not None:
                    answer.rest.close()
                return self._early
            return within(self._host.max_response_bytes, request, answer, handler)
        except Exception:
            return self._fault()

    def _fault(self) -> HttpAnswer:
        """The answer if the handler raises, which it must not."""
        _log.exception("unexpected error", extra={"facts": {"path": self._request.path}})
        return text_answer(500, FAULT)

    async def _send(self, answer: HttpAnswer) -> None:
        """Send the answer. Raises what its parts raise."""
        sender, parts, rest = self.connection.sender, answer.parts, answer.rest
        self._request = self._request.without_body()
        bodiless = self._request.method == "HEAD" or answer.status in BODILESS
        if rest is not None:
            try:
                sender.send_headers(self, answer_block(answer, answer.size + rest.length))
                await self._send_parts(parts_of(answer))
                await self._send_all(rest)
            finally:
                rest.close()
        elif not isinstance(parts, WHOLE) and isinstance(parts, AsyncIterator):
            await ended_by(self._send_stream(answer, parts, bodiless), getattr(parts, "aclose", None))
        else:
            size = answer.size
            block = answer_block(answer, None if answer.status in BODILESS else size)
            if bodiless or not size:
                sender.send_end(self, block)
            else:
                sender.send_whole(self, block, _lasting(parts), size)
        if self.half_closed_local:
            self._close()

    async def _send_stream(self, answer: HttpAnswer, parts: AsyncIterator[Buffer], bodiless: bool) -> None:
        if bodiless:
            self.connection.sender.send_end(self, answer_block(answer))
        else:
            self.connection.sender.send_headers(self, answer_block(answer))
            await self._send_all(parts)

    async def _send_all(self, parts: AsyncIterator[Buffer] | BodyRest) -> None:
        """Send ``parts`` as they come, and end the answer."""
        async for part in parts:
            await self._send_parts((part,))
        self.connection.sender.send(self, (), ended=True)

    async def _send_parts(self, parts: Sequence[Buffer]) -> None:
        self.connection.sender.send(self, _lasting(parts))
        if self.queued > _WAITING_BYTES:
            self._waiter = self._host.loop.create_future()
            await self._waiter

    def _break_off(self) -> None:
        """Half an answer must not look complete (RFC 9113, 8.1)."""
        if not self.closed:
            self.connection.sender.reset(self, Code.INTERNAL_ERROR)

    def _close(self) -> None:
        """The answer is sent. What a client still sends is thrown away for a while, as over HTTP/1: some lose
        the answer to the RST_STREAM that would stop them (RFC 9113, 8.1)."""
        self._over = True
        if self.closed or self._linger is not None:
            return
        if self.half_closed_remote:
            self._end()
        else:
            self._linger = self._host.loop.call_later(LINGER_SECS, self._end)
            if not self._working:
                self._host.call_ended(self)

    def _end(self) -> None:
        """Close the stream."""
        if self._linger is not None:
            self._linger.cancel()
        if not self.closed:
            self.connection.sender.close(self)
        if not self._working:
            self._host.call_ended(self)

    def _done(self) -> None:
        """The task is done."""
        # if it was cancelled it refers to its frames: a cycle would keep the memory of the body
        self._task = None
        self._working = False
        if self._reset_at_work:
            self.connection.reset_at_work -= 1
        if self.half_closed_local:
            self._host.call_ended(self)


def _lasting(parts: Iterable[Buffer]) -> list[Buffer]:
    """``parts``, with copies of those that may change while they are queued."""
    lasting: list[Buffer] = []
    for part in map(flat, parts):
        keeps = isinstance(part, bytes) or (isinstance(part, memoryview) and part.readonly)
        lasting.append(part if keeps else bytes(part))
    return lasting
