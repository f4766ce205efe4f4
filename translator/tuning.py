"""Settings of the interpreter for processes that serve requests."""

from __future__ import annotations

import gc
import sys

_YOUNG_OBJECTS = 10_000
"""The threshold of the youngest generation of the garbage collector. A request leaves no cycles, and with
Python's own 700 the collector takes a tenth of the time of a small request."""

_SWITCH_SECS = 0.0005
"""After how long another thread may demand the interpreter's lock; Python has 5 ms. The wait begins again
whenever the lock was free for a moment, so a busy event loop, which frees it every 0.3 ms, kept the thread of
the admin address waiting for up to 40 ms, several times per request. Two threads that both compute in Python
take 3 % more CPU."""


def tune() -> None:
    """Apply the settings to this process."""
    gc.set_threshold(_YOUNG_OBJECTS)
    sys.setswitchinterval(_SWITCH_SECS)
