"""Numbers on the command line that must not be just any; argparse tells which they were to be."""

from __future__ import annotations


def positive(text: str) -> float:
    """A number above 0. Raises ``ValueError``."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def not_negative(text: str) -> float:
    """A number from 0 on. Raises ``ValueError``."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def count(text: str) -> int:
    """A whole number from 1 on. Raises ``ValueError``."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


# what they are called in errors
positive.__name__, not_negative.__name__ = "number above 0", "number from 0 on"
count.__name__ = "whole number from 1 on"
