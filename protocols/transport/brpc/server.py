"""A bRPC listener for a ``BrpcHandler``: baidu_std, and on the same port HTTP/1.1 and gRPC, as the original.

The first bytes of a connection decide which of them it speaks. The calls on a connection are answered
as they finish, in any order; what a client sends faster than that waits in its own socket. Error numbers and
texts are the original's.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import cast

from interlingua.protocols.plans import Plans
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.backlog import Backlog
from interlingua.protocols.transport.brpc import refusals
from interlingua.protocols.transport.brpc.admission import AdmittedCall, CallAdmission
from interlingua.protocols.transport.brpc.bounded import BoundedGrpc, BoundedHttp
from interlingua.protocols.transport.brpc.compression import most_decompressed, name_of
from interlingua.protocols.transport.brpc.first_bytes import protocol_of
from interlingua.protocols.transport.brpc.frame import (
    BrpcFrameReader,
    Frame,
    FrameError,
    write_answer,
    write_error,
)
from interlingua.protocols.transport.brpc.logoff import LogOff, after_reading
from interlingua.protocols.transport.brpc.message import context_of, inflate, unpack
from interlingua.protocols.transport.brpc.planned import PlannedCall, Serve
from interlingua.protocols.transport.certificates import client_identity
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS, Http2Options
from interlingua.protocols.transport.hand_over import hand_over
from interlingua.protocols.transport.http.engine import Settings
from interlingua.protocols.transport.http.native import NativeEngine
from interlingua.protocols.transport.listener import ConnectionSet, Listener, listener_at
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.received import SharedReceiver, shared_space
from interlingua.protocols.transport.sockets import client_host, half_closes, send_at_once
from interlingua.protocols.transport.stall import IdleWatch, StallWatch
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Timeouts
from interlingua.protocols.transport.turns import TURN_REQUESTS, Turn
from interlingua.protocols.transport.writes import WriteBatch
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcHandler,
    BrpcRequest,
    Buffer,
    GrpcHandler,
    HttpHandler,
)
from interlingua.schemas import Context
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits

MAX_REQUEST_BYTES = 64 << 20
"""The largest body that the original takes."""

IDLE_SECS = 1800.0
"""How long a connection may stay without a frame: the original's."""

MAX_IN_FLIGHT = 256
"""How many calls of one connection are at work before its next ones wait: as many answers may have to be kept
for a client that does not take them."""

_log = logging.getLogger(__name__)


