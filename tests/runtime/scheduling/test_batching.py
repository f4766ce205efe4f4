"""Requests to a model that batches: who meets, who waits how long, and who is refused."""

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from interlingua.runtime.models.tensor_version import TensorVersion
from interlingua.runtime.scheduling.policy import DynamicBatching, Limits, QueuePolicy
from interlingua.schemas import Context, ErrorCode, InferRequest, RequestedOutput, Signature, Tensor
from tests.runtime.scheduling.models import (
    SIGNATURE,
    STAMP,
    Stamps,
    model_of,
    refusal,
    request,
    requested,
    settled,
    value_of,
)


async def test_what_comes_together_runs_together() -> None:
    instance = Stamps()
    model = model_of(instance)
    answers = await asyncio.gather(*requested(model, *(request(number) for number in range(8))))
    assert [value_of(answer) for answer in answers] == list(range(8))
    assert instance.batches == [[0, 1, 2, 3, 4, 5, 6, 7]]
    await model.close()
    assert instance.closed


async def test_what_comes_while_it_runs_makes_the_next_batch() -> None:
    instance = Stamps()
    instance.open.clear()
    model = model_of(instance)
    first = requested(model, request(1))
    await instance.has_begun()
    later = requested(model, request(2, 3), request(3, 4), request(4, 2), request(5))
    await settled()
    instance.open.set()
    answers = await asyncio.gather(*first, *later)
    assert [value_of(answer) for answer in answers] == [1, 2, 3, 4, 5]
    assert [len(batch) for batch in instance.batches] == [1, 7, 3]
    await model.close()


async def test_who_differs_does_not_meet() -> None:
    instance = Stamps()
    model = model_of(instance)
    text = Tensor.from_numpy("text", np.array([[b"a", b"bc"]], object))
    wide = request(2, width=3)
    only = request(3, outputs=(RequestedOutput("said"),))
    other = request(4, outputs=(RequestedOutput("said"),), parameters={"any": 1})
    texts = [InferRequest("m", inputs) for inputs in ((*request(5).inputs, text), (text, *request(6).inputs))]
    answers = await asyncio.gather(*requested(model, request(1), wide, only, other, *texts))
    assert instance.batches == [[1], [2], [3, 4], [5, 6]]
    assert [answer.outputs[0].name for answer in answers] == ["y", "y", "said", "said", "y", "y"]
    assert [answer.outputs[1].elements() for answer in answers[4:]] == [[b"a", b"bc"]] * 2
    assert answers[1].outputs[0].numpy().tolist() == [[2 + STAMP] * 3]
    await model.close()


@pytest.mark.parametrize("flat", [True, False])
async def test_without_batches_or_ragged_they_run_one_by_one(flat: bool) -> None:
    instance = Stamps()
    signature = Signature(SIGNATURE.inputs, SIGNATURE.outputs) if flat else SIGNATURE
    model = model_of(instance, ragged=not flat, signature=signature)
    answers = await asyncio.gather(*requested(model, request(1, 2), request(2, 2), request(3)))
    assert [value_of(answer) for answer in answers] == [1, 2, 3]
    assert instance.batches == [[1, 1], [2, 2], [3]]
    await model.close()


async def test_a_batch_waits_for_more_only_so_long() -> None:
    instance = Stamps()
    model = model_of(instance, DynamicBatching(max_delay_us=300_000))
    began = time.monotonic()
    first = requested(model, request(1))
    await settled()
    await asyncio.gather(*first, *requested(model, request(2)))
    assert time.monotonic() - began > 0.29
    assert instance.batches == [[1, 2]]
    await model.close()


async def test_a_full_batch_waits_for_nobody() -> None:
    model = model_of(Stamps(), DynamicBatching(max_delay_us=60_000_000))
    async with asyncio.timeout(30):
        await asyncio.gather(*requested(model, *(request(number) for number in range(8))))
    await model.close()


async def test_a_failing_batch_fails_its_own_requests_alone() -> None:
    instance = Stamps()
    instance.open.clear()
    model = model_of(instance)
    first = requested(model, request(1))
    await instance.has_begun()
    bad = requested(model, request(2), request(-1), request(3, 6))
    good = requested(model, request(4))
    await settled()
    instance.open.set()
    errors = [await refusal(task) for task in bad]
    assert {(error.code, error.message, error.origin) for error in errors} == {
        (ErrorCode.MODEL_FAILED, "negative", "m")
    }
    assert len({id(error) for error in errors}) == 3
    assert [value_of(await task) for task in (*first, *good)] == [1, 4]
    await model.close()


