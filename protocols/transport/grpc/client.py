"""A gRPC client of one upstream, on HTTP/2 of our own: messages as bytes, calls that share connections.

A new connection is opened when the server takes no more calls on the others, up to a maximum; further calls
wait. HTTP/2 is spoken in the clear with prior knowledge (RFC 9113, 3.3), over TCP and unix sockets.
``grpc.library_client`` does the same on grpcio.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from interlingua.protocols.plans import SentWaiter
from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.client_options import DEFAULT_OPTIONS, ClientOptions
from interlingua.protocols.transport.connect import open_connection, reason_of
from interlingua.protocols.transport.grpc.client_call import (
    CallbackClientCall,
    StreamClientCall,
    UnaryClientCall,
    UnprocessedError,
)
from interlingua.protocols.transport.grpc.client_connection import GrpcClientConnection
from interlingua.protocols.transport.grpc.client_errors import ClientErrors, unsendable
from interlingua.protocols.transport.grpc.client_headers import UnsendableError
from interlingua.protocols.transport.grpc.messages import CompressedMessage, MessageError
from interlingua.protocols.transport.grpc.status import RESOURCE_EXHAUSTED
from interlingua.protocols.transport.received import shared_space
from interlingua.protocols.wire import NO_PARAMS, ArrivingMessage, Buffer, GrpcAnswer, GrpcRequest

_MAX_CONNECTIONS = 16
"""How many connections are open at one time, those that only finish their calls not counted."""

_CLOSED = "closed: the client has ended"

_CLOSE_SECS = 2.0
"""How long to wait for sockets to close: longer than a connection waits for the answer that ends TLS."""

_ATTEMPTS = 3
"""How often a call is made that servers close to or refuse without processing it."""


class GrpcChannelClient:
    """A ``GrpcClient`` of the server at ``url``."""

    def __init__(self, url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> None:
        self._tls = options.tls
        self._address = url.address
        self._host = options.at or url.address.host
        self._authority = "localhost" if url.address.path else str(url.address)
        self._connect_timeout = options.connect_timeout_secs
        self._limit = options.max_response_bytes
        self._limits = options.limits
        self._errors = ClientErrors(url, options.max_response_bytes)
        self._space = shared_space()
        self._connections: list[GrpcClientConnection] = []
        self._open: set[asyncio.Future[None]] = set()  # sockets, also those that take no more calls
        self._connecting: asyncio.Task[None] | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._turned_away = 0
        self._closed = False

    async def send(self, request: GrpcRequest, attempts: int = _ATTEMPTS) -> GrpcAnswer:
        """Make one unary call; errors are those of ``GrpcClient``."""
        for _ in range(attempts):
            connection = self._available() or await self._acquire(request)
            call = UnaryClientCall(connection, request.context.deadline)
            block = self._headers(connection, request, request.context.deadline)
            call.start(block, request.message, request.parts)
            try:
                if call.outcome is None:
                    await call.waiter
                answer = call.outcome
                if not isinstance(answer, GrpcAnswer):
                    raise answer or UnprocessedError
                message: Any = answer.message
                return await self._inflated(message) if isinstance(message, CompressedMessage) else answer
            except UnprocessedError:
                continue
            except BaseException:
                call.cancel()
                raise
        raise self._unprocessed()

    def prepare(self, request: GrpcRequest, size: int) -> GrpcRequest:
        """See ``CallbackClient``."""
        return request

    def begin(
        self,
        prepared: GrpcRequest,
        message: Any,
        deadline: float,
        waiter: SentWaiter,
        headers: Mapping[str, str] = NO_PARAMS,
    ) -> UnaryClientCall | None:
        """See ``CallbackClient``."""
        for connection in self._connections:  # _available, inlined
            if connection.connection.available:
                break
        else:
            return None
        call = CallbackClientCall(connection, deadline, waiter)
        if type(message) is ArrivingMessage:
            # the server does not learn our own limit: it does not apply while the caller sends
            block = self._headers(connection, prepared, message.deadline, headers)
            call.open(block, message.deadline)
        else:
            call.start(self._headers(connection, prepared, deadline, headers), message)
        return call

    async def finish(self, request: GrpcRequest, outcome: GrpcAnswer | Exception) -> GrpcAnswer:
        """See ``CallbackClient``."""
        if isinstance(outcome, UnprocessedError):
            sent: Any = request.message
            if type(sent) is ArrivingMessage:
                raise sent.passed()
            return await self.send(request, _ATTEMPTS - 1)
        if isinstance(outcome, Exception):
            raise outcome
        message: Any = outcome.message
        return await self._inflated(message) if isinstance(message, CompressedMessage) else outcome

    def cancel(self, handle: UnaryClientCall, waiter: SentWaiter) -> None:
        """See ``CallbackClient``."""
        handle.cancel()

    async def stream(
        self, request: GrpcRequest, messages: AsyncIterator[Buffer] | None = None
    ) -> AsyncGenerator[GrpcAnswer, None]:
        """Make one call of a streaming method; answers and errors are those of ``GrpcClient``."""
        for _ in range(_ATTEMPTS if messages is None else 1):
            connection = self._available() or await self._acquire(request)
            call = StreamClientCall(connection, request.context.deadline)
            call.start(self._headers(connection, request, request.context.deadline))
            sending = None
            try:
                if messages is None:
                    call.send(request.whole, ended=True)
                else:
                    sending = connection.loop.create_task(call.send_all(messages))
                async for message in call:
                    if type(message) is CompressedMessage:
                        yield await self._inflated(message)
                    else:
                        yield GrpcAnswer(message)
                status = call.ended()
            except UnprocessedError:
                continue
            finally:
                call.cancel()
                if sending is not None:
                    sending.cancel()
                    await asyncio.wait((sending,))
            if status.code:
                yield status
            return
        raise self._unprocessed()

    async def _inflated(self, message: CompressedMessage) -> GrpcAnswer:
        """The answer with ``message``. Raises TOO_LARGE, OVERLOADED."""
        try:
            return GrpcAnswer(await message.inflated(self._limits))
        except MessageError as error:
            if error.code != RESOURCE_EXHAUSTED:
                return GrpcAnswer(code=error.code, details=error.details)
            if error.fault is not None:
                raise self._errors.limited(error.fault) from None
            raise self._errors.too_large(error.details) from None

    async def close(self) -> None:
        """Close the connections; calls that run or wait fail."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        for connection in self._connections:
            connection.close(_CLOSED)
        self._refuse(_CLOSED)
        if self._open:
            await asyncio.wait(self._open, timeout=_CLOSE_SECS)

    def _headers(
        self,
        connection: GrpcClientConnection,
        request: GrpcRequest,
        deadline: float | None,
        headers: Mapping[str, str] = NO_PARAMS,
    ) -> bytes:
        """The field block of a call that begins now. Raises DEADLINE_EXCEEDED where no time is left."""
        timeout = None
        if deadline is not None:
            timeout = deadline - time.monotonic()
            if timeout <= 0:
                raise self._errors.too_late()
            if deadline < connection.deadlines.at:
                connection.deadlines.add(deadline)
        metadata = {**request.metadata, **headers} if headers else request.metadata
        try:
            return connection.headers.block(request.method, timeout, metadata)
        except UnsendableError as fault:
            raise unsendable(request) from fault

    def _available(self) -> GrpcClientConnection | None:
        """A connection that takes a call now."""
        for connection in self._connections:
            if connection.connection.available:
                return connection
        return None

    async def _acquire(self, request: GrpcRequest) -> GrpcClientConnection:
        """Wait for a connection that takes a call; open one, if more are allowed. Raises
        ``ConnectionFailedError`` if there is none and none can be opened."""
        deadline = request.context.deadline
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise self._errors.too_late()
        try:
            async with asyncio.timeout(left):
                while (connection := self._available()) is None:
                    if self._closed:
                        raise self._errors.failed(_CLOSED, sent=False)
                    if self._may_connect:
                        self._connecting = asyncio.get_running_loop().create_task(self._connect())
                    await self._change()
        except TimeoutError:
            raise self._errors.timed_out() from None
        return connection

    async def _change(self) -> None:
        """Wait until a connection may take a call. Raises the error of one that could not be opened."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._on_change()  # another waiter takes the place
            raise

    async def _connect(self) -> None:
        """Open a connection and wait until the server has said that it speaks HTTP/2."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()
        opened = None
        what = ""

        def changed() -> None:
            if not started.done():
                started.set_result(None)
            self._on_change()

        try:
            async with asyncio.timeout(self._connect_timeout):
                _, opened = await open_connection(
                    self._address,
                    self._host,
                    lambda: GrpcClientConnection(
                        loop, self._space, self._authority, self._errors, self._limit, changed
                    ),
                    self._tls,
                )
                self._open.add(opened.socket_closed)
                opened.socket_closed.add_done_callback(self._open.discard)
                await started
            what = opened.unusable()
        except TimeoutError:
            what = "gave no connection" if opened is None else "did not begin with HTTP/2"
            what += f" within {self._connect_timeout:g} seconds"
        except OSError as fault:
            what = f"cannot be reached: {reason_of(fault)}"
        except asyncio.CancelledError:
            what = _CLOSED
        self._connecting = None
        if opened is not None and not what:
            self._turned_away = 0
            self._connections.append(opened)
            self._on_change()
            return
        if opened is not None:
            opened.close(what)
            if opened.connection.going_away and self._turned_away + 1 < _ATTEMPTS:
                # the server stops; its successor may have the address
                self._turned_away += 1
                self._on_change()
                return
        self._refuse(what)

    def _refuse(self, what: str) -> None:
        """No connection came about: fail the calls that wait, unless others will end."""
        if not any(each.usable for each in self._connections):
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_exception(self._errors.failed(what, sent=False))
            self._waiters.clear()

    @property
    def _may_connect(self) -> bool:
        """Whether another connection may be opened now."""
        usable = sum(each.usable for each in self._connections)
        return self._connecting is None and usable < _MAX_CONNECTIONS and not self._closed

    def _on_change(self) -> None:
        """Drop closed connections, and wake as many waiters as may call now."""
        if any(each.closed for each in self._connections):
            self._connections = [each for each in self._connections if not each.closed]
        if not self._waiters:
            return
        free = sum(each.free for each in self._connections) + self._may_connect
        while free > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    def _unprocessed(self) -> Exception:
        return self._errors.failed("refused the call without processing it", sent=False)
