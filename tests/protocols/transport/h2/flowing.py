"""An end of an HTTP/2 connection that keeps the rules of flow control, whose frames and bytes are cut at random."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from interlingua.protocols.transport.h2.frames import PREFACE
from tests.protocols.transport.h2.peer import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    Reader,
    block,
    fields,
    frame,
    message,
    settings,
    window_update,
)

INITIAL_WINDOW, MAX_FRAME = 4, 5
"""Settings (RFC 9113, 6.5.2)."""

DEFAULT_WINDOW, DEFAULT_FRAME = 65_535, 16_384
OK_HEAD = ((":status", "200"), ("content-type", "application/grpc"))


@dataclass
class Side:
    """One stream: what has come on it, and ``window``, how much may be sent."""

    window: int
    head: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None
    ended: bool = False
    flow: int = 0
    """How many bytes of flow control it has taken."""
    given: int = 0
    """How much its window has been widened, if a test counts that."""
    sent: int = 0
    """How many bytes have been sent on it."""

    @property
    def status(self) -> int | None:
        """gRPC's, None without."""
        lines = self.trailers or self.head
        return int(lines["grpc-status"]) if self.ended and "grpc-status" in lines else None


class Flowing:
    """``given`` is called with the stream and the size of a DATA frame: it gives the windows back, at once if
    not set. ``cut``: bytes are written in random pieces."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        rng: random.Random,
        cut: bool = False,
    ) -> None:
        self.reader, self.writer, self.rng, self.cut = reader, writer, rng, cut
        self.streams: dict[int, Side] = {}
        self.opened: asyncio.Queue[int] = asyncio.Queue()
        self.window, self.initial, self.largest = DEFAULT_WINDOW, DEFAULT_WINDOW, DEFAULT_FRAME
        self.given: Callable[[int, int], None] = self.give_back
        self.goaway: Frame | None = None
        self.closed = False
        self.received = 0
        self.stated = DEFAULT_WINDOW
        """The initial window that this end has stated."""
        self._changed = asyncio.Event()
        self._out = bytearray()
        self._pump: asyncio.Task[None] | None = None
        self._next = 1

    # what arrives

    async def run(self) -> None:
        cutter = Reader()
        with suppress(ConnectionError):
            while data := await self.reader.read(1 << 16):
                for made in cutter.feed(data):
                    self._take(made)
                self.pulse()
        self.closed = True
        self.pulse()

    def read(self, on: bool) -> None:
        """Read what arrives, or leave it in the socket."""
        transport: Any = self.writer.transport
        transport.resume_reading() if on else transport.pause_reading()

    def pulse(self) -> None:
        """Wake what waits for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, holds: Callable[[], Any], secs: float = 10) -> None:
        """Wait for a state of this end. Raises ``EOFError`` if the other one leaves before, TimeoutError."""
        async with asyncio.timeout(secs):
            while not holds():
                if self.closed:
                    raise EOFError
                await self._changed.wait()

    async def ended(self, number: int, *, reset: bool = False, secs: float = 10) -> Side:
        """Wait until a stream has ended, or begun to be reset; ``reset``: until both have come."""
        side = self.side(number)
        await self.until(
            lambda: side.ended and side.reset is not None if reset else side.ended or side.reset is not None,
            secs,
        )
        return side

    async def begun(self, number: int) -> Side:
        """Wait for the first bytes of a body."""
        side = self.side(number)
        await self.until(lambda: side.body)
        return side

    def side(self, number: int) -> Side:
        if number not in self.streams:
            self.streams[number] = Side(self.initial)
        return self.streams[number]

    def _take(self, made: Frame) -> None:
        if made.kind == SETTINGS and not made.flags & ACK:
            for place in range(0, len(made.payload), 6):
                self._set(*struct.unpack_from(">HL", made.payload, place))
            self.write(frame(SETTINGS, ACK, 0))
        elif made.kind == PING and not made.flags & ACK:
            self.write(frame(PING, ACK, 0, made.payload))
        elif made.kind == GOAWAY:
            self.goaway = made
        elif made.kind == WINDOW_UPDATE:
            size = int.from_bytes(made.payload, "big")
            if made.stream:
                self.side(made.stream).window += size
            else:
                self.window += size
        elif made.kind in (HEADERS, DATA, RST_STREAM):
            self._take_stream(made)

    def _take_stream(self, made: Frame) -> None:
        begun = made.stream in self.streams
        side = self.side(made.stream)
        if made.kind == RST_STREAM:
            side.reset = made.code if side.reset is None else side.reset
            return
        assert not side.ended, "a frame after the end of its stream"
        if made.kind == HEADERS:
            if side.head:
                side.trailers = made.fields
            else:
                side.head = made.fields
                if not begun:
                    self.opened.put_nowait(made.stream)
        else:
            content = made.payload
            assert not made.flags & PADDED
            side.body += content
            side.flow += len(content)
            self.received += len(content)
            self.given(made.stream, len(content))
        if made.flags & END_STREAM:
            side.ended = True

    def _set(self, setting: int, value: int) -> None:
        if setting == INITIAL_WINDOW:
            for side in self.streams.values():
                side.window += value - self.initial
            self.initial = value
        elif setting == MAX_FRAME:
            self.largest = value

    def give_back(self, number: int, size: int) -> None:
        """Give both windows back."""
        if size:
            self.write(window_update(0, size))
            if not self.streams[number].ended:
                self.write(window_update(number, size))

    # what is sent

    def write(self, data: bytes) -> None:
        """Write whole frames, in random pieces if they are to be cut."""
        if not self.cut:
            self.writer.write(data)
            return
        self._out += data
        if self._pump is None:
            self._pump = asyncio.create_task(self._write_pieces())

    async def _write_pieces(self) -> None:
        rng = self.rng
        with suppress(ConnectionError):
            while self._out:
                size = int(2 ** (rng.random() * 20)) + 1
                piece = bytes(self._out[:size])
                del self._out[:size]
                self.writer.write(piece)
                await self.writer.drain()
                await asyncio.sleep(0.001 if rng.random() < 0.05 else 0)
        self._pump = None

    async def put(self, data: bytes) -> None:
        """Write whole frames, and wait until there is room for more."""
        self.write(data)
        while self._pump is not None and len(self._out) > 1 << 16:
            await asyncio.sleep(0)
        await self.writer.drain()

    def open(self, method: str, *more: tuple[str, str]) -> int:
        """Begin a call: its stream."""
        number = self._next
        self._next += 2
        self.side(number)
        self.write(frame(HEADERS, END_HEADERS, number, block(fields(method, *more))))
        return number

    async def data(
        self,
        number: int,
        content: bytes,
        *,
        ended: bool = False,
        sizes: Sequence[int] = (),
        padded: bool = False,
        secs: float = 10,
    ) -> None:
        """Send ``content`` in DATA frames within the windows, of ``sizes`` by chance."""
        side, place, rng = self.side(number), 0, self.rng
        while place < len(content):
            await self.until(lambda: (side.window > 0 and self.window > 0) or side.reset is not None, secs)
            if side.reset is not None:
                return
            room = min(side.window, self.window, self.largest)
            size = min(room, rng.choice(sizes) if sizes else room, len(content) - place)
            pad = b""
            if padded and rng.random() < 0.5 and room > size:
                pad = bytes(min(room - size - 1, rng.randrange(256)))
            payload = content[place : place + size]
            flags = 0
            if padded and rng.random() < 0.5 and room - size > len(pad):
                payload, flags = bytes((len(pad),)) + payload + pad, PADDED
            place += size
            if ended and place == len(content):
                flags |= END_STREAM
            side.window -= len(payload)
            side.sent += len(payload)
            self.window -= len(payload)
            await self.put(frame(DATA, flags, number, payload))

    async def answer(self, number: int, content: bytes, **how: Any) -> None:
        """A whole answer."""
        await self.begin_answer(number)
        await self.data(number, message(content), **how)
        await self.end_answer(number)

    async def begin_answer(self, number: int) -> None:
        await self.put(frame(HEADERS, END_HEADERS, number, block(OK_HEAD)))

    async def end_answer(self, number: int, status: int = 0, text: str = "") -> None:
        lines = [("grpc-status", str(status)), *([("grpc-message", text)] if text else [])]
        await self.put(frame(HEADERS, END_HEADERS | END_STREAM, number, block(lines)))

    async def request(self, number: int, size: int = 1 << 40) -> bytes:
        """The message that has come on a stream, once it has ended."""
        side = self.side(number)
        await self.until(lambda: side.ended or side.reset is not None or len(side.body) >= size)
        return bytes(side.body)


