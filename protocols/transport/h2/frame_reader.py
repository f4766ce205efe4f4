"""Reads HTTP/2 frames (RFC 9113, 4 and 6) out of the bytes of a peer, cut anywhere.

Contract: DATA is handed over as it arrives, without padding, so that a large frame is never buffered; field
blocks and all other frames are handed over whole, and are limited in size. A malformed frame raises
``H2Error``. So many frames are handed over at once, and the others with the next call (``transport.turns``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from interlingua.protocols.transport.h2.flood import SMALL_BYTES, FloodGuard
from interlingua.protocols.transport.h2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADER_BYTES,
    HEADERS,
    MAX_STREAM_ID,
    PADDED,
    PRIORITY_FIELDS,
    SETTINGS,
    Code,
    H2Error,
)
from interlingua.protocols.transport.h2.stream import Sink, Stream
from interlingua.protocols.transport.turns import TURN_FRAMES
from interlingua.protocols.wire import Buffer

MAX_FIELD_BLOCK = 1 << 18
"""The largest field block: more than a request may have, so that a request above its limit is refused alone
and the connection goes on."""

FRAME_BYTES = 1 << 20
"""SETTINGS_MAX_FRAME_SIZE: the largest frame a peer may send (RFC 9113, 4.2)."""

_UNPACK = HEADER.unpack_from

_MAX_CONTROL = MAX_FIELD_BLOCK + 256

_FORM = END_HEADERS | PADDED | PRIORITY_FIELDS
"""The flags that make of a HEADERS frame more than its whole field block."""

_HEADERS_COST, _COST_BYTES = 8, 64
"""As how many frames a field block counts in a turn, since it may begin a call; and once more for so many
bytes of it."""

_DIRECT_BYTES = 1 << 16
"""The least that a DATA frame must lack to be received into its message's buffer."""


class NotHttp2Error(H2Error):
    """The first bytes are not the peer's connection preface (RFC 9113, 3.4)."""


