"""Number types for argparse, whose errors show their names."""

from __future__ import annotations


def positive(text: str) -> float:
    """A number above 0. Raises ``ValueError``."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def not_negative(text: str) -> float:
    """A number of at least 0. Raises ``ValueError``."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def count(text: str) -> int:
    """An integer of at least 1. Raises ``ValueError``."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


# shown in argparse's errors
positive.__name__, not_negative.__name__ = "number above 0", "number of at least 0"
count.__name__ = "integer of at least 1"
