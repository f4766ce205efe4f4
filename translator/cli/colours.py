"""Colours for a person: only on a terminal, and not with ``NO_COLOR`` (https://no-color.org)."""

from __future__ import annotations

import os
from typing import Literal, TextIO

Colour = Literal["red", "green", "amber", "dim", "bold"]

_CODES: dict[Colour, str] = {"red": "31", "green": "32", "amber": "33", "dim": "2", "bold": "1"}
"""Parameters of SGR (ECMA-48, 8.3.117)."""


def painted(text: str, colour: Colour, stream: TextIO) -> str:
    """``text`` in ``colour`` if ``stream`` shows colours."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if shows_colours(stream) else text


def shows_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
