"""The sending half of an HTTP/2 connection: within flow control (RFC 9113, 5.2) and the socket's buffer.

Sans-IO. A message that fits the windows is written at once; the rest waits in its stream's queue, and
streams with queued data take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from interlingua.protocols.transport.h2.flood import BURST, DATA_CREDIT, FloodGuard
from interlingua.protocols.transport.h2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADERS,
    MAX_WINDOW,
    Code,
    H2Error,
    data_header,
    header_frames,
    rst_stream,
)
from interlingua.protocols.transport.h2.stream import Stream
from interlingua.protocols.wire import Buffer

S = TypeVar("S", bound=Stream)

_HEADER = HEADER.pack

_JOINED_BYTES = 1 << 14
"""Up to this size, joining the pieces of a message costs less than writing each."""

_CUT_STREAMS = 1024
"""How many streams that we have reset are remembered."""

_TURN_BYTES = 1 << 20
"""How much one stream sends before the next one has its turn: a large frame costs the peer less."""


class Sender(Generic[S]):
    """``initial_window`` and ``max_frame_size`` are the peer's settings (RFC 9113, 6.5.2); ``window`` is the
    connection's flow-control window. ``streams`` are those of the connection: a stream leaves them when it
    closes."""

    def __init__(self, write: Callable[..., None], streams: dict[int, S], guard: FloodGuard) -> None:
        self._write = write
        self.write_shared: Callable[..., None] = lambda *pieces: write(*map(bytes, pieces))
        """As ``write``, for pieces that change when this turn of the event loop is over."""
        self._streams = streams
        self._guard = guard
        self.initial_window = DEFAULT_WINDOW
        self.max_frame_size = DEFAULT_FRAME_BYTES
        self.window = DEFAULT_WINDOW
        self.paused = False
        """Whether the peer reads too slowly."""
        self.ready: dict[Stream, None] = {}
        """Streams with queued data, in turn. A stream without a window leaves until its window grows."""
        self.cut: deque[int] = deque(maxlen=_CUT_STREAMS)
        """Streams that we have reset: frames that were under way may follow (RFC 9113, 5.1)."""

    # called by the owner of the socket

    def pause(self) -> None:
        """The socket's buffer is full: queue data."""
        self.paused = True

    def resume(self) -> None:
        """The socket's buffer has room again."""
        self.paused = False
        self.flush()

    # called by streams

    def send_whole(
        self, stream: Stream, headers: bytes, message: Sequence[Buffer], size: int, trailers: bytes = b""
    ) -> None:
        """Send a complete message: a field block, the pieces of the body, ``size`` bytes together, and
        trailers, which an answer has and a request has not."""
        number, begin, end, largest = stream.id, len(headers), len(trailers), self.max_frame_size
        if (
            size <= self.window
            and size <= stream.send_window
            and size <= _TURN_BYTES
            and begin + end <= largest
            and not self.paused
        ):
            self.window -= size
            stream.trailers = trailers
            flags = 0 if end else END_STREAM
            # header_frames and data_header, inlined
            opening = _HEADER(begin >> 8, begin & 0xFF, HEADERS, END_HEADERS, number)
            pieces: tuple[Buffer, ...]
            if size <= largest:
                pieces = opening, headers, _HEADER(size >> 8, size & 0xFF, DATA, flags, number), *message
            else:
                pieces = opening, headers, *_data_frames(message, size, number, largest, flags)
            if end:
                closing = _HEADER(end >> 8, end & 0xFF, HEADERS, END_HEADERS | END_STREAM, number)
                pieces = (*pieces, closing, trailers)
            if size <= _JOINED_BYTES:
                self._write(b"".join(pieces))
            else:
                self._write(*pieces)
            self._ended(stream)
        else:
            self.send_headers(stream, headers)
            self.send(stream, message, trailers, ended=True)

    def send_headers(self, stream: Stream, block: bytes) -> None:
        """Send the field block that begins a message."""
        self._write(header_frames(block, stream.id, ended=False, largest=self.max_frame_size))

    def send(
        self, stream: Stream, body: Sequence[Buffer], trailers: bytes = b"", *, ended: bool = False
    ) -> None:
        """Send pieces of a body; ``ended``: they are the last before ``trailers``. Data beyond the windows
        is queued."""
        stream.queue(body)
        stream.trailers = trailers
        stream.ending = ended
        if stream.queued:
            self.ready[stream] = None
            self.flush()
        elif ended:
            self._finish(stream)

    def forward(self, stream: Stream, data: memoryview, *, ended: bool) -> None:
        """As :meth:`send` for ``data`` that change when this turn is over: they are written now, or a copy
        is queued."""
        size = len(data)
        if stream.queued or size > self.window or size > stream.send_window or self.paused:
            self.send(stream, (bytes(data),), ended=ended)
            return
        self.count_passed(stream, size)
        flags = END_STREAM if ended else 0
        self.write_shared(*_data_frames((data,), size, stream.id, self.max_frame_size, flags))
        if ended:
            self._ended(stream)

    def count_passed(self, stream: Stream, size: int) -> None:
        """``size`` bytes of data are sent, within the windows."""
        self.window -= size
        stream.send_window -= size
        stream.sent += size
        if self._guard.tokens < BURST:
            self._guard.tokens += DATA_CREDIT

    def send_end(self, stream: Stream, trailers: bytes) -> None:
        """Drop queued data and end the answer with trailers."""
        self._discard(stream)
        stream.trailers = trailers
        self._finish(stream)

    def refuse(self, number: int, block: bytes, ended: bool) -> None:
        """Answer stream ``number``, which was not accepted, with a field block alone; ``ended``: the request
        is complete."""
        answer = header_frames(block, number, ended=True, largest=self.max_frame_size)
        self._write(answer)
        if not ended:
            self.reject(number, Code.NO_ERROR)

    def close(self, stream: Stream) -> None:
        """Close the stream of an answer that is sent: RST_STREAM stops the client from sending a request that
        is not complete (RFC 9113, 8.1)."""
        stream.closed = True
        self._streams.pop(stream.id, None)
        if not stream.half_closed_remote:
            self.reject(stream.id, Code.NO_ERROR)

    def reject(self, number: int, code: Code) -> None:
        """Reset stream ``number``, which is not or no longer open."""
        self.cut.append(number)
        self._write(rst_stream(number, code))

    # called by the connection

    def reset(self, stream: Stream, code: Code) -> None:
        """Reset a stream."""
        self.forget(stream)
        self.reject(stream.id, code)

    def forget(self, stream: Stream) -> None:
        """Close a stream without a frame."""
        stream.half_closed_local = stream.closed = True
        self._streams.pop(stream.id, None)
        self._discard(stream)

    def forget_all(self) -> list[S]:
        """Close every stream without a frame: those that were open."""
        streams = list(self._streams.values())
        self._streams.clear()
        self.ready.clear()
        for stream in streams:
            stream.half_closed_local = stream.closed = True
        return streams

    def resize_windows(self, size: int) -> None:
        """Apply the peer's SETTINGS_INITIAL_WINDOW_SIZE to every stream (RFC 9113, 6.9.2). Raises
        ``H2Error``."""
        change = size - self.initial_window
        self.initial_window = size
        for stream in self._streams.values():
            stream.send_window += change
            if stream.send_window > MAX_WINDOW:
                raise H2Error(Code.FLOW_CONTROL_ERROR, "a window above 2^31-1")
            if stream.queued:
                self.ready[stream] = None
            elif stream.feeder is not None:
                stream.feeder.grant()

    def flush(self) -> None:
        """Send queued data within the windows, streams in turn."""
        while self.ready and self.window > 0 and not self.paused:
            stream = next(iter(self.ready))
            del self.ready[stream]
            size = min(stream.queued, stream.send_window, self.window, _TURN_BYTES)
            if size <= 0:
                continue
            self._send_data(stream, size)
            if stream.queued:
                self.ready[stream] = None
                continue
            if stream.trailers:
                self._finish(stream)
            elif stream.ending:
                self._ended(stream)
            stream.on_drained()

    def _send_data(self, stream: Stream, size: int) -> None:
        stream.send_window -= size
        self.window -= size
        if self._guard.tokens < BURST:
            self._guard.tokens += DATA_CREDIT
        ends = stream.ending and size == stream.queued and not stream.trailers
        flags = END_STREAM if ends else 0
        self._write(*_data_frames(stream.take(size), size, stream.id, self.max_frame_size, flags))

    def _finish(self, stream: Stream) -> None:
        """Send END_STREAM; the queue is empty."""
        if stream.trailers:
            self._write(header_frames(stream.trailers, stream.id, ended=True, largest=self.max_frame_size))
        else:
            self._write(data_header(0, stream.id, END_STREAM))
        self._ended(stream)

    def _ended(self, stream: Stream) -> None:
        """Our message is complete. Trailers, which only answers have, close its stream."""
        stream.half_closed_local = True
        if self._guard.tokens < BURST:
            self._guard.tokens += DATA_CREDIT
        if stream.trailers:
            # close, inlined
            stream.closed = True
            self._streams.pop(stream.id, None)
            if not stream.half_closed_remote:
                self.reject(stream.id, Code.NO_ERROR)

    def _discard(self, stream: Stream) -> None:
        stream.discard()
        self.ready.pop(stream, None)


def _data_frames(message: Sequence[Buffer], size: int, number: int, largest: int, flags: int) -> list[Buffer]:
    """``message``, ``size`` bytes together, in DATA frames of at most ``largest``; the last has ``flags``."""
    full = data_header(largest, number)
    frames: list[Buffer] = []
    room = 0
    for piece in message:
        place, end = 0, len(piece)
        if 0 < end <= room:
            frames.append(piece)
            room -= end
            continue
        view = memoryview(piece)
        while place < end:
            if not room:
                while size > largest and (after := place + largest) <= end:
                    frames += full, view[place:after]
                    place = after
                    size -= largest
                if place == end:
                    break
                room = min(size, largest)
                size -= room
                frames.append(data_header(room, number, 0 if size else flags))
            upto = min(end, place + room)
            frames.append(view[place:upto])
            room -= upto - place
            place = upto
    return frames
