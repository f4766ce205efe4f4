"""A client of one framed upstream: a pool of kept connections.

Replies come in the order of the messages, without ids. A message therefore gets a connection to itself, so
that it waits for no slower one; above ``MAX_CONNECTIONS`` messages are pipelined. A connection whose messages
are all abandoned is reset: the server stops its work, and no later message can get their replies.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import cast

from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.client_options import DEFAULT_OPTIONS, ClientOptions
from interlingua.protocols.transport.connect import UnsentError, connect
from interlingua.protocols.transport.framed.splitter import (
    MAX_MESSAGE_BYTES,
    FrameSplitter,
    FrameTooLargeError,
)
from interlingua.protocols.transport.writes import write_pieces
from interlingua.protocols.wire import Buffer, ConnectionFailedError, FramedCall, FramedReply
from interlingua.schemas import ErrorCode, InferenceError

MAX_CONNECTIONS = 64
"""How many connections are open before messages are pipelined."""

KEEP_SECS = 60.0
"""How long an idle connection is kept: less than the 300 seconds after which our own listener closes it, so
that a request seldom meets a close."""

_BROKEN_OFF = "closed the connection without an answer"
_HTTP = b"HTTP"
"""The first bytes of an HTTP server; as a size they would be more than a gigabyte."""

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that turns close into a reset, so the server learns that no client waits for the answer."""


