"""Copies many runs of bytes: short ones by NumPy, thousands in one step, long ones one by one. A slice in
Python costs as much as a hundred bytes. Memory besides the target is bounded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

_STEP = 1 << 11
"""The number of runs copied in one step, so that a step fits into the processor's cache."""

_LONG = 1 << 10
"""A longer run is copied alone, so the index of a step has at most 16 MiB."""


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
