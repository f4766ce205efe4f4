"""Assembles the body of an HTTP/1 message from the pieces that arrive, by its length or by chunks (RFC 9112,
6 and 7).

Memory grows with what arrives, not with what the headers claim. No I/O; the caller checks the size against
limits.
"""

from __future__ import annotations

import re

from interlingua.protocols.transport.allowance import Allowance
from interlingua.protocols.transport.http1.headers import NAME
from interlingua.protocols.transport.memory import Allocate, unfilled
from interlingua.protocols.transport.turns import TURN_CHUNKS
from interlingua.protocols.wire import Buffer

_JOINED_BYTES = 1 << 16
"""Pieces below this size are joined as they arrive: drips must not cost an object each."""

_RESERVED_BYTES = 64 << 20
"""How much is reserved at first; a larger body is copied as it grows."""

_SPARE_BYTES, _CHECK_BYTES = 16 << 20, 4 << 20
"""The memory that must be left while a body grows in pieces, and how often that is checked: the event
loop would cut the connection if its own allocations were the first to fail."""

COPIED_BYTES = 1 << 14
"""Up to this size a copy of a body costs less than a view, and keeps nothing else in memory."""

_MAX_LINE_BYTES = 1 << 12
"""The longest line before a chunk, extensions included."""

_MAX_TRAILER_BYTES = 1 << 16
"""The longest trailer section, which is ignored."""

_SIZE_LINE = re.compile(rb"(0*[0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")

_TRAILER_LINE = re.compile(rf"{NAME}:[^\x00-\x08\x0a-\x1f\x7f]*".encode())
"""A field (RFC 9112, 5)."""

_SMALL_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,3})\r\n").match


_LINE_COST = 4
"""As how many small chunks one counts in a turn that is not read by the pattern above."""

SMALL_CHUNK_BYTES = 64
"""A chunk with fewer bytes is small."""

SMALL_CHUNKS, SMALL_CHUNKS_PER_SEC = 20_000, 2_000
"""How many small chunks a client may send at once, and per second: many times what a sensor writes."""


class BodyError(ValueError):
    """The chunked coding of a body is malformed (RFC 9112, 7.1)."""


class SmallChunksError(BodyError):
    """A body has more small chunks than allowed."""


def small_chunks() -> Allowance:
    """How many small chunks one client may send."""
    return Allowance(SMALL_CHUNKS, SMALL_CHUNKS_PER_SEC)


def body_in(data: bytes | bytearray, at: int, length: int) -> Buffer:
    """The body of ``length`` bytes in ``data[at:]``, which contains all of it."""
    if length > COPIED_BYTES and type(data) is bytes:
        return memoryview(data)[at : at + length]
    return bytes(data[at : at + length])


class SizedBody:
    """A body of ``length`` bytes in memory from ``allocate``. Pieces are copied to their place at once:
    joining them later would read them from memory again."""

    def __init__(self, length: int, allocate: Allocate = unfilled) -> None:
        self._length = length
        self._allocate = allocate
        self.least_size = length
        """The size of the body, as far as it is known."""
        self._whole: Buffer = b""
        self._buffer = memoryview(b"")
        self.size = 0
        """How many bytes have arrived."""
        self.complete = False

    def feed(self, data: Buffer, at: int) -> int:
        """Take the bytes of the body from ``data[at:]``. Returns where they end."""
        begin, end = self.size, min(at + self._length - self.size, len(data))
        self.size = size = begin + end - at
        self.complete = size == self._length
        if self.complete and not begin:
            self._whole = bytes(data[at:end])
        elif end > at:
            if size > len(self._buffer):
                self._grow(begin)
            with memoryview(data) as view:
                self._buffer[begin:size] = view[at:end]
        return end

    @property
    def missing(self) -> int:
        """How many bytes are still to come."""
        return self._length - self.size

    def buffer(self) -> memoryview:
        """Space for the bytes to come, or some of them."""
        if self.size == len(self._buffer):
            self._grow(self.size)
        return self._buffer[self.size :]

    def fill(self, count: int) -> None:
        """Note that ``count`` bytes have arrived in :meth:`buffer`."""
        self.size += count
        self.complete = self.size == self._length

    def whole(self) -> Buffer:
        """The body, once it is complete."""
        return self._whole or self._buffer.toreadonly()

    def _grow(self, kept: int) -> None:
        # the system maps the pages when they are written to
        larger = self._allocate(min(self._length, max(_RESERVED_BYTES, 2 * self.size)))
        larger[:kept] = self._buffer[:kept]
        self._buffer = larger