@pytest.mark.parametrize("others", [0, 2])
async def test_a_model_that_loses_rows_is_reported(others: int) -> None:
    instance = Stamps()
    model = model_of(instance)
    for task in requested(model, request(7777, 2), *(request(number) for number in range(others))):
        error = await refusal(task)
        assert (error.code, error.origin) == (ErrorCode.MODEL_FAILED, "m")
        rows = 2 + others
        assert error.message == (
            f"output 'y' of a batch has the wrong number of rows: expected {rows}, got {rows - 1}"
        )
    await model.close()


async def test_the_queue_is_full() -> None:
    instance = Stamps()
    instance.open.clear()
    model = model_of(instance, DynamicBatching(default_policy=QueuePolicy(max_size=2)))
    first = requested(model, request(1))
    await instance.has_begun()
    waiting = requested(model, *(request(number) for number in (2, 3, 4)))
    error = await refusal(waiting.pop())
    assert (error.code, error.message) == (ErrorCode.UNAVAILABLE, "Exceeds maximum queue size")
    instance.open.set()
    assert [value_of(answer) for answer in await asyncio.gather(*first, *waiting)] == [1, 2, 3]
    assert instance.batches == [[1], [2, 3]]
    await model.close()


@pytest.mark.parametrize(
    ("policy", "timeout_us", "expires"),
    [
        (QueuePolicy(timeout_us=20_000), 0, True),
        (QueuePolicy(timeout_us=20_000), 9_000_000, True),
        (QueuePolicy(timeout_us=9_000_000), 20_000, False),
        (QueuePolicy(timeout_us=9_000_000, allow_override=True), 20_000, True),
        (QueuePolicy(allow_override=True), 20_000, True),
        (QueuePolicy(timeout_us=20_000, allow_override=True), 9_000_000, True),
        (QueuePolicy(), 20_000, False),
    ],
)
async def test_a_request_that_has_waited_too_long(policy, timeout_us, expires) -> None:
    instance = Stamps()
    instance.open.clear()
    model = model_of(instance, DynamicBatching(default_policy=policy))
    first = requested(model, request(1))
    await instance.has_begun()
    (late,) = requested(model, request(2, timeout_us=timeout_us))
    done, _ = await asyncio.wait([late], timeout=30 if expires else 0.06)
    assert bool(done) is expires
    instance.open.set()
    await first[0]
    if expires:
        error = await refusal(late)
        assert (error.code, error.message) == (ErrorCode.UNAVAILABLE, "Request timeout expired")
    else:
        assert value_of(await late) == 2
    await model.close()
    assert len(instance.batches) == (1 if expires else 2)


async def test_a_delayed_request_runs_after_those_in_time() -> None:
    instance = Stamps()
    instance.open.clear()
    policy = QueuePolicy(delays=True, timeout_us=500_000)
    model = model_of(instance, DynamicBatching(default_policy=policy))
    first = requested(model, request(1))
    await instance.has_begun()
    late = requested(model, request(2, 8), request(3, 8))
    await asyncio.sleep(0.55)
    timely = requested(model, request(4, 8))
    await settled()
    instance.open.set()
    await asyncio.gather(*first, *late, *timely)
    assert [batch[0] for batch in instance.batches] == [1, 4, 2, 3]
    await model.close()


PREFERRED = DynamicBatching(preferred_sizes=(4, 8), max_delay_us=8_000_000)
OVERRIDE = QueuePolicy(timeout_us=9_000_000, allow_override=True)
DELAY = replace(OVERRIDE, delays=True)


