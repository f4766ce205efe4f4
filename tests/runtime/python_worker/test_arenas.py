"""Inputs in an arena: the worker reads them there, and they are copied once, by it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import Any

import pytest

from interlingua.runtime.python_worker import arenas, packing, regions
from interlingua.runtime.python_worker.arenas import PLACE_BYTES, ArenaMaps, SharedArenas
from interlingua.runtime.python_worker.channel import ChannelFrame
from interlingua.runtime.python_worker.regions import RegionPool, RegionViews
from interlingua.runtime.ring import memory
from interlingua.runtime.ring.arena import TICKETS, Arena, ArenaFile, ArenaReader

START = mmap.PAGESIZE
ARENA_BYTES = 1 << 20


class FrontEnd:
    """An arena that is not at the begin of its file, with its owner and its reader."""

    def __init__(self) -> None:
        descriptor = memory.create("channel", START + ARENA_BYTES)
        flags = mmap.mmap(-1, TICKETS)
        self.arena = Arena(mmap.mmap(descriptor, ARENA_BYTES, offset=START), flags)
        theirs = mmap.mmap(descriptor, ARENA_BYTES, offset=START)
        self.reader = ArenaReader(theirs, flags, ArenaFile(descriptor, START))

    def sent(self, data: bytes, skip: int = 1) -> tuple[memoryview, memoryview]:
        """``data`` in the arena behind ``skip`` bytes, as the owner and as the reader see it."""
        block = self.arena.allocate(skip + len(data))
        assert block is not None
        block[skip:] = data
        place = self.arena.send(block[skip:])
        assert place is not None
        return block[skip:], self.reader.view(place)


class Sides:
    """The runtime's and the worker's ends."""

    def __init__(self) -> None:
        self.page = regions.make_page()
        self.pool = RegionPool(regions.map_page(self.page))
        self.views = RegionViews(regions.map_page(self.page))
        self.gone: list[int] = []
        self.arenas = SharedArenas(self.gone.append)
        self.maps = ArenaMaps()

    def pack(self, *tensors: packing.NamedPart) -> packing.Packed:
        return packing.pack_inputs(tensors, self.pool, self.arenas)[0]

    def unpack(self, packed: packing.Packed) -> list[Any]:
        frame = ChannelFrame(None, bytearray(packed.payload), packed.descriptors)
        return packing.unpack(packed.value, frame, self.views, self.maps)


@pytest.fixture
def sides() -> Iterator[Sides]:
    found = Sides()
    yield found
    os.close(found.page)


def numbered(part: regions.Part, kind: str = "UINT8") -> packing.NamedPart:
    return "x", kind, [len(part)], part


def test_the_worker_reads_what_the_arena_has_now(sides: Sides) -> None:
    front_end = FrontEnd()
    owned, seen = front_end.sent(b"a" * PLACE_BYTES)
    packed = sides.pack(numbered(seen))
    # written after the message was made: a copy would not show it
    owned[0] = 42
    ((*_, data),) = sides.unpack(packed)
    assert bytes(data) == b"*" + b"a" * (PLACE_BYTES - 1)


def test_the_worker_writes_to_a_copy(sides: Sides) -> None:
    front_end = FrontEnd()
    owned, seen = front_end.sent(b"a" * PLACE_BYTES)
    packed = sides.pack(numbered(seen), numbered(seen[1:]), numbered(seen))
    first, second, _ = (data for *_, data in sides.unpack(packed))
    first[:] = b"b" * PLACE_BYTES
    assert {bytes(each) for each in (owned, seen)} == {b"a" * PLACE_BYTES}
    assert bytes(second) == b"a" * (PLACE_BYTES - 1)
    # nor does the owner write to what the worker keeps
    owned[:] = b"c" * PLACE_BYTES
    assert bytes(second) == b"a" * (PLACE_BYTES - 1)


def test_tensors_in_an_arena_and_elsewhere_come_in_order(sides: Sides) -> None:
    front_end = FrontEnd()
    _, large = front_end.sent(bytes(range(256)) * 512)
    _, strings = front_end.sent(b"s" * PLACE_BYTES, skip=3)
    _, small = front_end.sent(b"i" * (PLACE_BYTES - 1))
    tensors = [
        numbered(b"first"),
        numbered(large),
        numbered(strings, "BYTES"),
        numbered(small),
        numbered(memoryview(b"e" * PLACE_BYTES)),
        numbered(large[5:], "INT8"),
        numbered(b""),
    ]
    packed = sides.pack(*tensors)
    found = sides.unpack(packed)
    assert [(*each[:3], bytes(each[3])) for each in found] == [
        (*each[:3], bytes(each[3])) for each in tensors
    ]
    assert [each[3].readonly for each in found] == [kind == "BYTES" for _, kind, *_ in tensors]


def test_strings_need_no_region(sides: Sides) -> None:
    front_end = FrontEnd()
    _, strings = front_end.sent(b"s" * PLACE_BYTES)
    packed = sides.pack(numbered(strings, "BYTES"), numbered(b"ab"))
    assert packed.value[0] == -1
    assert [bytes(each[3]) for each in sides.unpack(packed)] == [b"s" * PLACE_BYTES, b"ab"]


def test_an_arena_is_introduced_once(sides: Sides) -> None:
    one, other = FrontEnd(), FrontEnd()
    views = [front_end.sent(bytes([value]) * PLACE_BYTES)[1] for value, front_end in enumerate((one, other))]
    counts = []
    for _ in range(2):
        packed = sides.pack(*map(numbered, views))
        counts.append(len(packed.descriptors))
        assert [each[3][0] for each in sides.unpack(packed)] == [0, 1]
    assert counts == [3, 0]


def test_arenas_beyond_those_of_one_message_are_copied(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas, "_MOST_NEW", 2)
    front_ends = [FrontEnd() for _ in range(3)]
    views = [each.sent(bytes([value]) * PLACE_BYTES)[1] for value, each in enumerate(front_ends)]
    for _ in range(2):
        packed = sides.pack(*map(numbered, views))
        assert [each[3][0] for each in sides.unpack(packed)] == [0, 1, 2]


def test_an_arena_that_was_not_introduced_for_lack_of_memory(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    front_end = FrontEnd()
    _, seen = front_end.sent(b"a" * PLACE_BYTES)
    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patch:
        patch.setattr(regions, "MAX_REGIONS", 0)
        with pytest.raises(MemoryError):
            sides.pack(numbered(seen))
    assert os.listdir("/proc/self/fd") == before
    ((*_, data),) = sides.unpack(sides.pack(numbered(seen)))
    assert bytes(data) == b"a" * PLACE_BYTES


def test_an_arena_that_ends_is_forgotten(sides: Sides) -> None:
    before = len(os.listdir("/proc/self/fd"))
    front_end = FrontEnd()
    seen = front_end.sent(b"a" * PLACE_BYTES)[1]
    sides.unpack(sides.pack(numbered(seen)))
    del front_end
    assert not sides.gone
    del seen
    assert sides.gone == [0]
    sides.maps.forget(0)
    # the region is left: one mapping of each side, and the descriptor that a channel sends
    assert len(os.listdir("/proc/self/fd")) == before + 3
    # the next arena has another number
    _, seen = FrontEnd().sent(b"b" * PLACE_BYTES)
    ((*_, data),) = sides.unpack(sides.pack(numbered(seen)))
    assert bytes(data) == b"b" * PLACE_BYTES
