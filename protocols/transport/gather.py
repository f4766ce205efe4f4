"""Writes buffers to a socket with one system call, and without copies of what the socket does not take.

asyncio's ``writelines`` joins the buffers before Python 3.12, and forgets to pause before 3.12.9 and 3.13.2;
its ``write`` copies what is left over.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from interlingua.protocols.transport.http1.answer import flat, size_of
from interlingua.protocols.wire import Buffer

_MOST_BUFFERS = 512
"""How many buffers one system call takes at most; Linux allows 1,024."""

_HANDED_BYTES = 1 << 16
"""How much the transport gets to send when the socket is full."""


def set_limits(transport: asyncio.WriteTransport) -> None:
    """Have ``transport`` call ``pause_writing`` when it gets that much, and ``resume_writing`` when it has
    sent everything, so that the next write goes to the socket."""
    transport.set_write_buffer_limits(high=_HANDED_BYTES - 1, low=0)


class GatheredWrite:
    """``buffers`` to be written to ``transport``."""

    def __init__(self, transport: asyncio.WriteTransport, buffers: Iterable[Buffer]) -> None:
        self._transport = transport
        self._left = [memoryview(flat(buffer)) for buffer in buffers if size_of(buffer)]

    def write(self) -> bool:
        """Write what the socket takes. Returns whether that is everything; if not, the transport has got a
        little more to send, and may have called ``pause_writing`` (see :func:`set_limits`)."""
        left = self._left
        if not self._transport.get_write_buffer_size() and not self._transport.is_closing():
            self._skip(self._write_now())
        if left:
            piece = left[0][:_HANDED_BYTES]
            self._transport.write(piece)
            self._skip(len(piece))
        return not left

    def _write_now(self) -> int:
        if self._transport.get_extra_info("sslcontext") is not None:
            return 0
        try:
            fd = self._transport.get_extra_info("socket").fileno()
            return os.writev(fd, self._left[:_MOST_BUFFERS])
        except OSError:  # full, or broken: the transport finds out
            return 0

    def _skip(self, count: int) -> None:
        left = self._left
        done = 0
        while done < len(left) and count >= len(left[done]):
            count -= len(left[done])
            done += 1
        del left[:done]
        if count:
            left[0] = left[0][count:]
