"""A gRPC listener for a ``GrpcHandler``, on HTTP/2 of our own.

Messages pass as bytes: no protobuf class is known here. HTTP/2 is spoken in the clear with prior knowledge
(RFC 9113, 3.3), over TCP and unix sockets. ``grpc.library`` does the same on grpcio's server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import cast
from urllib.parse import quote

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.grpc.call import GrpcCall, StreamCall, UnaryCall
from interlingua.protocols.transport.grpc.headers import CallHeaders, read_headers, trailers_only
from interlingua.protocols.transport.grpc.status import (
    CUT_SECS,
    KEEPALIVE_SECS,
    KEEPALIVE_TIMEOUT_SECS,
    UNIMPLEMENTED,
)
from interlingua.protocols.transport.h2.connection import H2Connection
from interlingua.protocols.transport.h2.frames import Code, rst_stream
from interlingua.protocols.transport.h2.hpack import FieldLines
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.transport.sockets import SocketFile, bound, listen, send_at_once
from interlingua.protocols.transport.stall import StallWatch
from interlingua.protocols.wire import GrpcAnswer, GrpcHandler

STALL_SECS = 60.0
"""How long a client may take nothing of what is sent to it, or say nothing after it has connected."""

_GOODBYE_SECS = 1.0
"""How long a client may take to see that the server is stopping, and how long it may be silent before a
connection is closed that has ended."""

_WRITE_BUFFER_BYTES = 1 << 20
"""As much waits in a connection's socket before its answers wait by themselves."""

_UNKNOWN_METHOD = trailers_only(GrpcAnswer(code=UNIMPLEMENTED, details="Method not found!"))

_log = logging.getLogger(__name__)


