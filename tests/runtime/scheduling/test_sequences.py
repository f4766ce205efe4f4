"""Requests that belong together: where they run, what the model is told, and what it remembers."""

import asyncio
import random
import threading
import time

import numpy as np
import pytest

from interlingua.runtime.scheduling import sequence_scheduler
from interlingua.runtime.scheduling.policy import Limits
from interlingua.runtime.scheduling.sequence_policy import Direct, Oldest
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, Tensor
from interlingua.schemas.messages import Sequence
from tests.runtime.scheduling.models import refusal, settled
from tests.runtime.scheduling.sequence_models import Sums, model_of, requested, step, sums, total

BOTH = pytest.mark.parametrize("strategy", [Direct(), Oldest()], ids=["direct", "oldest"])


@BOTH
async def test_from_start_to_end(strategy: Direct | Oldest) -> None:
    instance = Sums()
    model = model_of(instance, strategy)
    assert [await total(model, 7, 1, "s"), await total(model, 7, 2), await total(model, 7, 4, "e")] == [
        1,
        3,
        7,
    ]
    error = await refusal(*requested(model, step(7, 1)))
    assert error.code is ErrorCode.INVALID_TENSOR
    assert error.message == (
        "inference request for sequence 7 to model 'm' must specify the START flag on the first request of "
        "the sequence"
    )
    assert await total(model, 8, 5, "se") == 5
    assert "START flag" in (await refusal(*requested(model, step(8, 1)))).message
    assert instance.batches == [[(7, 1, 1, -1)], [(7, 2, 0, -1)], [(7, 4, 0, 1)], [(8, 5, 1, 1)]]
    await model.close()


@BOTH
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (step(0, 1), "inference request to model 'm' must specify a non-zero or non-empty correlation ID"),
        (
            step(5, 1, "s", rows=2),
            "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher",
        ),
        (
            step("abc", 1, "s"),
            "correlation ID 'abc' is none that model 'm' takes: its input 'id' is INT64",
        ),
        (
            step(2**64 - 1, 1, "s"),
            "correlation ID '18446744073709551615' is none that model 'm' takes: its input 'id' is INT64",
        ),
    ],
)
async def test_what_is_in_no_sequence(request_: InferRequest, said: str, strategy: Direct | Oldest) -> None:
    model = model_of(Sums(), strategy)
    error = await refusal(*requested(model, request_))
    assert (error.code, error.message) == (ErrorCode.INVALID_TENSOR, said)
    await model.close()


async def test_a_sequence_keeps_its_row() -> None:
    instance = Sums()
    model = model_of(instance, Direct())
    assert await sums(requested(model, *(step(number, number, "s") for number in (1, 2, 3)))) == [1, 2, 3]
    assert await sums(requested(model, step(3, 10), step(2, 10))) == [13, 12]
    assert await total(model, 1, 10, "e") == 11
    assert await total(model, 3, 10) == 23
    # the row that has become free
    assert await total(model, 4, 4, "s") == 4
    assert instance.batches == [
        [(1, 1, 1, -1), (2, 2, 1, -1), (3, 3, 1, -1)],
        [None, (2, 10, 0, -1), (3, 10, 0, -1)],
        [(1, 10, 0, 1)],
        [None, None, (3, 10, 0, -1)],
        [(4, 4, 1, -1)],
    ]
    await model.close()


async def test_the_oldest_meet_in_batches_without_gaps() -> None:
    instance = Sums()
    instance.open.clear()
    model = model_of(instance, Oldest(max_candidates=3))
    first = requested(model, step(1, 1, "s"))
    await instance.has_begun()
    later = requested(model, step(1, 1), step(1, 1, "e"), step(2, 2, "s"), step(3, 3, "s"), step(4, 4, "s"))
    await settled()
    instance.open.set()
    assert await sums([*first, *later]) == [1, 2, 3, 2, 3, 4]
    assert instance.batches[:2] == [[(1, 1, 1, -1)], [(1, 1, 0, -1), (2, 2, 1, -1), (3, 3, 1, -1)]]
    # the fourth has waited until the first had ended
    assert instance.batches[2:] == [[(1, 1, 0, 1)], [(4, 4, 1, -1)]]
    await model.close()


