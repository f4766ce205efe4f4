"""Options that have changed their names, and what replaces those that are gone: see docs/operations.md.

A former name is accepted in the version that renames the option and in the next minor one; later it is an
error with the same hint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from interlingua.translator.config.document import Path

Minor = tuple[int, int]
"""The first two numbers of a version."""

ACCEPTED_MINORS = 2

VERSION: Minor = tuple(map(int, version("interlingua").split(".")[:2]))  # type: ignore[assignment]


class Renamed(NamedTuple):
    """The present name of an option, in the same section ``since`` that version."""

    name: str
    since: Minor

    @property
    def until(self) -> Minor:
        """The first version that refuses the former name."""
        return self.since[0], self.since[1] + ACCEPTED_MINORS


RENAMED: Mapping[str, Renamed] = {}
"""By former path, such as `listeners.*.max_clients`; `*` is any entry of a list or mapping."""

REMOVED: Mapping[str, str] = {}
"""What replaces an option, by its path."""


class FormerName(NamedTuple):
    """A former name that a document states, and its option."""

    path: Path
    option: Renamed

    @property
    def present(self) -> Path:
        """The path of the option."""
        return (*self.path[:-1], self.option.name)

    @property
    def warning(self) -> str:
        """The text for the user."""
        return f"warning: {_hint(self.option)}, an error from version {_text(self.option.until)} on"


def accepted_names(data: Any) -> list[FormerName]:
    """The former names in ``data``, a document, that this version accepts."""
    return [
        FormerName(path, option)
        for pattern, option in RENAMED.items()
        if option.until > VERSION
        for path in _places(data, pattern.split("."), ())
    ]


def hint(path: Path) -> str | None:
    """Why the unknown option at ``path`` has no effect, if it had one in an earlier version."""
    for pattern, option in RENAMED.items():
        if _matches(path, pattern):
            return _hint(option)
    return next((f"has been removed: {text}" for each, text in REMOVED.items() if _matches(path, each)), None)


def _hint(option: Renamed) -> str:
    return f"is named '{option.name}' since version {_text(option.since)}"


def _text(minor: Minor) -> str:
    return ".".join(map(str, minor))


def _matches(path: Path, pattern: str) -> bool:
    parts = pattern.split(".")
    return len(parts) == len(path) and all(
        part in ("*", str(found)) for part, found in zip(parts, path, strict=True)
    )


def _places(value: Any, pattern: list[str], at: Path) -> Iterator[Path]:
    """The paths below ``value``, which is at ``at``, that match ``pattern``."""
    if not pattern:
        yield at
        return
    first, *rest = pattern
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, tuple) else ()
    )
    for key, entry in list(entries):
        if first in ("*", key):
            yield from _places(entry, rest, (*at, key))
