"""Sends requests to one HTTP upstream over connections that are kept, one request at a time on each.

Exactly what it is given goes out: no header but framing and Host, no cookies, no redirects, no proxy from the
environment. ``http.library_client`` does the same on aiohttp.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from typing import ClassVar

from interlingua.protocols.content_coding import WINDOW_BITS, inflate
from interlingua.protocols.plans import SentWaiter
from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.client_options import DEFAULT_OPTIONS, ClientOptions
from interlingua.protocols.transport.connect import UnsentError, connect
from interlingua.protocols.transport.deadlines import Deadlines
from interlingua.protocols.transport.http.client_connection import HttpClientConnection, Received
from interlingua.protocols.transport.http.client_errors import HttpClientErrors, unwritable
from interlingua.protocols.transport.http1.answer import total_size
from interlingua.protocols.transport.http1.request import RequestHeads
from interlingua.protocols.transport.threads import in_thread
from interlingua.protocols.wire import (
    NO_PARAMS,
    Buffer,
    ConnectionFailedError,
    HttpCall,
    HttpReply,
    Prefix,
)
from interlingua.schemas import InferenceError

KEEP_SECS = 4.0
"""How long an idle connection is kept: less than the 5 seconds after which uvicorn, under KServe and
MLServer, closes its end, so that the two seldom meet half way."""

RESTING = frozenset(range(500, 600)) - {503}
"""After an answer with one of these statuses a server may close the connection without having announced it,
as uvicorn does if an application raises: a request sent meanwhile would be lost. One that is overloaded, 503,
keeps its connections."""

REST_SECS = 0.05
"""How long the connection then rests, until it is kept if nothing has arrived on it."""

_CLOSE_SECS = 2.0
"""How long to wait for aborted connections, which the event loop closes within some turns."""

_REPEATABLE = frozenset({"GET", "HEAD"})
_DEFAULT_PORT = {"https": ":443"}
"""The port that Host omits (RFC 9110, 4.2.2); 80 for other schemes (4.2.1)."""


PreparedCall = tuple[bytes, int, Prefix | None]
"""The head of requests, where others of their headers go, and the ``prefix`` of their replies."""


class PooledHttpClient:
    """An ``HttpClient``: a pool of connections to ``url``, opened on demand."""

    relays: ClassVar[bool] = True

    def __init__(self, url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> None:
        self._tls = options.tls
        address = url.address
        self._address = address
        self._host = options.at or address.host
        self._connect_secs = options.connect_timeout_secs
        self._limit = options.max_response_bytes
        self._limits = options.limits
        self._errors = HttpClientErrors(url, options.max_response_bytes)
        host = "unix" if address.path else str(address).removesuffix(_DEFAULT_PORT.get(url.scheme, ":80"))
        self._heads = RequestHeads(host, url.base)
        self._idle: list[HttpClientConnection] = []
        self._open: set[HttpClientConnection] = set()
        self._deadlines: Deadlines | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_lost = asyncio.Event()  # after close

    async def send(self, request: HttpCall) -> HttpReply:
        """Send and read the whole reply; errors are those of ``HttpClient``.

        A connection that was kept may have been closed by the server just as the request went out. If no byte
        of a reply came and the request is ``repeatable``, it is sent once more, on a new connection.
        """
        kept = self._kept() if self._idle else None
        while True:
            connection = kept or await self._connect(request)
            waiter = self._request(connection, request, streamed=False)
            try:
                reply = await waiter
                break
            except ConnectionFailedError:
                if kept is None or connection.heard or not _repeatable(request):
                    raise
                kept = None
            except BaseException:
                connection.cancel(waiter)
                raise
        if "content-encoding" in reply.headers:
            reply.body = await self._decoded(reply.headers, reply.body)
        return reply

    def prepare(self, request: HttpCall, size: int) -> PreparedCall:
        """See ``CallbackClient``; ``request`` is not repeatable."""
        try:
            head = self._heads.write(request.method, request.path, request.query, request.headers, size)
        except ValueError as fault:
            raise unwritable(fault) from fault
        return head, head.rindex(b"Content-Length"), request.prefix

    def begin(
        self,
        prepared: PreparedCall,
        message: Buffer,
        deadline: float,
        waiter: SentWaiter,
        headers: Mapping[str, str] = NO_PARAMS,
    ) -> HttpClientConnection | None:
        """See ``CallbackClient``."""
        head, end, prefix = prepared
        if headers:
            try:
                head = head[:end] + self._heads.lines(headers) + head[end:]
            except ValueError as fault:
                raise unwritable(fault) from fault
        idle = self._idle
        while idle:  # _kept, inlined
            connection = idle.pop()
            if not connection.is_closing() and not connection.poll(0):  # usable, inlined
                break
            connection.abort()
        else:
            return None
        connection.send(head, message, prefix, deadline, waiter)
        if self._deadlines is not None and deadline < self._deadlines.at:
            self._deadlines.add(deadline)
        return connection

    async def finish(self, request: HttpCall, outcome: HttpReply | Exception) -> HttpReply:
        """See ``CallbackClient``."""
        if isinstance(outcome, Exception):
            raise outcome
        if "content-encoding" in outcome.headers:
            outcome.body = await self._decoded(outcome.headers, outcome.body)
        return outcome

    def cancel(self, handle: HttpClientConnection, waiter: SentWaiter) -> None:
        """See ``CallbackClient``."""
        handle.cancel(waiter)

    async def stream(self, request: HttpCall) -> AsyncGenerator[HttpReply, None]:
        """Send and give the pieces of the reply as they come; errors are those of ``HttpClient``. A reply
        that is not a success, or is compressed, comes whole."""
        connection = self._kept() or await self._connect(request)
        size, pieces, ended = 0, [], False
        waiter = self._request(connection, request, streamed=True)
        try:
            while not ended:
                reply = await waiter
                piece = reply.body
                size += len(piece)
                ended = not piece
                if self._limit is not None and size > self._limit:
                    raise self._errors.too_large(size)
                if reply.status != 200 or "content-encoding" in reply.headers:
                    pieces.append(piece)
                elif piece:
                    yield reply
                if not ended:
                    waiter = self._more(connection)
            if any(pieces):
                reply.body = await self._decoded(reply.headers, b"".join(pieces))
                yield reply
            yield HttpReply(reply.status, reply.headers, b"")
        finally:
            if ended:
                connection.release(reply.status)
            else:
                connection.abort()

    async def close(self) -> None:
        """Close the connections; requests that run fail."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._deadlines is not None:
            self._deadlines.cancel()
        for connection in tuple(self._open):
            connection.abort()
        if self._open:
            # wait_for of Python 3.11 ignores a cancellation in the turn in which it ends
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECS):
                    await self._all_lost.wait()

    # requests

    def _request(self, connection: HttpClientConnection, request: HttpCall, *, streamed: bool) -> Received:
        """Send ``request`` on ``connection``. Raises MALFORMED for what HTTP has no form for, and
        DEADLINE_EXCEEDED."""
        parts, method, deadline = request.parts, request.method, request.context.deadline
        if deadline is not None and deadline <= time.monotonic():
            self._keep(connection)
            raise self._errors.timed_out()
        size = total_size(parts) if parts else 0
        length: int | None = size
        if request.rest is not None:
            length = request.length
            if length is None and size:
                parts = (b"%x\r\n" % size, *parts, b"\r\n")
                size = total_size(parts)
        try:
            head = self._heads.write(method, request.path, request.query, request.headers, length)
        except ValueError as fault:
            self._keep(connection)
            raise unwritable(fault) from fault
        connection.deadline = deadline
        waiter = connection.request(
            head, parts, size, bodiless=method == "HEAD", streamed=streamed, prefix=request.prefix
        )
        if request.rest is not None:
            connection.send_rest(request.rest, chunked=length is None)
        if deadline is not None and self._deadlines is not None and deadline < self._deadlines.at:
            self._deadlines.add(deadline)
        return waiter

    def _more(self, connection: HttpClientConnection) -> Received:
        waiter = connection.more()
        if not waiter.done() and connection.deadline is not None and self._deadlines is not None:
            self._deadlines.add(connection.deadline)
        return waiter

    async def _decoded(self, headers: Mapping[str, str], body: Buffer) -> Buffer:
        """The body without its content coding, unless no dialect accepts that one."""
        coding = headers.get("content-encoding", "").lower()
        if not body or coding not in WINDOW_BITS:
            return body
        try:
            return await in_thread(self._limits, inflate, coding, body, self._limit, self._limits)
        except InferenceError as fault:
            raise self._errors.bad_coding(fault) from fault

    # connections

    def _kept(self) -> HttpClientConnection | None:
        """The idle connection that was used last, unless anything has arrived there."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.abort()
        return None

    async def _connect(self, request: HttpCall) -> HttpClientConnection:
        """Open a connection for ``request``."""
        deadline = request.context.deadline
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise self._errors.timed_out()
        try:
            async with asyncio.timeout(left):
                connection = await connect(
                    self._address, self._host, self._connection, self._connect_secs, self._tls
                )
        except TimeoutError as late:
            raise self._errors.timed_out() from late
        except UnsentError as fault:
            raise self._errors.failed(str(fault), sent=False) from fault
        if self._closed:
            connection.abort()
            raise self._errors.failed("was not reached: the client has closed", sent=False)
        self._open.add(connection)
        return connection

    def _connection(self) -> HttpClientConnection:
        if self._deadlines is None:
            self._deadlines = Deadlines(asyncio.get_running_loop(), self._open.__iter__)
        return HttpClientConnection(self._errors, self._limit, self._deadlines, self._keep, self._lost)

    def _keep(self, connection: HttpClientConnection, status: int = 0) -> None:
        """Keep a connection for the next request, whose last answer had this ``status``."""
        connection.deadline = None
        if status in RESTING:
            asyncio.get_running_loop().call_later(REST_SECS, self._rested, connection)
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(KEEP_SECS, self._sweep)

    def _rested(self, connection: HttpClientConnection) -> None:
        if connection.usable:
            self._keep(connection)
        else:
            connection.abort()

    def _sweep(self) -> None:
        """Close what has been idle for long; those that were used last are at the end."""
        self._sweeping = None
        long_ago = time.monotonic() - KEEP_SECS
        while self._idle and self._idle[0].idle_since <= long_ago:
            self._idle.pop(0).abort()
        if self._idle:
            left = self._idle[0].idle_since - long_ago
            self._sweeping = asyncio.get_running_loop().call_later(left, self._sweep)

    def _lost(self, connection: HttpClientConnection) -> None:
        """The socket is closed."""
        self._open.discard(connection)
        if self._closed and not self._open:
            self._all_lost.set()


def _repeatable(request: HttpCall) -> bool:
    return request.rest is None and (request.repeatable or request.method in _REPEATABLE)
