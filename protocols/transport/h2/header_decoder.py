"""Decodes the field blocks of a peer, and each only once.

Clients repeat themselves: after the first calls on a connection, the field block of the next is the same few
references to the dynamic table. A cache therefore keeps the interpreted headers by the bytes of their block,
until a block changes the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from interlingua.protocols.transport.h2.hpack import FieldLines, HpackDecoder

T = TypeVar("T")

_CACHED_BLOCKS, _CACHED_BYTES = 64, 1024
"""How many blocks are cached, and up to which length."""


class HeaderDecoder(Generic[T]):
    """For the blocks of one peer, in order; ``interpret`` makes headers of the field lines of a block."""

    def __init__(self, interpret: Callable[[FieldLines], T]) -> None:
        self._interpret = interpret
        self._hpack = HpackDecoder()
        self.known: dict[bytes, T] = {}
        """What :meth:`read` returns for a block, without a call."""

    def limit(self, size: int) -> None:
        """Take header lists of up to ``size`` bytes. Larger ones are decoded, and end the connection at four
        times the size."""
        self._hpack.max_decoded = 4 * size

    def read(self, block: bytes) -> T:
        """The headers in ``block``. Raises ``H2Error``, after which no block can be decoded."""
        known = self.known.get(block)
        if known is not None:
            return known
        headers = self._interpret(self.decode(block))
        if not self._hpack.changed and len(block) <= _CACHED_BYTES:
            if len(self.known) >= _CACHED_BLOCKS:
                self.known.clear()
            self.known[block] = headers
        return headers

    def decode(self, block: bytes) -> FieldLines:
        """The field lines of ``block``. Raises as :meth:`read` does."""
        fields = self._hpack.decode(block)
        if self._hpack.changed:
            self.known.clear()
        return fields
