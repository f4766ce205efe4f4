"""Which sequences to copy, and in which order: whole or not at all, one request after the other.

The decision for the first request of a sequence applies to the rest. Copies are sent in the order of their
requests, whatever the order of the answers. If one request cannot be copied, the rest of its sequence is
dropped: without it they mean something else. All of that also holds for sequences whose requests come to
several front ends."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from interlingua.schemas import InferRequest
from interlingua.translator.mirror.shared_sequences import SharedSequences

T = TypeVar("T")

_MOST = 10_000
"""The maximum number of tracked sequences. A client that disconnects never ends its sequence, so the longest
idle one is dropped."""


@dataclass(slots=True)
class _Lane(Generic[T]):
    """The sequences of one id, one after the other. ``copied``: whether the current one is. ``pending`` has
    the numbers of requests not yet handed out, ``ready`` the copies of those already answered, ``running``
    the number of the one in flight, 0 for none; ``last`` came last. ``generation`` identifies requests chosen
    before the lane was broken."""

    model: str
    copied: bool = False
    pending: deque[int] = field(default_factory=deque)
    ready: dict[int, T] = field(default_factory=dict)
    running: int = 0
    last: int = 0
    generation: int = 0

    @property
    def first(self) -> int:
        """The first request whose copy is not done; 0 for none."""
        return self.running or (self.pending[0] if self.pending else 0)


class Sequences(Generic[T]):
    """Hands out copies by calling ``start``; the caller reports the end of each with ``done``. With
    ``shared`` it calls ``dropped`` with copies that wait and follow one that another process has dropped."""

    def __init__(
        self,
        start: Callable[[T], None],
        dropped: Callable[[list[T]], None] = lambda copies: None,
        shared: SharedSequences | None = None,
    ) -> None:
        self._start = start
        self._dropped = dropped
        self._shared = shared
        self._lanes: OrderedDict[int | str, _Lane[T]] = OrderedDict()
        self._chosen: dict[int, tuple[int | str, _Lane[T], int]] = {}
        self._held_up: set[int | str] = set()
        self._dropping: set[str] = set()
        if shared is not None:
            self._exits = shared.exits
            shared.listen(self.look)

    def wants(self, request: InferRequest, sample: Callable[[], bool]) -> bool:
        """Whether to copy ``request``, which is part of a sequence; ``sample`` decides for a new sequence."""
        sequence = request.sequence
        assert sequence is not None, "the request is part of a sequence"  # noqa: S101
        lane = self._lanes.get(sequence.id)
        if lane is not None and lane.copied and lane.model != request.model:
            return False  # the mirror model already has a sequence of this id
        number = request.context.request_number
        copied = sample() if sequence.start else lane is not None and lane.copied
        if self._shared is not None:
            copied = self._agree(self._shared, request, copied)
        if lane is None:
            if not copied:
                return False
            lane = self._lanes[sequence.id] = _Lane(request.model)
        lane.copied = copied and not sequence.end
        if not copied:
            self._forget(sequence.id, lane)
            return False
        lane.model, lane.last = request.model, number
        lane.pending.append(number)
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
        lane.running = 0
        self._publish(id_, lane)
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
        if self._shared is not None:
            name = self._shared.name(id_)
            self._shared.drop(name, lane.first or lane.last)
            self._dropping.add(name)
        lane.ready.clear()
        lane.pending.clear()
        lane.copied = False
        lane.generation += 1
        self._publish(id_, lane)
        self._forget(id_, lane)
        return left

    def overdue(self) -> list[T]:
        """Drop the longest idle sequence if there are too many; return its waiting copies."""
        first = next(iter(self._lanes), None)
        if first is None:
            return []
        lane = self._lanes[first]
        if self._shared is not None and lane.copied and not lane.first:
            # it may have ended in another process
            lane.copied = self._shared.is_copied(self._shared.name(first))
            self._forget(first, lane)
        return self.broken(first) if len(self._lanes) > _MOST else []

    def look(self) -> None:
        """Another process has changed something."""
        shared = self._shared
        assert shared is not None, "there are other processes"  # noqa: S101
        exits = shared.exits
        if exits != self._exits:
            self._exits = exits
            # which sequences had a copy in the process that has exited is unknown
            for id_ in list(self._lanes):
                self._dropped(self.broken(id_))
        held_up, self._held_up = self._held_up, set()
        for id_ in held_up & self._lanes.keys():
            self._advance(id_, self._lanes[id_])
        self._dropping = {name for name in self._dropping if not shared.settle(name)}

    def close(self) -> None:
        """No more requests come."""
        if self._shared is not None:
            self._shared.close(self.look)

    def _agree(self, shared: SharedSequences, request: InferRequest, copied: bool) -> bool:
        """Whether to copy ``request``, as all processes have it; ``copied`` is the decision for a new
        sequence."""
        sequence, number = request.sequence, request.context.request_number
        assert sequence is not None, "the request is part of a sequence"  # noqa: S101
        name = shared.name(sequence.id)
        lane = self._lanes.get(sequence.id)
        if name in self._dropping and shared.settle(name):
            self._dropping.discard(name)
        goes_on = shared.is_copied(name)
        if goes_on and not shared.is_of(name, request.model):
            return False  # the mirror model already has a sequence of this id
        if sequence.start and not copied and goes_on:
            shared.end(name, number)
        if not (copied if sequence.start else goes_on):
            return False
        first = number if lane is None or not lane.first else lane.first
        if sequence.start:
            shared.begin(name, number, request.model)
        # another process may drop a copy at this moment: it sees that this one waits, or this one sees that
        if shared.wait_from(name, first) and shared.is_copied(name):
            if sequence.end:
                shared.end(name, number)
            return True
        shared.end(name, number)
        shared.wait_from(name, 0 if lane is None else lane.first)
        return False

    def _publish(self, id_: int | str, lane: _Lane[T]) -> None:
        if self._shared is not None:
            self._shared.wait_from(self._shared.name(id_), lane.first)

    def _advance(self, id_: int | str, lane: _Lane[T]) -> None:
        if not lane.running and lane.pending:
            number = lane.pending[0]
            if self._shared is not None:
                name = self._shared.name(id_)
                if self._shared.is_dropped(name, number):
                    self._dropped(self.broken(id_))
                    return
                if not self._shared.is_next(name, number):
                    self._held_up.add(id_)
                    return
            if number in lane.ready:
                lane.running = lane.pending.popleft()
                self._start(lane.ready.pop(number))
        self._forget(id_, lane)

    def _forget(self, id_: int | str, lane: _Lane[T]) -> None:
        if lane.copied or lane.pending or lane.running or self._lanes.pop(id_, None) is None:
            return
        if self._shared is not None:
            self._shared.forget(self._shared.name(id_))
