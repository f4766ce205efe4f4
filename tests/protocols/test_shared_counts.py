"""Numbers that several processes share, here several rows of one page."""

from __future__ import annotations

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols import shared_counts
from interlingua.protocols.shared_counts import SharedCounts, SharedNames, page_bytes

ROWS, COUNTS, TABLES = 3, 2, 2


def rows() -> list[SharedCounts]:
    page = mmap.mmap(-1, page_bytes(ROWS, COUNTS, TABLES))
    return [SharedCounts(page, row, ROWS, COUNTS, TABLES) for row in range(ROWS)]


def test_each_process_has_its_own_numbers_and_knows_the_sums() -> None:
    counts = [[each.count(column) for column in range(COUNTS)] for each in rows()]
    for row, own in enumerate(counts):
        own[0].set(row + 1)
        own[1].set(10 * row)
    assert [own[0].total() for own in counts] == [6] * ROWS
    assert [own[1].of_others() for own in counts] == [[10, 20], [0, 20], [0, 10]]


_hosts = st.integers(0, 40).map(lambda number: f"10.0.0.{number}")


@given(st.lists(st.tuples(st.integers(0, ROWS - 1), _hosts, st.integers(0, 3)), max_size=40))
def test_addresses_add_up(changes: list[tuple[int, str, int]]) -> None:
    tables: list[SharedNames] = _tables
    known: dict[tuple[int, str], int] = {}
    for row, host, count in changes:
        tables[row].set(host, count)
        known[row, host] = count
    for host in {host for _, host in known}:
        total = sum(count for (_, each), count in known.items() if each == host)
        assert [each.total(host) for each in tables] == [total] * ROWS
    for row, host in known:
        tables[row].set(host, 0)


_tables = [each.names(1) for each in rows()]


def test_addresses_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_counts, "NAMES", 4)
    first, second, _ = (each.names(0) for each in rows())
    for number in range(1000):
        host = f"2001:db8::{number:x}"
        first.set(host, 1)
        assert second.total(host) == 1
        first.set(host, 0)
        assert second.total(host) == 0


def test_the_row_of_a_process_that_has_exited_is_cleared() -> None:
    one, other, _ = rows()
    one.count(0).set(5)
    other.count(0).set(7)
    one.names(1).set("a", 3)
    other.names(1).set("a", 4)
    one.names(0).set("b", 1)
    one.clear(1)
    assert one.count(0).total() == 5
    assert other.names(1).total("a") == 3
    one.clear(0)
    assert one.count(0).total() == one.names(1).total("a") == one.names(0).total("b") == 0
