"""Where the lines of a log go: a stream of this process or a file, which other processes write to as well."""

from __future__ import annotations

import io
import os
import select
import threading
from collections.abc import Iterable
from typing import TextIO

from interlingua.translator.logs.wrapper import LINE_BYTES


class Output:
    """Writes whole lines to ``stream``. Lines of several processes do not mix: up to ``LINE_BYTES`` are
    written at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream
        self._lock = threading.Lock()
        try:
            self._descriptor = stream.fileno()
        except (OSError, io.UnsupportedOperation):
            self._descriptor = -1

    def write(self, lines: Iterable[str]) -> None:
        """Write ``lines``, each without its end. Raises ``OSError``."""
        with self._lock:
            if self._descriptor < 0 and self._stream is not None:
                self._stream.write("".join([f"{line}\n" for line in lines]))
                self._stream.flush()
            else:
                self._write(lines)

    def _write(self, lines: Iterable[str]) -> None:
        pending = b""
        for line in lines:
            encoded = f"{line}\n".encode(errors="backslashreplace")
            if pending and len(pending) + len(encoded) > LINE_BYTES:
                _write(self._descriptor, pending)
                pending = b""
            pending += encoded
        if pending:
            _write(self._descriptor, pending)


class FileOutput(Output):
    """Appends to the file at ``path``, which other programs may rename at any time. Raises ``OSError``."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stream = None
        self._lock = threading.Lock()
        self._write(())

    def _write(self, lines: Iterable[str]) -> None:
        # open for one write alone: the file that has the name then gets the lines
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            super()._write(lines)
        finally:
            os.close(self._descriptor)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            # another process has made the terminal or the pipe non-blocking
            select.select((), (descriptor,), ())
