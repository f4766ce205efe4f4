"""The signals that stop the server."""

from __future__ import annotations

import asyncio
import signal

_NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""SIGHUP, which comes when a terminal closes, would end the process at once: it drains like SIGTERM."""


class StopSignals:
    """The first and the second signal to stop. ``hurry`` skips the drain: at SIGINT, which comes from a
    terminal, or at the second signal."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = self._loop.create_future()
        self.second: asyncio.Future[None] = self._loop.create_future()
        self.hurry: asyncio.Future[None] = self._loop.create_future()
        for number in _NUMBERS:
            self._loop.add_signal_handler(number, self._come, number is signal.SIGINT)

    def forget(self) -> None:
        for number in _NUMBERS:
            self._loop.remove_signal_handler(number)

    def _come(self, hurry: bool) -> None:
        again = self.first.done()
        _resolve(self.second if again else self.first)
        if hurry or again:
            _resolve(self.hurry)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
