"""A configuration file together with the files that it includes.

Lists append in the order of inclusion, those of the including file first; mappings merge; any other key may
be in one file only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as File
from typing import Any

from interlingua.translator.config.document import ConfigError, Document, Path, Problem

INCLUDE = "include"


class ComposedFile:
    """The ``data`` of the file ``source`` with ``text`` and of all that it includes, with the ``problems``
    that still allow to read it. Raises ``ConfigError`` for a file that is not YAML."""

    def __init__(self, text: str, source: str, environment: Mapping[str, str]) -> None:
        self._source = source
        self._environment = environment
        self._first = Document(text, source, environment)
        self.problems: list[Problem] = []
        self._places: dict[Path, tuple[Document, Path]] = {}
        self._included_by: dict[File, str] = {File(source).resolve(): ""}
        self.data: Any = self._first.data
        if isinstance(self.data, dict):
            self.data = {}
        self._add(self._first, (File(source),))

    @classmethod
    def of_file(cls, path: str | File, environment: Mapping[str, str]) -> ComposedFile:
        """That of the file at ``path``. Raises ``ConfigError`` for an unreadable one too."""
        try:
            text = File(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(str(path), [Problem(0, (), _unreadable(error))]) from error
        return cls(text, str(path), environment)

    def problem(self, path: Path, text: str) -> Problem:
        """A problem of the value at ``path`` of the data, with its file and line."""
        document, own = self._place(path)
        return Problem(document.line(own), path, text, document.source)

    def states(self, path: Path) -> bool:
        """Whether the mapping around ``path``, which exists, has its key."""
        return path[-1] in self._mapping(path)

    def rename(self, path: Path, present: Path) -> None:
        """Move the value at ``path`` to ``present`` in the same mapping. Its file and line stay."""
        mapping = self._mapping(path)
        if path[-1] in mapping:  # not moved yet, as that of an alias
            mapping[present[-1]] = mapping.pop(path[-1])
        self._places[present] = self._place(path)

    def _mapping(self, path: Path) -> dict[str | int, Any]:
        found = self.data
        for part in path[:-1]:
            found = found[part]
        mapping: dict[str | int, Any] = found
        return mapping

    def error(self, problems: list[Problem]) -> ConfigError:
        """``problems`` of these files."""
        return ConfigError(self._source, problems)

    def _place(self, path: Path) -> tuple[Document, Path]:
        """The document that states the value at ``path``, or the nearest around it, and its path there."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._places:
                document, own = self._places[path[:end]]
                return document, (*own, *path[end:])
        return self._first, path

    def _add(self, document: Document, chain: tuple[File, ...]) -> None:
        self.problems += document.problems
        if not isinstance(document.data, dict):
            if len(chain) > 1:
                self.problems.append(Problem(1, (), "must be a mapping", document.source))
            return
        self._merge(self.data, document.data, (), document)
        for number, name in _texts(document.data.get(INCLUDE)):
            self._include(document, chain, number, name)

    def _merge(self, into: dict[str, Any], values: dict[str, Any], at: Path, document: Document) -> None:
        for key, value in values.items():
            path = (*at, key)
            known = into.get(key)
            if isinstance(value, dict) and (known is None or isinstance(known, dict)):
                into[key] = {} if known is None else known
                self._places.setdefault(path, (document, path))
                self._merge(into[key], value, path, document)
            elif isinstance(value, tuple) and isinstance(known, tuple):
                for number in range(len(value)):
                    self._places[(*path, len(known) + number)] = document, (*path, number)
                into[key] = (*known, *value)
            elif known is None:
                into[key] = value
                self._places[path] = document, path
            elif value is not None:
                other, own = self._place(path)
                text = f"is in {other.source}:{other.line(own)} too"
                self.problems.append(Problem(document.line(path), path, text, document.source))

    def _include(self, document: Document, chain: tuple[File, ...], number: int, name: str) -> None:
        file = chain[-1].parent / name

        def refuse(text: str) -> None:
            path: Path = (INCLUDE, number)
            self.problems.append(Problem(document.line(path), path, text, document.source))

        resolved = file.resolve()
        if resolved in (each.resolve() for each in chain):
            refuse(f"'{file}' includes itself: {' -> '.join(map(str, (*chain, file)))}")
        elif resolved in self._included_by:
            refuse(f"'{file}' is included by {self._included_by[resolved]} too")
        else:
            self._included_by[resolved] = document.source
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                refuse(f"'{file}' {_unreadable(error)}")
            else:
                self._add(Document(text, str(file), self._environment), (*chain, file))


def _texts(names: Any) -> Iterator[tuple[int, str]]:
    """The names in a list; the schema refuses all else."""
    entries = enumerate(names) if isinstance(names, tuple) else ()
    return ((number, name) for number, name in entries if isinstance(name, str))


def _unreadable(error: OSError | UnicodeDecodeError) -> str:
    reason = error.strerror if isinstance(error, OSError) else f"not UTF-8 text: {error}"
    return f"cannot be read: {reason}"
