"""A listener for a ``FramedHandler``: connections that carry messages alone, each with its size before it.

The messages of a connection are at work together, up to a number, and answered in the order in which they
came; what a client sends faster than that waits in its own socket. A frame whose content makes no sense is
answered and forgotten; one that announces too much is answered, and ends its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import cast

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.backlog import Backlog
from interlingua.protocols.transport.certificates import client_identity
from interlingua.protocols.transport.framed.splitter import SIZE_BYTES, FrameSplitter, FrameTooLargeError
from interlingua.protocols.transport.listener import (
    HALF_CLOSED_SECS,
    LINGER_SECS,
    ConnectionSet,
    Listener,
    listener_at,
)
from interlingua.protocols.transport.load import SMALL_BYTES, BodyLoad, ListenerLoad
from interlingua.protocols.transport.sockets import client_host, half_closes, has_gone, send_at_once
from interlingua.protocols.transport.stall import IdleWatch, StallWatch
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Timeouts
from interlingua.protocols.transport.turns import COUNTED_BYTES, RECEIVE_BYTES, TURN_REQUESTS, Turn
from interlingua.protocols.transport.writes import write_pieces
from interlingua.protocols.wire import Buffer, FramedHandler, FramedRequest
from interlingua.schemas import Context, ErrorCode, InferenceError

MAX_REQUEST_BYTES = 64 << 20
"""The largest message that is taken by default."""

MAX_IN_FLIGHT = 64
"""How many messages of one connection are at work, or answered and waiting for an earlier answer."""

_HTTP_STARTS = frozenset((b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"PRI "))
"""How a client begins that speaks HTTP. Read as sizes these are half a gigabyte and more, and no message
happens to have one of exactly these."""

_log = logging.getLogger(__name__)


class FramedServer:
    """Listens at one address. Start it once, stop it once."""

    def __init__(
        self,
        handler: FramedHandler,
        address: Address | Listener,
        *,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_response_bytes: int | None = None,
        load: ListenerLoad | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        half_closed_secs: float = HALF_CLOSED_SECS,
        linger_secs: float = LINGER_SECS,
    ) -> None:
        self._listener = listener_at(address)
        self.handler = handler
        self.max_request_bytes = max_request_bytes
        self.max_response_bytes = max_response_bytes
        self.timeouts = timeouts
        self.half_closed_secs = half_closed_secs
        self.linger_secs = linger_secs
        self.connections: ConnectionSet[_Connection] = ConnectionSet(load)

    async def start(self) -> Address:
        """Listen. Returns the bound address, port filled in. Raises ``OSError``."""
        return await self._listener.start(partial(_Connection, self))

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    def retire(self) -> None:
        """Accept nothing more. A connection closes after its next answer; the protocol cannot announce it."""
        self._listener.retire()
        self.connections.retire()

    async def stop(self, grace_secs: float) -> int:
        """Stop; returns how many messages were cut. See ``ConnectionSet.drain``. A message that still arrives
        is refused with UNAVAILABLE."""
        return await self._listener.stop(self.connections.drain(grace_secs))


@dataclass(slots=True, eq=False)
class _Call:
    """A message that is not answered yet, or whose answer waits for those before it."""

    context: Context
    size: int
    task: asyncio.Task[None] | None = None
    parts: Sequence[Buffer] | None = None


class _Connection(asyncio.BufferedProtocol):
    """One connection: its messages become calls, their answers frames in the same order.

    ``_ending``: nothing more is taken; the connection ends behind the last answer.
    """

    def __init__(self, server: FramedServer) -> None:
        self._server = server
        self._splitter = FrameSplitter(server.max_request_bytes, server.connections.load.allocate)
        self._calls: deque[_Call] = deque()
        self._fresh = True
        self._half_closed = self._ending = False
        self._begun = 0  # messages in this turn
        self._since = 0  # when a large message began
        self._timer: asyncio.TimerHandle | None = None

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        send_at_once(transport)
        server = self._server
        self._peer = client_host(transport)
        self._client_name = client_identity(transport)
        self._turn = Turn(self._loop, self._transport, self._begin_turn)
        self._backlog = Backlog(self._transport, MAX_IN_FLIGHT, server.max_request_bytes)
        self._stall = StallWatch(self._transport, server.timeouts)
        self._idle = IdleWatch(
            server.timeouts, self._state, lambda: self._splitter.arrived, self._transport.close
        )
        self._held = BodyLoad(server.connections.load)
        server.connections.add(self, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into. An error here would cut the connection."""
        try:
            space = self._splitter.space()
        except MemoryError:
            self._refuse_and_end(_no_memory())
            self._go_on()
            space = self._splitter.space()
        return space[:RECEIVE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what arrived."""
        self._idle.received_at = self._loop.time()
        if self._ending:
            return  # input is read and thrown away
        self._splitter.received(nbytes)
        if nbytes > COUNTED_BYTES:
            self._turn.received(nbytes)
        if self._fresh and not self._is_framed():
            return
        self._go_on()

    def eof_received(self) -> bool:
        """The client sends no more. Whether the connection stays open: as long as a client may
        read the answers to its requests."""
        if has_gone(self._transport):
            return False
        self._half_closed = True
        missing = self._splitter.missing
        if missing and not self._ending:
            words = f"the connection ended {missing} bytes before the end of a message"
            self._refuse_and_end(InferenceError(ErrorCode.MALFORMED, words))
        self._ending = True
        self._go_on()
        return not self._transport.is_closing()

    def pause_writing(self) -> None:
        """The client reads its answers too slowly: begin no more of its messages."""
        self._backlog.writable = False
        self._stall.start()

    def resume_writing(self) -> None:
        """The client has read most of them."""
        self._backlog.writable = True
        self._stall.resumed()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the calls."""
        self._idle.cancel()
        self._stall.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._held.release()
        self._server.connections.remove(self, self._transport)
        for call in self._calls:
            call.context.cancel.cancel()
            call.context.write_ended()
            if call.task is not None:
                call.task.cancel()
                # a cancelled task refers to its call: a cycle would keep the memory of the message
                call.task = None
        self._calls.clear()
        self._splitter.discard()

    # called by the connection set

    def drain(self) -> None:
        """Close as soon as every answer is written."""
        self._go_on()

    @property
    def unsent(self) -> bool:
        """See ``Accepted``."""
        return not self._calls and self._transport.get_write_buffer_size() > 0

    def cut(self) -> None:
        """Close the socket now."""
        self._transport.abort()

    abort = cut

    # messages and answers

    def _is_framed(self) -> bool:
        """Whether the first bytes are those of a frame, as far as they are here."""
        start = self._splitter.start
        if len(start) < SIZE_BYTES:
            return False
        self._fresh = False
        if start in _HTTP_STARTS:
            facts = {
                "address": str(self._server.address),
                "peer": self._peer or "unix socket",
                "reason": "messages need a size prefix; HTTP needs a listener with transport http",
            }
            _log.warning("HTTP client on tcp listener", extra={"facts": facts})
            self._transport.close()
        return not self._transport.is_closing()

    def _begin_turn(self) -> None:
        """It is this connection's turn again."""
        self._begun = 0
        self._go_on()

    def _go_on(self) -> None:
        """Write the answers that are next, begin messages within the backlog, and close if nothing is
        left."""
        self._write_answers()
        while self._begin_some():
            self._write_answers()
        if self._calls or self._transport.is_closing():
            return
        connections = self._server.connections
        if connections.stopping and self._splitter.missing:
            if connections.retiring:
                return
            self._refuse_and_end(_stopping())
            self._write_answers()
        if self._ending or connections.stopping:
            self._end()

    def _begin_some(self) -> bool:
        """Begin messages within the backlog. Whether an answer is ready already."""
        accepts = True
        try:
            while (accepts := self._backlog.accepts) and not self._turn.waiting:
                message = None if self._ending else self._splitter.next()
                if message is None:
                    break
                context = Context(peer=self._peer, identity=self._client_name, arrived=self._since)
                self._since = 0
                self._begin(FramedRequest(message, context=context))
                self._begun += 1
                if self._begun == TURN_REQUESTS:
                    self._turn.end()
        except FrameTooLargeError as fault:
            self._refuse_and_end(_too_large("message", fault.size, "request", self._server.max_request_bytes))
        except MemoryError:
            self._refuse_and_end(_no_memory())
        filled = self._splitter.filled
        if filled and not self._since:
            self._since = monotonic_ns()
        error = self._held.grow(self._backlog.size + filled)
        if error is not None and filled > SMALL_BYTES:
            self._refuse_and_end(error)
        if not self._half_closed:
            self._turn.read(accepts)
        return bool(self._calls) and self._calls[0].parts is not None

    def _begin(self, request: FramedRequest) -> None:
        call = _Call(request.context, len(request.message))
        self._calls.append(call)
        self._backlog.requests += 1
        self._backlog.size += call.size
        if self._server.connections.stopping and not self._server.connections.retiring:
            call.parts = self._server.handler.refuse(request, _stopping()).parts
            return
        if call.size > SMALL_BYTES and (error := self._held.grow(self._backlog.size)) is not None:
            call.parts = self._server.handler.refuse(request, error).parts
            return
        if (refused := self._server.handler.refusal(request)) is not None:
            call.parts = refused.parts
            return
        request.context.reports_write = True
        call.task = task = self._loop.create_task(self._serve(call, request))
        self._server.connections.in_flight.add(task)
        task.add_done_callback(self._ended)

    def _refuse_and_end(self, error: InferenceError) -> None:
        """Answer what cannot be a message, behind all answers, and end there."""
        request = FramedRequest(context=Context(peer=self._peer))
        self._backlog.requests += 1
        self._calls.append(_Call(request.context, 0, None, self._server.handler.refuse(request, error).parts))
        self._ending = True
        self._splitter.discard()

    async def _serve(self, call: _Call, request: FramedRequest) -> None:
        handler, limit = self._server.handler, self._server.max_response_bytes
        try:
            answer = await handler.serve(request)
        except Exception:
            _log.exception("unexpected error")
            words = "internal error; the server's log has the details"
            answer = handler.refuse(request, InferenceError(ErrorCode.INTERNAL, words))
        size = sum(map(len, answer.parts)) - SIZE_BYTES
        if limit is not None and size > limit:
            answer = handler.refuse(request, _too_large("answer", size, "response", limit))
        call.parts = answer.parts

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._server.connections.in_flight.discard(task)
        self._server.connections.changed()
        self._idle.received_at = self._loop.time()
        if self._calls:  # else the connection is gone
            self._go_on()

    def _write_answers(self) -> None:
        while self._calls and (parts := self._calls[0].parts) is not None:
            call = self._calls.popleft()
            self._backlog.requests -= 1
            self._backlog.size -= call.size
            if not self._transport.is_closing():
                write_pieces(self._transport, parts, sum(map(len, parts)))
            call.context.write_ended()
        if self._half_closed:
            self._give_up_later(self._server.half_closed_secs)

    # ends

    def _end(self) -> None:
        """Close it once what is written has been taken, or as soon as the client takes no more of it.

        Where more may come it is read for a while and thrown away: to close at once would reset the
        connection, and the client might lose the answers.
        """
        if self._transport.is_closing():
            return
        if self._half_closed or not self._ending or not half_closes(self._transport):
            self._transport.close()
            if self._timer is not None:
                self._timer.cancel()
        elif self._timer is None:
            self._transport.write_eof()
            self._turn.read(True)
            self._give_up_later(self._server.linger_secs)
        self._stall.start()

    def _give_up_later(self, secs: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(secs, self._give_up, secs)

    def _give_up(self, secs: float) -> None:
        """The client seems gone, unless it has still answers to read: the stall watch covers those."""
        if self._transport.get_write_buffer_size():
            self._give_up_later(secs)
        else:
            self._transport.abort()

    def _state(self) -> str:
        if self._calls or not self._turn.reading:
            return "busy"
        return "partial" if self._splitter.missing else "idle"


def _stopping() -> InferenceError:
    return InferenceError(ErrorCode.UNAVAILABLE, "the server is stopping")


def _no_memory() -> InferenceError:
    return InferenceError(ErrorCode.OVERLOADED, "no memory for the message")


def _too_large(what: str, size: int, side: str, limit: int) -> InferenceError:
    return InferenceError(
        ErrorCode.TOO_LARGE,
        f"the {what} has {size} bytes, more than the {limit} that max_{side}_bytes of this listener allows",
    )
