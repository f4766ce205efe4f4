"""What the files of a model look like, so that a change of them shows without reading them.

Two snapshots are equal while no file was added, removed, replaced or written to. What a change leads to
belongs to ``runtime.repository.files`` and ``runtime.repository.polling``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Files = tuple[tuple[str, int, int, int], ...]
"""Files by their path, sorted, each with its size in bytes, the ns of its last change and its inode."""

_WRITTEN_WHEN_LOADED = "__pycache__"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a model: those of each version, by its number, and the ``common`` ones beside them."""

    common: Files = ()
    versions: Mapping[int, Files] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a model was loaded from: ``stated`` is its source, compared as a whole, ``files`` how they looked
    right before; None where it has none."""

    stated: object
    files: Snapshot | None


def snapshot(path: Path) -> Snapshot:
    """How the model folder or model file at ``path`` looks now. Hidden files do not count, nor what Python
    leaves beside a module that it has loaded.

    Blocks. Raises ``OSError`` where it cannot be read, as while files are being removed.
    """
    if not path.is_dir():
        return Snapshot((_file(path.name, path),))
    common: list[tuple[str, int, int, int]] = []
    versions: dict[int, Files] = {}
    for entry in _entries(path):
        number = version_number(entry.name)
        if number is not None and entry.is_dir():
            versions[number] = tuple(sorted(_below(entry, "", ())))
        elif entry.is_dir():
            common.extend(_below(entry, entry.name, ()))
        else:
            common.append(_file(entry.name, entry))
    return Snapshot(tuple(sorted(common)), versions)


def version_number(name: str) -> int | None:
    """The version that a folder called ``name`` holds; None where it is none."""
    return int(name) if name.isdecimal() and name == str(int(name)) else None


def _below(
    folder: os.DirEntry[str], path: str, above: tuple[tuple[int, int], ...]
) -> Iterator[tuple[str, int, int, int]]:
    """The files in ``folder``, whose own path is ``path``. A link to a folder around it leads nowhere."""
    found = folder.stat()
    here = (found.st_dev, found.st_ino)
    if here in above:
        return
    for entry in _entries(folder):
        inner = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _below(entry, inner, (*above, here))
        else:
            yield _file(inner, entry)


def _entries(folder: os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.name != _WRITTEN_WHEN_LOADED:
                yield entry


def _file(path: str, entry: os.DirEntry[str] | Path) -> tuple[str, int, int, int]:
    found = entry.stat()
    return path, found.st_size, found.st_mtime_ns, found.st_ino
