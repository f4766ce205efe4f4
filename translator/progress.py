"""Progress of what takes long: one updated line on a terminal; otherwise, for models, log lines."""

from __future__ import annotations

import logging
import os
import time
from types import TracebackType
from typing import TextIO

from interlingua.runtime.repository.files import State

_log = logging.getLogger(__name__)

_INTERVAL_SECS = 0.1
"""A line that changes more often is not read."""


class StatusLine:
    """One line of the terminal ``stream``, updated in place; nothing on any other stream. As a context
    manager it clears the line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_shown = stream.isatty()
        self._next = 0.0

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Replace the line, cut to the width of the terminal."""
        if self.is_shown:
            width = os.get_terminal_size(self._stream.fileno()).columns or 80
            self._write(text[: width - 1])

    def show_often(self, text: str) -> None:
        """Replace the line, unless it was replaced just before."""
        now = time.monotonic()
        if self.is_shown and now >= self._next:
            self._next = now + _INTERVAL_SECS
            self.show(text)

    def clear(self) -> None:
        """Clear the line, for other output."""
        if self.is_shown:
            self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()


class LoadingProgress:
    """A callback for ``load_models``; as a context manager it clears its line."""

    def __init__(self, stream: TextIO) -> None:
        self._line = StatusLine(stream)
        self._began: dict[str, float] = {}
        self._loading: list[str] = []
        self._done = 0

    def __enter__(self) -> LoadingProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.clear()

    def __call__(self, name: str, state: State) -> None:
        if state == "loading":
            self._began[name] = time.monotonic()
            self._loading.append(name)
        else:
            self._loading.remove(name)
            self._done += 1
            took = f"{time.monotonic() - self._began[name]:.2f}"
            # failures are logged with their reasons after all models
            if state == "ready" and not self._line.is_shown:
                _log.info("model ready", extra={"facts": {"model": name, "secs": took}})
        self._line.show(f"loading models: {self._done} done, now {', '.join(self._loading)}")
