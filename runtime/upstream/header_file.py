"""A header whose value is in a file, such as a token that another process renews."""

from __future__ import annotations

import logging
import os
from pathlib import Path

MAX_BYTES = 8192
"""The common limit of HTTP servers for one header."""

_log = logging.getLogger(__name__)

Stamp = tuple[int, int, int]


def read_value(path: str | Path) -> str:
    """The header value in the file at ``path``, without surrounding white space. Raises ``OSError``, and
    ``ValueError`` for an invalid header value; neither quotes the value."""
    with Path(path).open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES} bytes")
    text = data.strip().decode("latin-1")
    if not text:
        raise ValueError("is empty")
    if not (text.isascii() and text.isprintable()):
        raise ValueError("has a character that no header can hold (one line of printable ASCII is expected)")
    return text


class HeaderFile:
    """The value in the file at ``path``, read again when the file changes. An unreadable change is logged,
    and the last value stays. Raises as :func:`read_value`. The value is never logged."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp: Stamp | None = self._current_stamp()
        self._value = read_value(path)

    def value(self) -> str:
        try:
            stamp = self._current_stamp()
        except OSError as error:
            self._keep(None, error.strerror or str(error))
            return self._value
        if stamp != self._stamp:
            try:
                self._value = read_value(self._path)
            except (OSError, ValueError) as error:
                self._keep(stamp, str(getattr(error, "strerror", None) or error))
            else:
                self._stamp = stamp
                _log.info("header file reloaded", extra={"facts": {"file": str(self._path)}})
        return self._value

    def _current_stamp(self) -> Stamp:
        # a secret of Kubernetes changes by its symbolic link: another file, perhaps of the same time
        found = os.stat(self._path)
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _keep(self, stamp: Stamp | None, reason: str) -> None:
        """Log once that the file, as it is now, is unreadable."""
        if stamp != self._stamp:
            self._stamp = stamp
            facts = {"file": str(self._path), "reason": reason}
            _log.warning("header file unreadable, last value kept", extra={"facts": facts})
