"""Receives into a buffer that all connections of one server or client share."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import cast

import numpy as np

from interlingua.protocols.transport.turns import TURN_SECS
from interlingua.protocols.wire import Buffer

SHARED_BYTES = 1 << 18
"""The size of the buffer: more is received with one system call than asyncio's transports take, and what is
copied out of it is still in the processor's cache."""

_COPIED_BYTES = 1 << 14
"""Up to this size what arrived is handed over as bytes."""


_RESERVED_BYTES = 64 << 20
"""How much a ``ReceiveBuffer`` reserves at once."""


class SharedReceiver(asyncio.BufferedProtocol):
    """Calls :meth:`data_received` with what arrives in ``space``. An event loop receives for one connection
    at a time, so that others may use the same space. ``direct``: where the next bytes belong instead, which
    :meth:`direct_received` then takes."""

    direct: memoryview | None = None

    def __init__(self, space: memoryview) -> None:
        self._space = space

    def get_buffer(self, sizehint: int) -> bytearray:
        """See ``asyncio.BufferedProtocol``."""
        return cast("bytearray", self._space if self.direct is None else self.direct)

    def buffer_updated(self, nbytes: int) -> None:
        """See ``asyncio.BufferedProtocol``."""
        if self.direct is not None:
            self.direct_received(nbytes)
            return
        arrived = self._space[:nbytes]
        if nbytes <= _COPIED_BYTES:
            self.data_received(bytes(arrived))
            return
        began = monotonic()
        self.data_received(arrived)
        if monotonic() - began > TURN_SECS:
            self.end_turn()

    def end_turn(self) -> None:
        """Let other connections go on first; see ``turns``."""
        raise NotImplementedError

    def data_received(self, data: Buffer) -> None:
        """Take ``data``, which changes when this method has returned unless it is ``bytes``."""
        raise NotImplementedError

    def direct_received(self, count: int) -> None:
        """``count`` bytes have arrived in ``direct``."""
        raise NotImplementedError


class ReceiveBuffer:
    """The buffer of a message of ``size`` bytes, which begins with ``held``. The size is reserved, up to a
    limit, and costs nothing until the bytes arrive; above it, memory grows with what arrives."""

    def __init__(self, size: int, held: memoryview) -> None:
        self._size = size
        self._buffer = _grown(held, min(size, _RESERVED_BYTES))
        self.filled = len(held)

    @property
    def missing(self) -> int:
        """How many bytes have not arrived."""
        return self._size - self.filled

    def space(self) -> memoryview:
        """Where the next bytes belong; not empty while bytes are missing."""
        if self.filled == len(self._buffer):
            self._buffer = _grown(self._buffer, min(self._size, 2 * self.filled))
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

    def whole(self) -> memoryview:
        """The complete message."""
        return self._buffer.toreadonly()


def _grown(held: memoryview, size: int) -> memoryview:
    """A buffer of ``size`` bytes that begins with ``held``."""
    grown = unfilled(size)
    grown[: len(held)] = held
    return grown


def unfilled(size: int) -> memoryview:
    """A buffer that is not filled with zeros: that would cost as much as receiving into it."""
    return np.empty(size, np.uint8).data


def shared_space() -> memoryview:
    """The space of a server or client."""
    return memoryview(bytearray(SHARED_BYTES))
