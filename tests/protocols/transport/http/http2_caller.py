"""Speaks HTTP/2 for tests that write requests and read answers as in HTTP/1."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.h2.frames import Code
from tests.protocols.transport.h2.peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    RawH2,
    block,
    frame,
    window_update,
)
from tests.protocols.transport.peers import Reply, reset
from tests.waiting import until

_FRAME_BYTES, _WINDOW = 16_384, 65_535
_INITIAL_WINDOW_SIZE = 4


@dataclass
class _Answer:
    head: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    reset: int | None = None
    ended: bool = False

    def take(self, made: Frame) -> None:
        if made.kind == DATA:
            self.body += made.payload
        elif made.kind == HEADERS:
            self.head = self.head or made.fields
        else:
            self.reset = made.code
        self.ended = self.ended or made.kind == RST_STREAM or bool(made.flags & END_STREAM)


class Http2Caller:
    """A connection that makes one request after another. It lets the server send more than a window only while a
    reply is awaited."""

    def __init__(self, raw: RawH2) -> None:
        self.unsent = 0
        """How many bytes wait for the server's windows."""
        self._raw = raw
        self._pending = bytearray()  # of a head
        self._left = 0  # of a body
        self._stream = -1
        self._windows = {0: _WINDOW}
        self._initial = _WINDOW
        self._answers: dict[int, _Answer] = {}
        self._replies: deque[int] = deque()
        self._unread: dict[int, int] = {}
        self._waits = False
        self._changed = asyncio.Event()
        self._lost = False
        self._reader = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def to(cls, address: Address) -> AsyncIterator[Http2Caller]:
        async with RawH2.to(address) as raw:
            caller = cls(raw)
            try:
                await caller._until(lambda: caller._initial != _WINDOW)
                yield caller
            finally:
                caller._reader.cancel()
                await asyncio.gather(caller._reader, return_exceptions=True)

    async def send(self, data: bytes) -> None:
        """Send more of requests, which are written as in HTTP/1."""
        while data:
            if not self._left:
                self._pending += data
                head, end, data = bytes(self._pending).partition(b"\r\n\r\n")
                if not end:
                    return
                self._pending.clear()
                self._begin(head.decode())
                continue
            body, data = data[: self._left], data[self._left :]
            await self._send_body(body)

    async def reply(self) -> Reply:
        """The answer to the oldest request without one. Raises ``ConnectionError`` if it breaks off."""
        found = await self.begin(None)
        self._replies.popleft()
        return found

    async def begin(self, size: int | None) -> Reply:
        """The same with ``size`` bytes of the body, or more, once they are here; None: with all."""
        # a task that sends the request may have yet to begin
        await until(lambda: self._replies, pace_secs=0)
        number = self._replies[0]
        answer = self._answers[number]

        def begun(size: int | None) -> bool:
            return size is not None and bool(answer.head) and len(answer.body) >= size

        self._waits = True
        self._give_credit()
        await self._until(lambda: answer.ended or begun(size))
        self._waits = False
        if answer.reset:
            raise ConnectionResetError(answer.reset)
        headers = {name: value for name, value in answer.head.items() if name[0] != ":"}
        return Reply(f"HTTP/2 {answer.head[':status']}", headers, bytes(answer.body))

    async def rest(self, begun: Reply) -> Reply:
        """The reply that has ``begun``, complete."""
        return await self.reply()

    def reset(self) -> None:
        """End the connection at once."""
        reset(self._raw.writer)

    async def ends(self, reply: Reply) -> bool:
        """Whether the server takes no more of the last request, which ``reply`` answers early."""
        await self._until(lambda: self._answers[self._stream].reset is not None)
        return self._answers[self._stream].reset == Code.NO_ERROR

    def _begin(self, head: str) -> None:
        line, *lines = head.split("\r\n")
        method, path, _ = line.split()
        fields = [(":method", method), (":scheme", "http"), (":path", path)]
        for name, value in (text.split(": ", 1) for text in lines):
            fields.append((":authority" if name == "Host" else name.lower(), value))
            if name == "Content-Length":
                self._left = int(value)
        self._stream += 2
        self._windows[self._stream] = self._initial
        self._answers[self._stream] = _Answer()
        self._replies.append(self._stream)
        flags = END_HEADERS | (0 if self._left else END_STREAM)
        self._raw.writer.write(frame(HEADERS, flags, self._stream, block(fields)))

    async def _send_body(self, body: bytes) -> None:
        self._left -= len(body)
        self.unsent, at, number = len(body), 0, self._stream
        while self.unsent:
            size = min(self.unsent, _FRAME_BYTES, self._windows[0], self._windows[number])
            if size <= 0:
                await self._until(lambda: min(self._windows[0], self._windows[number]) > 0)
                continue
            self.unsent -= size
            self._windows[0] -= size
            self._windows[number] -= size
            ended = END_STREAM if not (self._left or self.unsent) else 0
            await self._raw.send(frame(DATA, ended, number, body[at : at + size]))
            at += size

    async def _until(self, true: object) -> None:
        assert callable(true)
        while not true():
            if self._lost:
                raise ConnectionResetError
            self._changed.clear()
            await self._changed.wait()

    def _give_credit(self) -> None:
        for number, size in self._unread.items():
            if not self._answers[number].ended:
                self._raw.writer.write(window_update(number, size))
            self._raw.writer.write(window_update(0, size))
        self._unread.clear()

    async def _read(self) -> None:
        try:
            while True:
                (made,) = await self._raw.until(lambda _: True, 60)
                number = made.stream
                if made.kind == WINDOW_UPDATE:
                    self._windows[number] += int.from_bytes(made.payload, "big")
                elif made.kind == SETTINGS:
                    self._apply(made.payload)
                elif made.kind == GOAWAY and made.code:
                    raise ConnectionResetError(made.code)
                elif made.kind in (HEADERS, DATA, RST_STREAM):
                    self._answers[number].take(made)
                    if made.kind == DATA and made.payload:
                        self._unread[number] = self._unread.get(number, 0) + len(made.payload)
                        if self._waits:
                            self._give_credit()
                self._changed.set()
        except (EOFError, ConnectionError):
            self._lost = True
            self._changed.set()

    def _apply(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            if int.from_bytes(payload[at : at + 2], "big") == _INITIAL_WINDOW_SIZE:
                self._initial = int.from_bytes(payload[at + 2 : at + 6], "big")
