"""What has to be awaited when something has ended, also by an error.

In a module that mypyc compiles, no ``await`` may follow an error in an ``except`` or ``finally``: while it
waits, other tasks see that error as theirs (mypyc 2.4), and later ones raise it again. It takes place here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def ended_by(work: Awaitable[T], end: Callable[[], Awaitable[object]] | None) -> T:
    """The result of ``work``, after ``end``, which is called whatever ``work`` raises."""
    try:
        return await work
    finally:
        if end is not None:
            await end()
