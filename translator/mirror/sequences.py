"""Which sequences are copied, and in which order: whole or not at all, one request after the other.

What is decided for the first request of a sequence holds for the others. Copies go in the order in which
their requests came, however the answers to these came. Where one of them cannot be copied, the rest would
mean something else, and is left out.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from interlingua.schemas import InferRequest

T = TypeVar("T")

_MOST = 10_000
"""Sequences that are known at once. Some never end, because their client has gone away: the one that has been
silent the longest is left out then."""


@dataclass(slots=True)
class _Lane(Generic[T]):
    """The sequences of one id, one after the other. ``copied``: whether the one now is. ``coming`` are the
    numbers of requests that have not been handed out, ``here`` the copies of those that were answered
    already. ``round`` tells apart what was wanted before the lane was broken."""

    model: str
    copied: bool = False
    coming: deque[int] = field(default_factory=deque)
    here: dict[int, T] = field(default_factory=dict)
    busy: bool = False
    round: int = 0


class Sequences(Generic[T]):
    """Hands out copies, of whatever kind, by calling ``start``; each is over when ``done`` is called."""

    def __init__(self, start: Callable[[T], None]) -> None:
        self._start = start
        self._lanes: OrderedDict[int | str, _Lane[T]] = OrderedDict()
        self._wanted: dict[int, tuple[int | str, _Lane[T], int]] = {}

    def wants(self, request: InferRequest, sample: Callable[[], bool]) -> bool:
        """Whether ``request``, which is part of a sequence, is to be copied; ``sample`` decides for a new
        one."""
        sequence = request.sequence
        assert sequence is not None, "asked of sequences alone"  # noqa: S101
        lane = self._lanes.get(sequence.id)
        if lane is not None and lane.copied and lane.model != request.model:
            return False  # the model that copies go to has one of this id already
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
        lane.coming.append(number)
        lane.copied = not sequence.end
        self._wanted[number] = sequence.id, lane, lane.round
        self._lanes.move_to_end(sequence.id)
        return True

    def came(self, number: int, copy: T) -> bool:
        """The request of that number has been answered, and ``copy`` made of it. False where its sequence was
        broken meanwhile."""
        id_, lane, turn = self._wanted.pop(number)
        if turn != lane.round:
            return False
        lane.here[number] = copy
        self._advance(id_, lane)
        return True

    def done(self, id_: int | str) -> None:
        """The copy that was handed out for sequence ``id_`` is over: the next may go."""
        lane = self._lanes[id_]
        lane.busy = False
        self._advance(id_, lane)

    def lost(self, number: int) -> list[T]:
        """The request of that number is not copied: the copies that must not be made then."""
        id_, lane, turn = self._wanted.pop(number)
        return self.broken(id_) if turn == lane.round else []

    def broken(self, id_: int | str) -> list[T]:
        """What was copied of sequence ``id_`` last is not what its caller had: the copies that wait, which
        must not be made then."""
        lane = self._lanes[id_]
        left = list(lane.here.values())
        lane.here.clear()
        lane.coming.clear()
        lane.copied = False
        lane.round += 1
        self._forget(id_, lane)
        return left

    def overdue(self) -> list[T]:
        """Leave out the sequence that has been silent the longest, where there are too many: its copies."""
        if len(self._lanes) <= _MOST:
            return []
        return self.broken(next(iter(self._lanes)))

    def _advance(self, id_: int | str, lane: _Lane[T]) -> None:
        if not lane.busy and lane.coming and lane.coming[0] in lane.here:
            lane.busy = True
            self._start(lane.here.pop(lane.coming.popleft()))
        self._forget(id_, lane)

    def _forget(self, id_: int | str, lane: _Lane[T]) -> None:
        if not (lane.copied or lane.coming or lane.busy):
            self._lanes.pop(id_, None)
