"""What is wrong with a value, in words for a person: what was expected, what was found, what was
probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

_LISTED = 12
"""How many choices are named at most."""

_SHOWN = 40
"""How many characters of a text are quoted at most."""


def unknown(kind: str, word: str, choices: Iterable[str]) -> str:
    """``word`` is no ``kind``; the nearest of ``choices``, and which there are."""
    names = list(choices)
    near = difflib.get_close_matches(word, names, n=1) or [name for name in names if name.startswith(word)]
    meant = f"; did you mean '{near[0]}'?" if near and word else ""
    return f"unknown {kind} '{word}'{meant}{listed(names)}"


def listed(names: list[str]) -> str:
    """The names in brackets, as the end of a sentence; at most a dozen of them."""
    if not names:
        return " (there are none)"
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f" (allowed: {', '.join(names[:_LISTED])}{more})"


def shown(value: Any) -> str:
    """A value as its author would recognise it."""
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
