"""Numbers that the processes of one server share, for limits that hold in all of them together.

Each process writes only its own row, and all read the sums, so no lock is needed that a stopped process could
hold. The supervisor clears the row of a process that has exited. To claim a part of a limit, a process first
adds it to its own number, then compares the sum, and withdraws if that is too large: two that claim the last
part at once may both withdraw, but never both keep it.
"""

from __future__ import annotations

import mmap
from hashlib import blake2b
from threading import Lock

NAMES = 1 << 15
"""Names in one table of a process."""

_NEAR = 32
"""How far from its own place an address may be."""

_NAME_WORDS = 2 * (NAMES + _NEAR)

_PAGE_WORDS = mmap.PAGESIZE // 8

_ORDER = Lock()
"""Its atomic instructions keep a processor from reading the numbers of others before it has written its
own."""


def page_bytes(rows: int, counts: int, names: int) -> int:
    """The size of a page for ``rows`` processes, each with so many counts and tables of names. What is
    not written costs no memory."""
    return 8 * rows * (counts + _NAME_WORDS * names)


class SharedCounts:
    """``page`` as the process of ``row`` sees it. ``rows``, ``counts`` and ``names`` as in
    :func:`page_bytes`."""

    def __init__(self, page: mmap.mmap, row: int, rows: int, counts: int, names: int) -> None:
        self._page = page
        self._words = memoryview(page).cast("Q")
        self._row = row
        self._rows = rows
        self._counts = counts
        self._width = counts + _NAME_WORDS * names

    def count(self, column: int) -> SharedCount:
        return SharedCount(self._words[column :: self._width], self._row)

    def names(self, column: int) -> SharedNames:
        begin = self._counts + _NAME_WORDS * column
        tables = [
            self._words[row * self._width + begin : row * self._width + begin + _NAME_WORDS]
            for row in range(self._rows)
        ]
        return SharedNames(tables, self._row)

    def clear(self, row: int) -> None:
        """The process of ``row`` has exited."""
        begin, end = row * self._width, (row + 1) * self._width
        first, last = -(-begin // _PAGE_WORDS) * _PAGE_WORDS, end // _PAGE_WORDS * _PAGE_WORDS
        if first < last:
            # whole pages are freed, in all processes (madvise(2)): even to read them would cost memory
            self._page.madvise(mmap.MADV_REMOVE, 8 * first, 8 * (last - first))
            self._zero(begin, first)
            self._zero(last, end)
        else:
            self._zero(begin, end)

    def _zero(self, begin: int, end: int) -> None:
        self._words[begin:end] = memoryview(bytes(8 * (end - begin))).cast("Q")


class SharedCount:
    """One number of each process; ``words`` has one word for each."""

    __slots__ = ("_row", "_words")

    def __init__(self, words: memoryview, row: int) -> None:
        self._words = words
        self._row = row

    def set(self, value: int) -> None:
        """Publish the number of this process."""
        self._words[self._row] = value
        with _ORDER:
            pass

    def add(self, value: int) -> int:
        """Add to the number of this process. Returns the sum of all."""
        self.set(self._words[self._row] + value)
        return self.total()

    def inherit(self, row: int) -> None:
        """Add the number of the process of ``row``, which has exited, to that of this one."""
        self.set(self._words[self._row] + self._words[row])
        self._words[row] = 0

    def reset(self) -> None:
        """Nothing has been counted, in any process."""
        for row in range(len(self._words)):
            self._words[row] = 0

    def of_others(self) -> list[int]:
        """The numbers of the other processes."""
        words = self._words.tolist()
        del words[self._row]
        return words

    def total(self) -> int:
        return sum(self._words.tolist())


class SharedNames:
    """A number of each name, by process, such as the connections of a client address: digests of names, then
    as many numbers. A name without a place near its own counts in its own process alone."""

    def __init__(self, tables: list[memoryview], row: int) -> None:
        self._tables = [(table[: len(table) // 2], table[len(table) // 2 :]) for table in tables]
        self._row = row

    def set(self, name: str, count: int) -> bool:
        """Publish the number of ``name`` in this process; 0 leaves its place to others. False without a
        place."""
        digest, begin = _place(name)
        digests, counts = self._tables[self._row]
        near = digests[begin : begin + _NEAR].tolist()
        if digest in near:
            place = begin + near.index(digest)
        else:
            if not count:
                return True
            free = counts[begin : begin + _NEAR].tolist()
            if 0 not in free:
                return False
            place = begin + free.index(0)
            digests[place] = digest
        counts[place] = count
        with _ORDER:
            pass
        return True

    def own(self, name: str) -> int:
        """The number of ``name`` in this process."""
        digest, begin = _place(name)
        digests, counts = self._tables[self._row]
        near = digests[begin : begin + _NEAR].tolist()
        return counts[begin + near.index(digest)] if digest in near else 0

    def total(self, name: str) -> int:
        return sum(self.numbers(name))

    def largest(self, name: str) -> int:
        return max(self.numbers(name), default=0)

    def numbers(self, name: str) -> list[int]:
        """The numbers of the processes that have one."""
        digest, begin = _place(name)
        found = []
        for digests, counts in self._tables:
            near = digests[begin : begin + _NEAR].tolist()
            if digest in near:
                found.append(counts[begin + near.index(digest)])
        return found


def _place(name: str) -> tuple[int, int]:
    """The digest of a name, not 0, and its own place. Not :func:`hash`, which differs by process."""
    digest = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") | 1
    return digest, (digest >> 16) % NAMES
