"""A bRPC client of one upstream, on one connection: messages as bytes.

Calls are pipelined: each has a correlation id, and replies come in any order. A reply to a cancelled call is
discarded.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from interlingua.protocols.brpc_status import ERROR_CODES, BrpcStatus
from interlingua.protocols.plans import SentWaiter
from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.brpc.compression import decompress
from interlingua.protocols.transport.brpc.frame import (
    MAX_BODY_BYTES,
    BrpcFrameReader,
    Frame,
    FrameError,
    write_request,
)
from interlingua.protocols.transport.client_options import DEFAULT_OPTIONS, ClientOptions
from interlingua.protocols.transport.connect import UnsentError, connect
from interlingua.protocols.transport.deadlines import Deadlines
from interlingua.protocols.transport.inflated import is_limit, limited_answer
from interlingua.protocols.transport.received import SharedReceiver, shared_space
from interlingua.protocols.transport.threads import in_thread
from interlingua.protocols.transport.turns import Turn
from interlingua.protocols.transport.writes import WriteBatch
from interlingua.protocols.wire import (
    NO_PARAMS,
    BrpcAnswer,
    BrpcRequest,
    Buffer,
    ConnectionFailedError,
)
from interlingua.schemas import ErrorCode, InferenceError

_LARGEST_TIMEOUT_MS = 2**31 - 1
_MAX_UNSOLICITED = 64
"""How many replies without a call a connection may carry."""

_ATTEMPTS = 3
"""How often a call is made that servers refuse because they stop."""

_BROKEN_OFF = "closed the connection without an answer"
_IDENTITY = re.compile(r"\A\[[^\]]*\](?:\[E\d+\])?")
"""The prefix of a server's error text: its address, perhaps hashed, and the number."""


