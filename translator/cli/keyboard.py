"""Single keys from a terminal, without Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keys() -> Iterator[Keyboard]:
    """The keys of standard input in the scope; none if that is no terminal."""
    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    # Ctrl-C stays an interrupt
    tty.setcbreak(descriptor)
    try:
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keyboard:
    """The keys of the terminal ``descriptor``."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def is_there(self) -> bool:
        return self._descriptor is not None

    def wait(self, secs: float) -> str:
        """The next key within ``secs``, or an empty text after them."""
        if self._descriptor is None:
            time.sleep(secs)
            return ""
        if not select.select([self._descriptor], [], [], max(0.0, secs))[0]:
            return ""
        found = os.read(self._descriptor, 1)
        if not found:  # the terminal is gone
            self._descriptor = None
        return found.decode("latin-1")
