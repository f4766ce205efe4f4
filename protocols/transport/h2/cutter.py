"""What a client of HTTP/2 sends, cut into frames, whatever the pieces in which it arrives.

Contract: data is handed over as it comes, padding left out, so that a large frame is never kept to be whole;
headers are handed over as a whole block; every other frame as one, of which none may be large. A frame that
nobody can make sense of raises ``H2Error``. What the frames mean stands in ``h2.connection``.
"""

from __future__ import annotations

from typing import Protocol

from interlingua.protocols.transport.h2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADER_BYTES,
    HEADERS,
    LARGEST_STREAM,
    PADDED,
    PREFACE,
    PRIORITISED,
    SETTINGS,
    Code,
    H2Error,
)
from interlingua.protocols.transport.h2.stream import Stream

LARGEST_BLOCK = 1 << 18
"""How long a block of headers may be: more than is taken, so that one request is refused for it and its
connection goes on."""

FRAME_BYTES = 1 << 20
"""The largest frame of data that a peer may send."""

_LARGEST_CONTROL = LARGEST_BLOCK + 256


class NotHttp2Error(H2Error):
    """What came first is not what HTTP/2 begins with."""


class Frames(Protocol):
    """Who makes sense of the frames."""

    closed: bool

    def greeted(self) -> None:
        """The peer does speak HTTP/2."""

    def arriving(self, number: int, size: int) -> Stream | None:
        """A frame of data for stream ``number``, ``size`` bytes with its padding; the stream that takes it,
        if any does."""

    def arrived(self, stream: Stream, data: bytes, start: int, stop: int, ended: bool) -> None:
        """The last of a frame of data, or all of it; ``ended``: and of its stream."""

    def block(self, block: bytes, ended: bool, number: int) -> None:
        """A block of headers; ``ended``: nothing follows it on its stream."""

    def control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Any other frame, also of types that are not known (without their payload)."""

    def idle(self) -> None:
        """A frame, or part of one, that asks for nothing."""


class FrameCutter:
    """Cuts what one peer sends, for ``frames``."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._greeted = False
        self._rest = b""
        # of a frame of data, or of one to be passed over: what is still to come, and who takes it
        self._left = self._padding = 0
        self._inside: Stream | None = None
        self._inside_ends = False
        # of a block of headers that has not ended
        self._block = bytearray()
        self._block_stream = 0
        self._block_ends = False

    def feed(self, data: bytes) -> None:
        """Take what arrived. Raises ``H2Error``; nothing can be cut afterwards."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        position = self._cut(data)
        if position < len(data) and not self._frames.closed:
            self._rest = data[position:] if position else data

    def _cut(self, data: bytes) -> int:
        """Take whole frames, and data as it comes; how far."""
        frames, end, position = self._frames, len(data), 0
        if not self._greeted:
            position = self._greet(data)
            if not self._greeted:
                return 0
        if self._left:
            position = self._go_on(data, position, end)
        while end - position >= HEADER_BYTES and not frames.closed:
            upper, lower, kind, flags, number = HEADER.unpack_from(data, position)
            number &= LARGEST_STREAM  # the highest bit means nothing
            size = upper << 8 | lower
            start = position + HEADER_BYTES
            stop = start + size
            if self._block_stream and (kind != CONTINUATION or number != self._block_stream):
                raise H2Error(Code.PROTOCOL_ERROR, "headers that another frame interrupts")
            if kind == DATA and stop <= end and not flags & PADDED:
                position = stop
                stream = frames.arriving(number, size)
                if stream is not None:
                    frames.arrived(stream, data, start, stop, bool(flags & END_STREAM))
            elif size > FRAME_BYTES:
                raise H2Error(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            elif kind == DATA:
                if start == end and flags & PADDED and size:
                    break  # the length of the padding comes first
                position = self._begin_data(data, start, end, size, flags, number)
            elif kind > CONTINUATION:
                self._inside, self._left, self._padding = None, size, 0
                frames.control(kind, flags, number, b"")
                position = self._go_on(data, start, end)
            elif size > _LARGEST_CONTROL:
                raise H2Error(Code.ENHANCE_YOUR_CALM, f"a frame of type {kind} with {size} bytes")
            elif stop > end:
                break
            else:
                position = stop
                self._whole(kind, flags, number, data[start:stop])
        return position

    def _greet(self, data: bytes) -> int:
        if not data.startswith(PREFACE):
            if PREFACE.startswith(data):
                return 0
            raise NotHttp2Error(Code.PROTOCOL_ERROR, "this is not HTTP/2")
        if len(data) < len(PREFACE) + HEADER_BYTES:
            return 0
        self._greeted = True
        self._frames.greeted()
        if data[len(PREFACE) + 3] != SETTINGS:
            raise H2Error(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        return len(PREFACE)

    def _whole(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """A frame that is no data."""
        if kind == HEADERS:
            if not number & 1:
                raise H2Error(Code.PROTOCOL_ERROR, f"a request on stream {number}")
            if flags & (PADDED | PRIORITISED):
                payload = _unwrapped(payload, flags)
            if flags & END_HEADERS:
                self._frames.block(payload, bool(flags & END_STREAM), number)
            else:
                self._block = bytearray(payload)
                self._block_stream, self._block_ends = number, bool(flags & END_STREAM)
        elif kind == CONTINUATION:
            self._continue(flags, number, payload)
        else:
            self._frames.control(kind, flags, number, payload)

    def _continue(self, flags: int, number: int, payload: bytes) -> None:
        if not self._block_stream:
            raise H2Error(Code.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        self._frames.idle()
        self._block += payload
        if len(self._block) > LARGEST_BLOCK:
            raise H2Error(Code.ENHANCE_YOUR_CALM, f"headers of more than {LARGEST_BLOCK} bytes")
        if flags & END_HEADERS:
            block, self._block, self._block_stream = bytes(self._block), bytearray(), 0
            self._frames.block(block, self._block_ends, number)

    def _begin_data(self, data: bytes, start: int, end: int, size: int, flags: int, number: int) -> int:
        """A frame of data that is padded, or has not arrived whole; how far it has."""
        stream = self._frames.arriving(number, size)
        padding = 0
        if flags & PADDED:
            if not size or data[start] >= size:
                raise H2Error(Code.PROTOCOL_ERROR, "more padding than frame")
            padding = data[start]
            start += 1
            size -= 1
        self._left, self._padding = size, padding
        self._inside, self._inside_ends = stream, bool(flags & END_STREAM)
        return self._go_on(data, start, end)

    def _go_on(self, data: bytes, start: int, end: int) -> int:
        """Hand over what is there of the frame that is under way; how far that is."""
        stop = min(end, start + self._left)
        self._left -= stop - start
        stream = self._inside
        if stream is not None and not stream.told_all:
            # what of this part stands before the padding
            until = max(start, min(stop, stop + self._left - self._padding))
            if not self._left:
                self._frames.arrived(stream, data, start, until, self._inside_ends)
            elif until > start:
                stream.received(data, start, until, False)
        if not self._left:
            self._inside = None
        return stop


def _unwrapped(payload: bytes, flags: int) -> bytes:
    """The block in a HEADERS frame, without padding and priority."""
    start, stop = 0, len(payload)
    if flags & PADDED:
        start = 1
        stop -= payload[0] if payload else 0
    if flags & PRIORITISED:
        start += 5
    if stop < start:
        raise H2Error(Code.PROTOCOL_ERROR, "more padding than frame")
    return payload[start:stop]
