"""The courses of sequences: one request after another, at the replica of the start."""

from __future__ import annotations

import asyncio

import pytest

from interlingua.runtime.ray_serve.sequences import SequenceCourses
from interlingua.schemas import ErrorCode, InferenceError, Sequence

IDLE_SECS = 600.0


async def test_a_sequence_stays_at_its_replica_until_its_end() -> None:
    courses = SequenceCourses("m", IDLE_SECS)
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
    courses = SequenceCourses("m", IDLE_SECS)
    async with courses.turn(Sequence(1, start=True)) as course:
        course.replica = "r1"
    async with courses.turn(Sequence(1, start=True)) as course:
        assert course.replica == ""


@pytest.mark.parametrize("place", [Sequence(1), Sequence(1, end=True)])
async def test_a_sequence_has_to_start(place: Sequence) -> None:
    courses = SequenceCourses("m", IDLE_SECS)
    with pytest.raises(InferenceError, match="must specify the START flag"):
        async with courses.turn(place):
            pytest.fail("it has not started")
    assert len(courses) == 0


async def test_a_lost_sequence_has_to_begin_again() -> None:
    """Its replica, which still has its state, may come first among several."""
    courses = SequenceCourses("m", IDLE_SECS)
    for identity in (1, 2):
        async with courses.turn(Sequence(identity, start=True)) as course:
            course.replica = "r1"
    courses.end(lambda identity: identity == 1)
    with pytest.raises(InferenceError, match="START"):
        async with courses.turn(Sequence(1, end=True)):
            pytest.fail("it is lost")
    async with courses.turn(Sequence(2)) as course:
        assert course.replica == "r1"
    async with courses.turn(Sequence(1, start=True)) as course:
        assert course.replica == ""


async def test_a_sequence_that_is_lost_during_a_request_has_to_begin_again() -> None:
    courses = SequenceCourses("m", IDLE_SECS)
    async with courses.turn(Sequence(1, start=True)) as course:
        courses.end(lambda identity: True)
        course.replica = "r1"
    with pytest.raises(InferenceError, match="START"):
        async with courses.turn(Sequence(1)):
            pytest.fail("it is lost")


async def started(courses: SequenceCourses) -> None:
    async with courses.turn(Sequence(1, start=True)) as course:
        course.replica = "r1"


async def test_a_request_that_fails_ends_its_sequence() -> None:
    """The replica may have run it, or not."""
    courses = SequenceCourses("m", IDLE_SECS)
    await started(courses)
    with pytest.raises(ConnectionError):
        async with courses.turn(Sequence(1)):
            raise ConnectionError
    assert len(courses) == 0


async def test_a_request_that_is_refused_leaves_its_sequence() -> None:
    courses = SequenceCourses("m", IDLE_SECS)
    await started(courses)
    with pytest.raises(InferenceError, match="busy"):
        async with courses.turn(Sequence(1)):
            raise InferenceError(ErrorCode.OVERLOADED, "busy")
    async with courses.turn(Sequence(1)) as course:
        assert course.replica == "r1"


async def test_a_request_that_leaves_before_its_turn_ends_its_sequence() -> None:
    """Those after it must not run without it."""
    courses = SequenceCourses("m", IDLE_SECS)
    await started(courses)

    async def run() -> None:
        async with courses.turn(Sequence(1)):
            pytest.fail("its turn has not come")

    async with courses.turn(Sequence(1)) as course:
        second, third = asyncio.create_task(run()), asyncio.create_task(run())
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        course.replica = "r1"
    with pytest.raises(InferenceError, match="START"):
        await third
    assert len(courses) == 0


async def test_the_second_request_waits_for_the_replica_of_the_first() -> None:
    courses = SequenceCourses("m", IDLE_SECS)
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
    courses = SequenceCourses("m", IDLE_SECS)
    with pytest.raises(ZeroDivisionError):
        async with courses.turn(Sequence(1, start=True)):
            raise ZeroDivisionError
    assert len(courses) == 0


async def test_an_idle_sequence_is_forgotten() -> None:
    courses = SequenceCourses("m", -1.0)
    await started(courses)
    async with courses.turn(Sequence(2, start=True)):
        assert len(courses) == 1
