"""Bounds the records of refused operations: a client that may do nothing must not fill the log, nor its disk.

Metrics count every refusal; the log has the first ones of each caller, and then a few per minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from interlingua.protocols.transport.allowance import Allowance
from interlingua.translator.logs.setup import AUDIT

CALLER_BURST, CALLER_PER_SEC = 10, 1 / 6
"""The records of one caller: at once, and per second."""

LISTENER_BURST, LISTENER_PER_SEC = 1000, 10.0
"""Those of all callers of a listener: one client may have many addresses."""

_MAX_CALLERS = 1024
"""How many callers are remembered, the latest ones."""


class RefusalRecords:
    """Which refusals of one listener are recorded. ``clock`` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = Allowance(LISTENER_BURST, LISTENER_PER_SEC, clock)
        self._callers: dict[str, Allowance] = {}
        self._suppressed = 0

    def suppressed(self, caller: str) -> int | None:
        """How many refusals have had no record since the last one that had; None if that of ``caller``, an
        address, has none either."""
        allowance = self._callers.pop(caller, None) or Allowance(CALLER_BURST, CALLER_PER_SEC, self._clock)
        self._callers[caller] = allowance
        if len(self._callers) > _MAX_CALLERS:
            del self._callers[next(iter(self._callers))]
        if not (_spend(allowance) and _spend(self._all)):
            self._suppressed += 1
            return None
        count, self._suppressed = self._suppressed, 0
        return count


def record_failure(listener: str, caller: Mapping[str, str], reason: str, refusals: RefusalRecords) -> None:
    """Record that a credential of ``caller`` is not valid."""
    suppressed = refusals.suppressed(caller["caller"])
    if suppressed is not None:
        facts: dict[str, Any] = {"listener": listener, **caller, "reason": reason}
        if suppressed:
            facts["suppressed"] = suppressed
        AUDIT.warning("authentication failed", extra={"facts": facts})


def _spend(allowance: Allowance) -> bool:
    """Take a token if there is one: under a flood, too, a few records are due."""
    if allowance.spend():
        return True
    allowance.tokens += 1
    return False
