"""What a case of HTTP/2 sends and expects, and a client that runs cases against a gRPC listener.

After a case the client sends a PING. Its acknowledgement shows that the connection is open and its frames are read
from where they begin.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.grpc.library import GrpcioServer
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.frames import Code
from tests.protocols.transport.h2.peer import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    START,
    Answer,
    Frame,
    Reader,
    block,
    fields,
    frame,
    message,
)
from tests.protocols.transport.peers import GrpcEcho
from tests.protocols.transport.rfc.http1 import send

WAIT = "/test.Echo/Wait"
LARGEST_FRAME = 16_384
OPEN, CLOSED = "open", "closed"

_SENTINEL = frame(PING, 0, 0, b"sentinel")
_ANSWER_SECS = 20.0
"""How long a client waits for what a case expects; on a busy machine that takes more than a second."""

_AT_ONCE, _LARGE_BYTES = 32, 50_000
"""How many cases run at once; a large one runs alone."""


@dataclass(frozen=True)
class Outcome:
    """``connection``: open, closed, or the code of a GOAWAY; ``streams``: what comes on each stream. Stream 0 counts
    acknowledgements of SETTINGS and PING."""

    connection: str = OPEN
    streams: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """``section`` is that of RFC 9113, or of RFC 7541 with the number in front. ``later`` is sent once ``first`` is
    here; ``preface`` precedes everything. ``limit``: the outcome is a limit of the native engine, which the RFCs permit;
    the library engine has its own, and does not run the case."""

    name: str
    section: str
    sent: bytes
    outcome: Outcome
    first: Mapping[int, str] = field(default_factory=dict)
    later: bytes = b""
    preface: bytes = START
    limit: bool = False


def answered(*streams: int) -> Outcome:
    """Every call is answered."""
    return Outcome(OPEN, dict.fromkeys(streams, "ok"))


def streams(**found: str) -> Outcome:
    """``s1="..."``: what comes on stream 1, and so on."""
    return Outcome(OPEN, {int(name[1:]): state for name, state in found.items()})


def reset(code: str, stream: int = 1) -> Outcome:
    """A stream error; the connection stays open."""
    return Outcome(OPEN, {stream: f"reset {code}"})


def goaway(code: str) -> Outcome:
    """A connection error."""
    return Outcome(f"GOAWAY {code}")


def request(
    stream: int,
    lines: Sequence[tuple[str, str]] | bytes,
    flags: int = END_HEADERS,
    content: bytes | None = b"x",
) -> bytes:
    """A HEADERS frame of field ``lines``, or of a field block, and a DATA frame that ends the request."""
    headers = frame(HEADERS, flags, stream, lines if isinstance(lines, bytes) else block(lines))
    return headers if content is None else headers + frame(DATA, END_STREAM, stream, message(content))


def call(
    stream: int = 1, *more: tuple[str, str], without: str = "", method: str = "/test.Echo/Call"
) -> bytes:
    """A whole call."""
    return request(stream, fields(method, *more, without=without))


def opened(stream: int = 1, method: str = "/test.Echo/Call", flags: int = END_HEADERS) -> bytes:
    """A call without its message."""
    return request(stream, fields(method), flags, None)


def data(content: bytes = b"x", stream: int = 1, flags: int = END_STREAM) -> bytes:
    """A DATA frame with a message."""
    return frame(DATA, flags, stream, message(content))


async def outcomes(
    engine: Literal["native", "library"],
    cases: Sequence[Case],
    expected: Mapping[str, Outcome],
    piece: int = 1 << 20,
) -> Mapping[str, Outcome]:
    """What each case leads to, by name: one listener, one connection per case. ``expected``: what to wait for. The bytes
    are sent in pieces of ``piece`` bytes."""
    make = GrpcServer if engine == "native" else GrpcioServer
    server = make(GrpcEcho(), parse_address("127.0.0.1:0"))
    await server.start()
    gate = asyncio.Semaphore(_AT_ONCE)

    async def run(case: Case) -> Outcome:
        async with gate:
            return await _outcome(server.address, case, expected[case.name], piece)

    large = [case for case in cases if len(case.sent) > _LARGE_BYTES]
    small = [case for case in cases if case not in large]
    try:
        found = await asyncio.gather(*map(run, small))
        found += [await run(case) for case in large]
    finally:
        await server.stop(0)
    return {case.name: outcome for case, outcome in zip(small + large, found, strict=True)}


async def _outcome(address: Address, case: Case, expected: Outcome, piece: int) -> Outcome:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    seen = _Seen(reader)
    reading = asyncio.create_task(seen.read())
    try:
        await send(writer, case.preface + case.sent, piece)
        if case.later:
            await seen.until(lambda: seen.has(case.first))
            await send(writer, case.later, piece)
        if expected.connection == OPEN:
            await seen.until(lambda: seen.has(expected.streams))
            writer.write(_SENTINEL)
            await seen.until(lambda: seen.sentinel)
        else:
            await seen.until(lambda: False)
        if reading.done():
            reading.result()  # raises where a frame is too large
    finally:
        reading.cancel()
        writer.close()
    return seen.outcome(expected)


class _Seen:
    """What has arrived on a connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._frames = Reader()
        self._answers: dict[int, Answer] = {}
        self._ended = False
        self._code = ""
        self._acks = {SETTINGS: 0, PING: 0}
        self._changed = asyncio.Event()
        self.sentinel = False

    async def read(self) -> None:
        """Read to the end, also while a case is being sent: a server that closes with bytes unread resets the
        connection, and a ``StreamReader`` then drops a GOAWAY that it has not returned."""
        try:
            while piece := await self._reader.read(1 << 16):
                for each in self._frames.feed(piece):
                    self._take(each)
                self._changed.set()
        except ConnectionError:
            pass  # the end of a connection may reset it
        finally:
            self._ended = True
            self._changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait for ``done()``, or the end, or for ``_ANSWER_SECS``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECS):
                while not self._ended and not done():
                    self._changed.clear()
                    await self._changed.wait()

    def has(self, states: Mapping[int, str]) -> bool:
        """Whether the streams have come to ``states``."""
        return all(self._state(stream) == state for stream, state in states.items())

    def outcome(self, expected: Outcome) -> Outcome:
        """Everything; on a connection that has ended, only the streams that are ``expected``."""
        connection = (f"GOAWAY {self._code}" if self._code else CLOSED) if self._ended else OPEN
        if not self._ended and not self.sentinel:
            connection = f"GOAWAY {self._code}, not closed" if self._code else "silent"
        numbers = {*self._answers, *expected.streams} if connection == OPEN else set(expected.streams)
        return Outcome(connection, {number: self._state(number) for number in sorted(numbers)})

    def _take(self, made: Frame) -> None:
        assert len(made.payload) <= LARGEST_FRAME, made
        if made.kind == GOAWAY and made.code:
            self._code = Code(made.code).name
        elif made.kind == PING and made.payload == b"sentinel":
            self.sentinel = True
        elif made.kind in self._acks and made.flags & ACK:
            self._acks[made.kind] += 1
        elif made.kind in (DATA, HEADERS, RST_STREAM):
            answer = self._answers.setdefault(made.stream, Answer())
            if not (answer.ended and made.kind == RST_STREAM and not made.code):  # RFC 9113, 8.1
                answer.take(made)

    def _state(self, stream: int) -> str:
        if not stream:
            return f"{self._acks[SETTINGS]} settings, {self._acks[PING]} pings"
        answer = self._answers.get(stream)
        if answer is None:
            return "nothing"
        if answer.reset is not None:
            return f"reset {Code(answer.reset).name}"
        if not answer.ended:
            return f"{len(answer.body)} bytes"
        if answer.head.get(":status") != "200":
            return f"http {answer.head.get(':status')}"
        return f"status {answer.status}" if answer.status else "ok"