class _Pieces:
    """Bytes that arrive in pieces, joined once. (A growing buffer would be copied whenever the allocator
    moves it.)"""

    def __init__(self) -> None:
        self._parts: list[bytes | bytearray] = []
        self.size = 0
        self._checked = _CHECK_BYTES

    def add(self, piece: bytes | bytearray) -> None:
        """Append ``piece``. Raises ``MemoryError``."""
        parts = self._parts
        self.size += len(piece)
        if self.size > self._checked:
            self._checked = self.size + _CHECK_BYTES
            unfilled(_SPARE_BYTES)  # reserved, not touched, and freed at once
        if len(piece) >= _JOINED_BYTES:
            parts.append(piece)
        elif parts and len(parts[-1]) < _JOINED_BYTES:
            parts[-1] += piece
        else:
            parts.append(bytearray(piece))

    def join(self) -> bytes:
        """All of them."""
        return b"".join(self._parts)

    def take(self) -> bytes:
        """All of them, which are kept no longer. ``size`` still counts them."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class UnchunkedBody:
    """A body of ``length`` bytes, or one that ends with its connection (None), which is read while it
    arrives."""

    missing = 0
    """It is not received in place."""

    def __init__(self, length: int | None) -> None:
        self._length = length
        self._pieces = _Pieces()
        self.complete = length == 0

    @property
    def size(self) -> int:
        """How many bytes have arrived."""
        return self._pieces.size

    @property
    def least_size(self) -> int:
        """The size of the body, as far as it is known."""
        return self.size if self._length is None else self._length

    def feed(self, data: bytes | bytearray, at: int) -> int:
        """Take the bytes of the body from ``data[at:]``. Returns where they end."""
        end = len(data)
        if self._length is not None:
            end = min(end, at + self._length - self.size)
            self.complete = self.size + end - at == self._length
        self._pieces.add(data[at:end] if at or end < len(data) else data)
        return end

    def take(self) -> bytes:
        """The bytes that have arrived since the last time."""
        return self._pieces.take()

    def whole(self) -> bytes:
        """What :meth:`take` has left, once the body is complete."""
        return self._pieces.take()


class ChunkedBody:
    """A chunked body (RFC 9112, 7.1). Extensions and trailers are checked and ignored. ``allowance`` bounds
    its small chunks; None does not."""

    def __init__(self, allowance: Allowance | None = None) -> None:
        self._allowance = allowance
        self._pieces = _Pieces()
        self._line = bytearray()
        self._left = 0
        """How much of the chunk, with its line end, is still to come."""
        self._trailer_bytes: int | None = None
        self.complete = False

    missing = 0
    """Not known before the last chunk."""

    @property
    def size(self) -> int:
        """How many bytes have arrived, without framing."""
        return self._pieces.size

    @property
    def least_size(self) -> int:
        """The size of the body, as far as it is known: up to the end of the chunk that is arriving."""
        return self._pieces.size + max(self._left - 2, 0)

    def feed(self, data: bytes | bytearray, at: int) -> int:
        """Take the bytes of the body from ``data[at:]``, as many chunks as in one turn (``transport.turns``).
        Returns where they end. Raises ``BodyError``."""
        turn = TURN_CHUNKS
        if not self._left and not self._line and self._trailer_bytes is None:
            at, turn = self._small_chunks(data, at, turn)
        while at < len(data) and not self.complete and turn > 0:
            if self._left:
                at = self._chunk(data, at)
            else:
                at = self._next_line(data, at)
                turn -= _LINE_COST
        return at

    def whole(self) -> bytes:
        """The body, once it is complete."""
        return self._pieces.join()

    def take(self) -> bytes:
        """The bytes that have arrived since the last time."""
        return self._pieces.take()

    def _small_chunks(self, data: bytes | bytearray, at: int, turn: int) -> tuple[int, int]:
        """Read up to ``turn`` of the small chunks at ``at`` that are complete: a peer may send thousands at
        once. Returns where they end, and how many are left in this turn."""
        gathered, small = bytearray(), 0
        while turn and (found := _SMALL_CHUNK(data, at)):
            begin = found.end()
            size = int(found[1], 16)
            end = begin + size
            if data[end : end + 2] != b"\r\n" or end == begin:
                break
            gathered += data[begin:end]
            at = end + 2
            turn -= 1
            small += size < SMALL_CHUNK_BYTES
        if gathered:
            self._pieces.add(gathered)
            self._spend(small)
        return at, turn

    def _spend(self, small: int) -> None:
        if small and self._allowance is not None and not self._allowance.spend(small):
            raise SmallChunksError(f"more than {SMALL_CHUNKS_PER_SEC} chunks per second are too small")

    def _chunk(self, data: bytes | bytearray, at: int) -> int:
        wanted = self._left - 2
        if wanted > 0:
            piece = data[at : at + wanted]
            self._pieces.add(piece)
            self._left -= len(piece)
            return at + len(piece)
        if data[at] != (0x0D if self._left == 2 else 0x0A):
            raise BodyError("a chunk is longer than its size says")
        self._left -= 1
        return at + 1

    def _next_line(self, data: bytes | bytearray, at: int) -> int:
        """Read a line between chunks, or the part that has arrived."""
        limit = _MAX_LINE_BYTES if self._trailer_bytes is None else _MAX_TRAILER_BYTES - self._trailer_bytes
        end = data.find(b"\n", at, at + limit + 1)
        stop = len(data) if end < 0 else end + 1
        if len(self._line) + stop - at > limit:
            raise BodyError("a line between chunks is too long")
        line = self._line
        line += data[at:stop]
        if end >= 0:
            if not line.endswith(b"\r\n"):
                raise BodyError("a line between chunks does not end with CR LF")
            self._parse_line(bytes(line[:-2]))
            line.clear()
        return stop

    def _parse_line(self, line: bytes) -> None:
        if self._trailer_bytes is not None:
            if line and not _TRAILER_LINE.fullmatch(line):  # RFC 9112, 7.1.2
                raise BodyError("a line behind the last chunk is not a field")
            self._trailer_bytes += len(line) + 2
            self.complete = not line
            return
        found = _SIZE_LINE.fullmatch(line)
        if found is None:
            raise BodyError("a chunk has no size")
        size = int(found[1], 16)
        if size:
            self._left = size + 2
            self._spend(size < SMALL_CHUNK_BYTES)
        else:
            self._trailer_bytes = 0
