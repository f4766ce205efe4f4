"""A bRPC listener for a ``BrpcHandler``: baidu_std, and on the same port HTTP/1.1 and gRPC, as the original.

The first bytes of a connection decide which of them it speaks. The calls on a connection are answered
as they finish, in any order; what a client sends faster than that waits in its own socket. Error numbers and
texts are the original's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import cast

from interlingua.protocols.brpc_status import BrpcStatus, unparsable
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.brpc.bounded import BoundedGrpc, BoundedHttp, full
from interlingua.protocols.transport.brpc.compression import decompress, name_of
from interlingua.protocols.transport.brpc.frame import (
    MAGIC,
    Frame,
    FrameCutter,
    FrameError,
    Meta,
    write_answer,
    write_error,
)
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.frames import PREFACE
from interlingua.protocols.transport.http.answer import JOINED_BYTES
from interlingua.protocols.transport.http.server import STALL_SECS, HttpServer
from interlingua.protocols.transport.sockets import SocketFile, bound, listen, send_at_once
from interlingua.protocols.transport.stall import StallWatch
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcHandler,
    BrpcRequest,
    Buffer,
    GrpcHandler,
    HttpHandler,
)
from interlingua.schemas import Context, InferenceError

MAX_REQUEST_BYTES = 64 << 20
"""The largest body that the original takes."""

IDLE_SECS = 1800.0
"""How long a connection may stay without a frame: the original's."""

MAX_IN_FLIGHT = 256
"""How many calls of one connection are at work before its next ones wait: as many answers may have to be kept
for a client that does not take them."""

_CUT_SECS = 1.0
"""How long a call that was cut may take to notice."""

_HTTP_STARTS = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC")
"""How a connection begins that speaks HTTP/1."""

_HTTP2_START = PREFACE[: len(MAGIC)]

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
        address: Address,
        *,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_response_bytes: int | None = None,
        max_concurrency: int | None = None,
        idle_secs: float = IDLE_SECS,
        stall_secs: float = STALL_SECS,
    ) -> None:
        self.address = address
        self.handler = handler
        self.http = HttpServer(
            BoundedHttp(http, self), address, max_response_bytes=max_response_bytes, stall_secs=stall_secs
        )
        self.grpc = GrpcServer(
            BoundedGrpc(grpc, self),
            address,
            max_request_bytes=max_request_bytes,
            max_response_bytes=max_response_bytes,
            stall_secs=stall_secs,
        )
        self.max_request_bytes = max_request_bytes
        self.max_response_bytes = max_response_bytes
        self.max_concurrency = max_concurrency
        self.idle_secs = idle_secs
        self.stall_secs = stall_secs
        self.stopping = False
        self.running: set[asyncio.Task[None]] = set()
        self.connections: set[_Connection] = set()
        self.empty = asyncio.Event()

    @property
    def at_work(self) -> int:
        """How many calls and requests are not answered yet."""
        return len(self.running) + self.http.at_work + self.grpc.at_work

    async def start(self) -> Address:
        """Listen. The bound address, port filled in; ``OSError`` where that cannot be."""
        sock = listen(self.address)
        self.address = bound(sock)
        self._file = SocketFile(self.address)
        self.http.open()
        loop = asyncio.get_running_loop()
        create = loop.create_unix_server if self.address.path else loop.create_server
        self._listener = await create(partial(_Connection, self), sock=sock)
        return self.address

    async def stop(self, grace_secs: float) -> int:
        """Accept nothing more, let running calls end for ``grace_secs``, then cut the rest.

        How many calls were cut. A call that still arrives is refused with 2003, which tells clients to
        try elsewhere; a connection is closed when nothing of it runs.
        """
        self.stopping = True
        self._listener.close()
        others = asyncio.gather(self.http.stop(grace_secs), self.grpc.stop(grace_secs))
        for connection in tuple(self.connections):
            connection.close_when_idle()
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
        cut += sum(await others)
        await asyncio.sleep(0)  # aborted connections hear of it in the next turn of the loop
        if self.running:
            await asyncio.wait(self.running, timeout=_CUT_SECS)
        self._file.remove()
        return cut