async def test_preferred_sizes_and_the_delay_of_the_oldest() -> None:
    for delay_secs, few in ((60, False), (0.2, True)):
        instance = Sums()
        delay_us = int(delay_secs * 1e6)
        model = model_of(instance, Oldest(max_candidates=4, preferred_sizes=(2,), max_delay_us=delay_us))
        async with asyncio.timeout(30):
            assert await sums(requested(model, step(1, 1, "s"), step(2, 2, "s"))) == [1, 2]
        if few:
            began = time.monotonic()
            assert await sums(requested(model, step(1, 1, "e"))) == [2]
            assert time.monotonic() - began > 0.19
        assert [len(batch) for batch in instance.batches] == [2, 1][: 1 + few]
        await model.close()


async def test_a_batch_of_rows_waits_until_enough_are_ready() -> None:
    for delay_secs, few in ((60, False), (0.2, True)):
        instance = Sums()
        model = model_of(instance, Direct(max_delay_us=int(delay_secs * 1e6), minimum_utilization=0.5))
        async with asyncio.timeout(30):
            assert await sums(requested(model, step(1, 1, "s"), step(2, 2, "s"))) == [1, 2]
        if few:
            began = time.monotonic()
            assert await total(model, 2, 1) == 3
            assert time.monotonic() - began > 0.19
        assert [len(batch) for batch in instance.batches] == [2, 2][: 1 + few]
        await model.close()


@BOTH
async def test_more_sequences_than_slots(strategy: Direct | Oldest) -> None:
    instance = Sums()
    model = model_of(instance, strategy, rows=2)
    await sums(requested(model, step(1, 1, "s"), step(2, 1, "s")))
    third, fourth = requested(model, step(3, 1, "s"), step(4, 1, "se"))
    more = requested(model, step(3, 1), step(3, 1, "e"))
    await asyncio.sleep(0.05)
    assert not third.done() and not fourth.done()
    assert await total(model, 2, 1) == 2, "who has a slot goes on"
    assert await total(model, 1, 1, "e") == 2
    assert await sums([third, *more]) == [1, 2, 3]
    assert await sums([fourth]) == [1]
    order = [row[0] for batch in instance.batches for row in batch if row is not None]
    assert order.index(4) > max(place for place, identity in enumerate(order) if identity == 3)
    await model.close()


@BOTH
async def test_a_start_on_a_live_id_begins_again_after_what_waits(strategy: Direct | Oldest) -> None:
    instance = Sums()
    instance.open.clear()
    model = model_of(instance, strategy, rows=1)
    first = requested(model, step(1, 1, "s"))
    await instance.has_begun()
    later = requested(model, step(1, 2), step(1, 5, "s"), step(1, 1), step(1, 1, "e"), step(1, 9, "s"))
    await settled()
    instance.open.set()
    assert await sums([*first, *later]) == [1, 3, 5, 6, 7, 9]
    assert [batch[0][1:3] for batch in instance.batches if batch[0]] == [
        (1, 1),
        (2, 0),
        (5, 1),
        (1, 0),
        (1, 0),
        (9, 1),
    ]
    await model.close()


class Clock:
    """What the scheduler reads instead of the machine's; its timers are the machine's."""

    secs = 0.0

    def monotonic(self) -> float:
        return self.secs

    def monotonic_ns(self) -> int:
        return int(self.secs * 1e9)


