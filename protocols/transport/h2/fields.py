"""The fields in a block of headers, with the table that a peer keeps of them (HPACK, RFC 7541).

The fixed table and the Huffman code are the library's, ``hpack``; the loop is ours, since the library's takes
twice as long, and whoever traces calls sends headers that are new each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hpack import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from interlingua.protocols.transport.h2.frames import Code, H2Error

Field = tuple[bytes, bytes]
Fields = Sequence[Field]

LARGEST_LIST = 1 << 16
"""How much peers are told that the fields of one block may be, each with the ``KEEPING_BYTES`` of the RFC. To
refuse what is above is for whoever understands them: other requests of the connection did no wrong."""

KEEPING_BYTES = 32

_UNREAD_LIST = 4 * LARGEST_LIST
"""From where on no more is read of them."""

_LARGEST_TABLE = 4096
"""How much a peer may have us keep: what holds where we state nothing else."""

_INTEGER_BYTES = 5
_STATIC: tuple[Field, ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_FIRST_DYNAMIC = len(_STATIC)

_INDEXED, _ADDED, _RESIZED = 0x80, 0x40, 0x20
"""How the first byte of each kind of entry looks, from its highest bit on; the rest are fields to be read and
forgotten."""


class FieldReader:
    """Reads the blocks of one peer, in their order. ``changed`` says whether the last one has changed the
    table, so that the same bytes mean something else from now on."""

    def __init__(self) -> None:
        self.changed = False
        self._table: deque[Field] = deque()
        self._size = 0
        self._room = _LARGEST_TABLE

    def read(self, block: bytes) -> Fields:
        """The fields of ``block``. Raises ``H2Error``; no block can be read afterwards."""
        self.changed = False
        try:
            return self._read(block)
        except IndexError:
            raise _unreadable("a block that is cut short, or an entry that is not in the table") from None
        except HPACKError as fault:
            raise _unreadable(str(fault)) from None

    def _read(self, block: bytes) -> Fields:
        fields: list[Field] = []
        position, end, left = 0, len(block), _UNREAD_LIST
        while position < end:
            first = block[position]
            position += 1
            if first >= _INDEXED:
                index, position = _integer(block, position, first & 0x7F, 0x7F)
                field = self._entry(index)
            elif _RESIZED <= first < _ADDED:
                size, position = _integer(block, position, first & 0x1F, 0x1F)
                if fields or size > _LARGEST_TABLE:
                    raise _unreadable("a new size of the table where there is no place for it")
                self._resize(size)
                continue
            else:
                most = 0x3F if first >= _ADDED else 0x0F
                index, position = _integer(block, position, first & most, most)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, position = _text(block, position)
                value, position = _text(block, position)
                field = (name, value)
                if first >= _ADDED:
                    self._add(field)
            left -= len(field[0]) + len(field[1]) + KEEPING_BYTES
            if left < 0:
                raise H2Error(Code.ENHANCE_YOUR_CALM, f"headers of more than {_UNREAD_LIST} bytes")
            fields.append(field)
        return fields

    def _entry(self, index: int) -> Field:
        if not index:
            raise IndexError
        return _STATIC[index] if index < _FIRST_DYNAMIC else self._table[index - _FIRST_DYNAMIC]

    def _add(self, field: Field) -> None:
        self.changed = True
        self._size += len(field[0]) + len(field[1]) + KEEPING_BYTES
        self._table.appendleft(field)
        self._evict()

    def _resize(self, size: int) -> None:
        self.changed = True
        self._room = size
        self._evict()

    def _evict(self) -> None:
        while self._size > self._room:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + KEEPING_BYTES


def _integer(block: bytes, position: int, value: int, most: int) -> tuple[int, int]:
    """An integer of which ``value`` stood in a first byte with room for ``most``; and where it ends."""
    if value < most:
        return value, position
    for shift in range(0, 7 * _INTEGER_BYTES, 7):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _unreadable("an integer that is too long")


def _text(block: bytes, position: int) -> tuple[bytes, int]:
    """A text, and where it ends."""
    first = block[position]
    size, position = _integer(block, position + 1, first & 0x7F, 0x7F)
    stop = position + size
    if stop > len(block):
        raise IndexError
    text = block[position:stop]
    return decode_huffman(text) if first & 0x80 else text, stop


def _unreadable(why: str) -> H2Error:
    return H2Error(Code.COMPRESSION_ERROR, f"headers that cannot be read: {why}")