async def calling(
    host: str,
    port: int,
    rng: random.Random,
    *,
    cut: bool = False,
    hello: Sequence[tuple[int, int]] = (),
    **tls: Any,
) -> tuple[Flowing, asyncio.Task[None]]:
    """A client that has connected, and what runs it."""
    reader, writer = await asyncio.open_connection(host, port, **tls)
    flowing = Flowing(reader, writer, rng, cut)
    flowing.stated = dict(hello).get(INITIAL_WINDOW, DEFAULT_WINDOW)
    writer.write(PREFACE + settings(*hello))
    return flowing, asyncio.create_task(flowing.run())


Act = Callable[[Flowing, int], Awaitable[None]]


@dataclass
class Upstream:
    """A server whose calls do what ``act`` does. ``hello`` are its settings, ``wide`` is how much wider the
    window of its connections is than the initial one. ``receives``: the SO_RCVBUF of its connections, if not the
    system's; set later, on one whose peer has seen a wider window, it makes TCP drop segments and wait."""

    act: Act
    hello: Sequence[tuple[int, int]] = ()
    wide: int = 1 << 30
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    cut: bool = False
    begin: Callable[[Flowing], None] = lambda flowing: None
    receives: int = 0
    connections: list[Flowing] = field(default_factory=list)
    calls: int = 0
    address: str = ""
    failures: list[BaseException] = field(default_factory=list)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flowing = Flowing(reader, writer, self.rng, self.cut)
        flowing.stated = dict(self.hello).get(INITIAL_WINDOW, DEFAULT_WINDOW)
        self.connections.append(flowing)
        self.begin(flowing)
        tasks = set[asyncio.Task[None]]()
        try:
            await reader.readexactly(len(PREFACE))
            writer.write(settings(*self.hello))
            if self.wide:
                writer.write(window_update(0, self.wide))
            running = asyncio.create_task(flowing.run())
            while not flowing.closed:
                with suppress(EOFError):
                    await flowing.until(lambda: not flowing.opened.empty(), 600)
                while not flowing.opened.empty():
                    self.calls += 1
                    task = asyncio.create_task(self._act(flowing, flowing.opened.get_nowait()))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            await running
        except (EOFError, ConnectionError):
            pass
        finally:
            for task in tasks:
                task.cancel()
            writer.close()

    async def _act(self, flowing: Flowing, number: int) -> None:
        try:
            await self.act(flowing, number)
        except (EOFError, ConnectionError):
            pass
        except Exception as fault:
            self.failures.append(fault)


