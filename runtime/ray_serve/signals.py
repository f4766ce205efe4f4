"""The handlers of signals of this process, which Ray replaces.

Ray's library installs its own when a process connects, and the defaults when it disconnects, below those of
Python (``RayLog::InstallFailureSignalHandler``). Both happen in a thread, where Python's ``signal.signal`` is
not permitted, so this uses ``sigaction(2)``.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_KEPT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_SIGACTION_BYTES = 256
"""More than a ``struct sigaction``, which has 152 bytes with glibc on x86-64."""


@contextmanager
def kept_signals() -> Iterator[None]:
    """The handlers of signals that stop or reload are the same afterwards. Of any thread."""
    sigaction = ctypes.CDLL(None, use_errno=True).sigaction
    before = {number: ctypes.create_string_buffer(_SIGACTION_BYTES) for number in _KEPT}
    for number, handler in before.items():
        sigaction(int(number), None, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            sigaction(int(number), handler, None)
