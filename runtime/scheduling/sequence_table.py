"""The running sequences of a model: the slots of its instances, and the backlog of sequences without one.

A sequence begins with a request that has the start flag and keeps the slot of one instance until its request
with the end flag was taken, it was idle too long, or one of its requests left without a run. Sequences
without a slot wait in the order of their arrival. Contract: plain bookkeeping, without clocks, futures or
timers. The texts are Triton's.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from interlingua.runtime.scheduling.queue import Entry, Memory
from interlingua.schemas import InferenceError, invalid_tensor
from interlingua.schemas import Sequence as Place


@dataclass(eq=False, slots=True)
class LiveSequence:
    """``waiting`` are its requests that were not taken, ``inside`` counts those that are not done, ``last``
    is when one came or was done. ``begun``: one was taken; ``ended``: the last arrival had the end flag."""

    id: int | str
    last: float
    waiting: deque[Entry] = field(default_factory=deque)
    memory: Memory = field(default_factory=dict)
    inside: int = 0
    begun: bool = False
    ended: bool = False
    lane: Lane | None = None
    slot: int = -1


class Lane:
    """The sequences of one instance by their slot, up to ``size``; ``ready`` are those with a waiting
    request."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.slots: dict[int, LiveSequence] = {}
        self.ready: dict[LiveSequence, None] = {}
        self._freed: list[int] = []
        self._unused = 0

    @property
    def next_slot(self) -> int | None:
        if self._freed:
            return self._freed[0]
        return self._unused if self._unused < self.size else None

    def give(self, sequence: LiveSequence) -> None:
        if self._freed:
            slot = heapq.heappop(self._freed)
        else:
            slot, self._unused = self._unused, self._unused + 1
        self.slots[slot] = sequence
        sequence.lane, sequence.slot = self, slot
        self.note(sequence)

    def free(self, sequence: LiveSequence) -> None:
        del self.slots[sequence.slot]
        self.ready.pop(sequence, None)
        heapq.heappush(self._freed, sequence.slot)
        sequence.lane, sequence.slot = None, -1

    def note(self, sequence: LiveSequence) -> None:
        """The waiting requests of ``sequence`` have changed."""
        if sequence.waiting:
            self.ready[sequence] = None
        else:
            self.ready.pop(sequence, None)


def not_started(model: str, identity: int | str) -> InferenceError:
    """The error for a request to ``model`` whose sequence has not started."""
    return invalid_tensor(
        f"inference request for sequence {identity} to model '{model}' must specify the START flag on the "
        "first request of the sequence"
    )


class SequenceTable:
    """The sequences of ``model``, on ``lanes`` instances with ``slots`` each. ``ready(number)``: whether an
    instance would run anything; one that would not gets sequences only if no other is free."""

    def __init__(self, model: str, lanes: int, slots: int, ready: Callable[[int], bool]) -> None:
        self.lanes = tuple(Lane(number, slots) for number in range(lanes))
        self._model = model
        self._ready = ready
        # by the time of the last request, the oldest first
        self._live: OrderedDict[int | str, LiveSequence] = OrderedDict()
        self._backlog: OrderedDict[LiveSequence, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveSequence]:
        return iter(self._live.values())

    @property
    def first_to_idle(self) -> LiveSequence | None:
        """The sequence whose last request was first."""
        return next(iter(self._live.values()), None)

    def waiting_in_slots(self) -> Iterator[Entry]:
        """The waiting requests of all sequences that have a slot."""
        for lane in self.lanes:
            for sequence in lane.ready:
                yield from sequence.waiting

    def check(self, place: Place | None) -> Place:
        """``place``, if a request may have it. Raises INVALID_TENSOR for a request without a sequence, and
        for the first of a sequence without the start flag."""
        if place is None:
            raise invalid_tensor(
                f"inference request to model '{self._model}' must specify a non-zero or non-empty "
                "correlation ID"
            )
        if not place.start:
            known = self._live.get(place.id)
            if known is None or known.ended:
                raise not_started(self._model, place.id)
        return place

    def enter(self, entry: Entry, place: Place, now: float) -> LiveSequence:
        """Put ``entry``, whose ``place`` was checked, into its sequence. A start in a sequence that has not
        ended restarts it after the waiting requests, in the same slot."""
        sequence = self._live.get(place.id)
        if sequence is None:
            sequence = self._live[place.id] = LiveSequence(place.id, now)
            self._backlog[sequence] = None
            self._fill()
        sequence.waiting.append(entry)
        _note(sequence)
        sequence.inside += 1
        sequence.ended = place.end
        self.touch(sequence, now)
        return sequence

    def touch(self, sequence: LiveSequence, now: float) -> None:
        sequence.last = now
        if self._live.get(sequence.id) is sequence:
            self._live.move_to_end(sequence.id)

    def take(self, sequence: LiveSequence) -> Entry:
        entry = sequence.waiting.popleft()
        _note(sequence)
        if starts(entry):
            sequence.memory = {}
        sequence.begun = True
        entry.memory = sequence.memory
        if sequence.ended and not sequence.waiting:
            self.over(sequence)
        return entry

    def drop(self, sequence: LiveSequence, entry: Entry) -> list[Entry]:
        """Remove the waiting ``entry``, which never runs, and return the requests that cannot follow in
        ``sequence``."""
        kept = deque[Entry]()
        dropped: list[Entry] = []
        met = False
        for each in sequence.waiting:
            if each is entry:
                met = True
            elif met and not starts(each):
                dropped.append(each)
            else:
                kept.append(each)
                met = False
        sequence.waiting = kept
        _note(sequence)
        # the last request may be gone, and then nothing may follow it
        sequence.ended |= met
        if met and not kept:
            self.over(sequence)
        return dropped

    def over(self, sequence: LiveSequence) -> None:
        """``sequence``, without waiting requests, has ended."""
        if self._live.get(sequence.id) is sequence:
            del self._live[sequence.id]
        self._backlog.pop(sequence, None)
        if sequence.lane is not None:
            sequence.lane.free(sequence)
            self._fill()

    def expire(self, now: float, idle_secs: float) -> None:
        """End the sequences that were idle for so long and have no request inside."""
        while (first := self.first_to_idle) is not None and first.last + idle_secs <= now:
            if first.inside:
                self.touch(first, now)
            else:
                self.over(first)

    def _fill(self) -> None:
        """Assign free slots to waiting sequences: on all instances the first slots first."""
        while self._backlog:
            free = [
                (not self._ready(lane.number), slot, lane.number)
                for lane in self.lanes
                if (slot := lane.next_slot) is not None
            ]
            if not free:
                return
            sequence, _ = self._backlog.popitem(last=False)
            self.lanes[min(free)[-1]].give(sequence)


def starts(entry: Entry) -> bool:
    place = entry.request.sequence
    return place is not None and place.start


def _note(sequence: LiveSequence) -> None:
    if sequence.lane is not None:
        sequence.lane.note(sequence)
