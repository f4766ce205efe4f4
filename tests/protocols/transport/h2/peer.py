"""A client's side of HTTP/2 that sends exactly what a test says: frames, and a raw connection to a server."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hpack import Decoder
from hpack.hpack import encode_integer

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.h2.frames import PREFACE

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY_FIELDS = 4, 8, 32

CALL = "/test.Echo/Call"
START = PREFACE + b"\0\0\0\4\0\0\0\0\0"
"""What a client begins with: the preface, and settings that state nothing."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def message(content: bytes, flag: int = 0) -> bytes:
    """A gRPC message as it stands in a stream."""
    return bytes((flag,)) + len(content).to_bytes(4, "big") + content


def fields(method: str = CALL, *more: tuple[str, str], without: str = "") -> list[tuple[str, str]]:
    """The head of a call."""
    own = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "x")]
    own += [("content-type", "application/grpc"), ("te", "trailers")]
    given = dict(more)
    kept = [(name, given.get(name, value)) for name, value in own if name != without]
    return kept + [pair for pair in more if pair[0] not in dict(own)]


def block(head: Iterable[tuple[str, str]]) -> bytes:
    """A block of headers that depends on no other."""
    return b"".join(b"\0" + _text(name.encode()) + _text(value.encode()) for name, value in head)


def _text(text: bytes) -> bytes:
    return encode_integer(len(text), 7) + text


def head(stream: int, method: str = CALL, *more: tuple[str, str], flags: int = END_HEADERS) -> bytes:
    """The HEADERS frame of a call."""
    return frame(HEADERS, flags, stream, block(fields(method, *more)))


def call(stream: int, content: bytes = b"x", method: str = CALL, *more: tuple[str, str]) -> bytes:
    """A whole unary call."""
    return head(stream, method, *more) + frame(DATA, END_STREAM, stream, message(content))


def settings(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *pair) for pair in pairs))


def window_update(stream: int, size: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">L", size))


@dataclass
class Frame:
    """A frame that came; ``fields`` where it is HEADERS."""

    kind: int
    flags: int
    stream: int
    payload: bytes
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def code(self) -> int:
        """Of a GOAWAY or RST_STREAM."""
        return int.from_bytes(self.payload[4:8] if self.kind == GOAWAY else self.payload[:4], "big")


@dataclass
class Reader:
    """Cuts what a server sends into frames."""

    rest: bytes = b""
    decoder: Decoder = field(default_factory=Decoder)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes."""
        self.rest += data
        frames = []
        while len(self.rest) >= 9:
            size = int.from_bytes(self.rest[:3], "big")
            if len(self.rest) < 9 + size:
                break
            kind, flags = self.rest[3:5]
            stream = int.from_bytes(self.rest[5:9], "big")
            made = Frame(kind, flags, stream, self.rest[9 : 9 + size])
            if kind == HEADERS:
                lines = self.decoder.decode(made.payload, raw=True)
                made.fields = {name.decode(): value.decode(errors="surrogateescape") for name, value in lines}
            frames.append(made)
            self.rest = self.rest[9 + size :]
        return frames


@dataclass
class Answer:
    """What came on one stream up to its end."""

    head: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None
    ended: bool = False

    @property
    def status(self) -> int:
        """gRPC's."""
        return int((self.trailers or self.head)["grpc-status"])

    @property
    def details(self) -> str:
        """gRPC's, as they travelled."""
        return (self.trailers or self.head).get("grpc-message", "")

    def take(self, made: Frame) -> None:
        """One more frame of it."""
        if made.kind == DATA:
            self.body += made.payload
        elif made.kind == HEADERS and not self.head:
            self.head = made.fields
        elif made.kind == HEADERS:
            self.trailers = made.fields
        elif made.kind == RST_STREAM:
            self.reset = made.code
            self.ended = True
        if made.kind in (DATA, HEADERS) and made.flags & END_STREAM:
            self.ended = True


class RawH2:
    """A connection that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames: list[Frame] = []
        self._cutter = Reader()

    @classmethod
    @asynccontextmanager
    async def to(cls, address: Address, start: bytes = START) -> AsyncIterator[RawH2]:
        if address.path:
            reader, writer = await asyncio.open_unix_connection(address.path)
        else:
            reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            raw = cls(reader, writer)
            await raw.send(start)
            yield raw
        finally:
            writer.close()

    async def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def until(self, wanted: Any, secs: float = 10) -> list[Frame]:
        """Every frame up to the first for which ``wanted`` is true. Raises ``EOFError`` at the end."""
        came: list[Frame] = []
        async with asyncio.timeout(secs):
            while True:
                while self.frames:
                    came.append(self.frames.pop(0))
                    if wanted(came[-1]):
                        return came
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError(came)
                self.frames += self._cutter.feed(data)

    async def kind(self, kind: int) -> Frame:
        """The next frame of that kind."""
        return (await self.until(lambda made: made.kind == kind))[-1]

    async def answers(self, streams: Sequence[int]) -> dict[int, Answer]:
        """What comes on ``streams`` until all have ended."""
        found = {stream: Answer() for stream in streams}
        left = set(streams)

        def done(made: Frame) -> bool:
            if made.stream in found:
                found[made.stream].take(made)
                if found[made.stream].ended:
                    left.discard(made.stream)
            return not left

        await self.until(done)
        return found

    async def answer(self, stream: int = 1) -> Answer:
        """What comes on one stream."""
        return (await self.answers([stream]))[stream]

    async def ended(self) -> bool:
        """Whether the server closes the connection, whatever it still sends."""
        try:
            await self.until(lambda made: False)
        except (EOFError, ConnectionError):
            return True
        return False
