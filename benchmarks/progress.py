"""What is being measured: a line on standard error, if that is a terminal, which gives way to results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from interlingua.translator.progress import StatusLine

T = TypeVar("T")

_LINE = StatusLine(sys.stderr)


def each(items: Iterable[T], named: Callable[[T], str]) -> Iterator[T]:
    """``items``, with the name and the number of the one at work in the line."""
    listed = list(items)
    try:
        for number, item in enumerate(listed, 1):
            _LINE.show(f"{number} of {len(listed)}: {named(item)}")
            yield item
    finally:
        _LINE.clear()


def say(text: str) -> None:
    """Write results in place of the line."""
    _LINE.clear()
    sys.stdout.write(text)
    sys.stdout.flush()
