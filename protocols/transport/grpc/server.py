"""An HTTP/2 listener of our own: gRPC for a ``GrpcHandler``, other requests for an ``HttpHandler``, if any.

The content-type decides. Messages pass as bytes: no protobuf class is known here. HTTP/2 is spoken with prior
knowledge (RFC 9113, 3.3), over TCP and unix sockets, or after ALPN. ``grpc.library`` does gRPC on grpcio's
server.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from typing import Any, cast
from urllib.parse import quote

from interlingua.protocols.plans import Plans
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.certificates import client_identity
from interlingua.protocols.transport.deadlines import Deadlines
from interlingua.protocols.transport.grpc.call import GrpcCall
from interlingua.protocols.transport.grpc.headers import CallHeaders, read_headers, trailers_only
from interlingua.protocols.transport.grpc.stalls import StallFinder
from interlingua.protocols.transport.grpc.status import UNIMPLEMENTED
from interlingua.protocols.transport.grpc.stream_call import StreamCall
from interlingua.protocols.transport.grpc.unary_call import UnaryCall
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.h2.hpack import FieldLines
from interlingua.protocols.transport.h2.http_headers import HttpHeaders, is_grpc, read_request
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS, Http2Options
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.transport.http.exchange import HttpExchange
from interlingua.protocols.transport.listener import ConnectionSet, Listener, listener_at
from interlingua.protocols.transport.load import ListenerLoad, RefusedRequest
from interlingua.protocols.transport.received import SharedReceiver, shared_space
from interlingua.protocols.transport.sockets import client_host, client_name, half_closes, send_at_once
from interlingua.protocols.transport.stall import StallWatch
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Sweep, Timeouts
from interlingua.protocols.transport.turns import Turn
from interlingua.protocols.transport.writes import WriteBatch, shared_writes_of
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcHandler, HttpHandler
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits

_GOODBYE_SECS = 1.0
"""How long a client may take to acknowledge that the server is stopping, and how long it must be silent
before a connection that has ended is closed."""

_WRITE_BUFFER_BYTES = 1 << 20
"""How much output the transport buffers before answers are queued by stream."""

_UNKNOWN_METHOD = trailers_only(GrpcAnswer(code=UNIMPLEMENTED, details="Method not found!"))


class GrpcServer:
    """Listens at one address. Start it once, stop it once."""

    def __init__(
        self,
        handler: GrpcHandler,
        address: Address | Listener,
        *,
        max_request_bytes: int | None = None,
        max_response_bytes: int | None = None,
        load: ListenerLoad | None = None,
        limits: DecodingLimits = DEFAULT_LIMITS,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        http2: Http2Options = DEFAULT_OPTIONS,
        http: HttpHandler | None = None,
    ) -> None:
        self._listener = listener_at(address)
        self.handler = handler
        self.http = http
        self.max_request_bytes = max_request_bytes
        self.max_response_bytes = max_response_bytes
        self.limits = limits
        self.timeouts = timeouts
        self.http2 = http2
        self.connections: ConnectionSet[_Connection] = ConnectionSet(load, "h2")
        self.sweep = Sweep(self.connections.open, timeouts)
        self.space = shared_space()

    async def start(self) -> Address:
        """Listen. Returns the bound address, port filled in. Raises ``OSError``."""
        return await self._listener.start(self.connection)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    @property
    def at_work(self) -> int:
        """The number of calls in flight."""
        return len(self.connections.in_flight)

    def connection(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""
        return _Connection(self, asyncio.get_running_loop())

    def retire(self) -> None:
        """Accept nothing more, and send GOAWAY. See ``ConnectionSet.retire``."""
        self._listener.retire()
        self.retire_connections()

    def retire_connections(self) -> None:
        """The same for the connections alone."""
        self.connections.retire()
        for connection in tuple(self.connections.open):
            connection.drain()

    async def stop(self, grace_secs: float) -> int:
        """Stop; returns how many calls were cut. See ``ConnectionSet.drain``. Clients of calls that are cut
        get UNAVAILABLE."""
        return await self._listener.stop(self.drain(grace_secs))

    async def drain(self, grace_secs: float) -> int:
        """The same for the connections alone, whose listener accepts nothing more."""
        cut = await self.connections.drain(grace_secs)
        self.sweep.stop()
        return cut

    def interpret(self, fields: FieldLines) -> CallHeaders | HttpHeaders | None:
        """The headers of a call, with a refusal if the handler lacks its method, or of another request."""
        if self.http is not None and not is_grpc(fields):
            return read_request(fields, self.http2.max_header_list)
        headers = read_headers(fields, self.http2.max_header_list)
        if headers is not None and not headers.refusal:
            kind = self.handler.offers(headers.method)
            headers.streaming = kind == "stream"
            if kind is None:
                headers.refusal = _UNKNOWN_METHOD
        return headers


class _Connection(SharedReceiver):
    """A connection: the asyncio protocol around an ``ServerConnection``, and the host of its calls."""

    def __init__(self, server: GrpcServer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server.space)
        self._server = server
        self.loop = loop
        self.handler = server.handler
        self.load = server.connections.load
        self.max_request_bytes = server.max_request_bytes
        self.max_response_bytes = server.max_response_bytes
        self.limits = server.limits
        self.calls: set[GrpcCall | HttpExchange] = set()
        self._deadlines = Deadlines(loop, lambda: self.calls)
        self._stalls = StallFinder(server.timeouts)
        # since when there is no call, or no end of the headers that have begun; the last stream until then
        self._quiet_since, self._last_id = monotonic(), 0
        self._draining = self._silent = self._closing = self._waited_for = False

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._batch = WriteBatch(self.loop, self._transport)
        self.turn = Turn(self.loop, self._transport, self._go_on)
        self._stall = StallWatch(self._transport, self._server.timeouts)
        send_at_once(transport)
        self.peer = _grpc_peer(client_name(transport))
        self.identity = client_identity(transport)
        self.plans: Plans | None = getattr(self.handler, "plans", None)
        self.client = "" if self._server.http is None else client_host(transport)
        self._server.connections.add(self, transport)
        self._connection: ServerConnection[Any] = ServerConnection(
            self._server.interpret, self._accept, self._batch.write, self._server.http2
        )
        self._connection.sender.write_shared = self._batch.write_shared
        self._shared_writes = shared_writes_of(self.loop)
        self._server.sweep.begin()
        self._timer = self.loop.call_later(self._server.timeouts.header_secs, self._check_liveness)
        if self._server.connections.retiring:
            # its calls are on their way: GOAWAY before them would look like a failure to connect
            self._timer.cancel()
            self._timer = self.loop.call_later(_GOODBYE_SECS, self.drain)

    def data_received(self, data: Buffer) -> None:
        """Frames, cut anywhere."""
        self._silent = False
        if self._closing:
            return  # input is read and thrown away
        connection = self._connection
        try:
            connection.receive(data)
        finally:
            if self._shared_writes.batches:
                self._shared_writes.flush()
        if connection.frames.inside is not None:
            self.direct = connection.space
        if connection.frames.pending:
            self.end_turn()
        if connection.closed:
            self._close()
        elif self._draining and connection.preface_received and not connection.ping_pending:
            self._refuse_new()

    def _go_on(self) -> None:
        """It is this connection's turn again."""
        if self._connection.frames.pending:
            self.data_received(b"")

    def direct_received(self, count: int) -> None:
        """More of a message."""
        self._silent = False
        self._connection.received(count)
        self.direct = self._connection.space

    def pause_writing(self) -> None:
        """The client reads its answers too slowly: read no more of its calls."""
        self._connection.sender.pause()
        self.turn.read(False)
        self._stall.start()

    def resume_writing(self) -> None:
        """The client has read most of them."""
        if not self._closing:
            self._stall.resumed()
        self.turn.read(True)
        self._connection.sender.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Reset every stream."""
        self._timer.cancel()
        self._stall.cancel()
        self._deadlines.cancel()
        self._connection.connection_lost()
        self._server.connections.remove(self, self._transport)

    # called by calls

    def call_began(self, call: GrpcCall | HttpExchange) -> None:
        """See ``CallHost``."""
        self.calls.add(call)
        self._server.connections.in_flight.add(call)
        if call.deadline is not None and call.deadline < self._deadlines.at:
            self._deadlines.add(call.deadline)

    def call_ended(self, call: GrpcCall | HttpExchange) -> None:
        """See ``CallHost``."""
        if call.held is not None:
            call.held.release()
        if self.direct is not None:
            self.direct = self._connection.space
        context = call.context
        if context is not None:
            context.reports_write = False
            if context.written is not None:
                context.write_ended()
        self.calls.discard(call)
        self._server.connections.in_flight.discard(call)
        if self._server.connections.stopping:
            self._server.connections.changed()
        if self._draining and not self._connection.streams and not self._connection.ping_pending:
            self._close()

    # called by the sweep and the connection set

    def check(self, now: float) -> None:
        """End calls whose client has stopped, and a connection without calls."""
        connection, timeouts = self._connection, self._server.timeouts
        for call, what in self._stalls.stalled(self.calls, connection.sender, now):
            if what == "write":
                connection.cancel(call)
            else:
                call.end_body(what == "slow body", timeouts)
        if self._closing or self._draining:
            return
        headers = connection.frames.inside_headers
        if (self.calls and not headers) or self._last_id != connection.last_id:
            self._quiet_since, self._last_id = now, connection.last_id
        elif now - self._quiet_since >= (timeouts.header_secs if headers else timeouts.idle()):
            self.abort() if headers else self.drain()

    @property
    def unsent(self) -> bool:
        """See ``Accepted``."""
        self._batch.flush()
        return not self.calls and self._transport.get_write_buffer_size() > 0

    def drain(self) -> None:
        """Send GOAWAY, and close when the last one has ended. Calls already on the
        way are answered until the client acknowledges, or has had time to (RFC 9113, 6.8)."""
        if self._closing or self._draining:
            return
        self._draining = True
        if self._connection.preface_received:
            self._connection.announce_shutdown()
        self._timer.cancel()
        self._timer = self.loop.call_later(_GOODBYE_SECS, self._refuse_new)

    def cut(self) -> None:
        """End every call, and the connection once the answers are sent."""
        for call in tuple(self.calls):
            call.cut()
        self._refuse_new()

    def abort(self) -> None:
        """Close the socket now."""
        self._transport.abort()

    def _accept(
        self,
        connection: ServerConnection[Any],
        number: int,
        headers: CallHeaders | HttpHeaders | None,
        ended: bool,
    ) -> Stream | None:
        if headers is None:  # RFC 9113, 8.1.1
            connection.sender.reject(number, Code.PROTOCOL_ERROR)
            return None
        http = self._server.http
        if http is not None and isinstance(headers, HttpHeaders):
            return HttpExchange(self, http, connection, number, headers, ended)
        assert isinstance(headers, CallHeaders), "HTTP has a handler"  # noqa: S101
        if headers.refusal:
            unknown = headers.refusal is _UNKNOWN_METHOD
            code = ErrorCode.UNSUPPORTED if unknown else ErrorCode.MALFORMED
            error = InferenceError(code, "Method not found!" if unknown else "the headers are refused")
            status = "UNIMPLEMENTED" if unknown else "UNKNOWN"
            self.load.record(RefusedRequest("grpc", headers.method, self.peer, status, error))
            connection.sender.refuse(number, headers.refusal, ended)
            return None
        if headers.streaming:
            return StreamCall(self, connection, number, headers, ended)
        call = UnaryCall(self, connection, number, headers, ended)
        if headers.method in self.handler.restricted:
            call.check_caller()
        return call

    def _check_liveness(self) -> None:
        """Ping a client that is silent while its calls run; abort where it does not answer."""
        http2, connection = self._server.http2, self._connection
        if not connection.preface_received or (self._silent and connection.ping_pending):
            self._transport.abort()
            return
        pinging = self._silent and bool(self.calls)
        self._silent = True
        if pinging:
            connection.ping()
        self._timer = self.loop.call_later(
            http2.keepalive_timeout_secs if pinging else http2.keepalive_secs, self._check_liveness
        )

    def _refuse_new(self) -> None:
        """Accept no more calls; close if none runs."""
        connection = self._connection
        if self._closing:
            return
        if connection.preface_received:
            connection.ping_pending = False
            connection.refuse_new()
        if not connection.streams:
            self._close()

    def _close(self) -> None:
        """Close the sending side once everything is sent; the client then closes its own. Read until it does
        or is silent: closing while it sends, WINDOW_UPDATE for example, would reset the connection, and the
        client would lose what it has not read."""
        if self._closing or self._transport.is_closing():
            return
        self._closing = self._silent = True
        self._waited_for = not self._connection.closed  # a client that broke a rule is not
        self.turn.read(self._waited_for)
        self._connection.connection_lost()
        self._batch.flush()
        if half_closes(self._transport):  # else GOAWAY has to do
            with contextlib.suppress(OSError):  # the client is gone
                self._transport.write_eof()
        self._stall.start()
        self._timer.cancel()
        self._timer = self.loop.call_later(_GOODBYE_SECS, self._linger)

    def _linger(self) -> None:
        if (self._silent or not self._waited_for) and not self._transport.get_write_buffer_size():
            self._transport.close()
        else:
            self._silent = True
            self._timer = self.loop.call_later(_GOODBYE_SECS, self._linger)


def _grpc_peer(name: object) -> str:
    """The address of a client as grpcio writes it."""
    if not isinstance(name, tuple):
        return "unix:"
    host, port = str(name[0]), name[1]
    if ":" not in host:
        return f"ipv4:{host}:{port}"
    if host.lower().startswith("::ffff:") and "." in host:
        return f"ipv4:{host[7:]}:{port}"
    return f"ipv6:{quote(f'[{host}]', safe=':')}:{port}"
