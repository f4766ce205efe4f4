"""The receiving half of an HTTP/1 connection: the body of a request, as it arrives.

A large body is received in place, and one that an upstream may get while it arrives is answered early.
"""

from __future__ import annotations

import asyncio
import math
from time import monotonic, monotonic_ns

from interlingua.protocols.transport.direct_body import DIRECT_BYTES, DirectBody
from interlingua.protocols.transport.http.engine import (
    Settings,
    broken_body,
    request_too_large,
    slow_body,
    stalled,
)
from interlingua.protocols.transport.http.writer import AnswerWriter
from interlingua.protocols.transport.http1.arriving import STREAMED_BYTES, ArrivingBody
from interlingua.protocols.transport.http1.body import BodyError, SmallChunksError
from interlingua.protocols.transport.http1.headers import RequestHeaders
from interlingua.protocols.transport.http1.reader import ANSWERING, BODY, CLOSED, RequestReader
from interlingua.protocols.transport.load import BodyLoad
from interlingua.protocols.transport.memory import HUGE_PAGE_BYTES, use_small_pages
from interlingua.protocols.transport.sockets import hung_up
from interlingua.protocols.transport.turns import Turn
from interlingua.protocols.wire import HttpAnswer, HttpRequest
from interlingua.schemas import CancelToken, Context, InferenceError

