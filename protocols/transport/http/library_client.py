"""Sends requests to one HTTP upstream with aiohttp: what ``http.client`` does, on another implementation of
HTTP."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import aiohttp
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult
from yarl import URL

from interlingua.protocols.content_coding import WINDOW_BITS, inflate
from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.client_options import DEFAULT_OPTIONS, ClientOptions
from interlingua.protocols.transport.http.body import READ_BYTES, read_body
from interlingua.protocols.transport.http.client import KEEP_SECS, REST_SECS, RESTING
from interlingua.protocols.transport.http.client_errors import HttpClientErrors, unwritable
from interlingua.protocols.transport.http1.answer import size_of
from interlingua.protocols.transport.threads import in_thread
from interlingua.protocols.transport.writes import JOINED_BYTES
from interlingua.protocols.wire import Buffer, ConnectionFailedError, HttpCall, HttpReply
from interlingua.schemas import ErrorCode, InferenceError

_OWN_HEADERS = ("User-Agent", "Content-Type", "Accept", "Accept-Encoding")
"""What aiohttp would add by itself."""


class AiohttpClient:
    """An ``HttpClient``: a pool of connections to ``url``, opened as they are needed."""

    relays: ClassVar[bool] = False

    def __init__(self, url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> None:
        self._url = url
        self._errors = HttpClientErrors(url, options.max_response_bytes)
        self._limit = options.max_response_bytes
        self._limits = options.limits
        self._connect_secs = options.connect_timeout_secs
        host = "unix" if url.address.path else str(url.address)
        self._prefix = f"{url.scheme or 'http'}://{host}{url.base}"
        self._at = options.at
        self._session: aiohttp.ClientSession | None = None
        self._resting: set[Any] = set()

    async def send(self, request: HttpCall) -> HttpReply:
        """Send and read the whole reply; errors are those of ``HttpClient``.

        A connection that was kept may have been closed by the other side just as the request went
        out. Where no byte of a reply came and the request is ``repeatable``, it is sent once more;
        aiohttp does the same for a GET. Nothing else is repeated.
        """
        with self._mapped_errors():
            async with _until(request.context.deadline):
                trace = SimpleNamespace(reused=False)
                try:
                    return await self._exchange(request, trace)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                    if not (trace.reused and request.repeatable):
                        raise
                    return await self._exchange(request, SimpleNamespace())

    async def stream(self, request: HttpCall) -> AsyncGenerator[HttpReply, None]:
        """Send and give the pieces of the reply as they come; errors are those of ``HttpClient``."""
        deadline = request.context.deadline
        with self._mapped_errors():
            # each wait sets the deadline: the caller's code runs in between
            async with _until(deadline):
                response = await self._request(request, SimpleNamespace())
            status, headers = response.status, response.headers
            try:
                if status != 200 or self._coding(response):
                    async with _until(deadline):
                        whole = await self._read(response)
                    if whole:
                        yield HttpReply(status, headers, whole)
                else:
                    size = 0
                    while True:
                        with _ending_with_its_connection(response):
                            async with _until(deadline):
                                piece = await response.content.readany()
                        if not piece:
                            break
                        size += len(piece)
                        if self._limit is not None and size > self._limit:
                            raise self._errors.too_large(size)
                        yield HttpReply(status, headers, piece)
                yield HttpReply(status, headers, b"")
            finally:
                # one that was read to its end has given its connection back before
                response.close()

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._resting:
            connection.close()
        if self._session is not None:
            await self._session.close()

    async def _exchange(self, request: HttpCall, trace: SimpleNamespace) -> HttpReply:
        async with await self._request(request, trace) as response:
            return HttpReply(response.status, response.headers, await self._read(response))

    async def _request(self, request: HttpCall, trace: SimpleNamespace) -> aiohttp.ClientResponse:
        """Send, and read the head of the reply."""
        if self._session is None:
            self._session = self._open()
        # a base path is an address of its own; "/" adds nothing to it
        path = "" if request.path == "/" and self._url.base else request.path
        target = f"{self._prefix}{path}"
        if request.query:
            target = f"{target}?{request.query}"
        return await self._session.request(
            request.method,
            URL(target, encoded=True),
            data=_body(request),
            headers=_headers(request),
            allow_redirects=False,
            trace_request_ctx=trace,
        )

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        claimed = response.content_length
        if claimed is not None and self._limit is not None and claimed > self._limit:
            raise self._errors.too_large(claimed)
        with _ending_with_its_connection(response):
            body = await read_body(response.content, self._limit, self._errors.too_large)
        coding = self._coding(response)
        if not coding or not body:
            return body
        try:
            return await in_thread(self._limits, inflate, coding, body, self._limit, self._limits)
        except InferenceError as fault:
            raise self._errors.bad_coding(fault) from fault

    @staticmethod
    def _coding(response: aiohttp.ClientResponse) -> str:
        """How the body is compressed; empty for an identity body or an unknown coding."""
        coding = response.headers.get("Content-Encoding", "").lower()
        return coding if coding in WINDOW_BITS else ""

    def _open(self) -> aiohttp.ClientSession:
        path = self._url.address.path
        options: dict[str, Any] = {"limit": 0, "keepalive_timeout": KEEP_SECS}
        if path:
            connector: aiohttp.BaseConnector = aiohttp.UnixConnector(path, **options)
        else:
            resolver = _Known(self._at) if self._at else None
            connector = aiohttp.TCPConnector(resolver=resolver, **options)
        # aiohttp's only way to distinguish a kept connection from a new one
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_mark_as_reused)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=cast("type[aiohttp.ClientResponse]", partial(_Response, self._resting)),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_secs),
            auto_decompress=False,
            skip_auto_headers=_OWN_HEADERS,
            read_bufsize=READ_BYTES,
            max_line_size=1 << 16,
            max_field_size=1 << 16,
            trace_configs=[tracing],
        )

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Whatever goes wrong in the block, as an ``InferenceError``."""
        try:
            yield
        except aiohttp.ServerTimeoutError as late:
            words = f"gave no connection within {self._connect_secs:g} seconds"
            raise self._errors.failed(words, sent=False) from late
        except TimeoutError as late:
            raise self._errors.timed_out() from late
        except aiohttp.ClientConnectorError as fault:
            raise self._errors.failed(f"cannot be reached: {_reason(fault)}", sent=False) from fault
        except aiohttp.ClientPayloadError as fault:
            raise self._errors.broken_off() from fault
        except (aiohttp.ClientConnectionError, ConnectionError) as fault:
            raise self._errors.unanswered() from fault
        except ValueError as fault:  # a line break in a header, say
            raise unwritable(fault) from fault
        except aiohttp.ClientError as fault:
            reason = (getattr(fault, "message", "") or str(fault)).strip().partition("\n")[0]
            raise self._errors.foreign(reason.rstrip(":")) from fault

    def _failure(
        self, what: str, code: ErrorCode = ErrorCode.UNAVAILABLE, *, sent: bool = True
    ) -> ConnectionFailedError:
        return ConnectionFailedError(code, f"the upstream at {self._url} {what}", sent=sent)