class _Connection(asyncio.Protocol):
    """One connection: its frames become calls, their answers frames."""

    def __init__(self, server: BrpcServer) -> None:
        self._server = server
        self._cutter = FrameCutter(server.max_request_bytes)
        self._first: bytes | None = b""
        self._running: dict[asyncio.Task[None], Context] = {}
        self._bytes_at_work = 0
        self._reading = self._writable = True
        self._closing_when_idle = False
        self._watch: StallWatch | None = None

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

    def data_received(self, data: bytes) -> None:
        """Cut what arrived into frames, after the first bytes have told that it is frames."""
        self._heard = self._loop.time()
        if self._first is not None:
            data = self._first + data
            if not data.startswith(MAGIC):
                self._find_protocol(data)
                return
            self._first = None
        self._cutter.feed(data)
        self._advance()

    def eof_received(self) -> bool:
        """The client has gone: those of bRPC do not close one side alone."""
        self._close()
        return True

    def pause_writing(self) -> None:
        """The client takes its answers slower than they come: take no more of its calls."""
        self._writable = False
        self._watch_writing()

    def resume_writing(self) -> None:
        """It has taken most of them."""
        self._writable = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is left to answer."""
        self._leave()
        for task, context in self._running.items():
            context.cancel.cancel()
            task.cancel()

    # what the server calls

    def close_when_idle(self) -> None:
        """Close as soon as nothing runs."""
        self._closing_when_idle = True
        if not self._running:
            self._close()

    def abort(self) -> None:
        """End it now."""
        self._transport.abort()

    def _find_protocol(self, data: bytes) -> None:
        """Hand the connection over where it speaks HTTP, close it where it speaks none of them."""
        if data[:4] in _HTTP_STARTS:
            self._leave()
            self._server.http.adopt(self._transport, data)
        elif data.startswith(_HTTP2_START):
            self._leave()
            self._server.grpc.adopt(self._transport, data)
        elif _may_become(data):
            self._first = data
        else:
            self._close()

    def _advance(self) -> None:
        """Start every call that has arrived, as far as there is room for it."""
        try:
            while room := self._has_room():
                frame = self._cutter.next()
                if frame is None:
                    break
                self._begin(frame)
        except FrameError as fault:
            facts = {"address": str(self._server.address), "peer": self._peer, "reason": str(fault)}
            _log.debug("malformed bRPC, connection closed", extra={"facts": facts})
            self._close()
            return
        if room != self._reading and not self._transport.is_closing():
            self._reading = room
            (self._transport.resume_reading if room else self._transport.pause_reading)()

    def _has_room(self) -> bool:
        return (
            self._writable
            and len(self._running) < MAX_IN_FLIGHT
            # one call of the largest size, or as many as are together no larger, decompressed
            and self._bytes_at_work < self._server.max_request_bytes
            and not self._transport.is_closing()
        )

    def _begin(self, frame: Frame) -> None:
        meta, payload = frame.meta, frame.payload
        assert payload is not None, "a server skims nothing"  # noqa: S101
        headers = meta.headers
        context = Context(peer=self._peer)
        if headers:
            context.headers = headers
            context.traceparent = headers.get("traceparent", "")
            context.tracestate = headers.get("tracestate", "")
        if meta.timeout_ms > 0:
            context.deadline = time.monotonic() + meta.timeout_ms / 1000
        compression = name_of(meta.compress_type)
        request = BrpcRequest(meta.service or "", meta.method, payload, context, compression, len(payload))
        refusal = self._refusal(request) or self._unpack(request, meta)
        if refusal is not None:
            self._fail(meta.correlation_id, refusal)
            return
        task = self._loop.create_task(self._serve(meta.correlation_id, request))
        self._running[task] = context
        self._server.running.add(task)
        size = max(frame.size, len(request.message))
        self._bytes_at_work += size
        task.add_done_callback(partial(self._ended, size))

    def _refusal(self, request: BrpcRequest) -> BrpcAnswer | None:
        """Why a call is not even looked into."""
        server, service, method = self._server, request.service, request.method
        if server.stopping:
            return BrpcAnswer(code=BrpcStatus.ELOGOFF, text="Server is stopping")
        if server.max_concurrency is not None and server.at_work >= server.max_concurrency:
            return BrpcAnswer(code=BrpcStatus.ELIMIT, text=full(server.max_concurrency))
        if server.handler.offers(service, method):
            return None
        if "." in service or server.handler.knows(service):
            return BrpcAnswer(code=BrpcStatus.ENOMETHOD, text=f"Fail to find method={service}/{method}")
        return BrpcAnswer(code=BrpcStatus.ENOSERVICE, text=f"Fail to find service={service}")

    def _unpack(self, request: BrpcRequest, meta: Meta) -> BrpcAnswer | None:
        """Leave the attachment out of the message and decompress it, or say why that cannot be."""
        attached, payload = meta.attachment_size, memoryview(request.message)
        if attached > request.size:
            return BrpcAnswer(
                code=BrpcStatus.EREQUEST,
                text=f"attachment_size={attached} is larger than request_size={request.size}",
            )
        if attached > 0:  # the original ignores a negative size
            payload = payload[: request.size - attached]
        try:
            request.message = decompress(meta.compress_type, payload, self._server.max_request_bytes)
        except InferenceError:
            return unparsable(request)
        return None

    async def _serve(self, correlation_id: int, request: BrpcRequest) -> None:
        try:
            answer = await self._server.handler.serve(request)
        except Exception:
            method = f"{request.service}/{request.method}"
            _log.exception("unexpected error", extra={"facts": {"method": method}})
            answer = BrpcAnswer(
                code=BrpcStatus.EINTERNAL, text="internal error; the server's log has the details"
            )
        limit, size = self._server.max_response_bytes, len(answer.message)
        if limit is not None and size > limit:
            answer = BrpcAnswer(
                code=BrpcStatus.ERESPONSE,
                text=f"the answer has {size} bytes, more than the {limit} that max_response_bytes of this "
                "listener allows",
            )
        if answer.code:
            self._fail(correlation_id, answer)
        else:
            self._write(write_answer(correlation_id, answer.message, answer.headers))

    def _ended(self, size: int, task: asyncio.Task[None]) -> None:
        self._server.running.discard(task)
        del self._running[task]
        self._bytes_at_work -= size
        self._heard = self._loop.time()
        self._advance()
        if self._closing_when_idle and not self._running:
            self._close()

    def _fail(self, correlation_id: int, answer: BrpcAnswer) -> None:
        text = f"[{self._identity()}][E{answer.code}]{answer.text}"
        self._write(write_error(correlation_id, answer.code, text, answer.headers))

    def _write(self, parts: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        if sum(map(len, parts)) <= JOINED_BYTES:
            transport.write(b"".join(parts))
        else:
            for part in parts:
                transport.write(part)

    def _identity(self) -> str:
        place = self._transport.get_extra_info("sockname")
        return _disguised(f"{place[0]}:{place[1]}" if isinstance(place, tuple) else str(place))

    def _close(self) -> None:
        """Close it once what is written has been taken, or as soon as the client takes no more of it."""
        if not self._transport.is_closing():
            self._transport.close()
            if self._transport.get_write_buffer_size():
                self._watch_writing()

    def _watch_writing(self) -> None:
        if self._watch is None:
            self._watch = StallWatch(self._transport, self._server.stall_secs)

    def _look_later(self) -> None:
        server = self._server
        self._timer = self._loop.call_later(min(server.idle_secs, server.stall_secs), self._look)

    def _look(self) -> None:
        """Close a connection on which nothing happens, earlier where half a frame stands on it."""
        halfway = self._cutter.partial or bool(self._first)
        allowed = self._server.stall_secs if halfway else self._server.idle_secs
        if not self._running and self._reading and self._loop.time() - self._heard >= allowed:
            self._close()
        else:
            self._look_later()

    def _leave(self) -> None:
        """No timer runs any more, and the server does not count on this connection."""
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        self._server.connections.discard(self)
        if not self._server.connections:
            self._server.empty.set()


def _may_become(data: bytes) -> bool:
    return any(start.startswith(data) for start in (MAGIC, _HTTP2_START, *_HTTP_STARTS))


@lru_cache(maxsize=64)
def _disguised(place: str) -> str:
    """The server's address as the original tells it to strangers: hashed, the digits of each byte swapped."""
    digest = hashlib.md5(place.encode(), usedforsecurity=False).digest()
    return bytes((octet >> 4) | (octet & 0xF) << 4 for octet in digest).hex()
