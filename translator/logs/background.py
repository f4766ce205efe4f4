"""Writes records from a thread, so that a slow reader of the log delays no request."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_RECORDS = 8192
"""How many records wait at a time; more are dropped, and counted."""

_BATCH = 64
"""How many records are written at once: rendering them keeps the interpreter's lock."""

_LINGER_SECS = 0.01
"""How long the thread waits for more records before it needs to be woken up again."""

_STOP_SECS = 2.0
"""How long the last records may take at shutdown."""

_log = logging.getLogger(__name__)


class BackgroundWriter(Generic[T]):
    """Has ``write``, in a thread that starts with the first record, take what :meth:`put` gets. ``dropped``
    counts the records that found ``limit`` others waiting, and those whose writing failed."""

    def __init__(self, write: Callable[[Sequence[T]], None], limit: int = MAX_RECORDS) -> None:
        self._write = write
        self._limit = limit
        self._waiting: deque[T] = deque()
        self._awake = False
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._failing = False
        self.dropped = 0

    def put(self, record: T) -> None:
        """Write ``record`` soon, or drop it; never waits. From one thread."""
        if len(self._waiting) >= self._limit:
            self.dropped += 1
            return
        self._waiting.append(record)
        if not self._awake:
            self._awake = True
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write what waits, within ``_STOP_SECS``."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECS)
            self._thread = None

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait()
            self._wake.clear()
            self._write_all()
            while not self._stopped.wait(_LINGER_SECS) and self._waiting:
                self._write_all()
            self._awake = False
            # those that came before they could see that
            self._write_all()

    def _write_all(self) -> None:
        while self._waiting:
            records = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            try:
                self._write(records)
            except Exception as error:
                self.dropped += len(records)
                if not self._failing:
                    self._failing = True
                    _log.error("log records not written", extra={"facts": {"reason": str(error)}})
            else:
                self._failing = False
