"""Gathers what is written to a socket in one turn of the event loop into one system call.

A connection with many requests in flight answers several in one turn, and a large message consists of many
frames; uvloop has a system call for each write.
"""

from __future__ import annotations

import asyncio

from interlingua.protocols.wire import Buffer

_JOINED_BYTES = 1 << 16
"""Up to this size, copying pieces into one costs less than a gathering write."""

_FLUSHED_BYTES = 1 << 19
"""From this size on, pieces are not held back: the transport says when its buffer is full."""


class WriteBatch:
    """Writes to ``transport`` at the end of the current turn, or at :meth:`flush`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._pieces: list[Buffer] = []
        self._size = 0

    def write(self, *pieces: Buffer) -> None:
        """Write ``pieces``, which must not change."""
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if self._size >= _FLUSHED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write now what is held back."""
        pieces = self._pieces
        if not pieces:
            return
        self._pieces, size, self._size = [], self._size, 0
        if self._transport.is_closing():
            return
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif size <= _JOINED_BYTES:
            self._transport.write(b"".join(pieces))
        elif isinstance(self._loop, asyncio.BaseEventLoop):
            # asyncio's writelines joins before 3.12, and forgets to pause before 3.12.9 and 3.13.2
            for piece in pieces:
                self._transport.write(piece)
        else:
            self._transport.writelines(pieces)