@pytest.mark.parametrize("delays", [False, True])
async def test_once_a_request_has_expired_the_others_form_a_batch_of_their_own(delays: bool) -> None:
    """1 + 2 + 2 rows are no preferred size, 2 + 2 are: the original server runs those two as soon as the first
    has timed out, rejected or delayed, and not after the delay of the queue."""
    instance = Stamps()
    policy = replace(OVERRIDE, delays=delays)
    model = model_of(instance, replace(PREFERRED, default_policy=policy))
    first, *others = requested(model, request(1, timeout_us=100_000), request(2, 2), request(3, 2))
    done = await asyncio.wait_for(asyncio.gather(*others), 30)
    assert [value_of(answer) for answer in done] == [2, 3]
    assert instance.batches == [[2, 2, 3, 3]]
    if delays:
        assert not first.done(), "alone, it waits for the delay of the queue"
        await model.close()
        assert value_of(await first) == 1
    else:
        assert (await refusal(first)).message == "Request timeout expired"
        await model.close()


async def test_requests_of_two_priorities_expire_one_after_the_other() -> None:
    """NVIDIA's test of priorities with policies, ten times as fast: the second request of priority 1 is
    delayed, the first of priority 2 is rejected, and each time a preferred batch remains."""
    instance = Stamps()
    batching = replace(
        PREFERRED,
        preferred_sizes=(4, 32),
        priority_levels=2,
        default_priority_level=2,
        default_policy=DELAY,
        policies={2: OVERRIDE},
    )
    model = model_of(instance, batching, signature=replace(SIGNATURE, max_batch_size=32))
    tasks = requested(
        model,
        request(1, 2, priority=1),
        request(2, 1, priority=1, timeout_us=100_000),
        request(3, 2, priority=1),
        request(4, 2, priority=2, timeout_us=200_000),
        request(5, 3, priority=2),
        request(6, 6, priority=2),
    )
    await asyncio.wait_for(asyncio.gather(*tasks[:3], tasks[4]), 30)
    assert (await refusal(tasks[3])).message == "Request timeout expired"
    assert instance.batches == [[1, 1, 3, 3], [2, 5, 5, 5]]
    assert not tasks[5].done()
    await model.close()
    assert value_of(await tasks[5]) == 6


async def test_priorities() -> None:
    instance = Stamps()
    instance.open.clear()
    full = QueuePolicy(max_size=1)
    batching = DynamicBatching(priority_levels=3, default_priority_level=2, policies={1: full})
    model = model_of(instance, batching)
    first = requested(model, request(99))
    await instance.has_begun()
    # 0 and what there is not are the default; each fills a batch
    tasks = requested(model, *(request(p, 8, priority=p) for p in (3, 2, 0, 9, 1)))
    (refused,) = requested(model, request(1, priority=1))
    assert (await refusal(refused)).message == "Exceeds maximum queue size"
    instance.open.set()
    await asyncio.gather(*first, *tasks)
    assert [batch[0] for batch in instance.batches] == [99, 1, 2, 0, 9, 3]
    await model.close()


async def test_answers_in_the_order_of_requests() -> None:
    for ordered in (False, True):
        instance = Stamps()
        model = model_of(instance, DynamicBatching(preserve_ordering=ordered), instances=2)
        instance.open.clear()
        left: list[str] = []
        slow = requested(model, request(1))
        await instance.has_begun()
        slow_gate, instance.open = instance.open, type(instance.open)()
        instance.open.set()
        quick = requested(model, request(2))
        for name, task in (("slow", slow[0]), ("quick", quick[0])):
            task.add_done_callback(lambda _, name=name, left=left: left.append(name))
        await instance.has_begun()
        await asyncio.sleep(0.03)
        assert left == ([] if ordered else ["quick"])
        slow_gate.set()
        await asyncio.gather(*slow, *quick)
        assert left == (["slow", "quick"] if ordered else ["quick", "slow"])
        await model.close()


async def test_a_cancelled_request_delays_no_other() -> None:
    instance = Stamps()
    model = model_of(instance, DynamicBatching(preserve_ordering=True), instances=2)
    instance.open.clear()
    context, waits = Context(), Context()
    slow = requested(model, request(1, context=context))
    await instance.has_begun()
    slow_gate, instance.open = instance.open, type(instance.open)()
    instance.open.set()
    ordered = requested(model, request(2, context=waits), request(3))
    await instance.has_begun()
    await asyncio.sleep(0.03)
    waits.cancel.cancel()
    assert (await refusal(ordered[0])).code is ErrorCode.CANCELLED
    assert not ordered[1].done()
    context.cancel.cancel()
    assert value_of(await ordered[1]) == 3
    assert (await refusal(slow[0])).code is ErrorCode.CANCELLED
    slow_gate.set()
    await model.close()


