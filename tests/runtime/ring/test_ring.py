"""The ring against a queue: records arrive whole, in order, and once."""

from __future__ import annotations

import marshal
import mmap
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.ring.ring import SLOT_BYTES, RingReader, RingWriter, ring_bytes

SLOTS = 4

_puts = st.tuples(st.integers(), st.text(max_size=9) | st.binary(max_size=SLOT_BYTES // 2), st.floats(0, 1))
_takes = st.integers(1, 6)


@given(st.lists(_puts | _takes, max_size=60))
def test_ring_is_a_bounded_queue(steps: list[tuple[Any, ...] | int]) -> None:
    memory = mmap.mmap(-1, ring_bytes(SLOTS))
    writer, reader = RingWriter(memory), RingReader(memory)
    expected: deque[tuple[Any, ...]] = deque()
    for step in steps:
        if isinstance(step, int):
            count = min(step, len(expected))
            assert reader.take(step) == [expected.popleft() for _ in range(count)]
        else:
            assert writer.put(marshal.dumps(step)) == (len(expected) < SLOTS)
            if len(expected) < SLOTS:
                expected.append(step)
    assert reader.take(SLOTS) == list(expected)


def test_a_record_of_the_largest_size_fits() -> None:
    memory = mmap.mmap(-1, ring_bytes(SLOTS))
    writer, reader = RingWriter(memory), RingReader(memory)
    for number in range(3 * SLOTS):
        value = bytes([number]) * (SLOT_BYTES - len(marshal.dumps(b"")))
        assert len(marshal.dumps(value)) == SLOT_BYTES
        assert writer.put(marshal.dumps(value))
        assert reader.take(1) == [value]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, SLOTS + 1),
        (0, 1 << 63),
        (mmap.PAGESIZE // 8, ord("s") | SLOT_BYTES << 8),
        (mmap.PAGESIZE // 8, ord("?")),
        (mmap.PAGESIZE // 8, 0),
    ],
    ids=["more records than slots", "a head far away", "a record larger than its slot", "no value", "zeros"],
)
def test_damaged_memory_is_refused(place: int, value: int) -> None:
    memory = mmap.mmap(-1, ring_bytes(SLOTS))
    writer, reader = RingWriter(memory), RingReader(memory)
    writer.put(marshal.dumps(b"record"))
    memoryview(memory).cast("Q")[place] = value
    with pytest.raises(ValueError, match="claims"):
        reader.take(SLOTS)
