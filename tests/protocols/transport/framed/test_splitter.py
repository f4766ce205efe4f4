"""Frames out of a stream that is cut anyhow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport import received
from interlingua.protocols.transport.framed.splitter import FrameSplitter, FrameTooLargeError
from tests.standins.framed import framed

LARGE = 1 << 16


def feed(splitter: FrameSplitter, data: bytes) -> list[bytes]:
    """Hand over ``data`` as an event loop does: as much at a time as there is space for. What had to be taken
    out meanwhile."""
    found: list[bytes] = []
    while data:
        space = splitter.space()
        assert len(space)
        count = min(len(space), len(data))
        space[:count] = data[:count]
        splitter.received(count)
        data = data[count:]
        if data:
            found += every(splitter)
    return found


def every(splitter: FrameSplitter) -> list[bytes]:
    """The messages that are complete."""
    return [bytes(message) for message in iter(splitter.next, None)]


def sizes() -> st.SearchStrategy[int]:
    around = st.sampled_from((LARGE - 5, LARGE - 4, LARGE - 3, LARGE, LARGE + 9, 3 * LARGE))
    return st.integers(0, 40) | st.integers(0, 5000) | around


@given(st.lists(sizes(), max_size=8), st.data())
def test_messages_come_out_as_they_went_in(lengths: list[int], data: st.DataObject) -> None:
    messages = [bytes([number + 1]) * length for number, length in enumerate(lengths)]
    stream = b"".join(map(framed, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    splitter, found = FrameSplitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += feed(splitter, stream[start:end])
        found += every(splitter)
    assert found == messages
    assert (splitter.missing, splitter.start) == (0, b"")


@given(sizes(), st.integers(0, 3 * LARGE))
def test_what_is_missing(length: int, held: int) -> None:
    frame = framed(b"x" * length)
    held = min(held, len(frame) - 1)
    splitter = FrameSplitter()
    feed(splitter, frame[:held])
    assert every(splitter) == []
    assert splitter.missing == (0 if not held else 4 - held if held < 4 else len(frame) - held)


@given(st.binary(max_size=200), st.integers(0, 100))
def test_any_bytes_are_frames_or_too_large(stream: bytes, limit: int) -> None:
    splitter = FrameSplitter(limit)
    feed(splitter, stream)
    rest = stream
    while len(rest) >= 4:
        size = int.from_bytes(rest[:4], "little")
        if size > limit:
            with pytest.raises(FrameTooLargeError) as caught:
                splitter.next()
            assert caught.value.size == size
            return
        message = splitter.next()
        if len(rest) < 4 + size:
            assert message is None
            return
        assert message is not None
        assert bytes(message) == rest[4 : 4 + size]
        rest = rest[4 + size :]
    assert splitter.next() is None


def test_a_message_stays_as_it_was() -> None:
    splitter = FrameSplitter()
    small, large = b"s" * 100, b"l" * (2 * LARGE)
    for kept in (small, large):
        feed(splitter, framed(kept))
        message = splitter.next()
        assert message is not None
        assert message.readonly
        feed(splitter, framed(b"z" * 100))
        assert every(splitter) == [b"z" * 100]
        assert bytes(message) == kept


def test_what_is_aligned_counts_from_the_size() -> None:
    splitter = FrameSplitter()
    for length in (12, 2 * LARGE):
        feed(splitter, framed(bytes(length)))
        message = splitter.next()
        assert message is not None
        assert (np.frombuffer(message, np.uint8).ctypes.data - 4) % 16 == 0


def test_a_size_alone_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "_RESERVED_BYTES", 2 * LARGE)
    splitter = FrameSplitter()
    frame = framed(bytes(range(256)) * 4096)  # a MiB
    feed(splitter, frame[:10])
    assert splitter.next() is None
    assert len(splitter.space()) <= 2 * LARGE
    for start in range(10, len(frame), 50_000):
        feed(splitter, frame[start : start + 50_000])
    message = splitter.next()
    assert message is not None
    assert bytes(message) == frame[4:]


def test_what_is_discarded_leaves_room() -> None:
    splitter = FrameSplitter(10)
    feed(splitter, framed(b"x" * 11))
    with pytest.raises(FrameTooLargeError):
        splitter.next()
    splitter.discard()
    assert (splitter.missing, splitter.next()) == (0, None)
    assert len(splitter.space()) == LARGE
