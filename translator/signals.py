"""What stops the server, signals or a successor, and the signal that reloads its configuration."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

_STOPPING = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


class Signals:
    """``first`` is done at the first signal to stop, or when another process, the ``successor``, has taken
    over; ``second`` at the second signal. ``hurry`` skips the drain: at SIGINT, which comes from a terminal,
    or at the second signal. SIGHUP calls ``reload``, once that is set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = self._loop.create_future()
        self.second: asyncio.Future[None] = self._loop.create_future()
        self.hurry: asyncio.Future[None] = self._loop.create_future()
        self.reload: Callable[[], None] | None = None
        self.successor: int | None = None
        self._signals = 0
        for number in _STOPPING:
            self._loop.add_signal_handler(number, self._come, number is signal.SIGINT)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)

    def ignore(self) -> None:
        """The server has stopped: until the process ends, no signal changes its exit code."""
        for number in (*_STOPPING, signal.SIGHUP):
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)

    def hand_over(self, successor: int) -> None:
        """The process ``successor`` accepts the connections from now on; unless a signal was first."""
        if not self.first.done():
            self.successor = successor
            self.first.set_result(None)

    def _come(self, hurry: bool) -> None:
        self._signals += 1
        again = self._signals > 1
        _resolve(self.second if again else self.first)
        if hurry or again:
            _resolve(self.hurry)

    def _reload(self) -> None:
        if self.reload is not None:
            self.reload()
        else:
            _log.warning("reload ignored", extra={"facts": {"reason": "the server is starting"}})


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
