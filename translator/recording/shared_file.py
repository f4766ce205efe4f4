"""A recording that several processes write, one record after the other.

A lock on the file, which ends with its owner, makes each record whole and in one place. A process that was
killed while it wrote leaves a part of a record at the end, which the next one removes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interlingua.translator.recording.files import FIRST_LINE, PREFIX, RecordingWriter, packed
from interlingua.translator.recording.record import Record


def begin(path: Path, max_files: int = 2) -> None:
    """Rotate a recording of an earlier start, before any process writes. Raises ``OSError``."""
    RecordingWriter(path, max_files=max_files).close()


class SharedRecordingWriter(RecordingWriter):
    """As ``RecordingWriter``, after :func:`begin`; others may write to ``path`` at the same time."""

    def __init__(self, path: Path, max_bytes: int | None = None, max_files: int = 2) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._size = self._opened()

    def write(self, record: Record) -> bool:
        """See ``RecordingWriter``. Waits while another process writes."""
        parts, added = packed(record)
        if self._max_bytes is not None and len(FIRST_LINE) + added > self._max_bytes:
            return False
        while True:
            with self._locked():
                if self._max_bytes is None or self._size + added <= self._max_bytes:
                    self._append(parts)
                    self._size += added
                    return True
                if self._max_files == 1:
                    os.ftruncate(self._file, 0)
                else:
                    self._rotate()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The turn of this process, at the end of the last whole record of the current file."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        while not self._is_current():
            os.close(self._file)
            self._file, self._size = self._opened()
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._find_end()
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _is_current(self) -> bool:
        """Whether no other process has rotated the file."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        return False

    def _opened(self) -> tuple[int, int]:
        # readable by the owner only: it contains clients' data
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), 0

    def _find_end(self) -> None:
        """Move on to the end, over what others have written."""
        end = os.fstat(self._file).st_size
        if end < self._size:
            self._size = 0  # it has begun again
        if not self._size:
            if end < len(FIRST_LINE):
                os.ftruncate(self._file, 0)
                end = os.write(self._file, FIRST_LINE)
            self._size = len(FIRST_LINE)
        while self._size < end:
            before = os.pread(self._file, PREFIX.size, self._size)
            if len(before) < PREFIX.size:
                break
            _, header_bytes, data_bytes, _ = PREFIX.unpack(before)
            after = self._size + PREFIX.size + header_bytes + data_bytes
            if after > end:
                break
            self._size = after
        if self._size < end:
            os.ftruncate(self._file, self._size)


def writer(path: Path, max_bytes: int | None, max_files: int, shared: bool) -> RecordingWriter:
    """A writer, ``shared`` with other processes or not. Raises ``OSError``."""
    return (SharedRecordingWriter if shared else RecordingWriter)(path, max_bytes, max_files)
