"""Decides which runs of a model are inline: on the event loop, where a hop to a thread and back would cost
more than the run.

Runs in threads are measured by the shapes of their inputs. The fastest of many counts, because the clock of a
thread also counts its waits for Python's global lock. Inline runs are measured by CPU time, because the clock
also counts other processes; slow ones return the whole version to threads.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass

from interlingua.runtime.models.reshape import Run
from interlingua.schemas import Tensor

_RUNS = 32
"""The runs in threads after which a shape may be inline. Doubles with every return to threads, up to the
most, and halves if the inline runs before were many more."""
_MOST_RUNS = 1 << 16
_MANY_MORE = 8

_MARGIN = 4
"""The fastest run takes at most this part of the limit, because one with cold caches takes several times as
long."""

_SLOW = 10
"""An inline run of so many times the limit returns the version at once."""

_OVER, _MOST_OVER = 16, 64
"""A run over the limit adds the first, others subtract 1; above the second the version returns. Interrupts
count as CPU time too."""

_MOST_SHAPES = 1024
"""Known shapes; beyond these all are forgotten, so that clients cannot grow the table without end."""


def shapes_of(inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> Hashable:
    """Equal for runs of which one takes as long as another."""
    if len(inputs) == 1:
        return outputs, inputs[0].shape
    return outputs, *[(tensor.name, tensor.shape) for tensor in inputs]


@dataclass(slots=True)
class _Measured:
    """The last ``runs`` of a shape in threads, and the ``fastest`` of them in ns."""

    runs: int = 0
    fastest: int = 1 << 62


class InlineRuns:
    """The runs of a version whose duration the shapes of its inputs bound; those of up to ``limit_us`` may be
    inline. ``runs`` counts the inline ones, ``returns`` the returns to threads. Use on one event loop, except
    for :meth:`in_thread`: a count that threads lose only delays an inline run."""

    def __init__(self, run: Run, limit_us: int) -> None:
        self.runs = self.returns = 0
        self._run = run
        self._limit_ns = limit_us * 1000
        self._needed = _RUNS
        self._measured: dict[Hashable, _Measured] = {}
        self._inline: set[Hashable] = set()
        self._over = 0
        self._runs_before = 0

    def takes(self, shapes: Hashable) -> bool:
        """Whether a run of ``shapes``, by :func:`shapes_of`, is inline."""
        return shapes in self._inline

    def in_thread(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Run and measure. Raises the instance's errors."""
        began = time.monotonic_ns()
        tensors = self._run(inputs, outputs)
        self._learn(shapes_of(inputs, outputs), time.monotonic_ns() - began)
        return tensors

    def on_loop(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """Run on the event loop. Raises the instance's errors."""
        self.runs += 1
        began = time.thread_time_ns()
        try:
            return self._run(inputs, outputs)
        finally:
            taken = time.thread_time_ns() - began
            if taken > self._limit_ns:
                self._took_long(taken)
            elif self._over:
                self._over -= 1

    def _learn(self, shapes: Hashable, ns: int) -> None:
        measured = self._measured.get(shapes)
        if measured is None:
            if len(self._measured) >= _MOST_SHAPES:
                self._forget()
            measured = self._measured[shapes] = _Measured()
        measured.runs += 1
        measured.fastest = min(measured.fastest, ns)
        if measured.runs >= self._needed:
            if measured.fastest * _MARGIN <= self._limit_ns:
                self._inline.add(shapes)
            measured.runs, measured.fastest = 0, ns

    def _took_long(self, ns: int) -> None:
        self._over += _OVER
        if self._over <= _MOST_OVER and ns <= _SLOW * self._limit_ns:
            return
        self.returns += 1
        many = self.runs - self._runs_before > _MANY_MORE * self._needed
        self._needed = max(self._needed // 2, _RUNS) if many else min(self._needed * 2, _MOST_RUNS)
        self._runs_before = self.runs
        self._over = 0
        self._forget()

    def _forget(self) -> None:
        self._measured.clear()
        self._inline.clear()
