"""What is counted of the requests to a model, and that it adds up."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.backends import Instance
from interlingua.runtime.models import statistics
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.statistics import batch_size, count_failure, count_success
from interlingua.runtime.models.tensor_version import TensorVersion
from interlingua.runtime.scheduling.policy import DynamicBatching, Scheduling
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.unloaded import UnloadedModels
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    Duration,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Latencies,
    ModelMetadata,
    ModelState,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
    VersionStatistics,
)
from interlingua.schemas.oip import MESSAGES
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from tests.runtime.scheduling.models import settled

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, 2)),), (TensorSpec("y", Datatype.FP32, (-1, 2)),), max_batch_size=8
)


class Sleeper(Instance):
    """Runs for 10 ms, or so many seconds; fails where the first value is negative."""

    signature = SIGNATURE

    def __init__(self, secs: float = 0.01) -> None:
        self._secs = secs

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        time.sleep(self._secs)
        if inputs[0].numpy()[0, 0] < 0:
            raise InferenceError(ErrorCode.MODEL_FAILED, "negative")
        return tuple(inputs[0].renamed(name) for name in outputs)

    def close(self) -> None:
        """Nothing to free."""


def request(rows: int, value: float = 1.0, **more: Any) -> InferRequest:
    return InferRequest("m", (Tensor.from_numpy("x", np.full((rows, 2), value, np.float32)),), **more)


def parts(of: Any) -> dict[str, Duration]:
    return {name: getattr(of, name) for name in ("queue", "compute_input", "compute_infer", "compute_output")}


class Clock:
    """The time that passes in ``sleep`` alone, and a microsecond for each look at it."""

    def __init__(self) -> None:
        self._ns = 0

    def monotonic_ns(self) -> int:
        self._ns += 1000
        return self._ns

    def sleep(self, secs: float) -> None:
        self._ns += int(secs * 1e9)


@pytest.mark.parametrize("instances", [0, 1])
async def test_the_parts_of_a_request_add_up(instances: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not instances:
        # on the event loop, where no other thread uses the clock
        clock = Clock()
        monkeypatch.setattr(time, "monotonic_ns", clock.monotonic_ns)
        monkeypatch.setattr(time, "sleep", clock.sleep)
    model = LocalModel("m", [TensorVersion("m", 1, Sleeper(), SIGNATURE, instances)])
    began = time.time() * 1000
    await asyncio.gather(*(model.infer(request(rows)) for rows in (1, 3, 3, 8)))
    (version,) = (await model.status()).versions
    counted = version.statistics
    assert (counted.inference_count, counted.execution_count) == (15, 4)
    assert began - 1 <= counted.last_inference_ms <= time.time() * 1000
    assert {size: each.success.count for size, each in counted.by_batch_size.items()} == {1: 1, 3: 2, 8: 1}
    for requests in counted.by_batch_size.values():
        assert requests.success.ns == sum(part.ns for part in parts(requests).values())
        assert {part.count for part in parts(requests).values()} == {requests.success.count}
        assert requests.compute_infer.ns >= 9_000_000 * requests.success.count
        assert requests.failed == Duration()
    waited = sum(each.queue.ns for each in counted.by_batch_size.values())
    if instances:
        assert waited >= 50_000_000, "one after the other: 10, 20 and 30 ms in the queue"
    else:
        assert waited < 10_000_000
    await model.close()


async def test_failures_are_counted_apart() -> None:
    model = LocalModel("m", [TensorVersion("m", 1, Sleeper(), SIGNATURE, 1)])
    late = Context(deadline=time.monotonic() - 1)
    for bad in (request(2, -1.0), request(2, context=late), request(0), request(9)):
        with pytest.raises(InferenceError):
            await model.infer(bad)
    (version,) = (await model.status()).versions
    counted = version.statistics
    assert (counted.inference_count, counted.execution_count, counted.last_inference_ms) == (0, 0, 0)
    # what contradicts the signature is no failure of the model
    assert {size: each.failed.count for size, each in counted.by_batch_size.items()} == {2: 2}
    assert counted.refused == 2
    assert counted.by_batch_size[2].failed.ns >= 9_000_000
    assert counted.by_batch_size[2].success == Duration()
    await model.close()


async def test_copies_for_a_mirror_are_not_counted_as_requests() -> None:
    """Answered, failed or refused: none is in the numbers of the model that is tried out."""
    model = LocalModel("m", [TensorVersion("m", 1, Sleeper(), SIGNATURE, 1)])
    (version,) = model.loaded.values()
    await model.infer(request(2, context=Context(copied=True)))
    for bad in (request(2, -1.0), request(9)):
        bad.context.copied = True
        with pytest.raises(InferenceError):
            await model.infer(bad)
    assert version.statistics == VersionStatistics()
    await model.infer(request(2))
    assert (version.statistics.inference_count, version.statistics.execution_count) == (2, 1)
    await model.close()


async def test_a_run_that_a_copy_has_part_in_counts_for_the_others() -> None:
    batching = DynamicBatching((4,), max_delay_us=1_000_000)
    model = LocalModel("m", [TensorVersion("m", 1, Sleeper(), SIGNATURE, 1, scheduling=Scheduling(batching))])
    (version,) = model.loaded.values()
    copy, own = request(2, context=Context(copied=True)), request(2)
    await asyncio.gather(model.infer(copy), model.infer(own))
    counted = version.statistics
    assert (counted.inference_count, counted.execution_count) == (2, 1)
    assert list(counted.executions) == [4] and counted.by_batch_size.keys() == {2}
    await model.close()


async def test_a_copy_is_no_request_of_the_upstreams_model_either() -> None:
    class Elsewhere:
        name = "there"
        unloaded = UnloadedModels()

        def offers(self, operation: Operation) -> bool:
            return False

        async def call(self, operation: Operation, *arguments: Any, **_: Any) -> Any:
            return InferResponse("m", (request(1).inputs[0].renamed("y"),), "3")

    model = UpstreamModel("m", Elsewhere(), "m", declared=SIGNATURE)
    await model.infer(request(1, context=Context(copied=True)))
    with pytest.raises(InferenceError, match="batch-size"):
        await model.infer(request(9, context=Context(copied=True)))
    assert not model.statistics


@pytest.mark.parametrize("batching", [None, DynamicBatching()], ids=["one by one", "in batches"])
async def test_a_caller_who_goes_away_is_a_failure(batching: DynamicBatching | None) -> None:
    model = LocalModel(
        "m", [TensorVersion("m", 1, Sleeper(0.3), SIGNATURE, 1, scheduling=Scheduling(batching=batching))]
    )
    running, waiting = (asyncio.ensure_future(model.infer(request(2))) for _ in range(2))
    await settled()
    for task in (running, waiting):
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    assert running.cancelled() and waiting.cancelled()
    await model.infer(request(2))
    (version,) = (await model.status()).versions
    counted = version.statistics.by_batch_size[2]
    assert (counted.failed.count, counted.success.count) == (2, 1)
    await model.close()


async def test_every_version_counts_for_itself() -> None:
    versions = [TensorVersion("m", number, Sleeper(), SIGNATURE, 0) for number in (1, 2)]
    model = LocalModel("m", versions, failed={3: "broken"})
    await model.infer(request(1, version="1"))
    await model.infer(request(1))
    await model.infer(request(1))
    status = await model.status()
    assert [(each.version, each.state, each.reason) for each in status.versions] == [
        ("1", ModelState.READY, ""),
        ("2", ModelState.READY, ""),
        ("3", ModelState.UNAVAILABLE, "broken"),
    ]
    assert [each.statistics.execution_count for each in status.versions] == [1, 2, 0]
    await model.close()


def test_a_model_without_batches_has_size_1() -> None:
    flat = Signature(SIGNATURE.inputs, SIGNATURE.outputs)
    assert [batch_size(request(rows), flat) for rows in (0, 1, 5)] == [1, 1, 1]
    assert [batch_size(request(rows), SIGNATURE) for rows in (0, 1, 8, 9)] == [1, 1, 8, 1]
    scalar = InferRequest("m", (Tensor.from_numpy("x", np.array(1, np.float32)),))
    assert batch_size(scalar, SIGNATURE) == 1
    assert batch_size(InferRequest("m", ()), SIGNATURE) == 1


def test_sizes_without_end_stay_in_the_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MOST_BATCH_SIZES", 3)
    counted = VersionStatistics()
    for size in range(1, 11):
        count_success(counted, size, (0, 1, 2, 3, 4, 0))
        count_failure(counted, size, time.monotonic_ns(), InferenceError(ErrorCode.MODEL_FAILED, ""))
    assert (counted.inference_count, counted.execution_count) == (55, 10)
    assert list(counted.by_batch_size) == [1, 2, 3]
    assert counted.failures == {ErrorCode.MODEL_FAILED: 10}
    assert (sum(counted.latencies.counts), counted.latencies.ns) == (10, 40)
    count_success(counted, 2, (0, 1, 2, 3, 4, 0))
    assert counted.by_batch_size[2].success == Duration(2, 8)


async def test_failures_are_counted_by_why() -> None:
    model = LocalModel("m", [TensorVersion("m", 1, Sleeper(0.1), SIGNATURE, 1)])
    counted = model.loaded["1"].statistics
    for wrong in (request(1, -1.0), request(9)):
        with pytest.raises(InferenceError):
            await model.infer(wrong)
    leaving = asyncio.create_task(model.infer(request(1)))
    await settled()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert counted.failures == {ErrorCode.MODEL_FAILED: 1, ErrorCode.CANCELLED: 1}
    assert counted.refused == 1
    await model.close()


async def test_those_that_wait_are_counted_with_and_without_batches() -> None:
    for scheduling in (Scheduling(), Scheduling(DynamicBatching((1,)))):
        version = TensorVersion("m", 1, Sleeper(0.1), SIGNATURE, 1, scheduling=scheduling)
        model = LocalModel("m", [version])
        asked = [asyncio.create_task(model.infer(request(8))) for _ in range(3)]
        await settled()
        assert version.waiting == 2
        await asyncio.gather(*asked)
        assert version.waiting == 0
        await model.close()


def test_latencies_are_counted_by_their_range() -> None:
    latencies = Latencies()
    for ns in (0, LATENCY_BOUNDS_NS[0], LATENCY_BOUNDS_NS[0] + 1, LATENCY_BOUNDS_NS[-1] + 1):
        latencies.add(ns)
    assert (latencies.counts[0], latencies.counts[1], latencies.counts[-1]) == (2, 1, 1)
    assert len(latencies.counts) == len(LATENCY_BOUNDS_NS) + 1


class Elsewhere(Upstream):
    """An upstream that answers after 10 ms, or fails."""

    def __init__(self) -> None:
        super().__init__("there", {}, (), 1.0)
        self.fails = False
        self.version = "4"

    async def call(
        self, operation: Operation, argument=None, signature=None, context=None, **more: Any
    ) -> Any:
        if operation is Operation.MODEL_METADATA:
            return ModelMetadata("m", SIGNATURE, ("4", "5"), platform="there_too")
        await asyncio.sleep(0.01)
        if self.fails:
            raise InferenceError(ErrorCode.MODEL_FAILED, "no")
        return InferResponse("m", tuple(tensor.renamed("y") for tensor in argument.inputs), self.version)


async def test_an_upstreams_time_is_that_of_the_model() -> None:
    upstream = Elsewhere()
    model = UpstreamModel("ours", upstream, "m")
    assert all(not each.statistics.by_batch_size for each in (await model.status()).versions)
    await model.infer(request(2))
    upstream.fails = True
    for version in ("", "4", "made up by a client"):
        with pytest.raises(InferenceError):
            await model.infer(request(2, version=version))
    status = await model.status()
    assert [(each.version, each.state) for each in status.versions] == [
        ("4", ModelState.READY),
        ("5", ModelState.READY),
    ]
    counted = status.versions[0].statistics
    assert (counted.inference_count, counted.execution_count) == (2, 1)
    assert set(counted.by_batch_size) == {2}
    assert counted.by_batch_size[2].failed.count == 3
    assert counted.by_batch_size[2].compute_infer.ns >= 9_000_000
    assert counted.by_batch_size[2].queue == Duration(1, 0)
    assert status.versions[1].statistics.execution_count == 0


async def test_an_upstreams_configuration_is_made_from_its_metadata() -> None:
    status = await UpstreamModel("ours", Elsewhere(), "m", inputs={"a": "x"}).status()
    config = MESSAGES["inference.ModelConfig"].FromString(status.config)
    assert (status.name, config.name, config.platform, config.max_batch_size) == (
        "ours",
        "ours",
        "there_too",
        8,
    )
    assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [("a", [2])]


async def test_an_upstream_that_names_no_version_has_version_1() -> None:
    upstream = Elsewhere()
    upstream.version = ""
    model = UpstreamModel("ours", upstream, "m", declared=SIGNATURE)
    await model.infer(request(1))
    assert model.statistics["1"].execution_count == 1


def test_counting_costs_microseconds() -> None:
    counted = VersionStatistics()
    course = (0, 1, 2, 3, 4, 0)
    began = time.thread_time()
    for _ in range(20_000):
        count_success(counted, 1, course)
    assert (time.thread_time() - began) / 20_000 < 20e-6
