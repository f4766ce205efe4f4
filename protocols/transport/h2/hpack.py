"""Decodes field blocks (HPACK, RFC 7541).

The static table and the Huffman code come from the library ``hpack``. The loop is ours: the library's takes
twice as long, which matters for clients that trace calls and so send new headers each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hpack import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from interlingua.protocols.transport.h2.frames import Code, H2Error

FieldLine = tuple[bytes, bytes]
FieldLines = Sequence[FieldLine]

MAX_HEADER_LIST = 1 << 16
"""SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113, 6.5.2): the bytes of a block's field lines, each with
``ENTRY_OVERHEAD``. ``interpret`` refuses larger lists, so that other requests of the connection go on."""

ENTRY_OVERHEAD = 32
"""Bytes added to the size of each entry (RFC 7541, 4.1)."""

_MAX_DECODED = 4 * MAX_HEADER_LIST
"""Beyond this size the connection ends."""

_TABLE_BYTES = 4096
"""The default of SETTINGS_HEADER_TABLE_SIZE (RFC 9113, 6.5.2)."""

_INTEGER_BYTES = 5
_STATIC: tuple[FieldLine, ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_FIRST_DYNAMIC = len(_STATIC)

_INDEXED, _INDEXING, _SIZE_UPDATE = 0x80, 0x40, 0x20
"""First bytes of an indexed field (RFC 7541, 6.1), a literal with incremental indexing (6.2.1) and a dynamic
table size update (6.3); all others are literals that do not enter the table (6.2.2, 6.2.3)."""


class HpackDecoder:
    """For the blocks of one peer, in order. ``changed``: the last block changed the dynamic table, so that
    equal bytes may mean something else now."""

    def __init__(self) -> None:
        self.changed = False
        self._table: deque[FieldLine] = deque()
        self._size = 0
        self._max_size = _TABLE_BYTES
        self.max_decoded = _MAX_DECODED

    def decode(self, block: bytes) -> FieldLines:
        """The field lines of ``block``. Raises ``H2Error``, after which no block can be decoded."""
        self.changed = False
        try:
            return self._decode(block)
        except IndexError:
            raise _undecodable("a truncated block, or an index outside the tables") from None
        except HPACKError as fault:
            raise _undecodable(str(fault)) from None

    def _decode(self, block: bytes) -> FieldLines:
        fields: list[FieldLine] = []
        position, end, left = 0, len(block), self.max_decoded
        while position < end:
            first = block[position]
            position += 1
            if first >= _INDEXED:
                index, position = _integer(block, position, first & 0x7F, 0x7F)
                field = self._entry(index)
            elif _SIZE_UPDATE <= first < _INDEXING:
                size, position = _integer(block, position, first & 0x1F, 0x1F)
                if fields or size > _TABLE_BYTES:
                    raise _undecodable("a misplaced dynamic table size update, or one above the limit")
                self._resize(size)
                continue
            else:
                most = 0x3F if first >= _INDEXING else 0x0F
                index, position = _integer(block, position, first & most, most)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, position = _string(block, position)
                value, position = _string(block, position)
                field = (name, value)
                if first >= _INDEXING:
                    self._add(field)
            left -= len(field[0]) + len(field[1]) + ENTRY_OVERHEAD
            if left < 0:
                raise H2Error(Code.ENHANCE_YOUR_CALM, f"headers of more than {self.max_decoded} bytes")
            fields.append(field)
        return fields

    def _entry(self, index: int) -> FieldLine:
        if not index:
            raise IndexError
        return _STATIC[index] if index < _FIRST_DYNAMIC else self._table[index - _FIRST_DYNAMIC]

    def _add(self, field: FieldLine) -> None:
        self.changed = True
        self._size += len(field[0]) + len(field[1]) + ENTRY_OVERHEAD
        self._table.appendleft(field)
        self._evict()

    def _resize(self, size: int) -> None:
        self.changed = True
        self._max_size = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._max_size:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + ENTRY_OVERHEAD


def _integer(block: bytes, position: int, value: int, most: int) -> tuple[int, int]:
    """An integer (RFC 7541, 5.1) whose prefix is ``value``, ``most`` at most; and where it ends."""
    if value < most:
        return value, position
    for shift in range(0, 7 * _INTEGER_BYTES, 7):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _undecodable("an integer that is too long")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    """A string (RFC 7541, 5.2), and where it ends."""
    first = block[position]
    size, position = _integer(block, position + 1, first & 0x7F, 0x7F)
    stop = position + size
    if stop > len(block):
        raise IndexError
    string = block[position:stop]
    return decode_huffman(string) if first & 0x80 else string, stop


def _undecodable(why: str) -> H2Error:
    return H2Error(Code.COMPRESSION_ERROR, f"undecodable field block: {why}")
