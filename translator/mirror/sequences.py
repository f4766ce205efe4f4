"""Which sequences to copy, and in which order: whole or not at all, one request after the other.

The decision for the first request of a sequence applies to the rest. Copies are sent in the order of their
requests, whatever the order of the answers. If one request cannot be copied, the rest of its sequence is
dropped: without it they mean something else."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from interlingua.schemas import InferRequest

T = TypeVar("T")

_MOST = 10_000
"""The maximum number of tracked sequences. A client that disconnects never ends its sequence, so the longest
idle one is dropped."""


@dataclass(slots=True)
class _Lane(Generic[T]):
    """The sequences of one id, one after the other. ``copied``: whether the current one is. ``pending`` has
    the numbers of requests not yet handed out, ``ready`` the copies of those already answered. ``generation``
    identifies requests chosen before the lane was broken."""

    model: str
    copied: bool = False
    pending: deque[int] = field(default_factory=deque)
    ready: dict[int, T] = field(default_factory=dict)
    busy: bool = False
    generation: int = 0


class Sequences(Generic[T]):
    """Hands out copies by calling ``start``; the caller reports the end of each with ``done``."""

    def __init__(self, start: Callable[[T], None]) -> None:
        self._start = start
        self._lanes: OrderedDict[int | str, _Lane[T]] = OrderedDict()
        self._chosen: dict[int, tuple[int | str, _Lane[T], int]] = {}

    def wants(self, request: InferRequest, sample: Callable[[], bool]) -> bool:
        """Whether to copy ``request``, which is part of a sequence; ``sample`` decides for a new sequence."""
        sequence = request.sequence
        assert sequence is not None, "the request is part of a sequence"  # noqa: S101
        lane = self._lanes.get(sequence.id)
        if lane is not None and lane.copied and lane.model != request.model:
            return False  # the mirror model already has a sequence of this id
        if sequence.start:
            copied = sample()
            if lane is None:
                if not copied:
                    return False
                lane = self._lanes[sequence.id] = _Lane(request.model)
            lane.model, lane.copied = request.model, copied
        if lane is None or not lane.copied:
            return False
        number = request.context.request_number
        lane.pending.append(number)
        lane.copied = not sequence.end
        self._chosen[number] = sequence.id, lane, lane.generation
        self._lanes.move_to_end(sequence.id)
        return True

    def answered(self, number: int, copy: T) -> bool:
        """Accept ``copy`` of the answered request ``number``. False if its sequence has been broken."""
        id_, lane, generation = self._chosen.pop(number)
        if generation != lane.generation:
            return False
        lane.ready[number] = copy
        self._advance(id_, lane)
        return True

    def done(self, id_: int | str) -> None:
        """The copy in flight of sequence ``id_`` has ended: hand out the next."""
        lane = self._lanes[id_]
        lane.busy = False
        self._advance(id_, lane)

    def lost(self, number: int) -> list[T]:
        """Request ``number`` was not copied: break its sequence and return its waiting copies."""
        id_, lane, generation = self._chosen.pop(number)
        return self.broken(id_) if generation == lane.generation else []

    def broken(self, id_: int | str) -> list[T]:
        """Stop copying sequence ``id_``, whose last copy failed on one side only; return its waiting
        copies."""
        lane = self._lanes[id_]
        left = list(lane.ready.values())
        lane.ready.clear()
        lane.pending.clear()
        lane.copied = False
        lane.generation += 1
        self._forget(id_, lane)
        return left

    def overdue(self) -> list[T]:
        """Drop the longest idle sequence if there are too many; return its waiting copies."""
        if len(self._lanes) <= _MOST:
            return []
        return self.broken(next(iter(self._lanes)))

    def _advance(self, id_: int | str, lane: _Lane[T]) -> None:
        if not lane.busy and lane.pending and lane.pending[0] in lane.ready:
            lane.busy = True
            self._start(lane.ready.pop(lane.pending.popleft()))
        self._forget(id_, lane)

    def _forget(self, id_: int | str, lane: _Lane[T]) -> None:
        if not (lane.copied or lane.pending or lane.busy):
            self._lanes.pop(id_, None)