async def test_what_leaves_the_queue_never_runs() -> None:
    instance = Stamps()
    instance.open.clear()
    model = model_of(instance)
    first = requested(model, request(1))
    await instance.has_begun()
    cancelled, gone = Context(), Context()
    gone.cancel.cancel()
    tasks = requested(
        model,
        request(2, context=cancelled),
        request(3, context=Context(deadline=time.monotonic() + 0.02)),
        request(4, context=gone),
        request(5),
        request(6),
    )
    await settled()
    cancelled.cancel.cancel()
    tasks[3].cancel()
    codes = [(await refusal(task)).code for task in tasks[:3]]
    assert codes == [ErrorCode.CANCELLED, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.CANCELLED]
    instance.open.set()
    await asyncio.gather(*first, tasks[4])
    assert tasks[3].cancelled()
    assert instance.batches == [[1], [6]]
    await model.close()


async def test_a_deadline_that_passed_while_the_loop_was_blocked() -> None:
    instance = Stamps()
    model = model_of(instance, DynamicBatching(max_delay_us=300_000))
    (task,) = requested(model, request(1, context=Context(deadline=time.monotonic() + 0.35)))
    await settled()
    time.sleep(0.4)
    assert (await refusal(task)).code is ErrorCode.DEADLINE_EXCEEDED
    assert not instance.batches
    await model.close()


async def test_statistics_count_batches_and_rows() -> None:
    instance = Stamps()
    instance.open.clear()
    model = model_of(instance)
    first = requested(model, request(1))
    await instance.has_begun()
    later = requested(model, request(2, 3), request(3, 3), request(-1, 8))
    await asyncio.sleep(0.02)
    instance.open.set()
    await asyncio.gather(*first, *later, return_exceptions=True)
    (version,) = (await model.status()).versions
    counted = version.statistics
    assert (counted.inference_count, counted.execution_count) == (7, 2)
    assert {size: each.compute_infer.count for size, each in counted.executions.items()} == {1: 1, 6: 1}
    assert {size: each.success.count for size, each in counted.by_batch_size.items()} == {1: 1, 3: 2, 8: 0}
    assert counted.by_batch_size[3].queue.ns >= 2 * 15_000_000
    for each in counted.by_batch_size.values():
        parts = (each.queue, each.compute_input, each.compute_infer, each.compute_output)
        assert sum(part.ns for part in parts) == each.success.ns
    assert counted.by_batch_size[8].failed.count == 1
    await model.close()


async def test_closing_runs_what_waits_at_once() -> None:
    instance = Stamps()
    model = model_of(instance, DynamicBatching(max_delay_us=9_000_000))
    tasks = requested(model, request(1), request(2))
    await settled()
    assert not instance.batches
    await asyncio.wait_for(model.close(), 30)
    assert [value_of(await task) for task in tasks] == [1, 2]
    assert instance.closed


@pytest.mark.parametrize("batches", [True, False])
@pytest.mark.parametrize(
    ("limits", "accepted", "why"),
    [
        (Limits(queue_requests=2), 3, "2 requests wait"),
        (Limits(queue_bytes=8), 3, "requests of 8 bytes wait"),
        (Limits(queue_bytes=3), 2, "requests of 4 bytes wait"),
        (Limits(concurrent=2), 2, "2 requests are inside"),
    ],
)
async def test_limits(batches: bool, limits: Limits, accepted: int, why: str) -> None:
    instance = Stamps()
    instance.open.clear()
    model = model_of(instance, DynamicBatching() if batches else None, limits=limits)
    tasks = requested(model, request(0))
    await instance.has_begun()
    for number in range(1, 5):
        tasks += requested(model, request(number))
        await settled()
    for task in tasks[accepted:]:
        error = await refusal(task)
        assert error.code is ErrorCode.OVERLOADED
        assert error.message == f"Exceeds maximum queue size: {why} at model 'm'"
    instance.open.set()
    answers = await asyncio.gather(*tasks[:accepted])
    assert [value_of(answer) for answer in answers] == list(range(accepted))
    assert value_of(await model.infer(request(9))) == 9, "what is done makes room"
    (version,) = model.loaded.values()
    assert isinstance(version, TensorVersion)
    assert version.admission.inside == 0
    await model.close()