class _Response(aiohttp.ClientResponse):
    """A response whose connection rests where its status is one of ``RESTING``. ``resting`` are the
    connections that do."""

    def __init__(self, resting: set[Any], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._resting = resting

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Read the head. aiohttp releases the connection of a short response before it knows the status."""
        held: Any = _Held(connection)
        await super().start(held)
        resting = self.status in RESTING
        held.release_by(partial(_rest, connection, self._resting) if resting else connection.release)
        return self


class _Held:
    """A connection of aiohttp that is released as :meth:`release_by` states."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._release: Callable[[], None] | None = None
        self._released = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def release_by(self, release: Callable[[], None]) -> None:
        """The status of the response is known, and so is what its release does."""
        self._release = release
        if self._released:
            release()

    def release(self) -> None:
        """The response is read, or is not read on."""
        self._released = True
        if self._release is not None:
            self._release()


class _Known(AbstractResolver):
    """Finds every host at one address, so that the host keeps its name in requests."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The address."""
        kind = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        flags = socket.AI_NUMERICHOST
        return [
            ResolveResult(hostname=host, host=self._address, port=port, family=kind, proto=0, flags=flags)
        ]

    async def close(self) -> None:
        """Nothing is open."""


class _Parts(aiohttp.Payload):
    """A body in parts, of a known size, that can be sent again."""

    def __init__(self, parts: Sequence[Buffer]) -> None:
        super().__init__(parts, content_type="application/octet-stream")
        self._parts = parts
        self._size = self._bytes = sum(map(size_of, parts))

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the parts: small ones together, large ones as they are."""
        if self._bytes <= JOINED_BYTES:
            await writer.write(b"".join(self._parts))
        else:
            for part in self._parts:
                if size_of(part):
                    await writer.write(part)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """For aiohttp's debugging: nothing here is text."""
        return repr(self)


@contextmanager
def _ending_with_its_connection(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Fail the body when its connection ends. aiohttp closes a connection on which the chunks break,
    and then leaves the reader of that body waiting."""
    connection = response.connection
    closed = (
        connection.protocol.closed if connection is not None and connection.protocol is not None else None
    )

    def fail(_: asyncio.Future[None]) -> None:
        if not response.content.is_eof() and response.content.exception() is None:
            response.content.set_exception(aiohttp.ClientPayloadError("the chunks break"))

    if closed is not None:
        closed.add_done_callback(fail)
    try:
        yield
    finally:
        if closed is not None:
            closed.remove_done_callback(fail)


def _rest(connection: Any, resting: set[Any]) -> None:
    """Release ``connection`` after its rest, during which it is one of ``resting``."""

    def end() -> None:
        resting.discard(connection)
        connection.release()

    resting.add(connection)
    asyncio.get_running_loop().call_later(REST_SECS, end)


def _headers(request: HttpCall) -> Mapping[str, str]:
    if request.rest is None or request.length is None:
        return request.headers
    return {**request.headers, "Content-Length": str(request.length)}


def _body(request: HttpCall) -> _Parts | AsyncIterator[bytes] | None:
    if request.rest is not None:
        return _chunks(request.parts, request.rest)
    return _Parts(request.parts) if request.parts else None


async def _chunks(parts: Sequence[Buffer], rest: AsyncIterator[Buffer]) -> AsyncIterator[bytes]:
    """A body that is still arriving: aiohttp sends it in chunks, unless its length is known."""
    for part in parts:
        yield bytes(part)
    async for piece in rest:
        yield bytes(piece)


def _until(deadline: float | None) -> asyncio.Timeout:
    """Bounds the block to ``deadline``, a time of ``time.monotonic()``."""
    return asyncio.timeout(None if deadline is None else deadline - time.monotonic())


def _reason(fault: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection: the system's words, without the address that we name anyway."""
    cause = getattr(fault, "os_error", None) or fault
    number = cause.errno
    return os.strerror(number) if number is not None and number > 0 else str(cause.strerror or cause)


async def _mark_as_reused(session: aiohttp.ClientSession, context: SimpleNamespace, parameters: Any) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.reused = True
