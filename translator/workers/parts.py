"""The configuration of each front end: limits that front ends do not hold together are divided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeVar

from interlingua.protocols.section import Section
from interlingua.translator.config.options import Config

_LOAD = ("max_inflight_requests", "max_inflight_bytes")


def parts_of(config: Config, count: int) -> Iterator[Config]:
    """``config`` for each of ``count`` front ends. Limits add up to the whole, but are 1 at least."""
    for number in range(count):
        part = partial(_part_of, number=number, count=count)
        tap = None if config.tap is None else part(config.tap, ("max_queue_bytes",))
        yield config.model_copy(
            update={
                "server": part(config.server, _LOAD),
                "listeners": tuple(part(each, _LOAD) for each in config.listeners),
                "tap": tap,
            }
        )


S = TypeVar("S", bound=Section)


def _part_of(section: S, keys: Iterable[str], number: int, count: int) -> S:
    return section.model_copy(update={key: _part(getattr(section, key), number, count) for key in keys})


def _part(whole: int | None, number: int, count: int) -> int | None:
    if not whole:
        return whole
    return max(1, whole * (number + 1) // count - whole * number // count)