class FrameHandler(Protocol):
    """Handles the frames of one connection. Its methods raise ``H2Error``."""

    closed: bool

    def on_preface(self) -> None:
        """The peer's connection preface; its SETTINGS frame follows."""

    def on_data_frame(self, number: int, size: int) -> Stream | None:
        """A DATA frame of stream ``number`` begins, ``size`` bytes with its padding. The stream that takes
        the data, None to skip it."""

    def on_placed(self, size: int) -> None:
        """DATA of ``size`` bytes together has been put into sinks, and counted for its streams."""

    def on_data(self, stream: Stream, data: Buffer, start: int, stop: int, ended: bool) -> None:
        """A DATA frame, or the end of one; ``ended``: it has END_STREAM."""

    def on_field_block(self, block: bytes, ended: bool, number: int) -> None:
        """A field block; ``ended``: its HEADERS frame has END_STREAM."""

    def on_control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Any other frame; one of an unknown type comes without its payload."""


class FrameReader:
    """Reads what one peer sends, for ``handler``. ``preface`` precedes the first frame: that of a client, and
    nothing from a server (RFC 9113, 3.4). ``streams`` are the open ones by number, each with a flow-control
    window of ``stream_window`` bytes."""

    def __init__(
        self,
        handler: FrameHandler,
        guard: FloodGuard,
        preface: bytes,
        streams: Mapping[int, Stream],
        stream_window: int,
    ) -> None:
        self._handler = handler
        self._streams = streams
        self._low_water = stream_window // 2
        self._guard = guard
        self._preface = preface
        self._preface_read = False
        self._rest = b""
        self.extra = 0
        """As how many more frames what was handed over counts in this turn, set by who took it."""
        self.pending = False
        """Whether frames that have arrived wait for the next :meth:`feed`, which may bring no data."""
        # the DATA frame under way, or the frame to be skipped: bytes still to come, and the stream that takes
        # them
        self._left = self._padding = 0
        self.inside: Stream | None = None
        self._inside_ends = False
        # the field block under way
        self._block = bytearray()
        self._block_stream = 0
        self._block_ends = False

    def feed(self, data: Buffer) -> None:
        """Take what arrived, which may change afterwards. Raises ``H2Error``, after which nothing can be
        read."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        self.pending = False
        position = self._cut(data)
        if self.extra > TURN_FRAMES:
            self.pending = True
        self.extra = 0
        if position < len(data) and not self._handler.closed:
            self._rest = bytes(data[position:] if position else data)

    @property
    def inside_headers(self) -> bool:
        """Whether a field block has begun that has not ended."""
        return self._block_stream > 0

    @property
    def space(self) -> memoryview | None:
        """Where the next bytes belong if they are data in the middle of a message; None if :meth:`feed` takes
        them. The last byte of a frame is for :meth:`feed`, which ends the frame."""
        stream, left = self.inside, self._left - self._padding - 1
        if left < _DIRECT_BYTES or stream is None or stream.closed or stream.sink is None:
            return None
        sink: Sink = stream.sink
        until = min(sink.filled + left, sink.end)
        return sink.buffer[sink.filled : until] if until - sink.filled >= _DIRECT_BYTES else None

    def received(self, count: int) -> None:
        """``count`` bytes have been written into what was the space. The stream may have ended since."""
        stream = self.inside
        if stream is not None and stream.sink is not None:
            stream.sink.filled += count
        self._left -= count

    def _cut(self, data: Buffer) -> int:
        """Handle whole frames, and DATA as it arrives, as many as in one turn: up to which position."""
        handler, streams, low_water = self._handler, self._streams, self._low_water
        view, end, position, left, placed = memoryview(data), len(data), 0, TURN_FRAMES, 0
        if not self._preface_read:
            position = self._read_preface(data)
            if not self._preface_read:
                return 0
        if self._left:
            position = self._resume(data, position, end)
        while end - position >= HEADER_BYTES and not handler.closed:
            if self.extra:
                left -= self.extra
                self.extra = 0
            if left <= 0:
                self.pending = True
                break
            left -= 1
            upper, lower, kind, flags, number = _UNPACK(data, position)
            number &= MAX_STREAM_ID  # the highest bit is reserved (4.1)
            size = upper << 8 | lower
            start = position + HEADER_BYTES
            stop = start + size
            if self._block_stream and (kind != CONTINUATION or number != self._block_stream):
                raise H2Error(Code.PROTOCOL_ERROR, "a frame inside a field block")  # 4.3
            if (
                not (kind or flags)  # DATA
                and stop <= end
                and size >= SMALL_BYTES
                and (stream := streams.get(number)) is not None
                and (received := stream.received + size) < low_water + stream.looked_at
                and not stream.half_closed_remote
            ):
                # perhaps in the middle of a message, where the window need not be looked at
                if (sink := stream.sink) is not None:
                    taken = (after := sink.filled + size) < sink.end
                    if taken:
                        sink.buffer[sink.filled : after] = view[start:stop]
                        sink.filled = after
                else:
                    taken = stream.passthrough is not None and stream.passthrough.pass_frame(
                        view[position:stop], size
                    )
                if taken:
                    stream.received, position = received, stop
                    if stream.body_left is not None:
                        stream.body_left -= size
                    placed += size
                    continue
            if kind == DATA and stop <= end and not flags & PADDED:
                position = stop
                self._data(number, flags, data, start, stop)
            elif (
                kind == HEADERS
                and stop <= end
                and size <= MAX_FIELD_BLOCK
                and flags & _FORM == END_HEADERS
                and number & 1
            ):
                # _whole, inlined
                position = stop
                handler.on_field_block(bytes(data[start:stop]), bool(flags & END_STREAM), number)
                left -= _HEADERS_COST + size // _COST_BYTES
            else:
                after = self._uncommon(data, start, end, size, kind, flags, number)
                if after < start:
                    break
                position = after
        if placed:
            handler.on_placed(placed)
        return position

    def _data(self, number: int, flags: int, data: Buffer, start: int, stop: int) -> None:
        """A whole DATA frame without padding."""
        size, ended = stop - start, bool(flags & END_STREAM)
        stream = self._handler.on_data_frame(number, size)
        if stream is None:
            return
        sink = stream.sink
        if sink is not None and not flags and size and (after := sink.filled + size) < sink.end:
            sink.buffer[sink.filled : after] = memoryview(data)[start:stop]
            sink.filled = after
        elif size and not (ended and stream.body_left):  # H2Connection.on_data, inlined
            stream.half_closed_remote = ended
            stream.data_received(data, start, stop, ended)
        else:
            self._handler.on_data(stream, data, start, stop, ended)

    def _uncommon(
        self, data: Buffer, start: int, end: int, size: int, kind: int, flags: int, number: int
    ) -> int:
        """Any other frame: up to which position it was taken, less than ``start`` if more of it must be here
        first."""
        stop = start + size
        if size > FRAME_BYTES:
            raise H2Error(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")  # 4.2
        if kind == DATA:
            if start == end and flags & PADDED and size:
                return 0  # the pad length comes first (6.1)
            return self._begin_data(data, start, end, size, flags, number)
        if kind > CONTINUATION:
            self.inside, self._left, self._padding = None, size, 0
            self._handler.on_control(kind, flags, number, b"")
            return self._resume(data, start, end)
        if size > _MAX_CONTROL:
            raise H2Error(Code.ENHANCE_YOUR_CALM, f"a frame of type {kind} with {size} bytes")
        if stop > end:
            return 0
        self.extra += self._whole(kind, flags, number, bytes(data[start:stop]))
        return stop

    def _read_preface(self, data: Buffer) -> int:
        preface = self._preface
        begin = bytes(data[: len(preface)])
        if begin != preface:
            if preface.startswith(begin):
                return 0
            raise NotHttp2Error(Code.PROTOCOL_ERROR, "this is not HTTP/2")
        if len(data) < len(preface) + HEADER_BYTES:
            return 0
        self._preface_read = True
        first, flags = data[len(preface) + 3], data[len(preface) + 4]
        if not preface and first != SETTINGS:
            raise NotHttp2Error(Code.PROTOCOL_ERROR, "this is not HTTP/2")
        self._handler.on_preface()
        if first != SETTINGS or flags & ACK:
            raise H2Error(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        return len(preface)

    def _whole(self, kind: int, flags: int, number: int, payload: bytes) -> int:
        """A frame other than DATA. Returns as how many more frames it counts in a turn."""
        if kind == HEADERS:
            if not number & 1:
                raise H2Error(Code.PROTOCOL_ERROR, f"HEADERS on stream {number}")
            if flags & (PADDED | PRIORITY_FIELDS):
                payload = _field_block(payload, flags)
            if not flags & END_HEADERS:
                self._block = bytearray(payload)
                self._block_stream, self._block_ends = number, bool(flags & END_STREAM)
                return 0
            self._handler.on_field_block(payload, bool(flags & END_STREAM), number)
            return _HEADERS_COST + len(payload) // _COST_BYTES
        if kind == CONTINUATION:
            return self._continue(flags, number, payload)
        self._handler.on_control(kind, flags, number, payload)
        return 0

    def _continue(self, flags: int, number: int, payload: bytes) -> int:
        if not self._block_stream:
            raise H2Error(Code.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._guard.idle_frame()
        self._block += payload
        if len(self._block) > MAX_FIELD_BLOCK:
            raise H2Error(Code.ENHANCE_YOUR_CALM, f"a field block of more than {MAX_FIELD_BLOCK} bytes")
        if not flags & END_HEADERS:
            return 0
        block, self._block, self._block_stream = bytes(self._block), bytearray(), 0
        self._handler.on_field_block(block, self._block_ends, number)
        return _HEADERS_COST + len(block) // _COST_BYTES

    def _begin_data(self, data: Buffer, start: int, end: int, size: int, flags: int, number: int) -> int:
        """A DATA frame that is padded or not complete: up to which position it is here."""
        stream = self._handler.on_data_frame(number, size)
        padding = 0
        if flags & PADDED:
            if not size:
                raise H2Error(Code.FRAME_SIZE_ERROR, "a padded frame without a pad length")  # 4.2
            padding = data[start]
            if padding >= size:
                raise H2Error(Code.PROTOCOL_ERROR, "padding longer than its frame")
            if stream is not None and stream.body_left is not None:
                stream.body_left += 1 + padding
            start += 1
            size -= 1
        self._left, self._padding = size, padding
        self.inside, self._inside_ends = stream, bool(flags & END_STREAM)
        return self._resume(data, start, end)

    def _resume(self, data: Buffer, start: int, end: int) -> int:
        """Hand over what is here of the frame under way: up to which position."""
        stop = min(end, start + self._left)
        self._left -= stop - start
        stream = self.inside
        if stream is not None and not stream.closed:
            # the part that precedes the padding
            until = max(start, min(stop, stop + self._left - self._padding))
            if not self._left:
                self._handler.on_data(stream, data, start, until, self._inside_ends)
            elif until > start:
                stream.data_received(data, start, until, False)
        if not self._left:
            self.inside = None
        return stop


def _field_block(payload: bytes, flags: int) -> bytes:
    """The field block in a HEADERS frame, without padding and priority (RFC 9113, 6.2)."""
    start, stop = 0, len(payload)
    if flags & PADDED:
        start = 1
        stop -= payload[0] if payload else 0
    if flags & PRIORITY_FIELDS:
        start += 5
    if len(payload) < start:
        raise H2Error(Code.FRAME_SIZE_ERROR, "HEADERS cut off")  # 4.2
    if stop < start:
        raise H2Error(Code.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[start:stop]
