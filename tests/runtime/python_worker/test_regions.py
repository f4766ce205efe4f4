"""Shared memory is used again when nobody looks at it any more, and not before."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest

from interlingua.runtime.python_worker import regions
from interlingua.runtime.python_worker.channel import ChannelFrame
from interlingua.runtime.python_worker.packing import INLINE_BYTES, pack, unpack
from interlingua.runtime.python_worker.regions import ALIGNMENT, RegionPool, RegionViews

Sides = tuple[RegionPool, RegionViews]


@pytest.fixture
def sides() -> Iterator[Sides]:
    """A writer and a reader, as two processes have them: each with its own mapping of the flags."""
    page = regions.make_page()
    try:
        pool = RegionPool(regions.map_page(page))
        yield pool, RegionViews(regions.map_page(page))
        pool.close()
    finally:
        os.close(page)


def pass_on(sides: Sides, *parts: bytes) -> tuple[int, memoryview, list[bytes]]:
    """Place ``parts`` and look at them from the other side."""
    pool, views = sides
    number, starts, descriptor = pool.place(parts)
    if descriptor is not None:
        views.add(number, descriptor)
    view = views.view(number)
    assert all(start % ALIGNMENT == 0 for start in starts)
    return (
        number,
        view,
        [bytes(view[start : start + len(part)]) for start, part in zip(starts, parts, strict=True)],
    )


def test_what_was_placed_is_seen(sides: Sides) -> None:
    parts = (b"a" * 100, b"", b"b" * 70_000)
    assert pass_on(sides, *parts)[2] == list(parts)


def test_a_region_is_free_when_the_last_slice_is_gone(sides: Sides) -> None:
    number, view, _ = pass_on(sides, b"first")
    piece = view[1:3].toreadonly()
    del view
    assert pass_on(sides, b"other")[0] != number
    assert bytes(piece) == b"ir"
    del piece
    again, _view, seen = pass_on(sides, b"again")
    assert (again, seen) == (number, [b"again"])


def test_a_region_that_is_too_small_is_replaced(sides: Sides) -> None:
    sizes = [10, 100_000, 50, 3_000_000, 200_000]
    for size in sizes:
        number, view, seen = pass_on(sides, bytes([size % 251]) * size)
        assert number == 0
        assert seen == [bytes([size % 251]) * size]
        del view


def test_a_reader_that_keeps_everything(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "MAX_REGIONS", 3)
    kept = [pass_on(sides, b"x") for _ in range(3)]
    with pytest.raises(MemoryError, match="3 blocks of shared memory are in use"):
        sides[0].place([b"y"])
    kept.pop()
    assert pass_on(sides, b"y")[2] == [b"y"]


def test_the_flags_are_one_page() -> None:
    assert mmap.PAGESIZE == regions.MAX_REGIONS


@pytest.mark.parametrize("size", [0, 1, INLINE_BYTES - 8, INLINE_BYTES, INLINE_BYTES + 1])
def test_tensors_in_a_message(sides: Sides, size: int) -> None:
    tensors = [("a", "UINT8", [size], b"\x01" * size), ("b", "INT16", [1, 2], b"\x02\x03\x04\x05")]
    packed = pack(tensors, sides[0])
    assert bool(packed.payload) != bool(packed.descriptors)
    frame = ChannelFrame(None, bytearray(packed.payload), packed.descriptors)
    found = unpack(packed.value, frame, sides[1])
    assert [(*each[:3], bytes(each[3])) for each in found] == tensors
    assert not any(each[3].readonly for each in found)
    assert pack([], sides[0]).value == [-1, False, []]