_LOOK_SECS = 0.5
"""How often a client whose body waits is looked for: while it is not read, its reset is not reported."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyReceiver(asyncio.Protocol):
    """A ``BodyOwner`` and a ``BodySource``. ``_expires`` is when the wait for a silent client ends, in
    monotonic time; ``_early`` replaces the handler's answer. A subclass sets what belongs to the socket, and
    has a task that answers."""

    has_context: bool
    _client_name: str | None
    _peer: str
    _transport: asyncio.Transport
    _loop: asyncio.AbstractEventLoop
    _turn: Turn
    _writer: AnswerWriter
    _held: BodyLoad
    _expires: float
    _body_began: float  # in monotonic time, later by the time in which it was not read
    _paused_since: float
    _look: asyncio.TimerHandle | None = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        load, known = settings.load, settings.known
        self._reader = RequestReader(settings.accept_te_with_length, load.allocate, known.find)
        self._request: HttpRequest | None = None
        self._context: Context | None = None  # of the request
        self._early: HttpAnswer | None = None
        self._arriving: ArrivingBody | None = None  # the body of a request that need not be complete
        self._prefix = 0  # how much of that has to be here
        self._direct = False
        self._flooded = False  # the body has too many small chunks

    def _wake(self) -> None:
        """Have the task answer the request."""
        raise NotImplementedError

    def _end(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    def begun_context(self) -> Context:
        """See ``PlannedRequest``."""
        context = self._context
        if context is None:
            fields = self._reader.headers.headers
            # positional arguments: keywords take twice the time
            trace = fields.get("traceparent", ""), fields.get("tracestate", "")
            self._context = context = Context(None, CancelToken(), *trace, self._peer, fields)
            context.identity, context.reports_write = self._client_name, True
            self.has_context = True
        return context

    def check(self, now: float) -> None:
        """End the wait for a client that has been silent too long, or sends too slowly; ``now`` is monotonic
        time."""
        if now < self._expires:
            if self._reader.state is BODY:
                self._check_rate(now)
            return
        if self._reader.state is CLOSED:
            self._transport.abort()
        elif self._request is None:
            self._end()
        else:
            self._fail_body(self._request, stalled(self._settings.timeouts.body_secs))

    def _body_complete(self, request: HttpRequest) -> None:
        """Have ``request`` answered, whose body has arrived in pieces."""
        raise NotImplementedError

    def _begin_body(self, request: HttpRequest, headers: RequestHeaders) -> None:
        """Read what is here of a body that is not complete."""
        length, limit = headers.length, request.max_body_bytes
        if limit is not None and length > limit and self._early is None:
            self._refuse(request, request_too_large(limit, length))
            return
        if length > STREAMED_BYTES and self._early is None:
            prefix = self._settings.handler.prefix(request)
            if prefix is not None and prefix < length:
                self._prefix, self._arriving = prefix, ArrivingBody(length, self._flow, self._loop, 0, self)
                self._reader.read_while_arriving(self._arriving)
        request.context.arrived = monotonic_ns()
        self._body_began = monotonic()
        self._expires = self._body_began + self._settings.timeouts.body_secs
        self._read_body()
        if self._reader.state is not BODY:
            return
        if self._early is not None:
            self._answer_early()
            return
        if headers.expects_continue:  # RFC 9110, 10.1.1
            self._writer.flush()
            self._transport.write(_CONTINUE)
        if self._reader.missing >= DIRECT_BYTES and self._has_space(request):
            self._direct = True
            self._transport.set_protocol(DirectBody(self))

    def body_buffer(self) -> memoryview:
        """See ``BodyOwner``."""
        return self._reader.body_buffer()

    def _has_space(self, request: HttpRequest) -> bool:
        """Whether there is memory for the next bytes; else ``request`` is refused. Where they are received,
        an error would cut the connection."""
        try:
            space = self._reader.body_buffer()
        except MemoryError as fault:
            self._fail_body(request, broken_body(fault))
            return False
        if self._turn.contended and len(space) >= HUGE_PAGE_BYTES:
            use_small_pages(space)
        return True

    def body_received(self, count: int) -> None:
        """See ``BodyOwner``."""
        reader, request = self._reader, self._request
        assert request is not None, "a body has a request"  # noqa: S101
        arriving, held = self._arriving, self._held
        error = held.grow(held.size + count if arriving is None else arriving.held)
        if error is not None:
            self._fail_body(request, error)
            return
        self._expires = monotonic() + self._settings.timeouts.body_secs
        reader.body_filled(count)
        self._turn.received(count)
        if reader.state is not BODY:
            self._end_direct()
            self._expires = math.inf
        elif not self._has_space(request):
            return
        if self._arriving is not None:
            self._serve_early(request, self._arriving)
        elif reader.state is not BODY:
            self._body_complete(request)

    @property
    def transport(self) -> asyncio.Transport:
        """See ``BodySource``."""
        return self._transport

    def lend(self, lent: bool) -> None:
        """See ``BodySource``."""
        if not lent and self._reader.state is BODY and self._request is not None:
            self._has_space(self._request)
        self._turn.lend(lent)

    def body_piped(self, count: int) -> None:
        """See ``BodySource``."""
        request, body = self._request, self._arriving
        if request is None or body is None or self._reader.state is not BODY:
            return  # the connection has ended, and the pipe is about to
        self._expires = monotonic() + self._settings.timeouts.body_secs
        self._reader.body_filled(count)
        if self._reader.state is not BODY:
            self._end_direct()
            self._expires = math.inf
        self._serve_early(request, body)

    def _serve_early(self, request: HttpRequest, body: ArrivingBody) -> None:
        """Have ``request`` answered while its ``body`` arrives, once enough of that is here."""
        if self._reader.state is not BODY:
            request.context.complete = monotonic_ns()
        if request.rest is None and body.size >= self._prefix:
            request.body, request.rest = body.split(self._prefix), body
            self._wake()

    def _flow(self, read: bool) -> None:
        """Go on with a body that is read while it arrives, or wait for its reader."""
        now = monotonic()
        if read:
            self._expires = now + self._settings.timeouts.body_secs
            self._body_began += now - self._paused_since
            self._end_looks()
        else:
            self._expires, self._paused_since = math.inf, now
            self._look = self._loop.call_later(_LOOK_SECS, self._look_for_client)
        self._turn.read(read)

    def _look_for_client(self) -> None:
        """Disconnect a client that is gone while its body waits."""
        if self._transport.is_closing():
            return
        if hung_up(self._transport):
            self._transport.abort()
        else:
            self._look = self._loop.call_later(_LOOK_SECS, self._look_for_client)

    def _end_looks(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _check_rate(self, now: float) -> None:
        """Refuse a body that arrives too slowly, unless it waits for its reader."""
        timeouts, request = self._settings.timeouts, self._request
        if self._expires == math.inf or request is None:
            return
        if timeouts.slow_body(now - self._body_began, self._reader.arrived):
            self._fail_body(request, slow_body(timeouts.min_bytes_per_sec))

    def _stop_body(self, fault: BaseException) -> None:
        """Read no more of a body that is arriving; its reader gets ``fault``."""
        self._end_direct()
        self._reader.refuse()
        self._expires = math.inf
        if self._arriving is not None:
            self._arriving.fail(fault)

    def _lose_body(self) -> None:
        """The connection has ended."""
        self._end_looks()
        if self._arriving is not None:
            self._arriving.end_pipe()

    def _end_direct(self) -> None:
        if self._direct:
            self._direct = False
            self._transport.set_protocol(self)

    def _read_body(self, data: bytes = b"") -> None:
        """Go on with the body."""
        reader, request = self._reader, self._request
        assert request is not None, "a body has a request"  # noqa: S101
        try:
            size = reader.read_body(data)
        except (BodyError, MemoryError) as fault:
            self._flooded = isinstance(fault, SmallChunksError)
            self._fail_body(request, broken_body(fault))
            return
        if reader.state is BODY and reader.pending:
            self._turn.end()
        limit = request.max_body_bytes
        error = self._held.grow(reader.arrived if self._arriving is None else self._arriving.held)
        if limit is not None and size > limit:
            error = request_too_large(limit, size)
        if error is not None and self._early is None:
            if reader.state is BODY:
                self._fail_body(request, error)
                return
            self._early = self._settings.handler.refuse(request, error)
        if reader.state is ANSWERING:
            self._expires = math.inf
        if self._arriving is not None:
            self._serve_early(request, self._arriving)
        elif reader.state is ANSWERING:
            self._body_complete(request)

    def _begin_turn(self) -> None:
        """It is this connection's turn again."""
        if self._reader.state is BODY and self._reader.pending:
            self._read_body()

    def _refuse(self, request: HttpRequest, error: InferenceError) -> None:
        """Answer the request whose body is arriving with ``error``."""
        if self._early is None:
            self._early = self._settings.handler.refuse(request, error)
        self._answer_early()

    def _fail_body(self, request: HttpRequest, error: InferenceError) -> None:
        """Answer ``request`` with ``error``, also if it is served while its body arrives."""
        if request.rest is None:
            self._refuse(request, error)
        else:
            self._early = self._settings.handler.refuse(request, error)
            self._stop_body(error)

    def _answer_early(self) -> None:
        """Answer before the body has arrived, and read no more of it."""
        self._end_direct()
        self._reader.refuse()
        self._expires = math.inf
        self._wake()
