"""Encodes field blocks (HPACK, RFC 7541), without Huffman coding.

A field line that returns with every request enters the dynamic table, where the next block refers to it with
one or two bytes. Nothing is ever evicted: what does not fit the table is sent as a literal.
"""

from __future__ import annotations

from hpack.table import HeaderTable

_TABLE_BYTES = 4096
"""The size of the table unless the peer allows less: the default of SETTINGS_HEADER_TABLE_SIZE (RFC 9113,
6.5.2)."""

_ENTRY_OVERHEAD = 32
"""RFC 7541, 4.1."""

_FIRST_DYNAMIC = len(HeaderTable.STATIC_TABLE) + 1
_STATIC_FIELDS = {line: index for index, line in enumerate(HeaderTable.STATIC_TABLE, 1)}
_NO_TABLE = b"\x20"
"""A dynamic table size update to 0 (RFC 7541, 6.3)."""


class HpackEncoder:
    """For the blocks that one peer gets, in order: a block must be sent, before the next one is encoded."""

    def __init__(self) -> None:
        self.generation = 0
        """Changes with the table: a block encoded in another generation may not be sent again."""
        self._entries: dict[tuple[bytes, bytes], int] = {}
        self._size = 0
        self._limit = _TABLE_BYTES
        self._prefix = b""

    def limit_table(self, size: int) -> None:
        """Apply the peer's SETTINGS_HEADER_TABLE_SIZE. A table smaller than the default is not used."""
        if size < _TABLE_BYTES and self._limit:
            self._entries.clear()
            self._limit = 0
            self._prefix = _NO_TABLE
            self.generation += 1

    def indexed(self, *lines: tuple[bytes, bytes]) -> bytes:
        """Part of a block: ``lines``, which further blocks will contain too."""
        written = [self._prefix]
        if self._prefix:
            self._prefix = b""
            self.generation += 1
        # entries added by this block change the indices of earlier ones
        for line in lines:
            index = _STATIC_FIELDS.get(line)
            if index is None and (place := self._entries.get(line)) is not None:
                index = _FIRST_DYNAMIC + len(self._entries) - 1 - place
            if index is not None:
                written.append(_integer(index, 7, 0x80))
            else:
                written.append(self._add(*line))
        return b"".join(written)

    def _add(self, name: bytes, value: bytes) -> bytes:
        size = len(name) + len(value) + _ENTRY_OVERHEAD
        if self._size + size > self._limit:
            return literal(name, value)
        self._size += size
        self._entries[name, value] = len(self._entries)
        self.generation += 1
        return b"\x40" + text(name) + text(value)


def literal(name: bytes, value: bytes) -> bytes:
    """A field line that enters no table (RFC 7541, 6.2.2)."""
    return b"\0" + text(name) + text(value)


def text(string: bytes) -> bytes:
    """A string (RFC 7541, 5.2)."""
    return _integer(len(string), 7, 0) + string


def _integer(value: int, bits: int, flags: int) -> bytes:
    """An integer with a prefix of ``bits`` (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((flags | value,))
    value -= most
    written = bytearray((flags | most,))
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
