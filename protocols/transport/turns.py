"""Ends the turn of a connection whose input is expensive, so that others get theirs.

libuv receives up to 32 times in a row from one socket. Where input is expensive for its size (chunks of one
byte, WINDOW_UPDATE frames), that takes seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SMALL_BYTES = 1 << 14
"""What was received at once is cheap up to this size."""

TURN_SECS = 0.002
"""After how much time for what was received at once a turn ends."""


def end_turn(
    loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, wanted: Callable[[], bool]
) -> None:
    """Stop reading until the next turn of ``loop``, and go on if more is ``wanted`` then."""
    if not transport.is_closing():
        transport.pause_reading()
        loop.call_soon(_go_on, transport, wanted)


def _go_on(transport: asyncio.Transport, wanted: Callable[[], bool]) -> None:
    if wanted() and not transport.is_closing():
        transport.resume_reading()
