"""Receives into a buffer that all connections of one server or client share."""

from __future__ import annotations

import asyncio
from typing import cast

from interlingua.protocols.wire import Buffer

SHARED_BYTES = 1 << 18
"""The size of the buffer: more is received with one system call than asyncio's transports take, and what is
copied out of it is still in the processor's cache."""

_COPIED_BYTES = 1 << 14
"""Up to this size what arrived is handed over as bytes."""


class SharedReceiver(asyncio.BufferedProtocol):
    """Calls :meth:`data_received` with what arrives in ``space``. An event loop receives for one connection
    at a time, so that others may use the same space."""

    def __init__(self, space: memoryview) -> None:
        self._space = space

    def get_buffer(self, sizehint: int) -> bytearray:
        """See ``asyncio.BufferedProtocol``."""
        return cast("bytearray", self._space)

    def buffer_updated(self, nbytes: int) -> None:
        """See ``asyncio.BufferedProtocol``."""
        arrived = self._space[:nbytes]
        self.data_received(bytes(arrived) if nbytes <= _COPIED_BYTES else arrived)

    def data_received(self, data: Buffer) -> None:
        """Take ``data``, which changes when this method has returned unless it is ``bytes``."""
        raise NotImplementedError


def shared_space() -> memoryview:
    """The space of a server or client."""
    return memoryview(bytearray(SHARED_BYTES))
