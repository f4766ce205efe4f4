"""Runs on the event loop: which are, and when they go back to threads."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.backends import Instance
from interlingua.runtime.models import inline_runs
from interlingua.runtime.models.inline_runs import InlineRuns
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.tensor_version import TensorVersion
from interlingua.runtime.scheduling.policy import DynamicBatching, Limits, Scheduling
from interlingua.runtime.scheduling.sequence_policy import Direct, SequenceBatching
from interlingua.schemas import (
    CancelToken,
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas import Sequence as Position

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, -1)),),
    (TensorSpec("y", Datatype.FP32, (-1, -1)), TensorSpec("z", Datatype.FP32, (-1, -1))),
    max_batch_size=64,
)
RUNS = 32
US = 1000


class Clock:
    """The clocks of the measurement: they move when a run says so."""

    def __init__(self) -> None:
        self.now = 0

    def read(self) -> int:
        return self.now


class Timed(Instance):
    """y and z are x. A run takes ``us`` for each row; it waits for ``open``, off the loop alone."""

    signature = SIGNATURE
    bounded = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop_thread = threading.get_ident()
        self._lock = threading.Lock()
        self.us = 10
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Semaphore(0)
        self.on_loop = self.in_threads = 0
        self.at_once = self.most_at_once = 0

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.begun.release()
        if threading.get_ident() == self._loop_thread:
            self.on_loop += 1
        else:
            self.in_threads += 1
            assert self.open.wait(10)
        with self._lock:
            self._clock.now += self.us * US * inputs[0].shape[0]
            self.at_once -= 1
        if (inputs[0].numpy() < 0).any():
            raise InferenceError(ErrorCode.MODEL_FAILED, "negative")
        return tuple(inputs[0].renamed(name) for name in outputs)

    def close(self) -> None:
        """Nothing to free."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(
        inline_runs, "time", SimpleNamespace(monotonic_ns=clock.read, thread_time_ns=clock.read)
    )
    return clock


def model_of(instance: Instance, instances: int = 1, **scheduling: Any) -> LocalModel:
    plan = Scheduling(**{"limits": Limits(inline_run_us=100), **scheduling})
    return LocalModel("m", [TensorVersion("m", 1, instance, SIGNATURE, instances, scheduling=plan)])


def request(rows: int = 1, value: float = 1.0, **more: Any) -> InferRequest:
    return InferRequest("m", (Tensor.from_numpy("x", np.full((rows, 2), value, np.float32)),), **more)


async def learnt(model: LocalModel, rows: int = 1, runs: int = RUNS) -> None:
    """Run so often in threads."""
    for _ in range(runs):
        await model.infer(request(rows))


def inline_of(model: LocalModel) -> InlineRuns:
    inline = model.loaded["1"].inline
    assert inline is not None
    return inline


BATCHING = [{}, {"batching": DynamicBatching()}]


@pytest.mark.parametrize("scheduling", BATCHING, ids=["alone", "batches"])
async def test_a_short_run_moves_to_the_loop(clock: Clock, scheduling: Any) -> None:
    instance = Timed(clock)
    model = model_of(instance, **scheduling)
    await learnt(model)
    assert (instance.in_threads, instance.on_loop) == (RUNS, 0)
    response = await model.infer(request(value=3.0))
    assert response.outputs[0].numpy().tolist() == [[3.0, 3.0]]
    assert (instance.in_threads, instance.on_loop) == (RUNS, 1)
    assert (inline_of(model).runs, inline_of(model).returns) == (1, 0)
    await model.close()


async def test_a_request_is_answered_at_once_where_its_run_is_inline(clock: Clock) -> None:
    model, batching = model_of(Timed(clock)), model_of(Timed(clock), batching=DynamicBatching())
    assert not model.infers_at_once(request())
    await learnt(model)
    await learnt(batching)
    assert model.infers_at_once(request())
    assert not model.infers_at_once(request(rows=2))
    assert not batching.infers_at_once(request()), "it waits for others of its batch"
    refused = InferRequest("m", ())
    assert model.infers_at_once(refused)
    # without a task
    with pytest.raises(StopIteration) as end:
        model.infer(request(value=3.0)).send(None)
    assert end.value.value.outputs[0].numpy().tolist() == [[3.0, 3.0]]
    with pytest.raises(InferenceError):
        model.infer(refused).send(None)
    await model.close()
    await batching.close()