class PooledFramedClient:
    """A ``FramedClient``: connections to ``url``, opened on demand."""

    def __init__(self, url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> None:
        self._tls = options.tls
        self._url = url
        self._connect_secs = options.connect_timeout_secs
        limit = options.max_response_bytes
        self._limit = MAX_MESSAGE_BYTES if limit is None else limit
        self._host = options.at or url.address.host
        self._idle: list[_Connection] = []
        self._connections: set[_Connection] = set()
        self._connecting = 0
        self._closed = False
        self._tried = asyncio.Event()
        self._sweeping: asyncio.TimerHandle | None = None

    async def send(self, request: FramedCall) -> FramedReply:
        """Send and read the whole reply; errors are those of ``FramedClient``.

        The server may close a kept connection while the request is on its way. Without a byte of a reply, a
        ``repeatable`` request is sent once more, on a new connection.
        """
        deadline = request.context.deadline
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise self._error(ErrorCode.DEADLINE_EXCEEDED, "was not called: the deadline has passed")
        try:
            async with asyncio.timeout(left):
                kept = self._kept() or await self._shared()
                if kept is not None:
                    try:
                        return await self._exchange(kept, request)
                    except _NoReplyError:
                        if not request.repeatable:
                            raise
                return await self._exchange(await self._connect(), request)
        except TimeoutError as late:
            raise self._error(ErrorCode.DEADLINE_EXCEEDED, "did not answer before the deadline") from late
        except FrameTooLargeError as fault:
            raise self._error(
                ErrorCode.TOO_LARGE,
                f"gave an answer of {fault.size} bytes, more than the {self._limit} that max_response_bytes "
                "of this upstream allows",
            ) from fault
        except _ForeignError as fault:
            words = f"the upstream at {self._url} {fault}"
            raise ConnectionFailedError(ErrorCode.BAD_UPSTREAM, words, sent=True) from fault
        except ConnectionError as fault:
            words = f"the upstream at {self._url} {fault}"
            sent = not isinstance(fault, UnsentError)
            raise ConnectionFailedError(ErrorCode.UNAVAILABLE, words, sent=sent) from fault

    async def close(self) -> None:
        """Close the connections; what runs on them fails."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        gone = [connection.lost for connection in self._connections]
        for connection in tuple(self._connections):
            connection.abort()
        if gone:
            await asyncio.wait(gone)

    async def _exchange(self, connection: _Connection, request: FramedCall) -> FramedReply:
        message = await connection.exchange(request.parts)
        if not connection.in_flight:
            if not connection.usable:
                connection.abort()
            elif not connection.kept:
                self._keep(connection)
        return FramedReply(message)

    def _kept(self) -> _Connection | None:
        """The connection that was used last of those that are idle."""
        while self._idle:
            connection = self._idle.pop()
            connection.kept = False
            if connection.usable:
                return connection
        return None

    async def _shared(self) -> _Connection | None:
        """The connection with the fewest messages, if no further one may be opened."""
        while len(self._connections) + self._connecting >= MAX_CONNECTIONS:
            usable = [each for each in self._connections if each.usable]
            if usable:
                return min(usable, key=lambda each: each.in_flight)
            if not self._connecting:
                break
            self._tried.clear()
            await self._tried.wait()
        return None

    def _keep(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        connection.kept = True
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(KEEP_SECS, self._sweep)

    def _sweep(self) -> None:
        """Close what has been idle for long; those that were used last are at the end."""
        loop = asyncio.get_running_loop()
        long_ago = loop.time() - KEEP_SECS
        self._sweeping = None
        while self._idle and self._idle[0].idle_since <= long_ago:
            self._idle.pop(0).abort()
        if self._idle:
            self._sweeping = loop.call_at(self._idle[0].idle_since + KEEP_SECS, self._sweep)

    async def _connect(self) -> _Connection:
        self._connecting += 1
        try:
            connection = await connect(
                self._url.address, self._host, self._connection, self._connect_secs, self._tls
            )
            if self._closed:
                connection.abort()
                raise UnsentError(_BROKEN_OFF)
            return connection
        finally:
            self._connecting -= 1
            self._tried.set()

    def _connection(self) -> _Connection:
        return _Connection(self._limit, self._connections)

    def _error(self, code: ErrorCode, what: str) -> InferenceError:
        return InferenceError(code, f"the upstream at {self._url} {what}")


class _Connection(asyncio.BufferedProtocol):
    """One connection, and the replies that its messages wait for, in order. It is a member of ``among`` while
    it is open; then ``lost`` is done. ``kept``: it is idle in the pool."""

    def __init__(self, max_message_bytes: int, among: set[_Connection]) -> None:
        self._splitter = FrameSplitter(max_message_bytes)
        self._among = among
        self._replies: deque[asyncio.Future[memoryview]] = deque()
        self._received = self._ended = False
        self.kept = False
        self.idle_since = 0.0
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def exchange(self, parts: Sequence[Buffer]) -> memoryview:
        """Send a frame and wait for the message that answers it. Raises ``ConnectionError`` if the connection
        breaks first, ``FrameTooLargeError``."""
        reply: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._replies.append(reply)
        write_pieces(self._transport, parts, sum(map(len, parts)))
        try:
            return await reply
        except asyncio.CancelledError:
            # behind a message without a reply in time, further ones would wait too
            self._ended = self._ended or not self._replies or self._replies[0].done()
            if all(each.done() for each in self._replies):
                self.abort()
            raise

    @property
    def in_flight(self) -> int:
        """How many messages have no reply yet, abandoned ones included."""
        return len(self._replies)

    @property
    def usable(self) -> bool:
        """Whether a message that is sent now may be answered."""
        return not (self._ended or self._transport.is_closing())

    def abort(self) -> None:
        """End it now; with a reset, if the server is still at work."""
        self._ended = True
        if self._replies and not self._transport.is_closing():
            sock = self._transport.get_extra_info("socket")
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._among.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into."""
        return self._splitter.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Complete the messages that arrived. Unexpected bytes end the connection."""
        self._splitter.received(nbytes)
        self._received = True
        if not self._replies:
            self._stop()
            return
        if self._splitter.start == _HTTP:
            self._fail(_ForeignError("does not speak in frames: it answered in HTTP"))
            return
        try:
            while (message := self._splitter.next()) is not None:
                reply = self._replies.popleft()
                if not reply.done():
                    reply.set_result(message)
                self._received = bool(self._splitter.start)
                if self._received and not self._replies:
                    self._stop()
                    return
        except FrameTooLargeError as fault:
            self._fail(fault)

    def eof_received(self) -> None:
        """The server has closed its side."""
        self._break()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the messages that wait."""
        self._among.discard(self)
        self._break()
        if not self.lost.done():
            self.lost.set_result(None)

    def _fail(self, reason: Exception) -> None:
        """Fail the first message with ``reason``, the others as unanswered."""
        if not self._replies[0].done():
            self._replies[0].set_exception(reason)
        self._stop()

    def _stop(self) -> None:
        """Use it no more."""
        self._splitter.discard()
        self.abort()

    def _break(self) -> None:
        self._ended = True
        for place, reply in enumerate(self._replies):
            if reply.done():
                continue
            if self._received and not place:
                reply.set_exception(ConnectionError("broke off in the middle of its answer"))
            else:
                reply.set_exception(_NoReplyError(_BROKEN_OFF))


class _ForeignError(Exception):
    """The data is not in frames."""


class _NoReplyError(ConnectionError):
    """The connection broke before the first byte of a reply."""
