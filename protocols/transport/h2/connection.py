"""The server's side of an HTTP/2 connection (RFC 9113), without a socket: bytes in, calls out, bytes out.

Contract: :meth:`Connection.receive` takes what arrived, cut anyhow, and calls ``accept`` for each request and
the stream that it gave for what follows. What is to be sent goes to ``write``, in order. Whatever arrives, no
exception leaves; a peer that breaks a rule gets a GOAWAY, and ``closed`` says that the connection is over.

What a peer can make us do is bounded: headers in length, streams in number, frames that ask for nothing in
their rate, and what waits to be sent by the windows and by :meth:`Sender.pause`. What is known of HTTP alone
stands here; what a request means does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from interlingua.protocols.transport.h2.cutter import FRAME_BYTES, FrameCutter, NotHttp2Error
from interlingua.protocols.transport.h2.fields import LARGEST_LIST, Fields
from interlingua.protocols.transport.h2.frames import (
    ACK,
    FIRST_FRAME_BYTES,
    FIRST_WINDOW,
    GOAWAY,
    LARGEST_FRAME_BYTES,
    LARGEST_STREAM,
    LARGEST_WINDOW,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    SETTINGS_ACK,
    WINDOW_UPDATE,
    Code,
    H2Error,
    Setting,
    frame,
    goaway,
    rst_stream,
    settings,
    settings_in,
    window_update,
)
from interlingua.protocols.transport.h2.headers import HeaderReader
from interlingua.protocols.transport.h2.sender import Sender
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.wire import Buffer

MAX_STREAMS = 1024
"""How many requests of one connection may be at work, those included that the peer has given up on, and those
whose answers it does not take."""

STREAM_WINDOW, CONNECTION_WINDOW = 8 << 20, 16 << 20
"""How much a peer may send before it is given more room: so much that a tensor of 4 MiB never waits."""

_IDLE_FRAMES, _IDLE_SECS = 1000, 10.0
"""As many frames that ask for nothing may come in so many seconds, with not one answer sent in between."""

_MAX_GIVEN_UP = 2 * MAX_STREAMS
"""As many requests may a peer give up on, or have refused, with not one answer sent in between."""

_TOLD_TO_OTHERS = (
    b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"this address speaks gRPC, which is HTTP/2 from the first byte on\n"
)
"""The answer to a client that does not speak HTTP/2: in the language that it probably does."""

H = TypeVar("H")


class Connection(Sender, Generic[H]):
    """One peer. ``understand`` says what the fields of a request's head mean; ``accept`` begins the answer to
    a request by its head (``ended``: it has nothing else), and gives its stream, or None where it has refused
    it."""

    def __init__(
        self,
        understand: Callable[[Fields], H],
        accept: Callable[[Connection[H], int, H, bool], Stream | None],
        write: Callable[[Buffer], None],
    ) -> None:
        super().__init__(write)
        self._accept = accept
        self._headers = HeaderReader(understand)
        self._cutter = FrameCutter(self)
        self.closed = False
        self.begun = False
        """Whether the peer has said that it speaks HTTP/2."""
        self.pinged = False
        """Whether a PING of ours has not been answered yet."""
        self._credit = 0
        self._last = 0
        self._refuse_after = LARGEST_STREAM
        self._idle_frames, self._idle_since = 0, time.monotonic()
        self._giving_up = 0

    # what the owner of the socket calls

    def receive(self, data: bytes) -> None:
        """Take what arrived."""
        if self.closed:
            return
        try:
            self._cutter.feed(data)
        except NotHttp2Error:
            self.closed = True
            self._write(_TOLD_TO_OTHERS)
        except H2Error as fault:
            self.close(fault.code, str(fault))

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.pinged = True
        self._write(frame(PING, 0, 0, bytes(8)))

    def leave(self) -> None:
        """Tell the peer to open no more streams. Those that are on the way already are answered, until
        :meth:`refuse_new` is called."""
        self._write(goaway(LARGEST_STREAM, Code.NO_ERROR, "the server is stopping"))
        self.ping()

    def refuse_new(self) -> None:
        """Take no stream after those that have been opened; the peer learns which that are."""
        if self._refuse_after == LARGEST_STREAM:
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

    # what arrives

    def greeted(self) -> None:
        """State what the peer may do."""
        self.begun = True
        stated = (
            (Setting.MAX_CONCURRENT_STREAMS, MAX_STREAMS),
            (Setting.INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (Setting.MAX_FRAME_SIZE, FRAME_BYTES),
            (Setting.MAX_HEADER_LIST_SIZE, LARGEST_LIST),
        )
        self._write(settings(stated) + window_update(0, CONNECTION_WINDOW - FIRST_WINDOW))

    def arriving(self, number: int, size: int) -> Stream | None:
        """As ``Frames`` has it."""
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
            if not size:  # others were on their way when the stream ended, however small they are
                self.idle()
            return None
        if stream.heard_all:
            self._give_up(stream, Code.STREAM_CLOSED)
            return None
        stream.credit += size
        if stream.credit > STREAM_WINDOW:
            self._give_up(stream, Code.FLOW_CONTROL_ERROR)
            return None
        return stream

    def arrived(self, stream: Stream, data: bytes, start: int, stop: int, ended: bool) -> None:
        """As ``Frames`` has it."""
        if start == stop and not ended:
            self.idle()
        stream.heard_all = ended
        stream.received(data, start, stop, ended)
        if stream.credit >= STREAM_WINDOW // 2 and not stream.holding:
            self.credit(stream)

    def block(self, block: bytes, ended: bool, number: int) -> None:
        """As ``Frames`` has it: a request, or the end of one."""
        if number <= self._last:
            self._headers.fields(block)
            self._trailers(number, ended)
            return
        self._last = number
        head = self._headers.read(block)
        if number > self._refuse_after:
            return
        if len(self.streams) + self.given_up >= MAX_STREAMS:
            self._write(rst_stream(number, Code.REFUSED_STREAM))
            self._count_given_up()
            return
        stream = self._accept(self, number, head, ended)
        if stream is not None:
            self.streams[number] = stream
            if ended:
                stream.received(b"", 0, 0, True)

    def control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """As ``Frames`` has it."""
        taken = _CONTROL.get(kind)
        if taken is None:
            self.idle()
        else:
            taken(self, payload, flags, number)

    def idle(self) -> None:
        """As ``Frames`` has it."""
        self._idle_frames += 1
        if self._idle_frames >= _IDLE_FRAMES:
            now = time.monotonic()
            if now - self._idle_since < _IDLE_SECS:
                raise H2Error(Code.ENHANCE_YOUR_CALM, "many frames that ask for nothing")
            self._idle_frames, self._idle_since = 0, now

    def _trailers(self, number: int, ended: bool) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self.idle()
        elif stream.heard_all:
            self._give_up(stream, Code.STREAM_CLOSED)
        elif not ended:
            self._give_up(stream, Code.PROTOCOL_ERROR)
        else:
            stream.heard_all = True
            stream.received(b"", 0, 0, True)

    def _priority(self, payload: bytes, flags: int, number: int) -> None:
        if not number:
            raise H2Error(Code.PROTOCOL_ERROR, "the priority of no stream")
        if len(payload) != 5:
            raise H2Error(Code.FRAME_SIZE_ERROR, "a priority is five bytes long")
        self.idle()

    def _reset(self, payload: bytes, flags: int, number: int) -> None:
        if len(payload) != 4:
            raise H2Error(Code.FRAME_SIZE_ERROR, "the code of a reset is four bytes long")
        if number > self._last or not number & 1:
            raise H2Error(Code.PROTOCOL_ERROR, f"a reset of stream {number}, which is not open")
        stream = self.streams.get(number)
        if stream is None:  # it has just been answered
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
        self.idle()
        # of several values the last holds: to look at each would let one frame take seconds
        for setting, value in dict(settings_in(payload)).items():
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
            self.idle()
            self._write(frame(PING, ACK, 0, payload))

    def _going(self, payload: bytes, flags: int, number: int) -> None:
        """The peer opens no more streams; it closes the connection itself."""
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, "the end of a connection on a stream")
        if len(payload) < 8:
            raise H2Error(Code.FRAME_SIZE_ERROR, "a GOAWAY that is cut short")
        self.idle()

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

    # streams and peers that end otherwise

    def _give_up(self, stream: Stream, code: Code) -> None:
        """The peer broke a rule of one stream."""
        self.reset(stream, code)
        stream.abandoned()
        self._count_given_up()

    def _count_given_up(self) -> None:
        self._giving_up += 1
        if self._giving_up > _MAX_GIVEN_UP:
            raise H2Error(Code.ENHANCE_YOUR_CALM, "requests are given up as fast as they are made")

    def _progress(self) -> None:
        self._idle_frames = self._giving_up = 0


_CONTROL = {
    PRIORITY: Connection._priority,
    RST_STREAM: Connection._reset,
    SETTINGS: Connection._settings,
    PUSH_PROMISE: Connection._push,
    PING: Connection._pinged,
    GOAWAY: Connection._going,
    WINDOW_UPDATE: Connection._more_room,
}
"""What is done with the frames that are neither data nor headers."""
