"""Memory that is received into."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from interlingua.protocols.transport.memory import ALIGNMENT, end_aligned, unfilled, use_small_pages

MIB = 1 << 20


def mapping(address: int) -> str:
    """What the system knows of the mapping at ``address``."""
    found = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if limits := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            if found:
                break
            inside = int(limits[1], 16) <= address < int(limits[2], 16)
        if inside:
            found += f"{line}\n"
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no huge pages")
def test_a_large_buffer_begins_with_small_pages_and_has_them_elsewhere_on_demand() -> None:
    buffer = unfilled(64 * MIB)
    address = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]

    def small(place: int) -> bool:
        flags = re.search("VmFlags:(.*)", mapping(address + place))
        assert flags is not None
        return " nh" in flags[1]

    assert small(MIB)
    assert not small(32 * MIB)
    use_small_pages(buffer[16 * MIB :])
    assert small(32 * MIB)
    assert small(64 * MIB - 1)
    assert not small(8 * MIB)


@pytest.mark.parametrize("size", [0, 1, 4 * MIB - 1, 4 * MIB, 5 * MIB + 1])
def test_a_buffer_has_the_size_that_is_wanted(size: int) -> None:
    buffer = unfilled(size)
    assert len(buffer) == size
    buffer[-1:] = b"x"[: min(size, 1)]


@pytest.mark.parametrize("size", [1, 63, 64, 65, MIB + 7, 5 * MIB + 1])
def test_a_buffer_with_an_aligned_end(size: int) -> None:
    buffer = end_aligned(unfilled, size)
    address = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    assert (len(buffer), (address + size) % ALIGNMENT) == (size, 0)
