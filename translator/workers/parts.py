"""The configuration of each front end: limits that front ends do not hold together are divided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from interlingua.protocols.section import Section
from interlingua.translator.config.options import Config


def parts_of(config: Config, count: int) -> Iterator[Config]:
    """``config`` for each of ``count`` front ends. Limits add up to the whole, but are 1 at least; each tap
    writes files of its own, with the number of the front end before the suffix."""
    for number in range(count):
        part = partial(_part_of, number=number, count=count)
        load = ("max_inflight_requests", "max_inflight_bytes")
        listeners = tuple(part(each, load) for each in config.listeners)
        tap = config.tap
        if tap is not None:
            path = Path(tap.path)
            tap = tap.model_copy(update={"path": str(path.with_suffix(f".{number}{path.suffix}"))})
        yield config.model_copy(
            update={
                "server": part(config.server, load),
                "listeners": listeners,
                "tap": tap,
            }
        )


S = TypeVar("S", bound=Section)


def _part_of(section: S, keys: Iterable[str], number: int, count: int) -> S:
    return section.model_copy(update={key: _part(getattr(section, key), number, count) for key in keys})


def _part(whole: int | None, number: int, count: int) -> int | None:
    if whole is None:
        return None
    return max(1, whole * (number + 1) // count - whole * number // count)
