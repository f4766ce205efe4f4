"""Recording files: a title line, then records, each prefixed with its sizes and a checksum.

Writers only append whole records, so after a crash a file is intact up to its last record; a reader stops
there and reports it. A full file is renamed (`name.1` is the latest) and the oldest is deleted."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from interlingua.protocols.wire import Buffer
from interlingua.translator.recording.layout import DamagedError, pack, unpack
from interlingua.translator.recording.record import Record

FORMAT_VERSION = 1

_TITLE = b"interlingua-recording "
FIRST_LINE = _TITLE + b"%d\n" % FORMAT_VERSION
_LONGEST_FIRST_LINE = 64

PREFIX = struct.Struct("<4sIQI")
"""The prefix of a record: a marker, the size of its header, the size of its tensors, the CRC-32 of both."""

_MARK = b"\n>> "


class RecordingError(Exception):
    """The file is not a recording, or has an unsupported version."""


class _EndedError(DamagedError):
    """The last record is incomplete."""


class RecordingWriter:
    """Writes records to ``path`` and rotates before the file exceeds ``max_bytes`` (None: never). Keeps at
    most ``max_files``, this one included.

    Creates the folder; rotates an existing file. Use from one thread, and ``close`` it. Raises ``OSError``.
    """

    def __init__(self, path: Path, max_bytes: int | None = None, max_files: int = 2) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._max_files = max_files
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > len(FIRST_LINE):
            self._rotate()
        self._file, self._size = self._open()

    def write(self, record: Record) -> bool:
        """Append ``record``; False if it exceeds the limit of a whole file. Raises ``ValueError`` for a
        record that cannot be packed, and ``OSError``."""
        parts, added = packed(record)
        if self._max_bytes is not None and self._size + added > self._max_bytes:
            if len(FIRST_LINE) + added > self._max_bytes:
                return False
            os.close(self._file)
            self._rotate()
            self._file, self._size = self._open()
        self._append(parts)
        self._size += added
        return True

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> tuple[int, int]:
        # readable by the owner only: it contains clients' data
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.write(file, FIRST_LINE)
        return file, len(FIRST_LINE)

    def _append(self, parts: Sequence[Buffer]) -> None:
        """Write all of ``parts`` or nothing: a reader cannot continue after a partial record."""
        try:
            for part in parts:
                rest = memoryview(part)
                while len(rest):
                    rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, self._size)
            raise

    def _rotate(self) -> None:
        if self._max_files == 1:
            return
        for number in range(self._max_files - 1, 1, -1):
            younger = self._aside(number - 1)
            if younger.exists():
                younger.replace(self._aside(number))
        self._path.replace(self._aside(1))

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def packed(record: Record) -> tuple[list[Buffer], int]:
    """``record`` with its prefix, and their size. Raises ``ValueError`` for one that cannot be packed."""
    header, data = pack(record)
    data_bytes = sum(memoryview(part).nbytes for part in data)
    checksum = zlib.crc32(header)
    for part in data:
        checksum = zlib.crc32(part, checksum)
    prefix = PREFIX.pack(_MARK, len(header), data_bytes, checksum)
    return [prefix + header, *data], PREFIX.size + len(header) + data_bytes


class RecordingReader:
    """The records of the file at ``path``, in order; iterate once.

    After that, ``damage`` says where and why reading stopped early, empty if it did not. ``lost``: whether
    records may be missing beyond the last one, which a crash may cut. Raises ``RecordingError`` for a file
    that is not a recording, and ``OSError``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        self.lost = False
        self._file = open(path, "rb")  # noqa: SIM115
        try:
            _check_first_line(path, self._file.readline(_LONGEST_FIRST_LINE))
        except RecordingError:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[Record]:
        with self._file:
            end = os.fstat(self._file.fileno()).st_size
            number, at = 0, self._file.tell()
            while at < end:
                number += 1
                try:
                    record, at = self._next(at, end)
                except DamagedError as error:
                    self.lost = not isinstance(error, _EndedError)
                    self.damage = f"{self.path}: record {number}, at byte {at}, is unreadable: {error}"
                    return
                yield record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _next(self, at: int, end: int) -> tuple[Record, int]:
        before = self._file.read(PREFIX.size)
        if len(before) < PREFIX.size:
            raise _EndedError("the file ends within it")
        mark, header_bytes, data_bytes, checksum = PREFIX.unpack(before)
        if mark != _MARK:
            raise DamagedError("it does not start with a record marker")
        after = at + PREFIX.size + header_bytes + data_bytes
        if after > end:
            raise _EndedError("the file ends within it")
        # one buffer per record, kept alive by its tensors
        body = memoryview(self._file.read(header_bytes + data_bytes))
        if zlib.crc32(body) != checksum:
            raise DamagedError("its checksum does not match")
        return unpack(bytes(body[:header_bytes]), body[header_bytes:]), after


def _check_first_line(path: Path, line: bytes) -> None:
    version = line.removeprefix(_TITLE).strip()
    if not line.startswith(_TITLE) or not version.isdigit():
        raise RecordingError(f"{path} is not a recording")
    if int(version) != FORMAT_VERSION:
        raise RecordingError(
            f"{path} is a recording of version {int(version)}; this program reads version {FORMAT_VERSION}"
        )