@BOTH
async def test_an_idle_sequence_ends(strategy: Direct | Oldest, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(sequence_scheduler, "time", clock)
    model = model_of(Sums(), strategy, rows=1, idle_us=50_000)
    await total(model, 1, 1, "s")
    (waiting,) = requested(model, step(2, 1, "s"))
    clock.secs = 0.04
    assert await total(model, 1, 1) == 2, "a request keeps it"
    clock.secs = 0.08
    await asyncio.sleep(0.1)
    assert not waiting.done()
    clock.secs = 0.1
    assert await sums([waiting]) == [1]
    assert (
        "sequence 1 to model 'm' must specify the START flag"
        in (await refusal(*requested(model, step(1, 1)))).message
    )
    clock.secs = 0.2
    assert "START flag" in (await refusal(*requested(model, step(2, 1)))).message
    await model.close()


async def test_a_sequence_is_not_idle_while_a_request_runs() -> None:
    instance = Sums()
    model = model_of(instance, Direct(), idle_us=50_000)
    instance.open.clear()
    running = requested(model, step(1, 1, "s"))
    await instance.has_begun()
    await asyncio.sleep(0.15)
    instance.open.set()
    assert await sums([*running, *requested(model, step(1, 1, "e"))]) == [1, 2]
    await model.close()


@BOTH
async def test_each_instance_has_sequences_of_its_own(strategy: Direct | Oldest) -> None:
    instance = Sums()
    model = model_of(instance, strategy, rows=1, instances=2)
    instance.open.clear()
    running = requested(model, step(1, 1, "s"), step(2, 2, "s"), step(1, 1), step(3, 3, "s"))
    await instance.has_begun()
    await instance.has_begun()
    assert sorted(row[0] for batch in instance.batches for row in batch if row) == [1, 2]
    ends = requested(model, step(1, 1, "e"), step(2, 1, "e"))
    await settled()
    instance.open.set()
    assert await sums([*running, *ends]) == [1, 2, 2, 3, 3, 3]
    await model.close()


async def test_who_differs_in_shape_does_not_meet() -> None:
    instance = Sums()
    model = model_of(instance, Direct())
    wide = InferRequest(
        "m", (Tensor.from_numpy("x", np.ones((1, 3), np.float32)),), sequence=Sequence(2, True)
    )
    assert await sums(requested(model, step(1, 1, "s"), wide, step(3, 3, "s"))) == [1, 3, 3]
    assert [[row and row[0] for row in batch] for batch in instance.batches] == [[1, None, 3], [None, 2]]
    await model.close()


@BOTH
async def test_without_batches(strategy: Direct | Oldest) -> None:
    instance = Sums()
    model = model_of(instance, strategy, rows=0)
    assert [await total(model, 5, 1, "s", rows=0), await total(model, 5, 2, "e", rows=0)] == [1, 3]
    assert instance.batches == [[(5, 1, 1, -1)], [(5, 2, 0, 1)]]
    await model.close()


@BOTH
async def test_a_run_that_fails_changes_nothing(strategy: Direct | Oldest) -> None:
    model = model_of(Sums(), strategy)
    await sums(requested(model, step(1, 1, "s"), step(2, 2, "s"), step(3, 3, "s")))
    # with rows of nobody beside it
    assert (await refusal(*requested(model, step(3, -1)))).message == "negative"
    assert await sums(requested(model, step(1, 1), step(2, 1), step(3, 1, "e"))) == [2, 3, 4]
    await model.close()


@BOTH
async def test_a_request_that_leaves_breaks_its_sequence(strategy: Direct | Oldest) -> None:
    instance = Sums()
    instance.open.clear()
    model = model_of(instance, strategy, rows=2)
    first = requested(model, step(1, 1, "s"), step(2, 1, "s"))
    await instance.has_begun()
    gone = step(1, 2)
    left, late, kept, other = requested(model, gone, step(1, 3), step(1, 4, "s"), step(2, 1))
    await settled()
    gone.context.cancel.cancel()
    assert (await refusal(left)).code is ErrorCode.CANCELLED
    assert "START flag" in (await refusal(late)).message, "what follows would be wrong"
    instance.open.set()
    assert await sums([*first, kept, other]) == [1, 1, 4, 2]
    assert await total(model, 1, 1, "e") == 5
    await model.close()


async def test_a_broken_sequence_gives_its_slot_away() -> None:
    instance = Sums()
    instance.open.clear()
    model = model_of(instance, Direct(), rows=1)
    first = requested(model, step(1, 1, "s"))
    await instance.has_begun()
    in_time = step(1, 2, context=Context(deadline=time.monotonic() + 0.5))
    late, waiting = requested(model, in_time, step(2, 2, "se"))
    assert (await refusal(late)).code is ErrorCode.DEADLINE_EXCEEDED
    assert "START flag" in (await refusal(*requested(model, step(1, 1)))).message
    instance.open.set()
    assert await sums([*first, waiting]) == [1, 2]
    await model.close()


async def test_a_caller_that_goes_away_while_it_runs_breaks_nothing() -> None:
    instance = Sums()
    instance.open.clear()
    model = model_of(instance, Direct())
    (gone,) = requested(model, step(1, 1, "s"))
    await instance.has_begun()
    gone.cancel()
    await settled()
    instance.open.set()
    assert await total(model, 1, 1, "e") == 2
    await model.close()


async def test_only_so_many_may_wait() -> None:
    instance = Sums()
    instance.open.clear()
    model = model_of(instance, Direct(), rows=1, limits=Limits(queue_requests=1))
    first = requested(model, step(1, 1, "s"))
    await instance.has_begun()
    second = requested(model, step(1, 1))
    await settled()
    error = await refusal(*requested(model, step(2, 1, "s")))
    assert error.code is ErrorCode.OVERLOADED and "Exceeds maximum queue size" in error.message
    instance.open.set()
    assert await sums([*first, *second]) == [1, 2]
    assert await total(model, 1, 1, "e") == 3
    assert await total(model, 2, 1, "se") == 1, "nothing is left of what was refused"
    await model.close()


@BOTH
async def test_closing_runs_what_waits_and_no_longer_waits_for_ends(strategy: Direct | Oldest) -> None:
    instance = Sums()
    instance.open.clear()
    model = model_of(instance, strategy, rows=1, idle_us=60_000_000)
    waiting = requested(model, step(1, 1, "s"), step(1, 1), step(2, 1, "s"), step(3, 1, "s"), step(3, 1, "e"))
    await instance.has_begun()
    closing = asyncio.ensure_future(model.close())
    await settled()
    instance.open.set()
    assert await sums(waiting) == [1, 2, 1, 1, 2]
    async with asyncio.timeout(30):
        await closing


async def test_answers_leave_in_order_where_that_is_configured() -> None:
    instance = Sums()
    model = model_of(instance, Oldest(preserve_ordering=True), rows=1, instances=2)
    done: list[int] = []
    tasks = requested(model, *(step(number, number, "se") for number in range(1, 9)))
    for number, task in enumerate(tasks):
        task.add_done_callback(lambda _, number=number: done.append(number))  # type: ignore[misc]
    await sums(tasks)
    assert done == sorted(done)
    await model.close()


async def test_an_answer_waits_for_an_earlier_request_that_a_busy_instance_has_yet_to_start() -> None:
    class Held(Sums):
        def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
            made = super().run(inputs, outputs)
            assert inputs[0].numpy().item() != 1 or first_may_end.wait(10)
            return made

    first_may_end = threading.Event()
    instance = Held()
    model = model_of(instance, Oldest(preserve_ordering=True), rows=1, instances=2)
    done: list[int] = []
    tasks = requested(model, *(step(number, number, "se") for number in range(1, 5)))
    for number, task in enumerate(tasks, 1):
        task.add_done_callback(lambda _, number=number: done.append(number))  # type: ignore[misc]
    for _ in range(3):
        await instance.has_begun()
    assert sorted(row[0] for batch in instance.batches for row in batch if row) == [1, 2, 4]
    first_may_end.set()
    await sums(tasks)
    assert done == [1, 2, 3, 4]
    await model.close()


@BOTH
async def test_hundreds_of_steps_of_many_sequences(strategy: Direct | Oldest) -> None:
    """Every sum is that of its own sequence, whoever else runs, waits, leaves or starts again."""
    drawn = random.Random(4)
    instance = Sums()
    model = model_of(instance, strategy, rows=3, instances=2, idle_us=60_000_000)

    left: list[InferenceError] = []

    async def client(identity: int) -> None:
        for _ in range(drawn.randrange(2, 5)):
            expected = 0.0
            length = drawn.randrange(1, 6)
            for index in range(length):
                value = drawn.randrange(1, 100)
                expected += value
                flags = "s" * (index == 0) + "e" * (index == length - 1)
                asking = step(identity, value, flags)
                (task,) = requested(model, asking)
                if drawn.random() < 0.1:
                    await asyncio.sleep(drawn.choice([0, 0.0005]))
                    asking.context.cancel.cancel()
                    await asyncio.wait([task])
                    if task.exception() is not None:
                        left.append(await refusal(task))
                        break
                assert await sums([task]) == [expected]
                await asyncio.sleep(drawn.choice([0, 0, 0.001]))

    await asyncio.gather(*(client(identity) for identity in range(1, 31)))
    (statistics,) = (await model.status()).versions
    rows = [row for batch in instance.batches for row in batch if row is not None]
    assert left and {error.code for error in left} == {ErrorCode.CANCELLED}
    # who left may have run all the same
    assert 0 <= len(rows) - statistics.statistics.inference_count <= len(left)
    assert len(instance.batches) < len(rows)
    await model.close()