@asynccontextmanager
async def serving(upstream: Upstream, **tls: Any) -> AsyncIterator[Upstream]:
    """``upstream``, running."""
    listening = await asyncio.start_server(upstream.connected, "127.0.0.1", 0, **tls)
    if upstream.receives:
        listening.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, upstream.receives)
    upstream.address = "{}:{}".format(*listening.sockets[0].getsockname())
    try:
        yield upstream
    finally:
        listening.close()
        for each in upstream.connections:
            each.writer.transport.abort()
        await asyncio.sleep(0)
        assert not upstream.failures


async def trickle(flowing: Flowing, rng: random.Random, most: int, resizes: Sequence[int] = ()) -> None:
    """From now on give ``flowing``'s peer windows in random steps, at random times: up to about ``most`` bytes
    at once. ``resizes`` are initial windows that it states meanwhile, the first one now."""
    waiting = list(reversed(resizes))
    given: dict[int, int] = {0: flowing.received}
    flowing.given = lambda number, size: None
    while not flowing.closed:
        if waiting and (len(waiting) == len(resizes) or rng.random() < 0.2):
            flowing.stated = waiting.pop()
            flowing.write(settings((INITIAL_WINDOW, flowing.stated)))
        taken = {0: flowing.received}
        taken |= {
            number: side.flow
            for number, side in flowing.streams.items()
            if not side.ended and side.reset is None
        }
        for number, flow in taken.items():
            first = flowing.stated if number else DEFAULT_WINDOW
            if first + given.get(number, 0) - flow < most and rng.random() < 0.7:
                step = rng.choice((1, 1000, most, rng.randrange(1, 2 * most)))
                given[number] = given.get(number, 0) + step
                flowing.write(window_update(number, step))
        await asyncio.sleep(rng.random() * 0.004)
