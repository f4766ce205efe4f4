"""The server's side of an HTTP/2 connection (RFC 9113), without a socket: bytes in, calls out, bytes out.

Contract: :meth:`Connection.receive` takes what arrived, cut anyhow, and calls ``accept`` for each request and
the stream that it gave for what follows. What is to be sent goes to ``write``, in order. Whatever arrives, no
exception leaves; a peer that breaks a rule gets a GOAWAY, and ``closed`` says that the connection is over.

What a peer can make us do is bounded: headers in length, streams in number, frames that ask for nothing in
their rate, and what waits to be sent by the windows and by :meth:`Connection.pause`. What is known of HTTP
alone stands here; what a request means does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from protocols.transport.h2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_FRAME_BYTES,
    FIRST_WINDOW,
    HEADER,
    HEADER_BYTES,
    HEADERS,
    LARGEST_FRAME_BYTES,
    LARGEST_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    SETTINGS_ACK,
    WINDOW_UPDATE,
    Code,
    H2Error,
    Setting,
    data_header,
    frame,
    goaway,
    header_frames,
    rst_stream,
    settings,
    settings_in,
    window_update,
)
from protocols.transport.h2_headers import LARGEST_BLOCK, Fields, HeaderReader
from protocols.transport.h2_stream import Stream
from protocols.wire import Buffer

MAX_STREAMS = 4096
"""How many requests of one connection may be at work, those included that the peer has given up on."""

STREAM_WINDOW, CONNECTION_WINDOW = 8 << 20, 16 << 20
"""How much a peer may send before it is given more room: so much that a tensor of 4 MiB never waits."""

FRAME_BYTES = 1 << 20
"""The largest frame that a peer may send. Frames other than DATA, which need not be whole to be used, end
where headers do."""

_LARGEST_CONTROL = LARGEST_BLOCK + 256
_AT_ONCE = 1 << 18
"""How much of one stream is sent before the next one has its turn."""

_JOINED_BYTES = 1 << 16
"""Up to this size copying the pieces of an answer into one costs less than sending each."""

_IDLE_FRAMES, _IDLE_SECS = 1000, 10.0
"""As many frames that ask for nothing may come in so many seconds."""

_MAX_GIVEN_UP = 1000
"""As many requests may a peer give up on, or have refused, with not one answer sent in between."""

_TOLD_TO_OTHERS = (
    b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"this address speaks gRPC, which is HTTP/2 from the first byte on\n"
)
"""The answer to a client that does not speak HTTP/2: in the language that it probably does."""

H = TypeVar("H")


class _NotHttp2Error(H2Error):
    """What came first is not what HTTP/2 begins with."""


class Connection(Generic[H]):
    """One peer. ``understand`` says what the fields of a request's head mean."""

    def __init__(
        self,
        understand: Callable[[Fields], H],
        accept: Callable[[Connection[H], int, H, bool], Stream | None],
        write: Callable[[Buffer], None],
    ) -> None:
        self._accept = accept
        self._write = write
        self._headers = HeaderReader(understand)
        self.streams: dict[int, Stream] = {}
        self.given_up = 0
        """How many streams that the peer has given up on are still at work; whoever does the work counts."""
        self.first_room = FIRST_WINDOW
        self.largest_frame = FIRST_FRAME_BYTES
        self.room = FIRST_WINDOW
        self.paused = False
        self.closed = False
        self.pinged = False
        """Whether a PING of ours has not been answered yet."""
        self._credit = 0
        self._last = 0
        self._refuse_after = LARGEST_WINDOW
        self._queued: dict[Stream, None] = {}
        self._rest = b""
        self.greeted = False
        # of a DATA frame, or of one to be passed over: what is still to come
        self._left = self._padding = 0
        self._inside: Stream | None = None
        self._inside_ends = False
        # of a block of headers that has not ended
        self._block: list[bytes] = []
        self._block_bytes = 0
        self._block_stream = self._block_flags = 0
        self._idle_frames, self._idle_since = 0, time.monotonic()
        self._giving_up = 0

    # what the owner of the socket calls

    def receive(self, data: bytes) -> None:
        """Take what arrived."""
        if self.closed:
            return
        if self._rest:
            data = self._rest + data
            self._rest = b""
        try:
            position = self._consume(data)
        except _NotHttp2Error:
            self.closed = True
            self._write(_TOLD_TO_OTHERS)
            return
        except H2Error as fault:
            self.close(fault.code, str(fault))
            return
        if position < len(data):
            self._rest = data[position:] if position else data

    def pause(self) -> None:
        """The socket takes no more: have answers wait."""
        self.paused = True

    def resume(self) -> None:
        """The socket takes more."""
        self.paused = False
        self._pump()

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.pinged = True
        self._write(frame(PING, 0, 0, bytes(8)))

    def leave(self) -> None:
        """Tell the peer to open no more streams. Those that are on the way already are answered, until
        :meth:`refuse_new` is called."""
        self._write(goaway(LARGEST_WINDOW, Code.NO_ERROR, "the server is stopping"))
        self.ping()

    def refuse_new(self) -> None:
        """Take no stream after those that have been opened; the peer learns which that are."""
        if self._refuse_after == LARGEST_WINDOW:
            self._refuse_after = self._last
            self._write(goaway(self._last, Code.NO_ERROR, "the server is stopping"))

    def close(self, code: Code, text: str) -> None:
        """End the connection, whatever is under way."""
        if not self.closed:
            self.closed = True
            self._write(goaway(min(self._last, self._refuse_after), code, text))
            self.lost()

    def lost(self) -> None:
        """The peer is gone."""
        self.closed = True
        streams, self.streams = self.streams, {}
        self._queued.clear()
        for stream in streams.values():
            stream.told_all = True
            stream.abandoned()

    # what streams call

    def send_whole(
        self, stream: Stream, head: bytes, message: Sequence[Buffer], size: int, tail: bytes
    ) -> None:
        """Answer a stream on which nothing was sent yet: blocks of headers before and after, and the pieces
        of the body between them, ``size`` bytes together."""
        number, largest = stream.id, self.largest_frame
        if size <= self.room and size <= stream.room and size <= largest and not self.paused:
            self.room -= size
            self._write(
                b"".join(
                    (
                        header_frames(head, number, ended=False, largest=largest),
                        data_header(size, number),
                        *message,
                        header_frames(tail, number, ended=True, largest=largest),
                    )
                )
            )
            self._told_all(stream)
        else:
            self.send_head(stream, head)
            self.send(stream, message, tail)

    def send_head(self, stream: Stream, head: bytes) -> None:
        """Send the block of headers that an answer begins with."""
        self._write(header_frames(head, stream.id, ended=False, largest=self.largest_frame))

    def send(self, stream: Stream, message: Sequence[Buffer], tail: bytes = b"") -> None:
        """Send the pieces of a message, and with ``tail``, a block of headers, the end. What there is no room
        for waits: ``stream.waiting`` tells how much that is."""
        stream.queue(*message)
        stream.last = tail
        if stream.waiting:
            self._queued[stream] = None
            self._pump()
        elif tail:
            self._finish(stream)

    def send_end(self, stream: Stream, block: bytes) -> None:
        """End a stream now, with a block of headers; what waits to be sent is dropped."""
        self._drop(stream)
        stream.last = block
        self._finish(stream)

    def refuse(self, number: int, head: bytes, ended: bool) -> None:
        """Answer stream ``number``, which was not accepted, with headers alone. ``ended``: nothing more of
        it is to come."""
        answer = header_frames(head, number, ended=True, largest=self.largest_frame)
        self._write(answer if ended else answer + rst_stream(number, Code.NO_ERROR))

    def reset(self, stream: Stream, code: Code) -> None:
        """End a stream without an answer."""
        self._forget(stream)
        self._write(rst_stream(stream.id, code))

    def credit(self, stream: Stream) -> None:
        """Give the peer of a stream the room back that it has used."""
        if stream.credit and not stream.heard_all and not stream.told_all:
            self._write(window_update(stream.id, stream.credit))
            stream.credit = 0

    # frames that arrive

    def _consume(self, data: bytes) -> int:
        """Take whole frames, and DATA as it comes; how far. Raises ``H2Error``."""
        position, end = 0, len(data)
        if not self.greeted:
            if not data.startswith(PREFACE):
                if PREFACE.startswith(data):
                    return 0
                raise _NotHttp2Error(Code.PROTOCOL_ERROR, "this is not HTTP/2")
            if end < len(PREFACE) + HEADER_BYTES:
                return 0
            position = len(PREFACE)
            self._greet()
            if data[position + 3] != SETTINGS:
                raise H2Error(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if self._left:
            position = self._go_on(data, position, end)
        while end - position >= HEADER_BYTES:
            upper, lower, kind, flags, number = HEADER.unpack_from(data, position)
            size = upper << 8 | lower
            start = position + HEADER_BYTES
            stop = start + size
            if kind == DATA and not flags & PADDED and stop <= end and not self._block_stream:
                position = stop
                self._data(data, start, stop, number, flags & END_STREAM)
                continue
            if size > FRAME_BYTES:
                raise H2Error(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            if self._block_stream and (kind != CONTINUATION or number != self._block_stream):
                raise H2Error(Code.PROTOCOL_ERROR, "headers that another frame interrupts")
            if kind == DATA:
                if flags & PADDED and end == start and size:
                    break
                position = self._begin_data(data, start, end, size, flags, number)
                continue
            if kind > CONTINUATION:
                self._idle()
                self._inside, self._left, self._padding = None, size, 0
                position = self._go_on(data, start, end)
                continue
            if size > _LARGEST_CONTROL:
                raise H2Error(Code.ENHANCE_YOUR_CALM, f"a frame of type {kind} with {size} bytes")
            if stop > end:
                break
            position = stop
            if kind == HEADERS:
                self._head(data[start:stop], flags, number)
            else:
                _FRAMES[kind](self, data[start:stop], flags, number)
            if self.closed:
                break
        return end if self.closed else position

    def _greet(self) -> None:
        """State what the peer may do."""
        stated = (
            (Setting.MAX_CONCURRENT_STREAMS, MAX_STREAMS),
            (Setting.INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (Setting.MAX_FRAME_SIZE, FRAME_BYTES),
            (Setting.MAX_HEADER_LIST_SIZE, LARGEST_BLOCK),
        )
        self._write(settings(stated) + window_update(0, CONNECTION_WINDOW - FIRST_WINDOW))
        self.greeted = True

    def _data(self, data: bytes, start: int, stop: int, number: int, ended: int) -> None:
        """A whole DATA frame without padding."""
        size = stop - start
        stream = self._arrived(number, size)
        if stream is None:
            return
        if ended:
            stream.heard_all = True
        elif not size:
            self._idle()
            return
        stream.received(data, start, stop, stream.heard_all)
        if not stream.holding and stream.credit >= STREAM_WINDOW // 2:
            self.credit(stream)

    def _arrived(self, number: int, size: int) -> Stream | None:
        """Count ``size`` bytes of DATA; the stream that takes them, None where it has ended."""
        self._credit += size
        if self._credit >= CONNECTION_WINDOW // 2:
            if self._credit > CONNECTION_WINDOW:
                raise H2Error(Code.FLOW_CONTROL_ERROR, "more data than the connection has room for")
            self._write(window_update(0, self._credit))
            self._credit = 0
        stream = self.streams.get(number)
        if stream is None:
            if number > self._last or not number & 1:
                raise H2Error(Code.PROTOCOL_ERROR, f"data on stream {number}, which is not open")
            self._idle()
            return None
        if stream.heard_all:
            self._give_up(stream, Code.STREAM_CLOSED)
            return None
        stream.credit += size
        if stream.credit > STREAM_WINDOW:
            self._give_up(stream, Code.FLOW_CONTROL_ERROR)
            return None
        return stream

    def _begin_data(self, data: bytes, start: int, end: int, size: int, flags: int, number: int) -> int:
        """A DATA frame that is padded, or has not arrived whole."""
        stream = self._arrived(number, size)
        padding = 0
        if flags & PADDED:
            if not size or data[start] >= size:
                raise H2Error(Code.PROTOCOL_ERROR, "more padding than frame")
            padding = data[start]
            start += 1
            size -= 1
        self._left, self._padding = size, padding
        self._inside, self._inside_ends = stream, bool(flags & END_STREAM)
        if not size:  # there is nothing to wait for
            self._ended_inside()
            return start
        return self._go_on(data, start, end)

    def _go_on(self, data: bytes, start: int, end: int) -> int:
        """Take what is there of the frame that is under way; how far."""
        stop = min(end, start + self._left)
        self._left -= stop - start
        stream = self._inside
        if stream is not None and not stream.told_all:
            # what of this part stands before the padding
            until = min(stop, stop + self._left - self._padding)
            if until > start:
                stream.received(data, start, until, False)
        if not self._left:
            self._ended_inside()
        return stop

    def _ended_inside(self) -> None:
        stream, self._inside = self._inside, None
        if stream is None or stream.told_all:
            return
        if self._inside_ends:
            stream.heard_all = True
            stream.received(b"", 0, 0, True)
        elif not stream.holding and stream.credit >= STREAM_WINDOW // 2:
            self.credit(stream)

    def _head(self, payload: bytes, flags: int, number: int) -> None:
        """A HEADERS frame."""
        if not number & 1:
            raise H2Error(Code.PROTOCOL_ERROR, f"a request on stream {number}")
        if flags & (PADDED | PRIORITISED):
            payload = _unwrapped(payload, flags)
        if flags & END_HEADERS:
            self._begin(payload, flags, number)
        else:
            self._block, self._block_bytes = [payload], len(payload)
            self._block_stream, self._block_flags = number, flags

    def _continuation(self, payload: bytes, flags: int, number: int) -> None:
        if not self._block_stream:
            raise H2Error(Code.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        self._idle()
        self._block.append(payload)
        self._block_bytes += len(payload)
        if self._block_bytes > LARGEST_BLOCK:
            raise H2Error(Code.ENHANCE_YOUR_CALM, f"headers of more than {LARGEST_BLOCK} bytes")
        if flags & END_HEADERS:
            block, self._block, self._block_stream = b"".join(self._block), [], 0
            self._begin(block, self._block_flags, number)

    def _begin(self, block: bytes, flags: int, number: int) -> None:
        """A whole block of headers: a request, or the end of one."""
        if number <= self._last:
            self._headers.fields(block)
            self._trailers(number, flags)
            return
        self._last = number
        head = self._headers.read(block)
        if number > self._refuse_after:
            return
        if len(self.streams) + self.given_up >= MAX_STREAMS:
            self._write(rst_stream(number, Code.REFUSED_STREAM))
            self._count_given_up()
            return
        ended = bool(flags & END_STREAM)
        stream = self._accept(self, number, head, ended)
        if stream is not None:
            self.streams[number] = stream
            if ended:
                stream.received(b"", 0, 0, True)

    def _trailers(self, number: int, flags: int) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self._idle()
        elif stream.heard_all:
            self._give_up(stream, Code.STREAM_CLOSED)
        elif not flags & END_STREAM:
            self._give_up(stream, Code.PROTOCOL_ERROR)
        else:
            stream.heard_all = True
            stream.received(b"", 0, 0, True)

    def _priority(self, payload: bytes, flags: int, number: int) -> None:
        if not number:
            raise H2Error(Code.PROTOCOL_ERROR, "the priority of no stream")
        if len(payload) != 5:
            raise H2Error(Code.FRAME_SIZE_ERROR, "a priority is five bytes long")
        self._idle()

    def _reset(self, payload: bytes, flags: int, number: int) -> None:
        if len(payload) != 4:
            raise H2Error(Code.FRAME_SIZE_ERROR, "the code of a reset is four bytes long")
        if number > self._last or not number & 1:
            raise H2Error(Code.PROTOCOL_ERROR, f"a reset of stream {number}, which is not open")
        stream = self.streams.get(number)
        if stream is None:
            self._idle()
            return
        self._forget(stream)
        stream.abandoned()
        self._count_given_up()

    def _settings(self, payload: bytes, flags: int, number: int) -> None:
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, "settings of a stream")
        if len(payload) % 6 or (flags & ACK and payload):
            raise H2Error(Code.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
        if flags & ACK:
            return
        self._idle()
        for setting, value in settings_in(payload):
            if setting == Setting.INITIAL_WINDOW_SIZE:
                self._resize_windows(value)
            elif setting == Setting.MAX_FRAME_SIZE:
                if not FIRST_FRAME_BYTES <= value <= LARGEST_FRAME_BYTES:
                    raise H2Error(Code.PROTOCOL_ERROR, f"frames of {value} bytes")
                self.largest_frame = value
            elif setting == Setting.ENABLE_PUSH and value > 1:
                raise H2Error(Code.PROTOCOL_ERROR, f"push is {value}")
        self._write(SETTINGS_ACK)
        self._pump()

    def _resize_windows(self, size: int) -> None:
        if size > LARGEST_WINDOW:
            raise H2Error(Code.FLOW_CONTROL_ERROR, f"a window of {size} bytes")
        change = size - self.first_room
        self.first_room = size
        for stream in self.streams.values():
            stream.room += change
            if stream.room > LARGEST_WINDOW:
                raise H2Error(Code.FLOW_CONTROL_ERROR, "a window that is too large")
            if stream.waiting:
                self._queued[stream] = None

    def _push(self, payload: bytes, flags: int, number: int) -> None:
        raise H2Error(Code.PROTOCOL_ERROR, "clients push nothing")

    def _pinged(self, payload: bytes, flags: int, number: int) -> None:
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, "a ping of a stream")
        if len(payload) != 8:
            raise H2Error(Code.FRAME_SIZE_ERROR, "a ping is eight bytes long")
        if flags & ACK:
            self.pinged = False
        else:
            self._idle()
            self._write(frame(PING, ACK, 0, payload))

    def _going(self, payload: bytes, flags: int, number: int) -> None:
        """The peer opens no more streams; it closes the connection itself."""
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, "the end of a connection on a stream")
        if len(payload) < 8:
            raise H2Error(Code.FRAME_SIZE_ERROR, "a GOAWAY that is cut short")
        self._idle()

    def _more_room(self, payload: bytes, flags: int, number: int) -> None:
        if len(payload) != 4:
            raise H2Error(Code.FRAME_SIZE_ERROR, "an update of a window is four bytes long")
        size = int.from_bytes(payload, "big") & LARGEST_WINDOW
        if not number:
            if not size:
                raise H2Error(Code.PROTOCOL_ERROR, "a window that grows by nothing")
            self.room += size
            if self.room > LARGEST_WINDOW:
                raise H2Error(Code.FLOW_CONTROL_ERROR, "a window that is too large")
        else:
            stream = self.streams.get(number)
            if stream is None:
                if number > self._last:
                    raise H2Error(Code.PROTOCOL_ERROR, f"room on stream {number}, which is not open")
                return
            stream.room += size
            if not size or stream.room > LARGEST_WINDOW:
                self._give_up(stream, Code.FLOW_CONTROL_ERROR if size else Code.PROTOCOL_ERROR)
                return
            if stream.waiting:
                self._queued[stream] = None
        if self._queued:
            self._pump()
        elif not self.streams:
            self._idle()

    # what is sent

    def _pump(self) -> None:
        """Send what waits, as far as there is room, streams by turns."""
        while self._queued and self.room > 0 and not self.paused:
            stream = next(iter(self._queued))
            del self._queued[stream]
            size = min(stream.waiting, stream.room, self.room, _AT_ONCE)
            if size <= 0:
                continue  # it comes back as soon as there is room
            self._send_data(stream, size)
            if stream.waiting:
                self._queued[stream] = None
            elif stream.last:
                self._finish(stream)
                stream.drained()
            else:
                stream.drained()

    def _send_data(self, stream: Stream, size: int) -> None:
        stream.room -= size
        self.room -= size
        self._idle_frames = 0
        written: list[Buffer] = []
        left = size
        while left:
            part = min(left, self.largest_frame)
            left -= part
            written.append(data_header(part, stream.id))
            written += stream.take(part)
        if size <= _JOINED_BYTES:
            self._write(b"".join(written))
        else:
            for piece in written:
                self._write(piece)

    def _finish(self, stream: Stream) -> None:
        self._write(header_frames(stream.last, stream.id, ended=True, largest=self.largest_frame))
        self._told_all(stream)

    def _told_all(self, stream: Stream) -> None:
        stream.told_all = True
        self._idle_frames = self._giving_up = 0
        self.streams.pop(stream.id, None)
        if not stream.heard_all:
            self._write(rst_stream(stream.id, Code.NO_ERROR))

    # streams and peers that end otherwise

    def _give_up(self, stream: Stream, code: Code) -> None:
        """The peer broke a rule of one stream."""
        self.reset(stream, code)
        stream.abandoned()
        self._count_given_up()

    def _forget(self, stream: Stream) -> None:
        stream.told_all = True
        self.streams.pop(stream.id, None)
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        """What waits on a stream is not to be sent."""
        stream.unsent, stream.waiting = None, 0
        self._queued.pop(stream, None)

    def _count_given_up(self) -> None:
        self._giving_up += 1
        if self._giving_up > _MAX_GIVEN_UP:
            raise H2Error(Code.ENHANCE_YOUR_CALM, "requests are given up as fast as they are made")

    def _idle(self) -> None:
        """A frame asked for nothing."""
        self._idle_frames += 1
        if self._idle_frames >= _IDLE_FRAMES:
            now = time.monotonic()
            if now - self._idle_since < _IDLE_SECS:
                raise H2Error(Code.ENHANCE_YOUR_CALM, "many frames that ask for nothing")
            self._idle_frames, self._idle_since = 0, now


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


_FRAMES = {
    PRIORITY: Connection._priority,
    RST_STREAM: Connection._reset,
    SETTINGS: Connection._settings,
    5: Connection._push,
    PING: Connection._pinged,
    7: Connection._going,
    WINDOW_UPDATE: Connection._more_room,
    CONTINUATION: Connection._continuation,
}
