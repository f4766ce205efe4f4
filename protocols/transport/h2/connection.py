"""An HTTP/2 connection (RFC 9113), without a socket: bytes in, calls out, bytes out.

Contract: :meth:`H2Connection.receive` takes what arrived, cut anywhere, and calls the streams. Bytes to be
sent go to ``write``, in order. No exception leaves; a peer that breaks a rule gets a GOAWAY, and ``closed``
is set. ``h2.server`` and ``h2.client`` add what differs. Only clients open streams: push is disabled.

What a peer can make us do is bounded: the length of headers, frames without effect (``h2.flood``), and queued
data by the windows and by :meth:`Sender.pause`. Nothing here knows what a message means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from interlingua.protocols.transport.h2.flood import IDLE_COST, SMALL_BYTES, WINDOW_COST, FloodGuard
from interlingua.protocols.transport.h2.frame_reader import FrameReader
from interlingua.protocols.transport.h2.frames import (
    ACK,
    DEFAULT_FRAME_BYTES,
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
    settings_in,
    window_update,
)
from interlingua.protocols.transport.h2.header_decoder import HeaderDecoder
from interlingua.protocols.transport.h2.hpack import FieldLines
from interlingua.protocols.transport.h2.sender import Sender
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.wire import Buffer

_STREAMS_PER_TOKEN = 8
"""SETTINGS may change the windows of every stream: as many cost a token more."""

_TEXT_BYTES = 200
"""How much of the text of a GOAWAY is read."""

_SETTING_RANGES: Mapping[int, range] = {
    Setting.ENABLE_PUSH: range(2),
    Setting.INITIAL_WINDOW_SIZE: range(MAX_WINDOW + 1),
    Setting.MAX_FRAME_SIZE: range(DEFAULT_FRAME_BYTES, MAX_FRAME_BYTES + 1),
}
"""Valid values (RFC 9113, 6.5.2)."""

H = TypeVar("H")
S = TypeVar("S", bound=Stream)


class H2Connection(Generic[H, S]):
    """What both ends share. ``interpret`` turns field lines into headers, ``write`` takes pieces of what is
    sent. The peer begins with ``preface``, and gets flow-control windows of ``stream_window`` and
    ``connection_window`` bytes."""

    def __init__(
        self,
        interpret: Callable[[FieldLines], H],
        write: Callable[..., None],
        *,
        preface: bytes,
        stream_window: int,
        connection_window: int,
    ) -> None:
        self._write = write
        self._headers = HeaderDecoder(interpret)
        self.guard = FloodGuard()
        self.stream_window, self._connection_window = stream_window, connection_window
        self.streams: dict[int, S] = {}
        self.frames = FrameReader(self, self.guard, preface, self.streams, stream_window)
        self.sender = Sender(write, self.streams, self.guard)
        self.closed = False
        self.preface_received = False
        self.ping_pending = False
        """Whether a PING of ours has no acknowledgement yet."""
        self.last_id = 0
        """The last stream that was opened."""
        self.reset_early: dict[int, None] = {}
        """Streams that a client has reset before it opened them: they are closed."""
        self._received = 0

    # called by the owner of the socket

    def receive(self, data: Buffer) -> None:
        """Take what arrived, which may change afterwards."""
        if self.closed:
            return
        try:
            self.frames.feed(data)
        except H2Error as fault:
            self.on_fault(fault)

    @property
    def space(self) -> memoryview | None:
        """Where the next bytes belong, followed by :meth:`received`; None if they are for :meth:`receive`."""
        return None if self.closed else self.frames.space

    def received(self, count: int) -> None:
        """``count`` bytes have been written into the space."""
        self.frames.received(count)

    def ping(self) -> None:
        """Send a PING."""
        self.ping_pending = True
        self._write(frame(PING, 0, 0, bytes(8)))

    def close(self, code: Code, text: str) -> None:
        """End the connection with a GOAWAY and every stream with it (RFC 9113, 5.4.1)."""
        if not self.closed:
            self.closed = True
            self._write(goaway(self.last_processed, code, text))
            self.connection_lost()

    def connection_lost(self) -> None:
        """The peer is gone."""
        self.closed = True
        for stream in self.sender.forget_all():
            stream.on_lost()

    # called by streams

    def replenish(self, stream: Stream, unconsumed: int = 0) -> None:
        """Let the peer of a stream send as much again as was received, less what is ``unconsumed``."""
        size = stream.received - unconsumed
        if size > 0 and not stream.half_closed_remote and not stream.closed:
            self._write(window_update(stream.id, size))
            stream.received, stream.looked_at = unconsumed, 0

    # called by the frame reader, see ``FrameHandler``

    @property
    def last_processed(self) -> int:
        """The last of the peer's streams that we have taken (RFC 9113, 6.8)."""
        return 0

    def on_fault(self, fault: H2Error) -> None:
        """The peer broke a rule of the connection."""
        self.close(fault.code, str(fault))

    def on_preface(self) -> None:
        """See ``FrameHandler``."""
        self.preface_received = True

    def on_settings(self, stated: Mapping[int, int]) -> None:
        """The peer's settings; those that matter to both ends have been applied."""

    def on_goaway(self, last: int, code: int, text: str) -> None:
        """The peer takes no streams after ``last``; it closes the connection itself."""

    def on_early_reset(self, number: int) -> None:
        """The peer resets stream ``number``, an odd one, which is not open yet."""

    def on_freed(self) -> None:
        """A stream has been reset."""

    def on_data_frame(self, number: int, size: int) -> Stream | None:
        """Account for a DATA frame in both windows, and give the peer back what it has used (RFC 9113,
        6.9.1)."""
        guard = self.guard
        if size < SMALL_BYTES:
            guard.tokens -= 1
            if guard.tokens < 0:
                guard.idle_frame(0)
        self._received += size
        if self._received >= self._connection_window // 2:
            self._replenish_connection()
        stream = self.streams.get(number)
        if stream is None:
            self.check_closed(number, "DATA")
            if not size:
                guard.idle_frame(IDLE_COST - 1)
            return None
        if stream.half_closed_remote:
            self.reset_stream(stream, Code.STREAM_CLOSED)  # RFC 9113, 5.1
            return None
        if stream.body_left is not None:
            stream.body_left -= size
        stream.received += size
        low_water = self.stream_window // 2
        if stream.received >= low_water:
            window = self.stream_window + stream.loan
            if stream.received > window:
                self.reset_stream(stream, Code.FLOW_CONTROL_ERROR)
                return None
            if not stream.window_held:
                self.on_window_low(stream)
            # data in the middle of a message gets here again after as much, and at the end of the window
            stream.looked_at = max(0, min(stream.received, window - low_water))
        return stream

    def on_placed(self, size: int) -> None:
        """See ``FrameHandler``."""
        self._received += size
        if self._received >= self._connection_window // 2:
            self._replenish_connection()

    def _replenish_connection(self) -> None:
        if self._received > self._connection_window:
            raise H2Error(Code.FLOW_CONTROL_ERROR, "more data than the connection's window allows")
        self._write(window_update(0, self._received))
        self._received = 0

    def on_window_low(self, stream: Stream) -> None:
        """The peer has used half of a window."""
        if stream.passthrough is None:
            self.replenish(stream)
        else:
            stream.passthrough.grant()

    def on_data(self, stream: Stream, data: Buffer, start: int, stop: int, ended: bool) -> None:
        """Hand data to its stream."""
        if start == stop and not ended:
            self.guard.idle_frame(IDLE_COST - 1)
        if ended and stream.body_left:
            self.reset_stream(stream, Code.PROTOCOL_ERROR)  # RFC 9113, 8.1.1
            return
        stream.half_closed_remote = ended
        stream.data_received(data, start, stop, ended)

    def on_field_block(self, block: bytes, ended: bool, number: int) -> None:
        """See ``FrameHandler``."""
        raise NotImplementedError

    def on_control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Any other frame; unknown types are ignored (RFC 9113, 5.5)."""
        handler = _CONTROL.get(kind)
        if handler is None:
            self.guard.idle_frame()
        else:
            handler(self, payload, flags, number)

    def _priority(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.3: checked and ignored."""
        if not number:
            raise H2Error(Code.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if len(payload) != 5:
            raise H2Error(Code.FRAME_SIZE_ERROR, "PRIORITY is not five bytes long")
        self.guard.idle_frame()

    def _rst_stream(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.4."""
        if len(payload) != 4:
            raise H2Error(Code.FRAME_SIZE_ERROR, "RST_STREAM is not four bytes long")
        stream = self.streams.get(number)
        if stream is None:  # it has ended meanwhile, or its headers are never sent
            if number > self.last_id and number & 1:
                self.on_early_reset(number)
            self.check_closed(number, "RST_STREAM")
            self.guard.idle_frame(1)
            return
        self.sender.forget(stream)
        stream.on_reset(int.from_bytes(payload, "big"))
        self.on_freed()
        self.guard.reset()

    def _settings(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.5."""
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, f"SETTINGS on stream {number}")
        if len(payload) % 6 or (flags & ACK and payload):
            raise H2Error(Code.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        self.guard.idle_frame(IDLE_COST + len(self.streams) // _STREAMS_PER_TOKEN)
        if flags & ACK:
            return
        sender = self.sender
        stated: dict[int, int] = {}
        for setting, value in settings_in(payload):
            if setting in _SETTING_RANGES and value not in _SETTING_RANGES[setting]:
                too_wide = setting == Setting.INITIAL_WINDOW_SIZE
                code = Code.FLOW_CONTROL_ERROR if too_wide else Code.PROTOCOL_ERROR
                raise H2Error(code, f"SETTINGS_{Setting(setting).name} of {value}")
            stated[setting] = value
        # the last value of a setting holds (6.5.3): to apply each would let one frame take seconds
        if Setting.INITIAL_WINDOW_SIZE in stated:
            sender.resize_windows(stated[Setting.INITIAL_WINDOW_SIZE])
        sender.max_frame_size = stated.get(Setting.MAX_FRAME_SIZE, sender.max_frame_size)
        self._write(SETTINGS_ACK)
        self.on_settings(stated)
        sender.flush()

    def _push_promise(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 8.4: a client cannot push, and a server must not push to us (6.5.2)."""
        raise H2Error(Code.PROTOCOL_ERROR, "PUSH_PROMISE")

    def _ping(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.7."""
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, f"PING on stream {number}")
        if len(payload) != 8:
            raise H2Error(Code.FRAME_SIZE_ERROR, "PING is not eight bytes long")
        self.guard.idle_frame()
        if flags & ACK:
            self.ping_pending = False
        else:
            self._write(frame(PING, ACK, 0, payload))

    def _goaway(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.8."""
        if number:
            raise H2Error(Code.PROTOCOL_ERROR, f"GOAWAY on stream {number}")
        if len(payload) < 8:
            raise H2Error(Code.FRAME_SIZE_ERROR, "GOAWAY is shorter than eight bytes")
        self.guard.idle_frame()
        last, code = int.from_bytes(payload[:4], "big") & MAX_STREAM_ID, int.from_bytes(payload[4:8], "big")
        self.on_goaway(last, code, payload[8 : 8 + _TEXT_BYTES].decode(errors="replace"))

    def _window_update(self, payload: bytes, flags: int, number: int) -> None:
        """RFC 9113, 6.9."""
        if len(payload) != 4:
            raise H2Error(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not four bytes long")
        sender, guard = self.sender, self.guard
        guard.tokens -= WINDOW_COST
        if guard.tokens < 0:
            guard.idle_frame(0)
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
                self.check_closed(number, "WINDOW_UPDATE")
                return
            stream.send_window += size
            if not size or stream.send_window > MAX_WINDOW:
                self.reset_stream(stream, Code.FLOW_CONTROL_ERROR if size else Code.PROTOCOL_ERROR)
                return
            if stream.queued:
                sender.ready[stream] = None
            elif stream.feeder is not None:
                stream.feeder.grant()
        if sender.ready:
            sender.flush()

    def check_closed(self, number: int, kind: str) -> None:
        """A frame of a stream that is not open: raises ``H2Error`` unless it was (RFC 9113, 5.1)."""
        if not number & 1 or (number > self.last_id and number not in self.reset_early):
            raise H2Error(Code.PROTOCOL_ERROR, f"{kind} on stream {number}, which is not open")

    def reset_stream(self, stream: Stream, code: Code) -> None:
        """The peer broke a rule of one stream (RFC 9113, 5.4.2)."""
        self.sender.reset(stream, code)
        stream.on_reset(code)
        self.on_freed()
        self.guard.reset()


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
