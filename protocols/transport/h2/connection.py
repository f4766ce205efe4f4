"""The server's side of an HTTP/2 connection (RFC 9113), without a socket: bytes in, calls out, bytes out.

Contract: :meth:`H2Connection.receive` takes what arrived, cut anywhere, calls ``accept`` for each request and
then the stream that it returned. Bytes to be sent go to ``write``, in order. No exception leaves; a peer that
breaks a rule gets a GOAWAY, and ``closed`` is set.

What a peer can make us do is bounded: the length of headers, the number of streams, frames without effect
(``h2.flood``), and queued answers by the windows and by :meth:`Sender.pause`. Nothing here knows what a
request means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from interlingua.protocols.transport.h2.flood import FloodGuard
from interlingua.protocols.transport.h2.frame_reader import FRAME_BYTES, FrameReader, NotHttp2Error
from interlingua.protocols.transport.h2.frames import (
    ACK,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    GOAWAY,
    MAX_FRAME_BYTES,
    MAX_STREAM_ID,
    MAX_WINDOW,
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
from interlingua.protocols.transport.h2.header_decoder import HeaderDecoder
from interlingua.protocols.transport.h2.hpack import MAX_HEADER_LIST, FieldLines
from interlingua.protocols.transport.h2.sender import Sender
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.wire import Buffer

MAX_STREAMS = 1024
"""How many requests of one connection may be at work, reset ones included, and those whose answers wait for
the peer."""

STREAM_WINDOW, CONNECTION_WINDOW = 8 << 20, 16 << 20
"""The flow-control windows that a peer gets: large enough for a tensor of 4 MiB never to wait."""

_NOT_HTTP2 = (
    b"HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"this address speaks gRPC, which is HTTP/2 from the first byte on\n"
)
"""The answer to a client without the HTTP/2 preface, which probably speaks HTTP/1."""

H = TypeVar("H")


class H2Connection(Generic[H]):
    """One connection. ``interpret`` turns a request's field lines into its headers; ``accept`` begins to
    answer it (``ended``: it has no body) and returns its stream, or None if it has refused it."""

    def __init__(
        self,
        interpret: Callable[[FieldLines], H],
        accept: Callable[[H2Connection[H], int, H, bool], Stream | None],
        write: Callable[[Buffer], None],
    ) -> None:
        self._write = write
        self._accept = accept
        self._headers = HeaderDecoder(interpret)
        self._guard = FloodGuard()
        self._frames = FrameReader(self, self._guard)
        self.streams: dict[int, Stream] = {}
        self.sender = Sender(write, self.streams, self._guard)
        self.reset_at_work = 0
        """How many streams the peer has reset whose work goes on; the streams count themselves."""
        self.closed = False
        self.preface_received = False
        self.ping_pending = False
        """Whether a PING of ours has no acknowledgement yet."""
        self._received = 0
        self._last_id = 0
        self._refuse_after = MAX_STREAM_ID

    # called by the owner of the socket

    def receive(self, data: bytes) -> None:
        """Take what arrived."""
        if self.closed:
            return
        try:
            self._frames.feed(data)
        except NotHttp2Error:
            self.closed = True
            self._write(_NOT_HTTP2)
        except H2Error as fault:
            self.close(fault.code, str(fault))

    def ping(self) -> None:
        """Send a PING."""
        self.ping_pending = True
        self._write(frame(PING, 0, 0, bytes(8)))

    def announce_shutdown(self) -> None:
        """Ask the peer to open no more streams. Streams it has opened meanwhile are accepted until
        :meth:`refuse_new` (RFC 9113, 6.8)."""
        self._write(goaway(MAX_STREAM_ID, Code.NO_ERROR, "the server is stopping"))
        self.ping()

    def refuse_new(self) -> None:
        """Ignore streams after the last one opened, and tell the peer which that is (RFC 9113, 6.8)."""
        if self._refuse_after == MAX_STREAM_ID:
            self._refuse_after = self._last_id
            self._write(goaway(self._last_id, Code.NO_ERROR, "the server is stopping"))

    def close(self, code: Code, text: str) -> None:
        """End the connection with a GOAWAY and reset every stream (RFC 9113, 5.4.1)."""
        if not self.closed:
            self.closed = True
            self._write(goaway(min(self._last_id, self._refuse_after), code, text))
            self.connection_lost()

    def connection_lost(self) -> None:
        """The peer is gone."""
        self.closed = True
        for stream in self.sender.forget_all():
            stream.on_reset()

    # called by streams

    def replenish(self, stream: Stream) -> None:
        """Let the peer of a stream send as much again as was received."""
        if stream.received and not stream.half_closed_remote and not stream.half_closed_local:
            self._write(window_update(stream.id, stream.received))
            stream.received = 0

    # called by the frame reader, see ``FrameHandler``

    def on_preface(self) -> None:
        """Send our settings (RFC 9113, 3.4)."""
        self.preface_received = True
        stated = (
            (Setting.MAX_CONCURRENT_STREAMS, MAX_STREAMS),
            (Setting.INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (Setting.MAX_FRAME_SIZE, FRAME_BYTES),
            (Setting.MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST),
        )
        self._write(settings(stated) + window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW))

    def on_data_frame(self, number: int, size: int) -> Stream | None:
        """Account for a DATA frame in both windows (RFC 9113, 6.9.1)."""
        self._received += size
        if self._received >= CONNECTION_WINDOW // 2:
            if self._received > CONNECTION_WINDOW:
                raise H2Error(Code.FLOW_CONTROL_ERROR, "more data than the connection's window allows")
            self._write(window_update(0, self._received))
            self._received = 0
        stream = self.streams.get(number)
        if stream is None:
            if number > self._last_id or not number & 1:
                raise H2Error(Code.PROTOCOL_ERROR, f"data on stream {number}, which is not open")
            if not size:  # other frames were under way when the stream closed, however small they are
                self._guard.idle_frame()
            return None
        if stream.half_closed_remote:
            self._reset_stream(stream, Code.STREAM_CLOSED)  # RFC 9113, 5.1
            return None
        stream.received += size
        if stream.received > STREAM_WINDOW:
            self._reset_stream(stream, Code.FLOW_CONTROL_ERROR)
            return None
        return stream

    def on_data(self, stream: Stream, data: bytes, start: int, stop: int, ended: bool) -> None:
        """Hand data to its stream; give the peer its window back."""
        if start == stop and not ended:
            self._guard.idle_frame()
        stream.half_closed_remote = ended
        stream.data_received(data, start, stop, ended)
        if stream.received >= STREAM_WINDOW // 2 and not stream.window_held:
            self.replenish(stream)

    def on_field_block(self, block: bytes, ended: bool, number: int) -> None:
        """A request, or the trailers of one (RFC 9113, 8.1)."""
        if number <= self._last_id:
            self._headers.decode(block)
            self._trailers(number, ended)
            return
        self._last_id = number
        headers = self._headers.read(block)
        if number > self._refuse_after:
            return
        if len(self.streams) + self.reset_at_work >= MAX_STREAMS:
            self._write(rst_stream(number, Code.REFUSED_STREAM))  # RFC 9113, 5.1.2
            self._guard.reset()
            return
        stream = self._accept(self, number, headers, ended)
        if stream is not None:
            self.streams[number] = stream
            if ended:
                stream.data_received(b"", 0, 0, True)

    def on_control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Any other frame; unknown types are ignored (RFC 9113, 5.5)."""
        handler = _CONTROL.get(kind)
        if handler is None:
            self._guard.idle_frame()
        else:
            handler(self, payload, flags, number)

    def _trailers(self, number: int, ended: bool) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self._guard.idle_frame()
        elif stream.half_closed_remote:
            self._reset_stream(stream, Code.STREAM_CLOSED)  # RFC 9113, 5.1
        elif not ended:
            self._reset_stream(stream, Code.PROTOCOL_ERROR)  # RFC 9113, 8.1
        else:
            stream.half_closed_remote = True
            stream.data_received(b"", 0, 0, True)

    def _priority(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.3: checked and ignored."""
        if not number:
            raise H2Error(Code.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if len(payload) != 5:
            raise H2Error(Code.FRAME_SIZE_ERROR, "PRIORITY is not five bytes long")
        self._guard.idle_frame()

    def _rst_stream(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.4."""
        if len(payload) != 4:
            raise H2Error(Code.FRAME_SIZE_ERROR, "RST_STREAM is not four bytes long")
        if number > self._last_id or not number & 1:
            raise H2Error(Code.PROTOCOL_ERROR, f"RST_STREAM on stream {number}, which is not open")
        stream = self.streams.get(number)
        if stream is None:  # answered meanwhile
            return
        self.sender.forget(stream)
        stream.on_reset()
        self._guard.reset()

    def _settings(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.5."""
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, f"SETTINGS on stream {number}")
        if len(payload) % 6 or (flags & ACK and payload):
            raise H2Error(Code.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        if flags & ACK:
            return
        self._guard.idle_frame()
        sender = self.sender
        # the last value of a setting holds (6.5.3): to apply each would let one frame take seconds
        for setting, value in dict(settings_in(payload)).items():
            if setting == Setting.INITIAL_WINDOW_SIZE:
                sender.resize_windows(value)
            elif setting == Setting.MAX_FRAME_SIZE:
                if not DEFAULT_FRAME_BYTES <= value <= MAX_FRAME_BYTES:
                    raise H2Error(Code.PROTOCOL_ERROR, f"SETTINGS_MAX_FRAME_SIZE of {value} bytes")
                sender.max_frame_size = value
            elif setting == Setting.ENABLE_PUSH and value > 1:
                raise H2Error(Code.PROTOCOL_ERROR, f"SETTINGS_ENABLE_PUSH is {value}")
        self._write(SETTINGS_ACK)
        sender.flush()

    def _push_promise(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 8.4: a client cannot push."""
        raise H2Error(Code.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _ping(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.7."""
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, f"PING on stream {number}")
        if len(payload) != 8:
            raise H2Error(Code.FRAME_SIZE_ERROR, "PING is not eight bytes long")
        if flags & ACK:
            self.ping_pending = False
        else:
            self._guard.idle_frame()
            self._write(frame(PING, ACK, 0, payload))

    def _goaway(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.8. The peer opens no more streams; it closes the connection itself."""
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, f"GOAWAY on stream {number}")
        if len(payload) < 8:
            raise H2Error(Code.FRAME_SIZE_ERROR, "GOAWAY is shorter than eight bytes")
        self._guard.idle_frame()

    def _window_update(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.9."""
        if len(payload) != 4:
            raise H2Error(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not four bytes long")
        sender = self.sender
        size = int.from_bytes(payload, "big") & MAX_WINDOW
        if not number:
            if not size:
                raise H2Error(Code.PROTOCOL_ERROR, "WINDOW_UPDATE with zero increment")
            sender.window += size
            if sender.window > MAX_WINDOW:
                raise H2Error(Code.FLOW_CONTROL_ERROR, "a window above 2^31-1")
        else:
            stream = self.streams.get(number)
            if stream is None:
                if number > self._last_id:
                    raise H2Error(Code.PROTOCOL_ERROR, f"WINDOW_UPDATE on stream {number}, which is idle")
                return
            stream.send_window += size
            if not size or stream.send_window > MAX_WINDOW:
                self._reset_stream(stream, Code.FLOW_CONTROL_ERROR if size else Code.PROTOCOL_ERROR)
                return
            if stream.queued:
                sender.ready[stream] = None
        if sender.ready:
            sender.flush()

    def _reset_stream(self, stream: Stream, code: Code) -> None:
        """The peer broke a rule of one stream (RFC 9113, 5.4.2)."""
        self.sender.reset(stream, code)
        stream.on_reset()
        self._guard.reset()


_CONTROL = {
    PRIORITY: H2Connection._priority,
    RST_STREAM: H2Connection._rst_stream,
    SETTINGS: H2Connection._settings,
    PUSH_PROMISE: H2Connection._push_promise,
    PING: H2Connection._ping,
    GOAWAY: H2Connection._goaway,
    WINDOW_UPDATE: H2Connection._window_update,
}
"""What handles each type of frame that is neither DATA nor HEADERS."""
