"""Counts the frames of a peer that carry no work, so that it cannot keep us busy (RFC 9113, 10.5).

A frame without work costs tokens: SETTINGS, PING and their acknowledgements, PRIORITY, CONTINUATION, frames
of unknown types, WINDOW_UPDATE, RST_STREAM, requests that are refused by their headers, and DATA in small
pieces. Tokens come back with time, and with work: a peer may send WINDOW_UPDATE frames for the data that it
receives, and small messages. A peer without tokens gets GOAWAY with ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from interlingua.protocols.transport.allowance import Allowance
from interlingua.protocols.transport.h2.frames import Code, H2Error

BURST, PER_SEC = 10_000, 1_000
"""Tokens at once, and per second. An RST_STREAM of a stream that has ended and a small piece of data cost
one."""

WINDOW_COST = 2

IDLE_COST, RESET_COST = 10, 5
"""The cost of a frame without effect: 1,000 at once, and 100 per second; and of a stream that is reset or
refused: 2,000, and 200 per second."""

REQUEST_CREDIT, DATA_CREDIT = 4, 20
"""What a request earns, until it is reset; and an answer or a DATA frame that we send: ten WINDOW_UPDATE
frames, as Envoy permits, where two are usual."""

SMALL_BYTES = 64
"""A DATA frame with fewer bytes is a small piece. A message of a stream gives its token back."""

_BLOCK_BYTES = 64
"""As many bytes of refused headers cost a token more."""


class FloodGuard(Allowance):
    """One per connection. Work adds tokens while there are fewer than ``burst``."""

    __slots__ = ()

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(BURST, PER_SEC, clock)

    def idle_frame(self, cost: int = IDLE_COST) -> None:
        """Count a frame, or part of one, that carries no work. Raises ``H2Error``."""
        if not self.spend(cost):
            raise H2Error(Code.ENHANCE_YOUR_CALM, "too many frames without effect")

    def reset(self) -> None:
        """Count a stream that ended without an answer. Raises ``H2Error``."""
        if not self.spend(RESET_COST + REQUEST_CREDIT):
            raise H2Error(Code.ENHANCE_YOUR_CALM, "too many streams reset")

    def refused(self, size: int) -> None:
        """Count a request that was refused by its headers, a field block of ``size`` bytes. Raises
        ``H2Error``."""
        if not self.spend(RESET_COST + size // _BLOCK_BYTES):
            raise H2Error(Code.ENHANCE_YOUR_CALM, "too many requests refused")
