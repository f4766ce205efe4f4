"""One HTTP/1 connection: the ``asyncio.Protocol`` around a ``RequestReader``.

Input is read in the event loop's callbacks; one task per connection calls the handler and writes the answers,
in order. Reading pauses while a request is answered, so pipelined requests wait in the socket. A handler may
get a request while its body is arriving.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from time import monotonic
from typing import cast

from interlingua.protocols.plans import DONE, PlanExecution, Plans
from interlingua.protocols.transport.certificates import client_identity
from interlingua.protocols.transport.h2.frames import PREFACE
from interlingua.protocols.transport.hand_over import hand_over
from interlingua.protocols.transport.http.engine import (
    FAULT,
    Settings,
    declined,
    request_too_large,
    within,
)
from interlingua.protocols.transport.http.receiving import BodyReceiver
from interlingua.protocols.transport.http.writer import AnswerWriter
from interlingua.protocols.transport.http1.answer import text_answer
from interlingua.protocols.transport.http1.headers import HeadersError, RequestHeaders
from interlingua.protocols.transport.http1.reader import ANSWERING, BODY, CLOSED, IDLE, UNREAD
from interlingua.protocols.transport.listener import ConnectionSet
from interlingua.protocols.transport.load import SMALL_BYTES, BodyLoad
from interlingua.protocols.transport.sockets import client_host, half_closes, has_gone, send_at_once
from interlingua.protocols.transport.turns import COUNTED_BYTES, Turn, turns_of
from interlingua.protocols.wire import NO_PARAMS, Buffer, HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import InferenceError

_COMPLETE = (ANSWERING, UNREAD)
"""In these states the task has a request to answer."""

_log = logging.getLogger(__name__)


class HttpConnection(BodyReceiver):
    """``_expires`` is when :meth:`check` acts on a silent client, in monotonic time. ``http2`` makes the
    protocol of a connection that speaks HTTP/2."""

    def __init__(
        self,
        settings: Settings,
        connections: ConnectionSet[HttpConnection],
        http2: Callable[[], asyncio.BaseProtocol] | None = None,
    ) -> None:
        super().__init__(settings)
        self._http2 = http2
        self._connections = connections
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None  # the task waits on it for a request
        self._timer: asyncio.TimerHandle | None = None
        self._ready = False  # the task has a request to answer
        self._execution: PlanExecution | None = None  # of a plan, instead of the task
        self._resumed: PlanExecution | None = None  # the task goes on with it
        self._written: bool | None = None  # its answer is; whether the connection persists
        self._answering = self._half_closed = False

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self._turn = Turn(self._loop, self._transport, self._begin_turn)
        self._writer = AnswerWriter(self._transport, self._settings.timeouts)
        send_at_once(transport)
        self._peer = client_host(transport)
        self._client_name = client_identity(transport)
        self.has_context = self._client_name is not None
        settings = self._settings
        self._plans: Plans | None = getattr(settings.handler, "plans", None)
        self._held = BodyLoad(settings.load)
        self._connections.add(self, transport)
        self._idle_secs = settings.timeouts.idle()
        self._expires = monotonic() + self._idle_secs

    def data_received(self, data: bytes) -> None:
        """Read headers or a body, or keep what precedes the answer."""
        reader = self._reader
        state = reader.state
        if state is IDLE:
            body = reader.read_whole(data)
            if body is None:
                self._begin(data)
            elif not self._follows_plan(reader.headers, body, True):
                self._serve(reader.headers)
        elif state is BODY:
            self._expires = monotonic() + self._settings.timeouts.body_secs
            self._read_body(data)
        elif state is not CLOSED:  # then it is thrown away, so that the client gets to its answer
            reader.receive(data)
            self._turn.read(False)
        if len(data) > COUNTED_BYTES:
            self._turn.received(len(data))

    def eof_received(self) -> bool:
        """The client has closed its side. Whether the connection stays open, for an answer and no longer."""
        self._writer.flush()
        if self._reader.state not in _COMPLETE or has_gone(self._transport):
            return False
        self._half_closed = True
        self._timer = self._loop.call_later(self._settings.half_closed_secs, self._give_up)
        return True

    def pause_writing(self) -> None:
        """The client reads its answer too slowly."""
        self._writer.pause()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request."""
        if self._execution is not None:
            self.resume(self._execution)
        if self._resumed is not None and self._ready:
            self._abandon()
        self._reader.close()
        if self._timer is not None:
            self._timer.cancel()
        self._lose_body()
        if self._request is not None:
            self._request.context.cancel.cancel()
            self._request = None
        if self._task is not None:
            self._task.cancel()
        # a task that is cancelled before it begins never ends the request
        if self._task is None or self._ready or self._idle is not None:
            self._task = None
            self._connections.in_flight.discard(self)
        self._held.release()
        self._connections.remove(self, self._transport)

    # called by its connection set

    def drain(self) -> None:
        """Close if idle; else the next answer does."""
        # asyncio's transports of TLS break at a second close
        if self._reader.state is IDLE and not self._transport.is_closing():
            self._writer.flush()
            self._transport.close()

    @property
    def unsent(self) -> bool:
        """See ``Accepted``."""
        if self in self._connections.in_flight:
            return False
        return bool(self._writer.held) or self._transport.get_write_buffer_size() > 0

    def cut(self) -> None:
        """Close the socket now: an orderly close would wait for a client that reads nothing."""
        self._writer.flush()
        self._transport.abort()

    def abort(self) -> None:
        """See ``Accepted``."""
        self.cut()

    # requests

    def _begin(self, data: bytes = b"") -> None:
        """Begin the next request, if its headers are complete."""
        reader = self._reader
        first = not reader.headers.raw
        try:
            headers = reader.read_headers(data)
        except HeadersError as error:
            self._decline(error)
            return
        if headers is None:
            if reader.pending:  # the first part counts: the headers may come in drips
                self._expires = min(self._expires, monotonic() + self._settings.timeouts.header_secs)
            return
        if first:
            self._settings.known.add(headers)
        # pipelined requests give other connections their turn
        if reader.state is not ANSWERING or not self._follows_plan(headers, reader.body, not reader.pending):
            self._serve(headers)

    def _serve(self, headers: RequestHeaders) -> None:
        """Have the task answer the request with these ``headers``, once its body is here."""
        reader, settings, fields = self._reader, self._settings, headers.headers
        context = self.begun_context()
        context.reports_write = False  # a request that its head refuses has no write of its own
        self._request = request = HttpRequest(
            headers.method, headers.path, headers.query, fields, b"", NO_PARAMS, context
        )
        self._expires = math.inf
        self._connections.in_flight.add(self)
        try:
            self._early = settings.handler.head(request)
        except Exception:
            self._early = self._fault(request)
        if reader.state is BODY:
            self._begin_body(request, headers)
            return
        limit, length = request.max_body_bytes, headers.length
        if limit is not None and length > limit and self._early is None:
            self._early = settings.handler.refuse(request, request_too_large(limit, length))
        elif length > SMALL_BYTES and self._early is None and (excess := self._held.grow(length)) is not None:
            self._early = settings.handler.refuse(request, excess)
        self._complete(request)

    def _complete(self, request: HttpRequest) -> None:
        """Have the task answer ``request``, whose body is here."""
        request.body, self._reader.body = self._reader.body, b""
        self._wake()

    # plans

    def _follows_plan(self, headers: RequestHeaders, body: Buffer, answerable: bool) -> bool:
        """Whether a plan has the request, whose ``body`` is here."""
        length = headers.length
        # a response to HEAD has no body (RFC 9110, 9.3.2)
        if self._plans is None or not (headers.keep_alive and headers.minor) or headers.method == "HEAD":
            return False
        if length > SMALL_BYTES and not self._held.fits(length):
            return False
        execution = self._plans.execute(headers, body, self, answerable)
        if execution is None:
            return False
        if execution is not DONE:
            if length > SMALL_BYTES:
                self._held.grow(length)
            self._execution, self._expires = execution, math.inf
            self._connections.in_flight.add(self)
        return True

    def _body_complete(self, request: HttpRequest) -> None:
        """See ``BodyReceiver``."""
        reader = self._reader
        if self._early is not None or not self._follows_plan(reader.headers, reader.body, not reader.pending):
            self._complete(request)

    def respond(self, response: HttpAnswer) -> None:
        """See ``PlannedRequest``."""
        self._execution = None
        connections, writer, context = self._connections, self._writer, self._context
        keep_alive = not (connections.stopping or (self._half_closed and not self._reader.pending))
        # not by those in flight: a request that is answered in this callback never is
        hold = keep_alive and len(connections.open) > 1
        try:
            whole = writer.whole(response, response.parts, 1, keep_alive, False, hold)  # type: ignore[arg-type]
            if whole and not writer.paused:
                if context is not None and context.written is not None:
                    context.write_ended()
                self._go_on(keep_alive)
            else:  # the task waits until the client has read most of it, or writes a large one
                self._resume()
                self._early, self._written = response, keep_alive if whole else None
        except ConnectionError:
            self.cut()  # the client disconnected
        except Exception:
            _log.exception("unexpected error")
            self.cut()

    def resume(self, execution: PlanExecution) -> None:
        """See ``PlannedRequest``."""
        self._resumed, self._execution = execution, None
        self._resume()

    def _resume(self) -> None:
        """Have the task go on with the request."""
        if self._request is None:
            self._serve(self._reader.headers)
        else:  # its body has arrived in pieces
            self._complete(self._request)

    def _abandon(self) -> None:
        """The client of a request with a plan is gone, and the task has not begun to serve it."""
        execution, request, self._resumed, self._request = self._resumed, self._request, None, None
        if execution is not None and request is not None:
            request.context.cancel.cancel()
            execution.abandon(request)

    def _decline(self, error: HeadersError) -> None:
        """Answer input that is no request; the preface of HTTP/2 is for ``http2`` (RFC 9113, 3.3)."""
        first = self._reader.first_bytes
        if self._http2 is not None and first[:3] == b"PRI" and PREFACE.startswith(first[: len(PREFACE)]):
            self._reader.close()
            self._connections.remove(self, self._transport)
            hand_over(self._transport, self._http2(), first)
            return
        answer = declined(self._settings, error.status, str(error), self._peer, len(first))
        self._reader.refuse()
        self._writer.whole(answer, parts_of(answer), 1, False, False)
        self._end()

    # the task

    def _wake(self) -> None:
        """Have the task answer the request."""
        self._ready = True
        if self._task is None:
            self._task = self._loop.create_task(self._work())
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _work(self) -> None:
        """Answer one request after another."""
        reader = self._reader
        try:
            while reader.state is not CLOSED:
                if not self._ready:
                    self._idle = self._loop.create_future()
                    await self._idle
                    self._idle = None
                self._ready = False
                assert self._request is not None, "the task is woken for a request"  # noqa: S101
                context = self._request.context
                context.reports_write = True
                try:
                    keep_alive = await self._answer(self._request)
                finally:
                    context.reports_write = False
                    if context.written is not None:
                        context.write_ended()
                self._go_on(keep_alive)
                if self._request is not None:
                    # many pipelined requests give other connections and threads their turn
                    await asyncio.sleep(0)
                    turns_of(self._loop).yield_to_threads()
        except (ConnectionError, InferenceError):
            pass  # the client disconnected, and the request is cancelled; or an answer broke off
        except Exception:
            _log.exception("unexpected error")
        finally:
            if reader.state is not CLOSED:
                self.cut()  # half an answer must not look complete (RFC 9112, 8)
            self._connections.in_flight.discard(self)
            self._connections.changed()
            self._task = None

    async def _answer(self, request: HttpRequest) -> bool:
        """Answer ``request``. Returns whether the connection persists."""
        settings, reader = self._settings, self._reader
        if self._written is not None:
            self._answering = True
            await self._writer.drain()
            return self._written
        answer = self._early
        if answer is None:
            try:
                serve = settings.handler.serve if self._resumed is None else self._resumed.serve
                answer = await serve(request)
                if self._early is not None:  # the body has stopped arriving
                    if answer.rest is not None:
                        answer.rest.close()
                    answer = self._early
                elif (limit := settings.max_response_bytes) is not None and (
                    answer.rest is not None or answer.size > limit
                ):
                    answer = within(limit, request, answer, settings.handler)
            except Exception:
                answer = self._fault(request)
        self._answering = True
        headers = reader.headers
        keep_alive = (
            headers.keep_alive
            and reader.state is ANSWERING
            and not self._connections.stopping
            and not (self._half_closed and not reader.pending)
        )
        # a connection without others in flight waits for none
        hold = keep_alive and len(self._connections.in_flight) > 1
        if self._request is request:  # else the client is gone
            self._request = request = request.without_body()
        return await self._writer.write(answer, headers.minor, keep_alive, request.method == "HEAD", hold)

    def _go_on(self, keep_alive: bool) -> None:
        """The answer is written: close, or begin the next request if it has arrived."""
        connections, reader = self._connections, self._reader
        connections.in_flight.discard(self)
        if self._held.size:
            self._held.release()
        if self._context is not None:
            self._context, self.has_context = None, self._client_name is not None
        if self._request is not None or self._resumed is not None:
            self._forget_request()
        if not keep_alive or connections.stopping or reader.state is not ANSWERING:
            self._end()
            return
        self._expires = monotonic() + self._idle_secs
        if reader.answered():
            self._begin()
        if reader.state not in _COMPLETE:
            if self._half_closed:
                self._end()
            elif not self._turn.reading:
                self._turn.read(True)

    def _forget_request(self) -> None:
        """The request, which was more than that of a plan, is answered."""
        if self._arriving is not None:
            if self._reader.state is BODY:  # the answer came early (RFC 9112, 9.6)
                self._stop_body(asyncio.CancelledError())
            self._arriving = None
        self._request = self._early = self._written = None
        self._answering = False
        if (execution := self._resumed) is not None:
            self._resumed = None
            execution.close()

    def _fault(self, request: HttpRequest) -> HttpAnswer:
        """The answer if the handler raises, which it must not. The connection ends with it."""
        _log.exception("unexpected error", extra={"facts": {"path": request.path}})
        if self._reader.state is not CLOSED:
            self._end_direct()
            self._reader.refuse()
        return text_answer(500, FAULT)

    # the end

    def _end(self) -> None:
        """Close the connection; first let a client that is still sending read its answer, which an immediate
        close would reset (RFC 9112, 9.6). What a flood sends meanwhile stays in the socket."""
        reader = self._reader
        if reader.state is CLOSED:
            return
        unread = reader.state is UNREAD or reader.pending
        reader.close()
        self._writer.flush()
        if self._timer is not None:
            self._timer.cancel()
        self._expires = monotonic() + self._settings.timeouts.write_secs
        if not unread or self._half_closed or not half_closes(self._transport):
            self._transport.close()
            return
        self._transport.write_eof()
        self._timer = self._loop.call_later(self._settings.linger_secs, self._transport.close)
        self._turn.read(not self._flooded)

    def _give_up(self) -> None:
        """The time of a half-closed client is over. Only a write would show whether it still reads."""
        if not self._answering:
            self._transport.close()
