"""Shows the progress of loading models: one updated line on a terminal, otherwise log lines."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import TextIO

from interlingua.runtime.repository.files import State

_log = logging.getLogger(__name__)


class LoadingProgress:
    """A callback for ``load_models``; as a context manager it clears its line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._began: dict[str, float] = {}
        self._loading: list[str] = []
        self._done = 0

    def __enter__(self) -> LoadingProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show("")

    def __call__(self, name: str, state: State) -> None:
        if state == "loading":
            self._began[name] = time.monotonic()
            self._loading.append(name)
        else:
            self._loading.remove(name)
            self._done += 1
            took = f"{time.monotonic() - self._began[name]:.2f}"
            # failures are logged with their reasons after all models
            if state == "ready" and not self._terminal:
                _log.info("model ready", extra={"facts": {"model": name, "secs": took}})
        self._show(f"loading models: {self._done} done, now {', '.join(self._loading)}")

    def _show(self, text: str) -> None:
        if self._terminal:
            self._stream.write(f"\r\x1b[K{text[:100]}")
            self._stream.flush()
