"""What is made of files, and made again when they change.

Files that cannot be used leave the last value in place: two that belong together are replaced one after the
other, and in between they do not match.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

CHECK_SECS = 1.0
"""How often the files are looked at, when their value is needed."""

_log = logging.getLogger(__name__)


def reason_of(error: Exception) -> str:
    """The text of an error of a file."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class WatchedFiles(Generic[T]):
    """What ``read`` makes of the files at ``paths``; ``name`` is its name in the log. Raises ``OSError`` and
    ``ValueError`` as ``read`` does, at once. ``reason`` is the text of such an error later."""

    def __init__(
        self,
        paths: Sequence[str],
        read: Callable[[], T],
        name: str,
        reason: Callable[[Exception], str] = reason_of,
    ) -> None:
        self._paths = paths
        self._read = read
        self._renewed, self._kept = f"{name} reloaded", f"{name} not reloaded"
        self._reason = reason
        self._made = self._tried = self._stamps()
        self._value = read()
        self._check_at = monotonic() + CHECK_SECS

    def current(self) -> T:
        """The value, of files as they were up to ``CHECK_SECS`` ago."""
        now = monotonic()
        if now >= self._check_at:
            self._check_at = now + CHECK_SECS
            stamps = self._stamps()
            if stamps != self._made:
                self._renew(stamps)
        return self._value

    def _renew(self, stamps: object) -> None:
        facts: dict[str, object] = {"files": ", ".join(self._paths)}
        try:
            self._value = self._read()
        except (OSError, ValueError) as error:
            if stamps != self._tried:
                facts["reason"] = self._reason(error)
                _log.error(self._kept, extra={"facts": facts})
        else:
            self._made = stamps
            _log.info(self._renewed, extra={"facts": facts})
        self._tried = stamps

    def _stamps(self) -> object:
        """What changes with the files."""
        found: list[tuple[int, ...] | None] = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        return found
