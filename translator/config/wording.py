"""Error texts about a value: expected, found, and the probable intention."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

_LISTED = 12
"""The maximum number of choices in a text."""

_SHOWN = 40
"""The maximum number of characters of a quoted text."""


def unknown(kind: str, word: str, choices: Iterable[str]) -> str:
    """``word`` is not a ``kind``: the text has the nearest of ``choices`` and the list of them."""
    names = list(choices)
    near = difflib.get_close_matches(word, names, n=1) or [name for name in names if name.startswith(word)]
    meant = f"; did you mean '{near[0]}'?" if near and word else ""
    return f"unknown {kind} '{word}'{meant}{listed(names)}"


def listed(names: list[str]) -> str:
    """At most a dozen of the names in brackets, for the end of a sentence."""
    if not names:
        return " (there are none)"
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f" (allowed: {', '.join(names[:_LISTED])}{more})"


def shown(value: Any) -> str:
    """A value in the terms of YAML."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text '{value[:_SHOWN]}{'...' if len(value) > _SHOWN else ''}'"
        case tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"the {type(value).__name__} {value}"
