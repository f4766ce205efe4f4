"""Reading the blocks of headers that a peer sends (HPACK, RFC 7541).

Clients repeat themselves: once the first calls on a connection are made, the block of the next one is the
same few bytes of references into the table that both sides keep. What a block means is therefore remembered
by its bytes, as long as no block changes that table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from hpack import Decoder, HPACKError
from hpack.table import HeaderTable

from protocols.transport.h2_frames import Code, H2Error

T = TypeVar("T")

Fields = Sequence[tuple[bytes, bytes]]

_LARGEST_LIST = 1 << 16
"""How much the headers of one request may take when they are read."""

_REMEMBERED, _SHORT = 64, 1024
"""How many blocks are remembered, and up to which length."""

_SIZE, _SIZE_MASK = 0x20, 0xE0
"""How the first byte of a new size of the table looks."""


class HeaderReader(Generic[T]):
    """Reads the blocks of one peer in their order; ``understand`` says what the fields of a block mean."""

    def __init__(self, understand: Callable[[Fields], T]) -> None:
        self._understand = understand
        self._decoder = Decoder(_LARGEST_LIST)
        self._decoder.header_table = self._table = _WatchedTable()
        self._known: dict[bytes, T] = {}
        self._changed = False

    def read(self, block: bytes) -> T:
        """What ``block`` means. Raises ``H2Error``: afterwards no block can be read any more."""
        known = self._known.get(block)
        if known is not None:
            return known
        meaning = self._understand(self.fields(block))
        if self._changed:
            self._known.clear()
        elif len(block) <= _SHORT:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[block] = meaning
        return meaning

    def fields(self, block: bytes) -> Fields:
        """The fields of ``block``. Raises as :meth:`read` does."""
        self._table.grown = False
        try:
            fields = list(self._decoder.decode(block, raw=True))
        except HPACKError as fault:
            raise H2Error(Code.COMPRESSION_ERROR, f"headers that cannot be read: {fault}") from None
        # a new size of the table can only stand first
        self._changed = self._table.grown or (bool(block) and block[0] & _SIZE_MASK == _SIZE)
        return fields


class _WatchedTable(HeaderTable):
    """The table of a peer's headers; ``grown`` says that something was added."""

    grown = False

    def add(self, name: bytes, value: bytes) -> None:
        """As the table has it."""
        self.grown = True
        super().add(name, value)