async def test_an_answer_now_counts_as_one_that_is_awaited(clock: Clock) -> None:
    now, awaited = model_of(Timed(clock)), model_of(Timed(clock))
    assert now.infer_now(request()) is None
    assert now.statistics["1"].inference_count == 0, "nothing was run"
    late, gone = request(), request()
    late.context.deadline = -1.0
    gone.context.cancel.cancel()
    for model in (now, awaited):
        await learnt(model)
    for each in (
        request(value=3.0),
        request(value=4.0, outputs=(RequestedOutput("z"),)),
        InferRequest("m", ()),
    ):
        outcomes: list[object] = []
        for act in (lambda each=each: now.infer_now(each), lambda each=each: awaited.infer(each)):
            try:
                found = act()
                found = await found if asyncio.iscoroutine(found) else found
                outcomes.append(found and [(y.name, y.numpy().tolist()) for y in found.outputs])
            except InferenceError as error:
                outcomes.append((error.code, error.message, error.origin))
        assert outcomes[0] == outcomes[1] or outcomes[0] is None, "another choice of outputs is not learnt"
    for each, code in ((late, ErrorCode.DEADLINE_EXCEEDED), (gone, ErrorCode.CANCELLED)):
        with pytest.raises(InferenceError) as caught:
            now.infer_now(each)
        assert (caught.value.code, caught.value.origin) == (code, "m")
        with pytest.raises(InferenceError):
            await awaited.infer(each)
    one, other = now.statistics["1"], awaited.statistics["1"]
    assert (one.refused, one.failures) == (other.refused, other.failures)
    assert one.inference_count == other.inference_count - 1, "without that of other outputs"
    for model in (now, awaited):
        await model.close()


@pytest.mark.parametrize("scheduling", BATCHING, ids=["alone", "batches"])
async def test_a_run_of_more_rows_than_measured_is_in_a_thread(clock: Clock, scheduling: Any) -> None:
    instance = Timed(clock)
    model = model_of(instance, **scheduling)
    await learnt(model)
    await model.infer(request(rows=2))
    await model.infer(request(outputs=(RequestedOutput("y"),)))
    assert (instance.in_threads, instance.on_loop) == (RUNS + 2, 0)
    await learnt(model, rows=2, runs=RUNS)
    assert instance.on_loop == 1, "the run after as many of its shape"
    await learnt(model, rows=3, runs=2 * RUNS)
    assert instance.on_loop == 1, "longer than a quarter of the limit"
    await model.infer(request())
    assert instance.on_loop == 2, "one row is as short as before"
    await model.close()


@pytest.mark.parametrize("scheduling", BATCHING, ids=["alone", "batches"])
async def test_one_slow_run_returns_to_threads_which_take_twice_as_many(
    clock: Clock, scheduling: Any
) -> None:
    instance = Timed(clock)
    model = model_of(instance, **scheduling)
    await learnt(model, runs=RUNS + 1)
    instance.us = 1001
    await model.infer(request())
    instance.us = 10
    assert (instance.on_loop, inline_of(model).returns) == (2, 1)
    await learnt(model, runs=2 * RUNS)
    assert instance.on_loop == 2
    await model.infer(request())
    assert instance.on_loop == 3
    await model.close()


async def test_runs_a_little_over_the_limit_return_to_threads_when_there_are_many(clock: Clock) -> None:
    instance = Timed(clock)
    model = model_of(instance)
    await learnt(model)
    for turn in range(100):
        instance.us = 101 if turn % 20 == 0 else 10
        await model.infer(request())
    assert (instance.on_loop, inline_of(model).returns) == (100, 0), "one in 20 is borne"
    instance.us = 101
    await learnt(model, runs=RUNS)
    assert inline_of(model).returns == 1
    assert instance.on_loop < 106
    await model.close()


async def test_returns_after_many_inline_runs_need_no_more_runs_in_threads(clock: Clock) -> None:
    instance = Timed(clock)
    model = model_of(instance)
    for _ in range(3):
        instance.us = 10
        await learnt(model, runs=RUNS + 300)
        instance.us = 1001
        await model.infer(request())
    assert instance.in_threads == 3 * RUNS
    await model.close()


@pytest.mark.parametrize(
    ("bounded", "scheduling"),
    [
        (False, {}),
        (True, {"limits": Limits(inline_run_us=0)}),
        (True, {"sequences": SequenceBatching(strategy=Direct())}),
    ],
    ids=["unbounded", "disabled", "sequences"],
)
async def test_never_inline(clock: Clock, bounded: bool, scheduling: Any) -> None:
    instance = Timed(clock)
    instance.bounded = bounded
    model = model_of(instance, **scheduling)
    assert model.loaded["1"].inline is None
    for _ in range(2 * RUNS):
        await model.infer(request(sequence=Position(1, True, True)))
    assert instance.on_loop == 0
    await model.close()


@pytest.mark.parametrize("scheduling", BATCHING, ids=["alone", "batches"])
@pytest.mark.parametrize("instances", [1, 2])
async def test_the_instance_has_one_run_at_once(clock: Clock, scheduling: Any, instances: int) -> None:
    instance = Timed(clock)
    model = model_of(instance, instances, **scheduling)
    await learnt(model)
    instance.open.clear()
    held = [asyncio.ensure_future(model.infer(request(rows=5 + each))) for each in range(instances)]
    for _ in held:
        assert await asyncio.to_thread(instance.begun.acquire, timeout=10)
    waiting = [asyncio.ensure_future(model.infer(request())) for _ in range(3)]
    await asyncio.sleep(0.02)
    assert instance.on_loop == 0
    instance.open.set()
    await asyncio.gather(*held, *waiting)
    assert instance.most_at_once <= instances
    await model.infer(request())
    assert instance.on_loop > 0
    await model.close()


