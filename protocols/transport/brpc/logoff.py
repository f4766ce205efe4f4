"""Which calls a connection refuses with 2003 (``ELOGOFF``): clients call again over a new connection.

A call that had begun to arrive when the server stopped is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from interlingua.protocols.transport.brpc.frame import BrpcFrameReader, Frame

LOGOFF_SECS = 0.1
"""How long a connection goes on after a call was refused in favor of a successor: others may be on their
way. The original's client calls again once the connection has closed (``Socket::SetLogOff``)."""


class LogOff:
    """The refusals of the connection that ``frames`` reads; ``drain`` closes it as soon as nothing runs."""

    __slots__ = ("_drain", "_frames", "_read", "_timer")

    def __init__(self, frames: BrpcFrameReader, drain: Callable[[], None]) -> None:
        self._frames = frames
        self._drain = drain
        self._read: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Refuse the calls that begin to arrive from now on."""
        if self._read is None:
            self._read = self._frames.fed

    def refuses(self, frame: Frame) -> bool:
        """Whether to refuse ``frame``, which was read last."""
        frames, read = self._frames, self._read
        if read is None or frames.fed - frames.arrived - frame.length < read:
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOGOFF_SECS, self._drain)
        return True

    def cancel(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()


def after_reading(call: Callable[[], None]) -> None:
    """Call ``call`` when the bytes that have arrived by now are read."""
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, call)