class GrpcServer:
    """Listens at one address. Start it once, stop it once."""

    def __init__(
        self,
        handler: GrpcHandler,
        address: Address,
        *,
        max_request_bytes: int | None = None,
        max_response_bytes: int | None = None,
        stall_secs: float = STALL_SECS,
        keepalive_secs: float = KEEPALIVE_SECS,
        keepalive_timeout_secs: float = KEEPALIVE_TIMEOUT_SECS,
    ) -> None:
        self.address = address
        self.handler = handler
        self.max_request_bytes = max_request_bytes
        self.max_response_bytes = max_response_bytes
        self.stall_secs = stall_secs
        self.keepalive_secs = keepalive_secs
        self.keepalive_timeout_secs = keepalive_timeout_secs
        self.calls: set[GrpcCall] = set()
        self.connections: set[_Connection] = set()
        self.stopping = False
        self._changed = asyncio.Event()
        self._listener: asyncio.Server | None = None
        self._file: SocketFile | None = None

    async def start(self) -> Address:
        """Listen. The bound address, port filled in; ``OSError`` where that cannot be."""
        sock = listen(self.address)
        self.address = bound(sock)
        self._file = SocketFile(self.address)
        loop = asyncio.get_running_loop()
        create = loop.create_unix_server if self.address.path else loop.create_server
        self._listener = await create(partial(_Connection, self, loop), sock=sock)
        return self.address

    @property
    def at_work(self) -> int:
        """How many calls have not ended yet."""
        return len(self.calls)

    def adopt(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection of another server on which ``data`` has arrived already."""
        peer = _Connection(self, asyncio.get_running_loop())
        transport.set_protocol(peer)
        peer.connection_made(transport)
        peer.data_received(data)

    async def stop(self, grace_secs: float) -> int:
        """Accept nothing more, let running calls end for ``grace_secs``, then cut the rest.

        How many calls were cut; their clients are told that the server is unavailable. Each connection is
        closed when nothing runs on it and its client has taken all answers; one that has not counts as a call
        that was cut.
        """
        self.stopping = True
        if self._listener is not None:
            self._listener.close()
        for peer in tuple(self.connections):
            peer.leave()
        await self._until_over(grace_secs)
        cut = len(self.calls) + sum(peer.owes for peer in self.connections)
        if cut:
            _log.warning(
                "requests cut on listener", extra={"facts": {"address": str(self.address), "count": cut}}
            )
        for peer in tuple(self.connections):
            peer.cut()
        await self._until_over(CUT_SECS)
        for peer in tuple(self.connections):
            peer.abort()
        await asyncio.sleep(0)
        if self._file is not None:
            self._file.remove()
        return cut

    def interpret(self, fields: FieldLines) -> CallHeaders | None:
        """The headers of a call, with a refusal if the handler lacks its method."""
        headers = read_headers(fields)
        if headers is not None and not headers.refusal:
            kind = self.handler.offers(headers.method)
            headers.streaming = kind == "stream"
            if kind is None:
                headers.refusal = _UNKNOWN_METHOD
        return headers

    def change(self) -> None:
        """A call or a connection has ended."""
        if self.stopping:
            self._changed.set()

    async def _until_over(self, secs: float) -> None:
        """Wait until there is no call and no connection, for ``secs`` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(secs):
                while self.calls or self.connections:
                    self._changed.clear()
                    await self._changed.wait()


class _Connection(asyncio.Protocol):
    """A connection, between its socket and the calls on it."""

    def __init__(self, server: GrpcServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self.loop = loop
        self.handler = server.handler
        self.max_request_bytes = server.max_request_bytes
        self.max_response_bytes = server.max_response_bytes
        self.calls: set[GrpcCall] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._watch: StallWatch | None = None
        self._leaving = self._silent = self._closing = self._waited_for = False

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        send_at_once(transport)
        self.peer = _spelled(transport.get_extra_info("peername"))
        self._server.connections.add(self)
        self._connection: H2Connection[CallHeaders | None] = H2Connection(
            self._server.interpret, self._accept, self._transport.write
        )
        self._timer = self.loop.call_later(self._server.stall_secs, self._look)

    def data_received(self, data: bytes) -> None:
        """Frames, cut anyhow."""
        self._silent = False
        if self._closing:
            return  # to be read is all that it is for
        connection = self._connection
        connection.receive(data)
        if connection.closed:
            self._close()
        elif self._leaving and connection.preface_received and not connection.ping_pending:
            self._say_goodbye()

    def pause_writing(self) -> None:
        """The client takes its answers slower than they come: read no more of what it asks."""
        self._connection.sender.pause()
        if not self._transport.is_closing():
            self._transport.pause_reading()
        self._watch_writing()

    def resume_writing(self) -> None:
        """It has taken most of them."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if not self._transport.is_closing():
            self._transport.resume_reading()
        self._connection.sender.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is left to answer."""
        for timer in (self._timer, self._alarm, self._watch):
            if timer is not None:
                timer.cancel()
        self._connection.connection_lost()
        self._server.connections.discard(self)
        self._server.change()

    # what calls call

    def call_began(self, call: GrpcCall) -> None:
        """See ``CallHost``."""
        self.calls.add(call)
        self._server.calls.add(call)
        if call.deadline is not None:
            self._wake_at(call.deadline)

    def call_ended(self, call: GrpcCall) -> None:
        """See ``CallHost``."""
        self.calls.discard(call)
        self._server.calls.discard(call)
        if self._leaving:
            self._server.change()
            if not self._connection.streams and not self._connection.ping_pending:
                self._close()

    # what the server calls

    @property
    def owes(self) -> bool:
        """Whether something that was said when all calls had ended has not been taken yet."""
        return not self.calls and self._transport.get_write_buffer_size() > 0

    def leave(self) -> None:
        """Have the client open no more calls, and close when those that run have ended. Those that were on
        their way are answered: until the client has seen that we leave, or has had time to."""
        self._leaving = True
        if self._closing:
            return
        if self._connection.preface_received:
            self._connection.announce_shutdown()
        self._timer.cancel()
        self._timer = self.loop.call_later(_GOODBYE_SECS, self._say_goodbye)

    def cut(self) -> None:
        """End every call, and the connection once that has been sent."""
        for call in tuple(self.calls):
            call.cut()
        self._say_goodbye()

    def abort(self) -> None:
        """Close the socket now."""
        self._transport.abort()

    def _accept(
        self,
        connection: H2Connection[CallHeaders | None],
        number: int,
        headers: CallHeaders | None,
        ended: bool,
    ) -> Stream | None:
        if headers is None:  # RFC 9113, 8.1.1
            self._transport.write(rst_stream(number, Code.PROTOCOL_ERROR))
            return None
        if headers.refusal:
            connection.sender.refuse(number, headers.refusal, ended)
            return None
        return (StreamCall if headers.streaming else UnaryCall)(self, connection, number, headers, ended)

    def _wake_at(self, deadline: float) -> None:
        """Look at the deadlines then; one timer does for all, since most come in their order."""
        if self._alarm is not None:
            if self._alarm_at <= deadline:
                return
            self._alarm.cancel()
        self._alarm_at = deadline
        self._alarm = self.loop.call_later(max(0.0, deadline - time.monotonic()), self._expire)

    def _expire(self) -> None:
        self._alarm = None
        now = time.monotonic()
        nearest = None
        for call in tuple(self.calls):
            if call.deadline is None:
                continue
            if call.deadline <= now:
                call.expire()
            elif nearest is None or call.deadline < nearest:
                nearest = call.deadline
        if nearest is not None:
            self._wake_at(nearest)

    def _look(self) -> None:
        """Whether the client is still there: it is asked where it waits for an answer and says nothing."""
        server, connection = self._server, self._connection
        if not connection.preface_received or (self._silent and connection.ping_pending):
            self._transport.abort()
            return
        asking = self._silent and bool(self.calls)
        self._silent = True
        if asking:
            connection.ping()
        self._timer = self.loop.call_later(
            server.keepalive_timeout_secs if asking else server.keepalive_secs, self._look
        )

    def _say_goodbye(self) -> None:
        """Take no more calls."""
        connection = self._connection
        if self._closing:
            return
        if connection.preface_received:
            connection.ping_pending = False
            connection.refuse_new()
        if not connection.streams:
            self._close()

    def _close(self) -> None:
        """End the connection once what is written has been taken. The client closes it then. Until it does or
        is silent, it is read: to close on what it still sends, such as room for more, would reset the
        connection, and what it has not taken yet be lost."""
        if self._closing or self._transport.is_closing():
            return
        self._closing = self._silent = True
        self._waited_for = not self._connection.closed  # whoever breaks rules is not
        self._connection.connection_lost()
        with contextlib.suppress(OSError):  # it is gone already
            self._transport.write_eof()
        if self._transport.get_write_buffer_size():
            self._watch_writing()
        self._timer.cancel()
        self._timer = self.loop.call_later(_GOODBYE_SECS, self._linger)

    def _linger(self) -> None:
        if (self._silent or not self._waited_for) and not self._transport.get_write_buffer_size():
            self._transport.close()
        else:
            self._silent = True
            self._timer = self.loop.call_later(_GOODBYE_SECS, self._linger)

    def _watch_writing(self) -> None:
        if self._watch is None:
            self._watch = StallWatch(self._transport, self._server.stall_secs)


def _spelled(name: object) -> str:
    """The address of a client as grpcio spells it."""
    if not isinstance(name, tuple):
        return "unix:"
    host, port = str(name[0]), name[1]
    if ":" not in host:
        return f"ipv4:{host}:{port}"
    if host.lower().startswith("::ffff:") and "." in host:
        return f"ipv4:{host[7:]}:{port}"
    return f"ipv6:{quote(f'[{host}]', safe=':')}:{port}"
