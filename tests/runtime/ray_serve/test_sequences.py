"""The courses of sequences: one request after another, at the replica of the start."""

from __future__ import annotations

import asyncio

import pytest

from interlingua.runtime.ray_serve import sequences
from interlingua.runtime.ray_serve.sequences import SequenceCourses
from interlingua.schemas import Sequence


async def test_a_sequence_stays_at_its_replica_until_its_end() -> None:
    courses = SequenceCourses()
    async with courses.turn(Sequence(1, start=True)) as course:
        assert course.replica == ""
        course.replica = "r1"
    async with courses.turn(Sequence(1)) as course:
        assert course.replica == "r1"
    async with courses.turn(Sequence(2, start=True)) as course:
        assert course.replica == ""
    assert len(courses) == 1
    async with courses.turn(Sequence(1, end=True)) as course:
        assert course.replica == "r1"
    assert len(courses) == 0


async def test_a_start_chooses_again() -> None:
    courses = SequenceCourses()
    async with courses.turn(Sequence(1, start=True)) as course:
        course.replica = "r1"
    async with courses.turn(Sequence(1, start=True)) as course:
        assert course.replica == ""


async def test_a_lost_sequence_has_to_begin_again() -> None:
    """Its replica, which still has its state, may come first among several."""
    courses = SequenceCourses()
    for identity in (1, 2):
        async with courses.turn(Sequence(identity, start=True)) as course:
            course.replica = "r1"
    courses.end(lambda identity: identity == 1)
    for _ in range(2):
        async with courses.turn(Sequence(1, end=True)) as course:
            assert course.lost
    async with courses.turn(Sequence(2)) as course:
        assert not course.lost
    async with courses.turn(Sequence(1, start=True)) as course:
        assert not course.lost


async def test_the_second_request_waits_for_the_replica_of_the_first() -> None:
    courses = SequenceCourses()
    order: list[str] = []
    begun, go = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with courses.turn(Sequence("s", start=True)) as course:
            begun.set()
            await go.wait()
            course.replica = "r9"
            order.append("first")

    async def second() -> None:
        await begun.wait()
        async with courses.turn(Sequence("s")) as course:
            order.append(course.replica)

    tasks = [asyncio.create_task(each()) for each in (first, second)]
    await begun.wait()
    await asyncio.sleep(0)
    assert order == []
    go.set()
    await asyncio.gather(*tasks)
    assert order == ["first", "r9"]


async def test_a_failed_start_leaves_nothing() -> None:
    courses = SequenceCourses()
    with pytest.raises(ZeroDivisionError):
        async with courses.turn(Sequence(1, start=True)):
            raise ZeroDivisionError
    assert len(courses) == 0


async def test_an_idle_sequence_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    courses = SequenceCourses()
    async with courses.turn(Sequence(1, start=True)) as course:
        course.replica = "r1"
    monkeypatch.setattr(sequences, "IDLE_SECS", -1.0)
    async with courses.turn(Sequence(2, start=True)):
        assert len(courses) == 1
