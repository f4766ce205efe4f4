"""Makes calls to one bRPC upstream over one connection, messages as bytes.

All calls share the connection: each has a correlation id, and replies come in any order. A reply to a call
that was cancelled is thrown away.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from typing import cast

from interlingua.protocols.brpc_status import ERROR_CODES
from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.brpc.compression import decompress
from interlingua.protocols.transport.brpc.frame import (
    MAX_BODY_BYTES,
    BrpcFrameReader,
    Frame,
    FrameError,
    write_request,
)
from interlingua.protocols.transport.connect import UnsentError, connect
from interlingua.protocols.transport.sockets import write_parts
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest, ConnectionFailedError
from interlingua.schemas import ErrorCode, InferenceError

_LARGEST_TIMEOUT_MS = 2**31 - 1
_BROKEN_OFF = "closed the connection without an answer"
_IDENTITY = re.compile(r"\A\[[^\]]*\](?:\[E\d+\])?")
"""What a server puts before the words of an error: its address, perhaps hashed, and the number."""


class BrpcConnectionClient:
    """A ``BrpcClient``: a connection to ``url``, made when first needed and again when it breaks; ``at`` is
    the numeric address of its host, where that has been looked up."""

    def __init__(
        self,
        url: Url,
        *,
        connect_timeout_secs: float = 5.0,
        max_response_bytes: int | None = None,
        at: str = "",
    ) -> None:
        self._url = url
        self._connect_secs = connect_timeout_secs
        self._limit = MAX_BODY_BYTES if max_response_bytes is None else max_response_bytes
        self._host = at or url.address.host
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None

    async def send(self, request: BrpcRequest) -> BrpcAnswer:
        """Make one call; errors are those of ``BrpcClient``."""
        deadline = request.context.deadline
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise self._error(ErrorCode.DEADLINE_EXCEEDED, "was not asked: the deadline has passed")
        connection = None
        try:
            async with asyncio.timeout(left):
                connection = await self._connected()
                heard = connection.heard
                frame = await connection.call(request)
        except TimeoutError as late:
            # the server may be gone, which TCP may take long to notice: the next call opens a new connection
            if connection is not None and connection.heard == heard:
                self._retire(connection)
            raise self._error(ErrorCode.DEADLINE_EXCEEDED, "did not answer before the deadline") from late
        except FrameError as fault:
            words = f"the upstream at {self._url} does not speak bRPC: {fault}"
            raise ConnectionFailedError(ErrorCode.BAD_UPSTREAM, words, sent=True) from fault
        except ConnectionError as fault:
            words = f"the upstream at {self._url} {fault}"
            sent = not isinstance(fault, UnsentError)
            raise ConnectionFailedError(ErrorCode.UNAVAILABLE, words, sent=sent) from fault
        return self._answer(frame)

    async def close(self) -> None:
        """Close the connection; calls on it fail."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> _Connection:
        """The connection, made once for all calls that wait for it. Raises ``ConnectionError``."""
        if self._connection is not None and self._connection.usable:
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
            self._connecting.add_done_callback(self._tried)
        return await asyncio.shield(self._connecting)

    def _tried(self, attempt: asyncio.Task[_Connection]) -> None:
        self._connecting = None
        if not attempt.cancelled() and attempt.exception() is None:
            self._connection = attempt.result()

    async def _connect(self) -> _Connection:
        return await connect(self._url.address, self._host, self._protocol, self._connect_secs)

    def _protocol(self) -> _Connection:
        return _Connection(self._limit)

    def _retire(self, connection: _Connection) -> None:
        """Make no more calls on ``connection``; those that run on it may still be answered."""
        if self._connection is connection:
            self._connection = None
        connection.retire()

    def _answer(self, frame: Frame) -> BrpcAnswer:
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
            return BrpcAnswer(decompress(meta.compress_type, payload, self._limit))
        except InferenceError as fault:
            if fault.code is ErrorCode.TOO_LARGE:
                raise self._too_large("that is larger when decompressed") from fault
            raise self._error(ErrorCode.BAD_UPSTREAM, f"answered badly: {fault.message}") from fault

    def _too_large(self, what: str) -> InferenceError:
        return self._error(
            ErrorCode.TOO_LARGE,
            f"gave an answer {what}, more than the {self._limit} that max_response_bytes of this upstream "
            "allows",
        )

    def _error(self, code: ErrorCode, what: str) -> InferenceError:
        return InferenceError(code, f"the upstream at {self._url} {what}")


class _Connection(asyncio.Protocol):
    """One connection and the calls that wait on it. ``lost`` is done when it is closed; ``heard``
    counts what arrived."""

    def __init__(self, max_body_bytes: int) -> None:
        self._frames = BrpcFrameReader(max_body_bytes, skims=True)
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._last_id = 0
        self._retired = False
        self._writable = asyncio.Event()
        self._writable.set()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.heard = 0

    async def call(self, request: BrpcRequest) -> Frame:
        """Send ``request`` and wait for its reply. Raises ``ConnectionError`` where the connection breaks
        first, ``FrameError`` where what comes is not bRPC."""
        # a client that sends faster than the server reads must not hold all of it here
        await self._writable.wait()
        if not self.usable:
            raise UnsentError(_BROKEN_OFF)
        self._last_id = correlation_id = self._last_id + 1
        reply: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        deadline = request.context.deadline
        try:
            self._write(request, correlation_id, 0 if deadline is None else _timeout_ms(deadline))
            return await reply
        finally:
            del self._waiting[correlation_id]
            if self._retired and not self._waiting:
                self._transport.abort()

    @property
    def usable(self) -> bool:
        """Whether a request that is written now may be answered; the end of the stream closes a transport
        some time before the connection counts as lost."""
        return not (self.lost.done() or self._transport.is_closing())

    def retire(self) -> None:
        """Close when the last call that runs has ended."""
        self._retired = True
        if not self._waiting:
            self._transport.abort()

    async def close(self) -> None:
        """Close it, and wait until that is done."""
        self._transport.abort()
        await self.lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server is there."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Give every reply to the call that waits for it."""
        self.heard += 1
        try:
            self._frames.feed(data)
            while (frame := self._frames.next()) is not None:
                waiting = self._waiting.get(frame.meta.correlation_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
        except FrameError as fault:
            self._end(fault)
            self._transport.abort()

    def pause_writing(self) -> None:
        """The server takes no more for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """No reply will come any more."""
        self._end(ConnectionError(_BROKEN_OFF))

    def _write(self, request: BrpcRequest, correlation_id: int, timeout_ms: int) -> None:
        parts = write_request(
            request.service,
            request.method,
            correlation_id,
            request.message,
            timeout_ms,
            request.headers,
        )
        write_parts(self._transport, parts)

    def _end(self, reason: Exception) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self._writable.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(reason)


def _timeout_ms(deadline: float) -> int:
    """What is left until ``deadline``, as the wire has it: at least 1, for 0 is no limit."""
    return min(max(1, math.ceil((deadline - time.monotonic()) * 1000)), _LARGEST_TIMEOUT_MS)
