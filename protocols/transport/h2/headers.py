"""What the blocks of headers of a peer mean, without reading each anew.

Clients repeat themselves: once the first calls on a connection are made, the block of the next one is the
same few bytes of references into the table that both sides keep. What a block means is therefore remembered
by its bytes, as long as no block changes that table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from interlingua.protocols.transport.h2.fields import FieldReader, Fields

T = TypeVar("T")

_REMEMBERED, _SHORT = 64, 1024
"""How many blocks are remembered, and up to which length."""


class HeaderReader(Generic[T]):
    """Reads the blocks of one peer in their order; ``understand`` says what the fields of a block mean."""

    def __init__(self, understand: Callable[[Fields], T]) -> None:
        self._understand = understand
        self._reader = FieldReader()
        self._known: dict[bytes, T] = {}

    def read(self, block: bytes) -> T:
        """What ``block`` means. Raises ``H2Error``: afterwards no block can be read any more."""
        known = self._known.get(block)
        if known is not None:
            return known
        meaning = self._understand(self.fields(block))
        if not self._reader.changed and len(block) <= _SHORT:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[block] = meaning
        return meaning

    def fields(self, block: bytes) -> Fields:
        """The fields of ``block``. Raises as :meth:`read` does."""
        fields = self._reader.read(block)
        if self._reader.changed:
            self._known.clear()
        return fields
