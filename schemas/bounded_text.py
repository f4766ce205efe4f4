"""Limits on the text of errors, so that an answer never repeats a large request.

The limits are in characters, far above names and messages of usual size, which clients may match on.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

QUOTED_CHARS = 200
"""The longest name that the text of a transport quotes."""

MESSAGE_CHARS = 8192
"""The longest message of an error. Escaped, in a header of version 1 say, it fits into 64 KiB."""

LISTED_NAMES = 20
"""The longest list of names in an error."""


def shortened(text: str, limit: int = QUOTED_CHARS) -> str:
    """``text`` in at most ``limit`` characters: the beginning, an ellipsis, and the end, which often has the
    reason."""
    if len(text) <= limit:
        return text
    end = limit // 4
    return f"{text[: limit - end - 1]}…{text[-end:]}"


def listed(names: Iterable[str]) -> str:
    """``names``, separated by commas, and the number of those after the first ``LISTED_NAMES``."""
    rest = iter(names)
    shown = ", ".join(islice(rest, LISTED_NAMES))
    more = sum(1 for _ in rest)
    return f"{shown} … and {more} more" if more else shown