class BrpcConnectionClient:
    """A ``BrpcClient``: a connection to ``url``, opened on demand and replaced when it breaks."""

    def __init__(self, url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> None:
        self._tls = options.tls
        self._url = url
        self._connect_secs = options.connect_timeout_secs
        limit = options.max_response_bytes
        self._limit = MAX_BODY_BYTES if limit is None else limit
        self._limits = options.limits
        self._host = options.at or url.address.host
        self._space = shared_space()
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None

    async def send(self, request: BrpcRequest, attempts: int = _ATTEMPTS) -> BrpcAnswer:
        """Make one call; errors are those of ``BrpcClient``."""
        deadline = request.context.deadline
        if deadline is not None and deadline <= time.monotonic():
            raise self._passed()
        try:
            connection = self._connection
            if connection is None or not connection.ready:
                connection = await self._ready(deadline)
            frame = await connection.call(request)
        except (TimeoutError, FrameError, ConnectionError) as fault:
            raise self._failed(fault) from fault
        return await self._read(request, frame, connection, attempts - 1)

    def prepare(self, request: BrpcRequest, size: int) -> BrpcRequest:
        """See ``CallbackClient``."""
        return request

    def begin(
        self,
        prepared: BrpcRequest,
        message: Buffer,
        deadline: float,
        waiter: SentWaiter,
        headers: Mapping[str, str] = NO_PARAMS,
    ) -> SentReply | None:
        """See ``CallbackClient``."""
        connection = self._connection
        if connection is None or not connection.ready:
            return None
        if deadline <= time.monotonic():
            raise self._passed()
        if headers:
            prepared = replace(prepared, headers={**prepared.headers, **headers})
        return connection.begin(prepared, message, deadline, waiter)

    async def finish(self, request: BrpcRequest, outcome: BrpcAnswer | Exception) -> BrpcAnswer:
        """See ``CallbackClient``."""
        if isinstance(outcome, UnreadError):
            return await self._read(request, outcome.frame, outcome.connection, _ATTEMPTS - 1)
        if isinstance(outcome, TimeoutError | FrameError | ConnectionError):
            raise self._failed(outcome) from outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def cancel(self, handle: SentReply, waiter: SentWaiter) -> None:
        """See ``CallbackClient``."""
        handle.forget()

    async def close(self) -> None:
        """Close the connection; calls on it fail."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        if self._connection is not None:
            await self._connection.close()

    async def _ready(self, deadline: float | None) -> _Connection:
        """A connection that takes a call, opened once for all calls that wait for it. Raises
        ``ConnectionError``, ``TimeoutError``."""
        async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
            connection = self._connection
            if connection is None or not connection.usable:
                if self._connecting is None:
                    self._connecting = asyncio.ensure_future(self._connect())
                    self._connecting.add_done_callback(self._tried)
                connection = await asyncio.shield(self._connecting)
            # a client that sends faster than the server reads must not hold all of it here
            await connection.writable.wait()
            return connection

    def _tried(self, attempt: asyncio.Task[_Connection]) -> None:
        self._connecting = None
        if not attempt.cancelled() and attempt.exception() is None:
            self._connection = attempt.result()

    async def _connect(self) -> _Connection:
        try:
            return await connect(self._url.address, self._host, self._protocol, self._connect_secs, self._tls)
        except asyncio.CancelledError:  # by close: the calls that wait are not cancelled
            raise UnsentError(_BROKEN_OFF) from None

    def _protocol(self) -> _Connection:
        return _Connection(self._space, self._limit)

    async def _read(
        self, request: BrpcRequest, frame: Frame, connection: _Connection, attempts: int
    ) -> BrpcAnswer:
        """The answer to ``request`` in ``frame``, which came over ``connection``, after which so many
        ``attempts`` are left. Raises the server's own error."""
        if frame.meta.error_code and frame.meta.error_code == BrpcStatus.ELOGOFF:
            # as the original's client (``Socket::SetLogOff``, ``DefaultRetryPolicy``): the server stops, and
            # has not processed the call; its successor may have the address
            connection.retire()
            if attempts > 0:
                return await self.send(request, attempts)
        return await self._answer(frame)

    async def _answer(self, frame: Frame) -> BrpcAnswer:
        """The answer in ``frame``. Raises the server's own error."""
        meta, payload = frame.meta, frame.payload
        if meta.error_code:
            words = _IDENTITY.sub("", meta.error_text) or f"bRPC error {meta.error_code}"
            raise InferenceError(ERROR_CODES.get(meta.error_code, ErrorCode.BAD_UPSTREAM), words)
        if payload is None:
            raise self._too_large(f"of {frame.size} bytes")
        if meta.attachment_size > len(payload):
            raise self._error(
                ErrorCode.BAD_UPSTREAM,
                f"claims an attachment of {meta.attachment_size} bytes in {len(payload)}",
            )
        if meta.attachment_size > 0:
            payload = payload[: len(payload) - meta.attachment_size]
        try:
            if not meta.compress_type:
                return BrpcAnswer(payload)
            coding, limit = meta.compress_type, self._limit
            return BrpcAnswer(await in_thread(self._limits, decompress, coding, payload, limit, self._limits))
        except InferenceError as fault:
            if is_limit(fault):
                raise limited_answer(self._url, fault) from fault
            if fault.code is ErrorCode.TOO_LARGE:
                raise self._too_large("that is larger when decompressed") from fault
            raise self._error(ErrorCode.BAD_UPSTREAM, f"answered badly: {fault.message}") from fault

    def _too_large(self, what: str) -> InferenceError:
        return self._error(
            ErrorCode.TOO_LARGE,
            f"gave an answer {what}, more than the {self._limit} that max_response_bytes of this upstream "
            "allows",
        )

    def _passed(self) -> InferenceError:
        return self._error(ErrorCode.DEADLINE_EXCEEDED, "was not called: the deadline has passed")

    def _failed(self, fault: TimeoutError | FrameError | ConnectionError) -> InferenceError:
        """The error of a call that got no frame."""
        if isinstance(fault, TimeoutError):
            return self._error(ErrorCode.DEADLINE_EXCEEDED, "did not answer before the deadline")
        if isinstance(fault, FrameError):
            words = f"the upstream at {self._url} does not speak bRPC: {fault}"
            return ConnectionFailedError(ErrorCode.BAD_UPSTREAM, words, sent=True)
        words, sent = f"the upstream at {self._url} {fault}", not isinstance(fault, UnsentError)
        return ConnectionFailedError(ErrorCode.UNAVAILABLE, words, sent=sent)

    def _error(self, code: ErrorCode, what: str) -> InferenceError:
        return InferenceError(code, f"the upstream at {self._url} {what}")


class UnreadError(Exception):
    """The ``frame`` of a reply over ``connection`` that is an error, or takes more than a moment to read."""

    def __init__(self, frame: Frame, connection: _Connection) -> None:
        self.frame = frame
        self.connection = connection


class SentReply:
    """Gives ``waiter`` the reply to a call, or an error for ``CallbackClient.finish``, as a future would."""

    __slots__ = ("_connection", "_id", "_waiter")

    def __init__(self, connection: _Connection, correlation_id: int, waiter: SentWaiter) -> None:
        self._connection = connection
        self._id = correlation_id
        self._waiter = waiter

    def done(self) -> bool:
        return self._waiter.done()

    def set_result(self, frame: Frame) -> None:
        meta, payload, connection = frame.meta, frame.payload, self._connection
        connection.settled(self._id)
        if meta.error_code or meta.compress_type or meta.attachment_size or payload is None:
            self._waiter.set_exception(UnreadError(frame, connection))
        else:
            self._waiter.set_result(BrpcAnswer(payload))

    def set_exception(self, fault: Exception) -> None:
        self._connection.settled(self._id)
        self._waiter.set_exception(fault)

    def forget(self) -> None:
        """Nothing waits for the reply any longer."""
        self._connection.settled(self._id)


class _Call:
    """A call that waits for its ``reply``."""

    __slots__ = ("_connection", "_frames", "deadline", "reply")

    def __init__(
        self, connection: _Connection, deadline: float | None, reply: asyncio.Future[Frame] | SentReply
    ) -> None:
        self.deadline = deadline
        self.reply = reply
        self._connection = connection
        self._frames = connection.frames_received

    def expire(self) -> None:
        """End the call: its deadline has passed. A connection without a frame since the call began is not
        used again: TCP may take minutes to notice that a machine is gone."""
        if self._connection.frames_received == self._frames:
            self._connection.retire()
        if not self.reply.done():
            self.reply.set_exception(TimeoutError())


class _Connection(SharedReceiver):
    """One connection and the calls that wait on it. ``lost`` is done when no call can be made on it."""

    def __init__(self, space: memoryview, max_body_bytes: int) -> None:
        super().__init__(space)
        self.loop = asyncio.get_running_loop()
        self._reader = BrpcFrameReader(max_body_bytes, skims=True)
        self._waiting: dict[int, _Call] = {}
        self._deadlines = Deadlines(self.loop, self._waiting.values)
        self._last_id = 0
        self._abandoned = self._unsolicited = 0
        self._retired = False
        self.writable = asyncio.Event()
        self.writable.set()
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self.frames_received = 0

    async def call(self, request: BrpcRequest) -> Frame:
        """Send ``request`` and wait for its reply. Raises ``ConnectionError`` if the connection breaks first,
        ``FrameError`` if the data is not bRPC, ``TimeoutError`` at the deadline."""
        if not self.usable:
            raise UnsentError(_BROKEN_OFF)
        self._last_id = correlation_id = self._last_id + 1
        reply: asyncio.Future[Frame] = self.loop.create_future()
        try:
            self._call(request, request.message, request.context.deadline, correlation_id, reply)
            return await reply
        finally:
            self.settled(correlation_id)

    def begin(self, request: BrpcRequest, message: Buffer, deadline: float, waiter: SentWaiter) -> SentReply:
        """Send ``request`` with ``message``; ``waiter`` gets what :meth:`call` returns or raises."""
        self._last_id = correlation_id = self._last_id + 1
        reply = SentReply(self, correlation_id, waiter)
        self._call(request, message, deadline, correlation_id, reply)
        return reply

    def settled(self, correlation_id: int) -> None:
        """Nothing waits for the reply to this call any longer."""
        if self._waiting.pop(correlation_id, None) is not None:
            self._abandoned += 1
        if self._retired and not self._waiting:
            self._transport.abort()

    def _call(
        self,
        request: BrpcRequest,
        message: Buffer,
        deadline: float | None,
        correlation_id: int,
        reply: asyncio.Future[Frame] | SentReply,
    ) -> None:
        self._waiting[correlation_id] = _Call(self, deadline, reply)
        timeout_ms = 0
        if deadline is not None:
            timeout_ms = _timeout_ms(deadline)
            self._deadlines.add(deadline)
        names = request.service, request.method
        self._batch.write(*write_request(*names, correlation_id, message, timeout_ms, request.headers))

    @property
    def ready(self) -> bool:
        """Whether a call can be written without waiting."""
        return self.usable and self.writable.is_set()

    @property
    def usable(self) -> bool:
        """Whether a call that is written now may be answered. At the end of the stream a transport closes
        some time before the connection counts as lost."""
        return not (self._retired or self.lost.done() or self._transport.is_closing())

    def retire(self) -> None:
        """Take no further calls; close after the last call that runs."""
        self._retired = True
        if not self._waiting:
            self._transport.abort()

    async def close(self) -> None:
        """Close it, and wait until that is done."""
        self._transport.abort()
        await self.lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._batch = WriteBatch(self.loop, self._transport)
        self.turn = Turn(self.loop, self._transport, self._settle)

    def data_received(self, data: Buffer) -> None:
        """Frames, cut anywhere."""
        self._reader.feed(data)
        self._settle()
        self._reader.keep()

    def direct_received(self, count: int) -> None:
        """More of a large frame."""
        self._reader.received(count)
        self._settle()

    def _settle(self) -> None:
        """Give every reply to the call that waits for it."""
        try:
            while (frame := self._reader.next()) is not None:
                self.frames_received += 1
                call = self._waiting.pop(frame.meta.correlation_id, None)
                if call is None:
                    self._count_unsolicited()
                elif not call.reply.done():
                    call.reply.set_result(frame)
            self.direct = self._reader.space
        except FrameError as fault:
            self._end(fault)
            self._transport.abort()

    def pause_writing(self) -> None:
        """The server reads more slowly than calls arrive."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """The server has read most of them."""
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the calls that wait."""
        self._deadlines.cancel()
        self._end(ConnectionError(_BROKEN_OFF))

    def _count_unsolicited(self) -> None:
        """A reply without a call: that of an abandoned call, or a fault of the server. Raises
        ``FrameError``."""
        if self._abandoned:
            self._abandoned -= 1
            return
        self._unsolicited += 1
        if self._unsolicited > _MAX_UNSOLICITED:
            raise FrameError("it replies to calls that were not made")

    def _end(self, reason: Exception) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self.writable.set()
        for call in tuple(self._waiting.values()):
            if not call.reply.done():
                call.reply.set_exception(reason)


def _timeout_ms(deadline: float) -> int:
    """What is left until ``deadline``, as the wire has it: at least 1, for 0 is no limit."""
    return min(max(1, math.ceil((deadline - time.monotonic()) * 1000)), _LARGEST_TIMEOUT_MS)
