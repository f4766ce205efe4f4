"""Snapshots of a model's files: two are equal while no file was added, removed, replaced or written to. No
contents are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Files = tuple[tuple[str, int, int, int], ...]
"""Files sorted by path, each with its size in bytes, modification time in ns and inode."""

_WRITTEN_WHEN_LOADED = "__pycache__"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of each version, by its number, and the ``common`` ones."""

    common: Files = ()
    versions: Mapping[int, Files] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """``stated`` is the source of a model, compared as a whole; ``files`` is the snapshot before the load,
    None if there are no files."""

    stated: object
    files: Snapshot | None


def snapshot(path: Path, siblings: Iterable[Path] = ()) -> Snapshot:
    """A snapshot of the model folder or model file at ``path`` and of its ``siblings``, without
    hidden files and compiled Python modules. Blocks. Raises ``OSError`` if one is unreadable, for example
    while files are being removed."""
    found = _snapshot(path)
    others = [file for folder in siblings for file in _files_of(folder)]
    return Snapshot(tuple(sorted((*found.common, *others))), found.versions) if others else found


def _files_of(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    found = _snapshot(folder)
    for files in (found.common, *found.versions.values()):
        for path, size, mtime, inode in files:
            yield f"{folder.name}/{path}", size, mtime, inode


def _snapshot(path: Path) -> Snapshot:
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
    """The version of a folder called ``name``; None for any other folder."""
    return int(name) if name.isdecimal() and name == str(int(name)) else None


def _below(
    folder: os.DirEntry[str], path: str, above: tuple[tuple[int, int], ...]
) -> Iterator[tuple[str, int, int, int]]:
    """The files in ``folder``, whose own path is ``path``. Links to an enclosing folder are not followed."""
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
