"""The arena: no live block overlaps another, and space without views comes back."""

from __future__ import annotations

import mmap
import os
import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from interlingua.runtime.ring import memory
from interlingua.runtime.ring.arena import PAGE_BYTES, TICKETS, Arena, ArenaReader, Extent

PAGES = 24


class Blocks(RuleBasedStateMachine):
    """An owner and a reader that keep views in any order. Every view keeps the number that the owner wrote."""

    @initialize()
    def start(self) -> None:
        memory, flags = mmap.mmap(-1, PAGES * PAGE_BYTES), mmap.mmap(-1, TICKETS)
        self.arena, self.reader = Arena(memory, flags), ArenaReader(memory, flags)
        self.written = 0
        self.owned: list[tuple[memoryview, int]] = []
        self.read: list[tuple[memoryview, int]] = []

    @rule(size=st.integers(1, 6 * PAGE_BYTES))
    def allocate(self, size: int) -> None:
        held = self._pages()
        block = self.arena.allocate(size)
        if block is None:
            # only because of the views that are held: with none, everything fits
            assert held
            return
        self.written = (self.written + 1) % 256
        assert len(block) == size
        block[:] = bytes([self.written]) * size
        self.owned.append((block, self.written))

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        # an index: a drawn view would stay in the test case
        view, value = self.owned[data.draw(st.integers(0, len(self.owned) - 1))]
        start = data.draw(st.integers(0, len(view) - 1))
        place = self.arena.send(view[start:])
        assert place is not None
        assert place.size == len(view) - start
        self.read.append((self.reader.view(place), value))

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.owned.pop(data.draw(st.integers(0, len(self.owned) - 1)))

    @precondition(lambda self: self.read)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.read.pop(data.draw(st.integers(0, len(self.read) - 1)))

    @rule()
    def trim(self) -> None:
        self.arena.trim()

    @invariant()
    def views_keep_their_bytes(self) -> None:
        for view, value in (*self.owned, *self.read):
            assert bytes(view) == bytes([value]) * len(view)

    def teardown(self) -> None:
        self.owned.clear()
        self.read.clear()
        whole = self.arena.allocate(PAGES * PAGE_BYTES)
        assert whole is not None, "space without views has not come back"

    def _pages(self) -> int:
        return len(self.owned) + len(self.read)


Blocks.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestBlocks = Blocks.TestCase


@pytest.fixture
def ends() -> tuple[Arena, ArenaReader]:
    memory, flags = mmap.mmap(-1, PAGES * PAGE_BYTES), mmap.mmap(-1, TICKETS)
    return Arena(memory, flags), ArenaReader(memory, flags)


def test_a_slice_keeps_the_block(ends: tuple[Arena, ArenaReader]) -> None:
    arena, reader = ends
    block = arena.allocate(PAGES * PAGE_BYTES)
    assert block is not None
    place = arena.send(block)
    assert place is not None
    part = reader.view(place)[100:200]
    del block
    assert arena.allocate(1) is None
    array = np.frombuffer(part, np.uint8)
    del part
    assert arena.allocate(1) is None
    del array
    assert arena.allocate(1) is not None


def test_other_memory_has_no_place(ends: tuple[Arena, ArenaReader]) -> None:
    arena, _ = ends
    other = Arena(mmap.mmap(-1, PAGE_BYTES), mmap.mmap(-1, TICKETS)).allocate(8)
    assert other is not None
    for view in (memoryview(b"bytes"), np.zeros(8, np.uint8).data, other):
        assert arena.send(view) is None


def test_more_sends_than_tickets_are_refused_until_views_are_gone(ends: tuple[Arena, ArenaReader]) -> None:
    arena, reader = ends
    block = arena.allocate(8)
    assert block is not None
    places = [arena.send(block) for _ in range(TICKETS)]
    assert None not in places
    assert arena.send(block) is None
    place = places[77]
    assert place is not None
    reader.view(place)
    again = arena.send(block)
    assert again is not None
    assert again.ticket == place.ticket


def test_views_may_end_in_any_thread(ends: tuple[Arena, ArenaReader]) -> None:
    arena, reader = ends
    views: list[memoryview] = []
    for _ in range(PAGES):
        block = arena.allocate(PAGE_BYTES)
        assert block is not None
        place = arena.send(block)
        assert place is not None
        views.append(reader.view(place))
    del block
    assert arena.allocate(1) is None
    ending = threading.Thread(target=views.clear)
    ending.start()
    ending.join()
    assert arena.allocate(PAGES * PAGE_BYTES) is not None


@pytest.mark.parametrize("place", [Extent(0, 0, PAGES * PAGE_BYTES + 1), Extent(TICKETS, 0, 1)])
def test_places_outside_are_refused(ends: tuple[Arena, ArenaReader], place: Extent) -> None:
    with pytest.raises(ValueError, match="claims"):
        ends[1].view(place)


def test_low_space_is_used_again(ends: tuple[Arena, ArenaReader]) -> None:
    arena, reader = ends
    offsets = set()
    for _ in range(5 * PAGES):
        block = arena.allocate(PAGE_BYTES)
        assert block is not None
        place = arena.send(block)
        assert place is not None
        offsets.add(place.offset)
        reader.view(place)
        del block
    assert len(offsets) <= PAGES
    assert arena.used_bytes <= PAGES * PAGE_BYTES


def test_memory_of_higher_space_goes_back() -> None:
    size = 64 * PAGE_BYTES
    descriptor = memory.create("arena", size)
    arena = Arena(mmap.mmap(descriptor, size), mmap.mmap(-1, TICKETS))
    blocks = [arena.allocate(8 * PAGE_BYTES) for _ in range(8)]
    for block in blocks:
        assert block is not None
        block[:] = b"x" * len(block)
    kept = blocks[3]

    def pages() -> int:
        return os.fstat(descriptor).st_blocks * 512 // PAGE_BYTES

    arena.trim()
    assert pages() == 64
    del block
    blocks.clear()
    # of the others, the first page alone is used again
    again = arena.allocate(1)
    assert again is not None
    again[:] = b"y"
    arena.trim()
    assert pages() == 8 + 1
    assert kept is not None
    assert bytes(kept) == b"x" * len(kept)
    del kept
    arena.trim()
    assert pages() == 1
    assert bytes(again) == b"y"
    os.close(descriptor)
