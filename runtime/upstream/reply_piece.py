"""Reads the pieces of a streamed reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from interlingua.schemas.offload import OffloadRole

T = TypeVar("T")

_END: Any = object()


def read_piece(read: Callable[[Any], Iterable[T]], answer: Any) -> Iterator[T]:
    """The results of ``read`` on a piece of a reply, in this thread: such a function has state, so it must
    not run again in another."""
    here = OffloadRole(offloader=None)
    with here:
        results = iter(read(answer))
    while True:
        with here:
            found = next(results, _END)
        if found is _END:
            return
        yield cast(T, found)
