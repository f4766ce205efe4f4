"""Receives into a buffer that all connections of one server or client share."""

from __future__ import annotations

import asyncio

from interlingua.protocols.transport.compiling import mypyc_attr
from interlingua.protocols.transport.memory import Allocate
from interlingua.protocols.transport.turns import RECEIVE_BYTES, Turn
from interlingua.protocols.wire import Buffer

SHARED_BYTES = RECEIVE_BYTES
"""The size of the buffer: more is received with one system call than asyncio's transports take, and what is
copied out of it is still in the processor's cache."""

_COPIED_BYTES = 1 << 14
"""Below this size what arrived is handed over as bytes. A connection receives no more at once at first, nor
after more than it handles in one turn, and twice as much whenever that was not enough: so a flood of small
messages has it handle and hold little, and the kernel holds the rest."""

_BETWEEN_BYTES = 1 << 16
"""How much it receives at once after it has filled ``direct``: most of the next frame may have its own place
too, and would be copied."""

_RESERVED_BYTES = 64 << 20
"""How much a ``ReceiveBuffer`` reserves at once."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedReceiver(asyncio.BufferedProtocol):
    """Calls :meth:`data_received` with what arrives in ``space``. An event loop receives for one connection
    at a time, so that others may use the same space. ``direct``: where the next bytes belong instead, which
    :meth:`direct_received` then takes. ``turn`` is set by the owner when it has a transport."""

    direct: memoryview | None = None
    turn: Turn

    def __init__(self, space: memoryview) -> None:
        self._space = space
        self._room = space[:_COPIED_BYTES]

    def get_buffer(self, sizehint: int) -> memoryview:
        """See ``asyncio.BufferedProtocol``."""
        return self._room if self.direct is None else self.direct[:RECEIVE_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """See ``asyncio.BufferedProtocol``."""
        direct = self.direct
        if direct is not None:
            self.direct_received(nbytes)
            if nbytes == len(direct):
                self._room = self._space[:_BETWEEN_BYTES]
        elif nbytes < _COPIED_BYTES:
            self.data_received(bytes(self._space[:nbytes]))
            return
        else:
            if nbytes == len(self._room):
                self._room = self._space[: 2 * nbytes]
            self.data_received(self._space[:nbytes])
        self.turn.received(nbytes)

    def end_turn(self) -> None:
        """More has arrived than is handled at once."""
        self.turn.end()
        self._room = self._space[:_COPIED_BYTES]

    def data_received(self, data: Buffer) -> None:
        """Take ``data``, which changes when this method has returned unless it is ``bytes``."""
        raise NotImplementedError

    def direct_received(self, count: int) -> None:
        """``count`` bytes have arrived in ``direct``."""
        raise NotImplementedError


class ReceiveBuffer:
    """The buffer of a message of ``size`` bytes, which begins with ``held``. The size is reserved, up to a
    limit, and costs nothing until the bytes arrive; above it, memory grows with what arrives."""

    def __init__(self, size: int, held: memoryview, allocate: Allocate) -> None:
        self._size = size
        self._allocate = allocate
        self._buffer = self._grown(held, min(size, _RESERVED_BYTES))
        self.filled = len(held)

    @property
    def missing(self) -> int:
        """How many bytes have not arrived."""
        return self._size - self.filled

    def space(self) -> memoryview:
        """Where the next bytes belong; not empty while bytes are missing."""
        if self.filled == len(self._buffer):
            self._buffer = self._grown(self._buffer, min(self._size, 2 * self.filled))
        return self._buffer[self.filled :]

    def take(self, data: memoryview) -> int:
        """Copy the bytes that are missing from the start of ``data``. Returns how many those are."""
        taken = 0
        while taken < len(data) and self.missing:
            space = self.space()
            count = min(len(space), len(data) - taken)
            space[:count] = data[taken : taken + count]
            self.filled += count
            taken += count
        return taken

    def here(self) -> memoryview:
        """The bytes that have arrived."""
        return self._buffer[: self.filled]

    def whole(self) -> memoryview:
        """The complete message."""
        return self._buffer.toreadonly()

    def _grown(self, held: memoryview, size: int) -> memoryview:
        """A buffer of ``size`` bytes that begins with ``held``."""
        grown = self._allocate(size)
        grown[: len(held)] = held
        return grown


def shared_space() -> memoryview:
    """The space of a server or client."""
    return memoryview(bytearray(SHARED_BYTES))
