"""Receives the rest of a large body into its own buffer, so that the kernel's copy is the only one."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from interlingua.protocols.transport.turns import RECEIVE_BYTES

DIRECT_BYTES = 1 << 17
"""The least that must be missing of a body: a change of protocols costs more than a small copy."""


class BodyOwner(Protocol):
    """A connection that receives bodies."""

    def body_buffer(self) -> memoryview:
        """Space for the bytes to come, at least one."""

    def body_received(self, count: int) -> None:
        """``count`` bytes have arrived in the buffer."""

    def eof_received(self) -> bool | None:
        """See ``asyncio.Protocol``; the others as well."""

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class DirectBody(asyncio.BufferedProtocol):
    """The protocol of ``owner``'s transport while a body arrives. ``owner`` sets itself again at its end."""

    def __init__(self, owner: BodyOwner) -> None:
        self._owner = owner

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where to receive to."""
        return cast("bytearray", self._owner.body_buffer()[:RECEIVE_BYTES])

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived there."""
        self._owner.body_received(nbytes)

    def eof_received(self) -> bool | None:
        """The peer has closed its side."""
        return self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """The peer has read most of it."""
        self._owner.resume_writing()