async def test_a_run_without_its_caller_keeps_the_instance(clock: Clock) -> None:
    instance = Timed(clock)
    model = model_of(instance)
    await learnt(model)
    while instance.begun.acquire(blocking=False):
        pass
    instance.open.clear()
    cancel = CancelToken()
    gone = asyncio.ensure_future(model.infer(request(rows=5, context=Context(cancel=cancel))))
    assert await asyncio.to_thread(instance.begun.acquire, timeout=10)
    cancel.cancel()
    with pytest.raises(InferenceError, match="was cancelled"):
        await gone
    following = asyncio.ensure_future(model.infer(request()))
    await asyncio.sleep(0.02)
    assert (instance.on_loop, instance.at_once) == (0, 1)
    instance.open.set()
    await following
    assert instance.most_at_once == 1
    await model.close()


@pytest.mark.parametrize("scheduling", BATCHING, ids=["alone", "batches"])
async def test_limits_cancellation_and_deadlines_hold(clock: Clock, scheduling: Any) -> None:
    instance = Timed(clock)
    model = model_of(instance, **scheduling)
    await learnt(model)
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(InferenceError, match="was cancelled"):
        await model.infer(request(context=Context(cancel=cancel)))
    with pytest.raises(InferenceError, match="before the deadline"):
        await model.infer(request(context=Context(deadline=0.001)))
    with pytest.raises(InferenceError, match="negative"):
        await model.infer(request(value=-1))
    assert instance.on_loop == 1
    assert (await model.infer(request())).outputs
    await model.close()


async def test_the_limit_of_requests_holds(clock: Clock) -> None:
    instance = Timed(clock)
    model = model_of(instance, 2, limits=Limits(concurrent=1, inline_run_us=100))
    await learnt(model)
    instance.open.clear()
    running = asyncio.ensure_future(model.infer(request(rows=5)))
    await asyncio.sleep(0)
    with pytest.raises(InferenceError, match="1 requests are inside"):
        await model.infer(request())
    instance.open.set()
    await running
    await model.infer(request())
    assert instance.on_loop == 1
    await model.close()


async def test_a_batch_of_several_requests_runs_in_a_thread(clock: Clock) -> None:
    instance = Timed(clock)
    model = model_of(instance, batching=DynamicBatching())
    await learnt(model)
    await learnt(model, rows=2)
    await asyncio.gather(*[model.infer(request()) for _ in range(2)])
    assert (instance.in_threads, instance.on_loop) == (2 * RUNS + 1, 0)
    await model.infer(request(rows=2))
    assert instance.on_loop == 1
    await model.close()


async def test_inline_batches_leave_turns_to_others(clock: Clock) -> None:
    instance = Timed(clock)
    model = model_of(instance, batching=DynamicBatching(preferred_sizes=(1,)))
    await learnt(model)
    running = [asyncio.ensure_future(model.infer(request())) for _ in range(6)]
    seen = []
    while not all(each.done() for each in running):
        await asyncio.sleep(0)
        seen.append(instance.on_loop)
    assert instance.on_loop == 6
    assert max(after - before for before, after in pairwise(seen)) == 1
    await model.close()


@pytest.mark.parametrize("scheduling", BATCHING, ids=["alone", "batches"])
async def test_statistics_are_the_same(clock: Clock, scheduling: Any) -> None:
    counts = []
    for limit in (100, 0):
        model = model_of(Timed(clock), **scheduling, limits=Limits(inline_run_us=limit))
        for _ in range(3):
            await learnt(model)
        with pytest.raises(InferenceError, match="negative"):
            await model.infer(request(value=-1))
        statistics = dataclasses.asdict(model.loaded["1"].statistics)
        by_size = {
            size: {name: each["count"] for name, each in durations.items()}
            for size, durations in statistics["by_batch_size"].items()
        }
        runs = {
            size: {name: each["count"] for name, each in durations.items()}
            for size, durations in statistics["executions"].items()
        }
        counts.append(
            (
                statistics["inference_count"],
                statistics["execution_count"],
                statistics["failures"],
                sum(statistics["latencies"]["counts"]),
                by_size,
                runs,
                model.loaded["1"].waiting,
            )
        )
        await model.close()
    assert counts[0] == counts[1]
    assert counts[0][0] == 3 * RUNS


async def test_many_shapes_take_no_more_memory(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_runs, "_MOST_SHAPES", 4)
    runs = InlineRuns(Timed(clock).run, 100)
    instance = Timed(clock)
    instance.open.set()
    for width in range(40):
        x = Tensor.from_numpy("x", np.ones((1, width), np.float32))
        for _ in range(RUNS):
            runs.in_thread((x,), ("y",))
    assert len(runs._measured) <= 4
    assert len(runs._inline) <= 4
