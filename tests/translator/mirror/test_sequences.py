"""Sequences are copied whole or not at all, in order, and after a copy that is missing nothing more of them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.shared_counts import SharedCounts, page_bytes
from interlingua.runtime.upstream.pool.shared_gate import Doorbells
from interlingua.schemas import Context, InferRequest, Sequence
from interlingua.translator.mirror import sequences
from interlingua.translator.mirror.sequences import Sequences
from interlingua.translator.mirror.shared_sequences import TABLES, SharedSequences

Step = tuple[int, int]
"""The number of a sequence, and of a request in it."""


class Stage:
    """Sequences of ids 1 to 3, some of which are chosen, whose requests come, are answered and are copied in
    any order that can be. ``lossy``: copies may be left out, and may come out otherwise. Requests come to any
    of ``processes``, which share what they have; one process shares nothing."""

    def __init__(self, data: st.DataObject, lossy: bool, processes: Processes | None = None) -> None:
        self.draw = data.draw
        self.lossy = lossy
        self.bells: list[Doorbells] = []
        self.tracked: list[Sequences[int]] = [Sequences(self.start)]
        if processes is not None:
            self.bells, shared = processes.fresh()
            self.tracked = [Sequences(self.start, self.leave_out, each) for each in shared]
        self.process: dict[int, int] = {}
        self.lengths: dict[int, int] = {}
        self.ids: dict[int, int] = {}
        self.chosen: dict[int, bool] = {}
        self.next_of_id: dict[int, Step | None] = dict.fromkeys((1, 2, 3))
        self.steps: dict[int, Step] = {}
        self.unanswered: list[int] = []
        self.under_way: dict[int, int] = {}
        self.started: list[Step] = []
        self.wanted: set[Step] = set()
        self.hurt: set[int] = set()

    def start(self, number: int) -> None:
        sequence, _ = self.steps[number]
        assert self.ids[sequence] not in self.under_way, "two copies of one id at once"
        self.under_way[self.ids[sequence]] = number
        self.started.append(self.steps[number])

    def ask(self) -> None:
        """The next request of some id comes."""
        id_ = self.draw(st.sampled_from([1, 2, 3]))
        if self.next_of_id[id_] is None:
            sequence = len(self.lengths)
            self.lengths[sequence] = self.draw(st.integers(1, 4))
            self.ids[sequence], self.chosen[sequence] = id_, self.draw(st.booleans())
            self.next_of_id[id_] = sequence, 0
        step = self.next_of_id[id_]
        assert step is not None
        sequence, place = step
        last = place == self.lengths[sequence] - 1
        number = len(self.steps) + 1
        self.steps[number] = step
        asked = InferRequest(
            "m", (), sequence=Sequence(id_, place == 0, last), context=Context(request_number=number)
        )
        self.process[number] = self.draw(st.integers(0, len(self.tracked) - 1))
        if self.of(number).wants(asked, lambda: self.chosen[sequence]):
            self.wanted.add(step)
            self.unanswered.append(number)
        self.next_of_id[id_] = None if last else (sequence, place + 1)

    def answer(self) -> None:
        """Some request is answered, and copied or left out."""
        number = self.unanswered.pop(self.draw(st.integers(0, len(self.unanswered) - 1)))
        sequence, _ = self.steps[number]
        if self.lossy and self.draw(st.integers(0, 5)) == 0:
            self.hurt.add(sequence)
            self.leave_out(self.of(number).lost(number))
        elif not self.of(number).answered(number, number):
            self.hurt.add(sequence)

    def finish(self) -> None:
        """Some copy is over."""
        id_ = self.draw(st.sampled_from(sorted(self.under_way)))
        number = self.under_way[id_]
        tracked = self.of(number)
        if self.lossy and self.draw(st.integers(0, 5)) == 0:
            self.hurt.add(self.steps[number][0])
            self.leave_out(tracked.broken(id_))
        del self.under_way[id_]
        tracked.done(id_)

    def look(self) -> None:
        """Some process learns of the others."""
        self.draw(st.sampled_from(self.bells)).answer()

    def of(self, number: int) -> Sequences[int]:
        return self.tracked[self.process[number]]

    def leave_out(self, numbers: list[int]) -> None:
        for number in numbers:
            self.hurt.add(self.steps[number][0])

    def act(self, asking: bool) -> bool:
        """Something happens; False where nothing can."""
        can = (
            [self.ask] * asking + [self.answer] * bool(self.unanswered) + [self.finish] * bool(self.under_way)
        )
        can += [self.look] * bool(can and self.bells)
        if can:
            self.draw(st.sampled_from(can))()
        return bool(can)

    @property
    def copied_now(self) -> set[int]:
        """The ids of which a sequence goes on that is copied."""
        return {id_ for id_, step in self.next_of_id.items() if step and self.chosen[step[0]]}

    def end(self) -> None:
        """All that can happen happens."""
        goes_on = True
        while goes_on:
            for each in self.bells:
                each.answer()
            goes_on = self.act(asking=False)


class Processes:
    """The memory of three front ends."""

    def __init__(self) -> None:
        self.rows = 3
        shape = 1, TABLES
        page = mmap.mmap(-1, page_bytes(self.rows, *shape))
        self.counts = [SharedCounts(page, row, self.rows, *shape) for row in range(self.rows)]
        self.descriptors = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(self.rows)]

    def fresh(self) -> tuple[list[Doorbells], list[SharedSequences]]:
        """The bells of each and what it shares, without anything from before."""
        for row in range(self.rows):
            self.counts[0].clear(row)
        bells = [Doorbells(self.descriptors, row) for row in range(self.rows)]
        shared = [
            SharedSequences(1, [counts.names(table) for table in range(TABLES)], counts.count(0), bell)
            for counts, bell in zip(self.counts, bells, strict=True)
        ]
        return bells, shared


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    for descriptor in found.descriptors:
        os.close(descriptor)


@given(st.data(), st.integers(1, 40), st.booleans())
def test_whole_or_not_at_all_and_in_order(data: st.DataObject, steps: int, lossy: bool) -> None:
    stage = Stage(data, lossy)
    check_order(stage, steps)
    if not lossy:
        # what is over is forgotten
        assert set(stage.tracked[0]._lanes) == stage.copied_now


@given(data=st.data(), steps=st.integers(1, 40), lossy=st.booleans())
def test_the_same_of_requests_that_come_to_several_processes(
    processes: Processes, data: st.DataObject, steps: int, lossy: bool
) -> None:
    check_order(Stage(data, lossy, processes), steps)


def check_order(stage: Stage, steps: int) -> None:
    """Have ``steps`` happen, and all that follows."""
    lossy = stage.lossy
    for _ in range(steps):
        stage.act(asking=True)
    stage.end()
    for id_ in (1, 2, 3):
        of_id = [step for step in stage.started if stage.ids[step[0]] == id_]
        assert of_id == sorted(of_id)
    for sequence, chosen in stage.chosen.items():
        started = [place for number, place in stage.started if number == sequence]
        wanted = sorted(place for number, place in stage.wanted if number == sequence)
        # always from the start on, with nothing missing in between
        assert started == list(range(len(started)))
        if not lossy:
            asked = sorted(place for number, place in stage.steps.values() if number == sequence)
            assert started == wanted == (asked if chosen else [])
        elif not chosen:
            assert not wanted
    assert not any(each._chosen for each in stage.tracked)


def requested(id_: int | str, number: int, model: str = "m", *, start: bool = False) -> InferRequest:
    return InferRequest(model, (), sequence=Sequence(id_, start), context=Context(request_number=number))


def test_the_middle_of_an_unknown_sequence_is_not_copied() -> None:
    tracked: Sequences[int] = Sequences(lambda copy: None)
    assert not tracked.wants(requested(7, 1), lambda: True)


def test_two_models_with_one_id_do_not_meet() -> None:
    tracked: Sequences[int] = Sequences(lambda copy: None)
    assert tracked.wants(requested(7, 1, start=True), lambda: True)
    assert not tracked.wants(requested(7, 2, "other", start=True), lambda: True)
    assert tracked.wants(requested(7, 3), lambda: True)


def test_of_too_many_the_most_silent_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "_MOST", 2)
    started: list[int] = []
    tracked: Sequences[int] = Sequences(started.append)
    for number, id_ in ((1, 1), (2, 2)):
        assert tracked.wants(requested(id_, number, start=True), lambda: True)
    assert tracked.wants(requested(2, 3), lambda: True)
    # answered before the one that must go first
    assert tracked.wants(requested(1, 4), lambda: True)
    assert tracked.wants(requested(2, 5), lambda: True)
    assert tracked.answered(4, 4)
    assert tracked.overdue() == []
    assert tracked.wants(requested(3, 6, start=True), lambda: True)
    assert tracked.overdue() == [4]
    assert not tracked.answered(1, 1)
    assert tracked.answered(2, 2)
    assert started == [2]
