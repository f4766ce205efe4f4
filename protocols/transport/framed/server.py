"""A listener for a ``FramedHandler``: connections that carry messages alone, each with its size before it.

The messages of a connection are at work together, up to a number, and answered in the order in which they
came; what a client sends faster than that waits in its own socket. A frame whose content makes no sense is
answered and forgotten; one that announces too much is answered, and ends its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.framed.splitter import SIZE_BYTES, FrameSplitter, FrameTooLargeError
from interlingua.protocols.transport.http.answer import JOINED_BYTES
from interlingua.protocols.transport.http.server import HALF_CLOSED_SECS, IDLE_SECS, LINGER_SECS, STALL_SECS
from interlingua.protocols.transport.sockets import SocketFile, bound, listen, send_at_once
from interlingua.protocols.transport.stall import StallWatch
from interlingua.protocols.wire import Buffer, FramedHandler, FramedRequest
from interlingua.schemas import Context, ErrorCode, InferenceError

MAX_REQUEST_BYTES = 64 << 20
"""The largest message that is taken by default."""

MAX_IN_FLIGHT = 64
"""How many messages of one connection are at work, or answered and waiting for an earlier answer."""

_CUT_SECS = 1.0
"""How long a message that was cut may take to notice."""

_HTTP_STARTS = frozenset((b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"PRI "))
"""How a client begins that speaks HTTP. Read as sizes these are half a gigabyte and more, and no message
happens to have one of exactly these."""

_log = logging.getLogger(__name__)


class FramedServer:
    """Listens at one address. Start it once, stop it once."""

    def __init__(
        self,
        handler: FramedHandler,
        address: Address,
        *,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_response_bytes: int | None = None,
        idle_secs: float = IDLE_SECS,
        stall_secs: float = STALL_SECS,
        half_closed_secs: float = HALF_CLOSED_SECS,
        linger_secs: float = LINGER_SECS,
    ) -> None:
        self.address = address
        self.handler = handler
        self.max_request_bytes = max_request_bytes
        self.max_response_bytes = max_response_bytes
        self.idle_secs = idle_secs
        self.stall_secs = stall_secs
        self.half_closed_secs = half_closed_secs
        self.linger_secs = linger_secs
        self.stopping = False
        self.running: set[asyncio.Task[None]] = set()
        self.connections: set[_Connection] = set()
        self.empty = asyncio.Event()

    async def start(self) -> Address:
        """Listen. The bound address, port filled in; ``OSError`` where that cannot be."""
        sock = listen(self.address)
        self.address = bound(sock)
        self._file = SocketFile(self.address)
        loop = asyncio.get_running_loop()
        create = loop.create_unix_server if self.address.path else loop.create_server
        self._listener = await create(partial(_Connection, self), sock=sock)
        return self.address

    async def stop(self, grace_secs: float) -> int:
        """Accept nothing more, let running messages end for ``grace_secs``, then cut the rest.

        How many were cut. A message that still arrives is refused as UNAVAILABLE; a connection is closed when
        all of its answers are written.
        """
        self.stopping = True
        self._listener.close()
        for connection in tuple(self.connections):
            connection.stop()
        if self.connections:
            self.empty.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_secs):
                    await self.empty.wait()
        cut = len(self.running)
        if cut:
            _log.warning(
                "requests cut on listener", extra={"facts": {"address": str(self.address), "count": cut}}
            )
        for connection in tuple(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # aborted connections hear of it in the next turn of the loop
        if self.running:
            await asyncio.wait(self.running, timeout=_CUT_SECS)
        self._file.remove()
        return cut


@dataclass(slots=True, eq=False)
class _Call:
    """A message that is not answered yet, or whose answer waits for those before it."""

    request: FramedRequest
    size: int
    task: asyncio.Task[None] | None = None
    parts: Sequence[Buffer] | None = None


class _Connection(asyncio.BufferedProtocol):
    """One connection: its messages become calls, their answers frames in the same order.

    ``_ending``: nothing more is taken; the connection ends behind the last answer.
    """

    def __init__(self, server: FramedServer) -> None:
        self._server = server
        self._splitter = FrameSplitter(server.max_request_bytes)
        self._calls: deque[_Call] = deque()
        self._bytes_at_work = 0
        self._fresh = self._reading = self._writable = True
        self._half_closed = self._ending = False
        self._watch: StallWatch | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        send_at_once(transport)
        peer = transport.get_extra_info("peername")
        self._peer: str = peer[0] if isinstance(peer, tuple) else ""
        self._server.connections.add(self)
        self._heard = self._loop.time()
        self._look_later()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into."""
        return self._splitter.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what arrived."""
        self._heard = self._loop.time()
        if self._ending:
            return  # to be read is all that it is for
        self._splitter.received(nbytes)
        if self._fresh and not self._is_framed():
            return
        self._go_on()

    def eof_received(self) -> bool:
        """The client sends no more. Whether the connection stays open: as long as a client may be there
        that takes the answers to what it has asked."""
        if _has_gone(self._transport):
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
        """The client takes its answers slower than they come: take no more of its messages."""
        self._writable = False
        self._watch_writing()

    def resume_writing(self) -> None:
        """It has taken most of them."""
        self._writable = True
        if self._watch is not None and not self._transport.is_closing():
            self._watch.cancel()
            self._watch = None
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is left to answer."""
        self._timer.cancel()
        for timer in (self._watch, self._giving_up):
            if timer is not None:
                timer.cancel()
        self._server.connections.discard(self)
        if not self._server.connections:
            self._server.empty.set()
        for call in self._calls:
            call.request.context.cancel.cancel()
            if call.task is not None:
                call.task.cancel()
        self._calls.clear()

    # what the server calls

    def stop(self) -> None:
        """Close as soon as every answer is written."""
        self._go_on()

    def abort(self) -> None:
        """End it now."""
        self._transport.abort()

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

    def _go_on(self) -> None:
        """Write the answers whose turn it is, begin the messages for which there is room, and end what is to
        end."""
        self._write_answers()
        while self._begin_some():
            self._write_answers()
        if self._calls or self._transport.is_closing():
            return
        if self._server.stopping and self._splitter.missing:
            self._refuse_and_end(_stopping())
            self._write_answers()
        if self._ending or self._server.stopping:
            self._end()

    def _begin_some(self) -> bool:
        """Begin messages until there is none, or no room. Whether an answer is there already."""
        room = True
        try:
            while room := self._has_room():
                message = None if self._ending else self._splitter.next()
                if message is None:
                    break
                self._begin(FramedRequest(message, context=Context(peer=self._peer)))
        except FrameTooLargeError as fault:
            self._refuse_and_end(_too_large("message", fault.size, "request", self._server.max_request_bytes))
        if room != self._reading and not (self._half_closed or self._transport.is_closing()):
            self._reading = room
            (self._transport.resume_reading if room else self._transport.pause_reading)()
        return bool(self._calls) and self._calls[0].parts is not None

    def _has_room(self) -> bool:
        return (
            self._writable
            and len(self._calls) < MAX_IN_FLIGHT
            # so that no more is held than twice the largest message
            and self._bytes_at_work < self._server.max_request_bytes
            and not self._transport.is_closing()
        )

    def _begin(self, request: FramedRequest) -> None:
        call = _Call(request, len(request.message))
        self._calls.append(call)
        self._bytes_at_work += call.size
        if self._server.stopping:
            call.parts = self._server.handler.refuse(request, _stopping()).parts
            return
        call.task = task = self._loop.create_task(self._serve(call))
        self._server.running.add(task)
        task.add_done_callback(self._ended)

    def _refuse_and_end(self, error: InferenceError) -> None:
        """Answer what cannot be a message, behind all answers, and end there."""
        request = FramedRequest(context=Context(peer=self._peer))
        self._calls.append(_Call(request, 0, None, self._server.handler.refuse(request, error).parts))
        self._ending = True
        self._splitter.discard()

    async def _serve(self, call: _Call) -> None:
        handler, limit = self._server.handler, self._server.max_response_bytes
        try:
            answer = await handler.serve(call.request)
        except Exception:
            _log.exception("unexpected error")
            words = "internal error; the server's log has the details"
            answer = handler.refuse(call.request, InferenceError(ErrorCode.INTERNAL, words))
        size = sum(map(len, answer.parts)) - SIZE_BYTES
        if limit is not None and size > limit:
            answer = handler.refuse(call.request, _too_large("answer", size, "response", limit))
        call.parts = answer.parts

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._server.running.discard(task)
        self._heard = self._loop.time()
        if self._calls:  # else the connection is gone
            self._go_on()

    def _write_answers(self) -> None:
        while self._calls and (parts := self._calls[0].parts) is not None:
            call = self._calls.popleft()
            self._bytes_at_work -= call.size
            self._write(parts)
        if self._half_closed:
            self._give_up_later(self._server.half_closed_secs)

    def _write(self, parts: Sequence[Buffer]) -> None:
        if self._transport.is_closing():
            return
        if sum(map(len, parts)) <= JOINED_BYTES:
            self._transport.write(b"".join(parts))
        else:
            for part in parts:
                self._transport.write(part)

    # ends

    def _end(self) -> None:
        """Close it once what is written has been taken, or as soon as the client takes no more of it.

        Where more may come it is read for a while and thrown away: to close at once would reset the
        connection, and the client might lose the answers.
        """
        if self._transport.is_closing():
            return
        if self._half_closed or not self._ending:
            self._transport.close()
            if self._giving_up is not None:
                self._giving_up.cancel()
        elif self._giving_up is None:
            self._transport.write_eof()
            if not self._reading:
                self._reading = True
                self._transport.resume_reading()
            self._give_up_later(self._server.linger_secs)
        if self._transport.get_write_buffer_size():
            self._watch_writing()

    def _give_up_later(self, secs: float) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._giving_up = self._loop.call_later(secs, self._give_up, secs)

    def _give_up(self, secs: float) -> None:
        """Nobody seems to be there, unless something is still to be taken: that is watched."""
        if self._transport.get_write_buffer_size():
            self._give_up_later(secs)
        else:
            self._transport.abort()

    def _watch_writing(self) -> None:
        if self._watch is None:
            self._watch = StallWatch(self._transport, self._server.stall_secs)

    def _look_later(self) -> None:
        server = self._server
        self._timer = self._loop.call_later(min(server.idle_secs, server.stall_secs), self._look)

    def _look(self) -> None:
        """Close a connection on which nothing happens, earlier where half a message stands on it."""
        halfway = self._splitter.missing
        allowed = self._server.stall_secs if halfway else self._server.idle_secs
        if not self._calls and self._reading and self._loop.time() - self._heard >= allowed:
            self._transport.close()
        else:
            self._look_later()


def _stopping() -> InferenceError:
    return InferenceError(ErrorCode.UNAVAILABLE, "the server is stopping")


def _too_large(what: str, size: int, side: str, limit: int) -> InferenceError:
    return InferenceError(
        ErrorCode.TOO_LARGE,
        f"the {what} has {size} bytes, more than the {limit} that max_{side}_bytes of this listener allows",
    )


def _has_gone(transport: asyncio.Transport) -> bool:
    """Whether the client reads no more either, as far as its socket tells."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))
