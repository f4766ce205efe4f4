"""Cuts a stream of bytes into frames: a size of four bytes, little-endian, and as many bytes behind it.

Sans-IO: the owner of the socket reads into ``space`` and reports how much arrived. A small frame is copied
out of a shared buffer; a larger one is received into memory of its own.
"""

from __future__ import annotations

import struct

from interlingua.protocols.transport.memory import Allocate, unfilled
from interlingua.protocols.transport.received import ReceiveBuffer

SIZE_BYTES = 4
"""The size of a frame's prefix."""

MAX_MESSAGE_BYTES = 2**32 - 1
"""The largest size that the prefix can hold."""

_CHUNK_BYTES = 1 << 16
"""Frames up to this size are small."""

_SIZE = struct.Struct("<I")


class FrameTooLargeError(Exception):
    """A message of ``size`` bytes is announced, more than is taken. The stream cannot go on."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a message of {size} bytes")
        self.size = size


class FrameSplitter:
    """Messages of up to ``max_message_bytes`` out of what arrives, large ones in memory from ``allocate``.

    Write into ``space()``, say how much to ``received``, take messages from ``next`` until there is none:
    only then is there space for more.
    """

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES, allocate: Allocate = unfilled) -> None:
        self._limit = max_message_bytes
        self._allocate = allocate
        self._chunk = unfilled(_CHUNK_BYTES)
        self._begin = self._end = 0
        self._large: ReceiveBuffer | None = None

    @property
    def missing(self) -> int:
        """How many bytes the message lacks of which a part is here; 0 where none is. Where its size is not
        here yet, what that lacks."""
        if self._large is not None:
            return self._large.missing
        held = self._end - self._begin
        if not held:
            return 0
        return (self._announced() if held >= SIZE_BYTES else SIZE_BYTES) - held

    @property
    def filled(self) -> int:
        """How many bytes of a large message are here."""
        return 0 if self._large is None else self._large.filled

    @property
    def arrived(self) -> int:
        """How many bytes of the next message, or messages, are here."""
        return self._end - self._begin if self._large is None else self._large.filled

    @property
    def start(self) -> bytes:
        """How what is held begins, before anything of it was taken: up to four bytes."""
        return bytes(self._chunk[self._begin : min(self._end, self._begin + SIZE_BYTES)])

    def space(self) -> memoryview:
        """Where the next bytes belong, never empty."""
        if self._large is not None:
            return self._large.space()
        if self._begin:
            held = self._end - self._begin
            self._chunk[:held] = bytes(self._chunk[self._begin : self._end])
            self._begin, self._end = 0, held
        return self._chunk[self._end :]

    def received(self, count: int) -> None:
        """``count`` bytes have been written into the space."""
        if self._large is not None:
            self._large.filled += count
        else:
            self._end += count

    def next(self) -> memoryview | None:
        """The next message that is complete, None where more bytes are needed first. Raises
        ``FrameTooLargeError``."""
        if self._large is not None:
            if self._large.missing:
                return None
            large, self._large = self._large, None
            return large.whole()[SIZE_BYTES:]
        held = self._end - self._begin
        if held < SIZE_BYTES:
            return None
        whole = self._announced()
        if whole - SIZE_BYTES > self._limit:
            raise FrameTooLargeError(whole - SIZE_BYTES)
        if whole <= held:
            frame = bytes(self._chunk[self._begin : self._begin + whole])
            self._begin += whole
            # the size stays before it: what is aligned in the message counts from there
            return memoryview(frame)[SIZE_BYTES:]
        if whole > _CHUNK_BYTES:
            self._large = ReceiveBuffer(whole, self._chunk[self._begin : self._end], self._allocate)
            self._begin = self._end = 0
        return None

    def discard(self) -> None:
        """Forget what is held."""
        self._begin = self._end = 0
        self._large = None

    def _announced(self) -> int:
        """The size of the frame that begins here."""
        size: int = _SIZE.unpack_from(self._chunk, self._begin)[0]
        return SIZE_BYTES + size