class BrpcServer:
    """Listens at one address. Start it once, stop it once.

    ``max_concurrency`` bounds the calls at work on all connections together, those over HTTP and gRPC among
    them; what is above it is refused with 2004, over gRPC with RESOURCE_EXHAUSTED. A body above
    ``max_request_bytes`` ends its connection.
    """

    def __init__(
        self,
        handler: BrpcHandler,
        http: HttpHandler,
        grpc: GrpcHandler,
        address: Address | Listener,
        *,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_response_bytes: int | None = None,
        limits: DecodingLimits = DEFAULT_LIMITS,
        max_concurrency: int | None = None,
        load: ListenerLoad | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        http2: Http2Options = DEFAULT_OPTIONS,
    ) -> None:
        self._listener = listener_at(address)
        load = ListenerLoad() if load is None else load
        self.handler = handler
        if max_concurrency is not None:
            http, grpc = BoundedHttp(http, self), BoundedGrpc(grpc, self)
        self.http = NativeEngine(Settings(http, max_response_bytes, timeouts, load=load))
        self.grpc = GrpcServer(
            grpc,
            address,
            max_request_bytes=max_request_bytes,
            max_response_bytes=max_response_bytes,
            load=load,
            limits=limits,
            timeouts=timeouts,
            http2=http2,
            http=http,
        )
        self.limits = limits
        self.max_request_bytes = max_request_bytes
        self.max_response_bytes = max_response_bytes
        self.max_concurrency = max_concurrency
        self.timeouts = timeouts
        self.connections: ConnectionSet[_Connection] = ConnectionSet(load, "brpc")
        self.space = shared_space()
        self.refuses = False  # calls of new connections, with 2003

    @property
    def at_work(self) -> int:
        """The number of calls and requests in flight."""
        return len(self.connections.in_flight) + self.http.at_work + self.grpc.at_work

    async def start(self) -> Address:
        """Listen. Returns the bound address, port filled in. Raises ``OSError``."""
        return await self._listener.start(self.connection)

    def connection(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""
        return _Connection(self)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    def retire(self) -> None:
        """Accept nothing more. Calls that have not begun to arrive are refused with 2003, which sends clients
        to a new connection; for HTTP and gRPC see their servers."""
        self._listener.retire()
        self.retire_connections()

    def retire_connections(self) -> None:
        """The same for the connections alone."""
        self.connections.retire()
        after_reading(self._log_off)
        self.http.retire()
        self.grpc.retire_connections()

    async def stop(self, grace_secs: float) -> int:
        """Stop; returns how many calls were cut. See ``ConnectionSet.drain``, and :meth:`retire`."""
        return await self._listener.stop(self.drain(grace_secs))

    async def drain(self, grace_secs: float) -> int:
        """The same for the connections alone, whose listener accepts nothing more."""
        self._log_off()
        draining = self.connections.drain(grace_secs), self.http.stop(grace_secs), self.grpc.drain(grace_secs)
        return sum(await asyncio.gather(*draining))

    def _log_off(self) -> None:
        self.refuses = True
        for connection in self.connections.open:
            connection.logoff.begin()


class _Connection(SharedReceiver):
    """One connection: its frames become calls, their answers frames."""

    def __init__(self, server: BrpcServer) -> None:
        super().__init__(server.space)
        self._server = server
        self._frames = BrpcFrameReader(server.max_request_bytes, server.connections.load.allocate)
        self._first: bytes | None = b""
        self._running: dict[asyncio.Task[None], Context] = {}
        self._draining = False
        self._plans: Plans | None = getattr(server.handler, "plans", None)
        self.logoff = LogOff(self._frames, self.drain)
        self._begun = 0  # frames in this turn

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self._batch = WriteBatch(self._loop, self._transport)
        send_at_once(transport)
        server = self._server
        self._peer = client_host(transport)
        self._client_name = client_identity(transport)
        self.turn = Turn(self._loop, self._transport, self._go_on)
        self._backlog = Backlog(self._transport, MAX_IN_FLIGHT, server.max_request_bytes)
        self._stall = StallWatch(self._transport, server.timeouts)
        self._idle = IdleWatch(
            server.timeouts, self._state, lambda: self._frames.arrived, self._stall.close, IDLE_SECS
        )
        self._admission = CallAdmission(
            server, self._frames, self._backlog, self.logoff, self._peer, self._fail
        )
        server.connections.add(self, transport)
        if server.refuses:
            self.logoff.begin()

    def data_received(self, data: Buffer) -> None:
        """Read frames, if the first bytes are those of a frame."""
        if not self._first:
            self._idle.received_at = self._loop.time()
        if self._first is not None:
            data = self._first + data
            protocol = protocol_of(data)
            if protocol != "baidu_std":
                self._choose(protocol, data)
                return
            self._first = None
        self._frames.feed(data)
        self._advance()
        self._frames.keep()

    def direct_received(self, count: int) -> None:
        """More of a large frame."""
        self._idle.received_at = self._loop.time()
        self._frames.received(count)
        self._advance()

    def eof_received(self) -> bool:
        """The client disconnected: bRPC's do not half-close. What is written by now is sent."""
        self._close()
        return half_closes(self._transport)

    def pause_writing(self) -> None:
        """The client reads its answers too slowly: begin no more of its calls."""
        self._backlog.writable = False
        self._stall.start()

    def resume_writing(self) -> None:
        """The client has read most of them."""
        self._backlog.writable = True
        self._stall.resumed()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the calls."""
        self._leave()
        self._frames.discard()
        for task, context in self._running.items():
            context.cancel.cancel()
            task.cancel()

    # called by the connection set

    def drain(self) -> None:
        """Close as soon as nothing runs, and no large call is arriving."""
        self._draining = True
        self.logoff.begin()
        self._close_if_over()

    @property
    def unsent(self) -> bool:
        """See ``Accepted``."""
        self._batch.flush()
        return not self._running and self._transport.get_write_buffer_size() > 0

    def cut(self) -> None:
        """Close the socket now."""
        self._transport.abort()

    abort = cut

    def _choose(self, protocol: str | None, data: bytes) -> None:
        """Hand the connection over where it speaks HTTP, close it where it speaks none of them."""
        if protocol is None:
            self._first = data
        elif protocol == "unknown":
            self._stall.close()
        else:
            self._leave()
            server = self._server.http if protocol == "http" else self._server.grpc
            hand_over(self._transport, server.connection(), data)

    def _go_on(self) -> None:
        """It is this connection's turn again."""
        self._begun = 0
        self._advance()

    def _advance(self) -> None:
        """Begin the calls that have arrived, within the backlog and the turn."""
        try:
            while (accepts := self._backlog.accepts) and not self.turn.waiting:
                frame = self._frames.next()
                if frame is None:
                    break
                self._begin(frame)
                self._begun += 1
                if self._begun == TURN_REQUESTS:
                    self.end_turn()
            self._admission.count_received()
            space = self._frames.space
        except (FrameError, MemoryError) as fault:
            facts = {"address": str(self._server.address), "peer": self._peer, "reason": str(fault)}
            words = "no memory for bRPC, connection closed"
            if isinstance(fault, FrameError):
                words = "malformed bRPC, connection closed"
            _log.debug(words, extra={"facts": facts})
            self._close()  # a frame that is not complete has no number to answer with
            return
        self.direct = space
        self.turn.read(accepts)
        if self._draining:
            self._close_if_over()

    def _begin(self, frame: Frame) -> None:
        meta, payload, admission = frame.meta, frame.payload, self._admission
        assert payload is not None, "a server skims nothing"  # noqa: S101
        context = context_of(meta, self._peer, self._client_name)
        context.arrived, admission.since = admission.since, 0
        compression = name_of(meta.compress_type)
        request = BrpcRequest(meta.service or "", meta.method, payload, context, compression, len(payload))
        server = self._server
        most, limits = server.max_request_bytes, server.limits
        refusal = admission.refusal(request, frame)
        if refusal is None and (refused := server.handler.refusal(request)) is not None:
            self._send(meta.correlation_id, refused)
            return
        refusal = refusal or unpack(request, meta, most, limits)
        if refusal is not None:
            admission.refuse(meta, request.size, refusal)
            return
        planned = None
        if compression == "none" and self._plans is not None:
            planned = PlannedCall.begin(self._plans, request)
        if planned is not None and planned.response is not None:
            self._send(meta.correlation_id, planned.response)
            context.write_ended()
            return
        if meta.compress_type:
            inflated = most_decompressed(len(request.message), most, limits)
            call = admission.begin(request.size, max(inflated - request.size, 0))
        else:
            call = admission.begin(max(frame.size, len(request.message)))
        serve = server.handler.serve if planned is None else planned.serve
        work = self._serve(meta.correlation_id, request, serve, meta.compress_type, call)
        task = self._loop.create_task(work)
        self._running[task] = context
        context.reports_write = True
        server.connections.in_flight.add(task)
        if planned is not None:  # a task that is cancelled before it begins counts nothing
            task.add_done_callback(lambda _: planned.end())
        task.add_done_callback(partial(self._ended, call))

    async def _serve(
        self, correlation_id: int, request: BrpcRequest, serve: Serve, compress_type: int, call: AdmittedCall
    ) -> None:
        try:
            if compress_type:
                answer = await self._decompress(request, compress_type, call) or await serve(request)
            else:
                answer = await serve(request)
        except Exception:
            method = f"{request.service}/{request.method}"
            _log.exception("unexpected error", extra={"facts": {"method": method}})
            answer = refusals.FAULT
        self._send(correlation_id, answer)

    async def _decompress(
        self, request: BrpcRequest, compress_type: int, call: AdmittedCall
    ) -> BrpcAnswer | None:
        """Decompress the message of ``request`` in a thread. Returns the refusal if there is one."""
        server = self._server
        refusal = await inflate(request, compress_type, server.max_request_bytes, server.limits, self._peer)
        return refusal or self._admission.decompressed(call, len(request.message))

    def _send(self, correlation_id: int, answer: BrpcAnswer) -> None:
        limit = self._server.max_response_bytes
        if limit is not None and len(answer.message) > limit:
            answer = refusals.too_long(answer, limit)
        if answer.code:
            self._fail(correlation_id, answer)
        else:
            self._batch.write(*write_answer(correlation_id, answer.message, answer.headers))

    def _ended(self, call: AdmittedCall, task: asyncio.Task[None]) -> None:
        self._server.connections.in_flight.discard(task)
        self._server.connections.changed()
        self._running.pop(task).write_ended()
        self._admission.end(call)
        self._idle.received_at = self._loop.time()
        self._advance()

    def _fail(self, correlation_id: int, answer: BrpcAnswer) -> None:
        text = f"[{refusals.sender(self._transport)}][E{answer.code}]{answer.text}"
        self._batch.write(*write_error(correlation_id, answer.code, text, answer.headers))

    def _close_if_over(self) -> None:
        if not (self._running or self._frames.arriving):
            self._close()

    def _close(self) -> None:
        """Close it once everything is sent."""
        self._batch.flush()
        self._stall.close()

    def _state(self) -> str:
        if self._running or not self.turn.reading:
            return "busy"
        if self._first:
            return "header"
        return "partial" if self._frames.partial else "idle"

    def _leave(self) -> None:
        """Stop the timers, and leave the connection set."""
        self._idle.cancel()
        self._stall.cancel()
        self.logoff.cancel()
        self._admission.release()
        self._server.connections.remove(self, self._transport)
