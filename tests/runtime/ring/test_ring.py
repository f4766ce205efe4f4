"""The ring against a queue: records arrive whole, in order, and once."""

from __future__ import annotations

import mmap
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.ring.ring import RECORD_BYTES, SLOT_BYTES, RingReader, RingWriter, ring_bytes

SLOTS = 4

_puts = st.lists(st.binary(max_size=RECORD_BYTES // 3), min_size=1, max_size=3)
_takes = st.integers(1, 6)


@given(st.lists(_puts | _takes, max_size=60))
def test_ring_is_a_bounded_queue(steps: list[list[bytes] | int]) -> None:
    memory = mmap.mmap(-1, ring_bytes(SLOTS))
    writer, reader = RingWriter(memory), RingReader(memory)
    expected: deque[bytes] = deque()
    for step in steps:
        if isinstance(step, int):
            count = min(step, len(expected))
            assert reader.take(step) == [expected.popleft() for _ in range(count)]
        else:
            assert writer.put(*step) == (len(expected) < SLOTS)
            if len(expected) < SLOTS:
                expected.append(b"".join(step))
    assert reader.take(SLOTS) == list(expected)


def test_a_record_of_the_largest_size_fits() -> None:
    memory = mmap.mmap(-1, ring_bytes(SLOTS))
    writer, reader = RingWriter(memory), RingReader(memory)
    records = [bytes([number]) * RECORD_BYTES for number in range(3 * SLOTS)]
    for record in records:
        assert writer.put(record)
        assert reader.take(1) == [record]


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, SLOTS + 1), (0, 1 << 63), (mmap.PAGESIZE // 8, SLOT_BYTES)],
    ids=["more records than slots", "a head far away", "a record larger than its slot"],
)
def test_damaged_memory_is_refused(place: int, value: int) -> None:
    memory = mmap.mmap(-1, ring_bytes(SLOTS))
    writer, reader = RingWriter(memory), RingReader(memory)
    writer.put(b"record")
    memoryview(memory).cast("Q")[place] = value
    with pytest.raises(ValueError, match="claims"):
        reader.take(SLOTS)
