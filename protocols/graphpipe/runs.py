"""Copies many runs of bytes from one place to another: short ones by NumPy, thousands in one step, long ones
by themselves. A slice in Python costs as much as a hundred bytes.

Contract: memory beside the target is bounded, whatever the sizes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

_STEP = 1 << 11
"""How many runs are copied in one step: what a step needs stays in the processor's cache."""

_LONG = 1 << 10
"""A run above this size is copied by itself, so a step has an index of at most 16 MiB."""


def copy_runs(source: Bytes, starts: Places, target: Bytes, places: Places, sizes: Places) -> None:
    """Copy ``sizes[i]`` bytes at ``starts[i]`` in ``source`` to ``places[i]`` in ``target``. All must lie
    inside."""
    long = sizes > _LONG
    if long.any():
        for start, place, size in zip(
            starts[long].tolist(), places[long].tolist(), sizes[long].tolist(), strict=True
        ):
            target[place : place + size] = source[start : start + size]
        short = ~long
        starts, places, sizes = starts[short], places[short], sizes[short]
    for first in range(0, len(sizes), _STEP):
        step = slice(first, first + _STEP)
        some = sizes[step]
        ends = np.cumsum(some)
        begins = ends - some
        run = np.arange(ends[-1])
        target[run + np.repeat(places[step] - begins, some)] = source[
            run + np.repeat(starts[step] - begins, some)
        ]
