"""Data in the middle of a message is received into the message's buffer, whatever the cuts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.grpc.messages import PREFIX, MessageStream
from interlingua.protocols.transport.h2.flood import FloodGuard
from interlingua.protocols.transport.h2.frame_reader import FRAME_BYTES, FrameReader
from interlingua.protocols.transport.h2.frames import DATA, PADDED, SETTINGS, frame
from interlingua.protocols.transport.memory import unfilled
from interlingua.protocols.wire import Buffer


class _Call(MessageStream):
    def __init__(self) -> None:
        super().__init__(1, 0, False)
        self.messages: list[bytes] = []

    def data_received(self, data: Buffer, start: int, stop: int, ended: bool) -> None:
        self.messages += [
            bytes(message) for message in self.messages_in(data, start, stop, "", None, unfilled)
        ]


class _Handler:
    closed = False

    def __init__(self, call: _Call) -> None:
        self.call = call
        self.counted = 0

    def on_preface(self) -> None: ...

    def on_data_frame(self, number: int, size: int) -> _Call | None:
        self.counted += size
        return self.call if number == 1 else None

    def on_placed(self, size: int) -> None:
        self.counted += size

    def on_data(self, stream: _Call, data: Buffer, start: int, stop: int, ended: bool) -> None:
        stream.data_received(data, start, stop, ended)

    def on_field_block(self, block: bytes, ended: bool, number: int) -> None: ...

    def on_control(self, kind: int, flags: int, number: int, payload: bytes) -> None: ...


def _frames(data: bytes, largest: int, padding: int) -> bytes:
    written = []
    for start in range(0, len(data), largest):
        piece = data[start : start + largest]
        if padding:
            piece = bytes((padding,)) + piece + bytes(padding)
        written += [frame(DATA, PADDED if padding else 0, 1, piece), frame(DATA, 0, 3, b"skipped")]
    return b"".join(written)


@given(
    sizes=st.lists(st.integers(0, 3 << 19), min_size=1, max_size=2),
    largest=st.integers(60_000, FRAME_BYTES - 256) | st.just(1 << 14),
    padding=st.integers(0, 255),
    cut=st.integers(5_000, 1 << 20),
)
def test_messages_are_whole(sizes: list[int], largest: int, padding: int, cut: int) -> None:
    messages = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    data = b"".join(PREFIX.pack(0, len(message)) + message for message in messages)
    stream = memoryview(frame(SETTINGS, 0, 0) + _frames(data, largest, padding))
    call = _Call()
    handler = _Handler(call)
    reader = FrameReader(handler, FloodGuard(), b"", {1: call}, 1 << 30)  # type: ignore[arg-type]
    shared = memoryview(bytearray(cut))
    place = 0
    while place < len(stream):
        space = reader.space
        into = shared if space is None else space
        count = min(len(into), cut, len(stream) - place)
        into[:count] = stream[place : place + count]
        place += count
        if space is None:
            reader.feed(shared[:count])
        else:
            reader.received(count)
        shared[:] = bytes(cut)
    assert call.messages == messages
    frames = -(-len(data) // largest)
    padded = frames * (1 + padding) if padding else 0
    assert handler.counted == len(data) + padded + frames * len(b"skipped")
    assert call.received <= len(data)


def test_a_closed_stream_has_no_place() -> None:
    call = _Call()
    reader = FrameReader(_Handler(call), FloodGuard(), b"", {1: call}, 1 << 30)  # type: ignore[arg-type]
    data = _frames(PREFIX.pack(0, 1 << 20) + bytes(1 << 20), FRAME_BYTES, 0)
    reader.feed(frame(SETTINGS, 0, 0) + data[:1000])
    assert reader.space is not None
    call.closed = True
    assert reader.space is None
    reader.feed(data[1000:])
    assert call.messages == []


def test_a_stream_without_a_sink_that_had_a_place() -> None:
    """The bytes were received there before: they are skipped."""
    call, other = _Call(), _Call()
    reader = FrameReader(_Handler(call), FloodGuard(), b"", {1: call}, 1 << 30)  # type: ignore[arg-type]
    data = _frames(PREFIX.pack(0, 1 << 19) + bytes(1 << 19), FRAME_BYTES, 0)
    reader.feed(frame(SETTINGS, 0, 0) + data[:1000])
    assert reader.space is not None
    call.closed, call.sink = True, None
    reader.received(5000)
    assert reader.space is None
    reader._handler = _Handler(other)
    reader.feed(data[6000:] + frame(DATA, 0, 1, PREFIX.pack(0, 1) + b"x"))
    assert (call.messages, other.messages) == ([], [b"x"])
