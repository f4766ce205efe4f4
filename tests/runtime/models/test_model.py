"""A local model: which version answers, and how long a caller waits for it."""

import asyncio
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from interlingua.runtime.backends import Instance
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.tensor_version import TensorVersion
from interlingua.runtime.repository.files import ModelSource, load_model
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
from tests.runtime.onnx_models import node, value, write, write_slow

SIGNATURE = Signature((TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("y", Datatype.FP32, (-1,)),))
X = Tensor.from_numpy("x", np.array([1, 2], np.float32))


class Gate(Instance):
    """An instance whose runs take exactly as long as the test wants: until ``open`` is set."""

    signature = SIGNATURE

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = threading.Semaphore(0)
        self.runs = 0
        self.at_once = 0
        self.most_at_once = 0
        self.threads: set[str] = set()
        self.closed = False
        self._lock = threading.Lock()

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        assert not self.closed, "ran after it was closed"
        with self._lock:
            self.runs += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.threads.add(threading.current_thread().name)
        self.begun.release()
        assert self.open.wait(10)
        with self._lock:
            self.at_once -= 1
        return tuple(inputs[0].renamed(name) for name in outputs)

    def close(self) -> None:
        assert not self.at_once, "closed while it ran"
        self.closed = True


def model_of(gate: Gate, instances: int = 1, number: int = 1) -> LocalModel:
    return LocalModel("m", [TensorVersion("m", number, gate, SIGNATURE, instances)], platform="test")


def request(context: Context | None = None, **more) -> InferRequest:
    return InferRequest("m", (X,), context=context or Context(), **more)


async def begun(gate: Gate) -> None:
    """Until one more run has begun."""
    assert await asyncio.to_thread(gate.begun.acquire, timeout=10)


async def test_answers_with_its_name_version_and_the_requests_id() -> None:
    gate = Gate()
    gate.open.set()
    model = model_of(gate, number=3)
    response = await model.infer(request(id="q7"))
    assert (response.model, response.version, response.id, response.final) == ("m", "3", "q7", True)
    assert response.outputs[0].name == "y"
    assert response.outputs[0].numpy().tolist() == [1, 2]
    assert (await model.infer(request(outputs=()))).outputs == ()
    await model.close()


def two_versions() -> LocalModel:
    gates = [Gate(), Gate()]
    for gate in gates:
        gate.open.set()
    versions = [
        TensorVersion("m", number, gate, SIGNATURE, 1) for number, gate in zip((10, 9), gates, strict=True)
    ]
    return LocalModel("m", versions, failed={4: "broken"})


@pytest.mark.parametrize(("asked", "ran"), [("", "10"), ("10", "10"), ("9", "9"), ("09", "9"), ("9 ", "9")])
async def test_the_highest_number_answers_unless_another_is_requested(asked: str, ran: str) -> None:
    model = two_versions()
    assert (await model.infer(request(version=asked))).version == ran
    assert (await model.ready(asked)).ready
    assert (await model.metadata(asked)).versions == ("9", "10")
    await model.close()


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ("2", ErrorCode.NOT_FOUND, "Request for unknown model: 'm' version 2 is not found"),
        ("0", ErrorCode.NOT_FOUND, "Request for unknown model: 'm' version 0 is not found"),
        (
            str(2**63 - 1),
            ErrorCode.NOT_FOUND,
            f"Request for unknown model: 'm' version {2**63 - 1} is not found",
        ),
        ("4", ErrorCode.UNAVAILABLE, "Request for unknown model: 'm' version 4 is not at ready state"),
        (
            "-1",
            ErrorCode.INVALID_TENSOR,
            "invalid model version specified '-1' , version should be an integral value > 0",
        ),
        *(
            (
                text,
                ErrorCode.INVALID_TENSOR,
                f"failed to get model version from specified version string '{text}' (details: stol), "
                "version should be an integral value > 0",
            )
            for text in ("abc", "1.0", "1\t", "٣", str(2**63), "99999999999999999999")
        ),
    ],
)
async def test_versions_that_are_not_there(asked: str, code: ErrorCode, said: str) -> None:
    model = two_versions()
    for call in (model.infer(request(version=asked)), model.metadata(asked), model.signature(asked)):
        with pytest.raises(InferenceError) as caught:
            await call
        assert (caught.value.code, caught.value.message) == (code, said)
        assert not caught.value.retryable
    readiness = await model.ready(asked)
    assert (readiness.ready, readiness.reason) == (False, said)
    await model.close()


async def test_a_bad_request_never_reaches_the_instance() -> None:
    gate = Gate()
    model = model_of(gate)
    with pytest.raises(InferenceError, match="unexpected inference output 'z'"):
        await model.infer(request(outputs=(RequestedOutput("z"),)))
    assert gate.runs == 0
    await model.close()


async def test_a_failing_run_names_the_model(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.onnx",
        [node("Add", ["x", "y"], ["z"])],
        [value("x", Datatype.FP32, ["n"]), value("y", Datatype.FP32, ["m"])],
        [value("z", Datatype.FP32, ["k"])],
    )
    model = load_model(ModelSource("m", path))
    three = Tensor.from_numpy("y", np.zeros(3, np.float32))
    with pytest.raises(InferenceError, match="ONNXRuntimeError") as caught:
        await model.infer(InferRequest("m", (X, three)))
    assert (caught.value.code, caught.value.origin) == (ErrorCode.MODEL_FAILED, "m")
    two = Tensor.from_numpy("y", np.zeros(2, np.float32))
    response = await model.infer(InferRequest("m", (X, two)))
    assert response.outputs[0].numpy().tolist() == [1, 2], "the model must go on after a failure"
    await model.close()


@pytest.mark.parametrize("instances", [1, 3])
async def test_no_more_runs_at_once_than_instances(instances: int) -> None:
    gate = Gate()
    model = model_of(gate, instances)
    waiting = [asyncio.ensure_future(model.infer(request())) for _ in range(8)]
    for _ in range(instances):
        await begun(gate)
    await asyncio.sleep(0.02)
    assert (gate.runs, gate.at_once) == (instances, instances)
    gate.open.set()
    await asyncio.gather(*waiting)
    assert (gate.runs, gate.most_at_once) == (8, instances)
    assert threading.current_thread().name not in gate.threads
    await model.close()


async def test_an_inline_instance_runs_on_the_event_loop() -> None:
    gate = Gate()
    gate.open.set()
    model = model_of(gate, instances=0)
    await model.infer(request())
    assert gate.threads == {threading.current_thread().name}
    await model.close()


@pytest.mark.parametrize("instances", [0, 1])
async def test_a_deadline_that_has_passed_runs_nothing(instances: int) -> None:
    gate = Gate()
    model = model_of(gate, instances)
    with pytest.raises(InferenceError) as caught:
        await model.infer(request(Context(deadline=time.monotonic() - 1)))
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert gate.runs == 0
    await model.close()


async def test_a_deadline_ends_the_wait_and_takes_the_request_out_of_the_queue() -> None:
    gate = Gate()
    model = model_of(gate)
    running = asyncio.ensure_future(model.infer(request()))
    await begun(gate)
    before = time.monotonic()
    with pytest.raises(InferenceError, match="model 'm' did not answer before the deadline") as caught:
        await model.infer(request(Context(deadline=before + 0.05)))
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert 0.04 < time.monotonic() - before < 5
    gate.open.set()
    assert (await running).outputs
    await model.close()
    assert gate.runs == 1, "the request whose time was over must not run"


async def test_a_deadline_that_is_kept() -> None:
    gate = Gate()
    gate.open.set()
    model = model_of(gate)
    assert (await model.infer(request(Context(deadline=time.monotonic() + 10)))).outputs
    await model.close()


@pytest.mark.parametrize("deadline_secs", [None, 30])
async def test_a_cancelled_caller_does_not_wait(deadline_secs: float | None) -> None:
    gate = Gate()
    model = model_of(gate)
    deadline = None if deadline_secs is None else time.monotonic() + deadline_secs
    running, queued = Context(deadline=deadline), Context(deadline=deadline)
    calls = [asyncio.ensure_future(model.infer(request(context))) for context in (running, queued)]
    await begun(gate)
    for context in (queued, running):
        context.cancel.cancel()
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, InferenceError)
        assert result.code is ErrorCode.CANCELLED
    gate.open.set()
    await model.close()
    assert gate.runs == 1, "what waited in the queue must not run"


async def test_a_token_cancelled_before_the_request_runs_nothing() -> None:
    gate = Gate()
    model = model_of(gate)
    token = CancelToken()
    token.cancel()
    with pytest.raises(InferenceError) as caught:
        await model.infer(request(Context(cancel=token)))
    assert caught.value.code is ErrorCode.CANCELLED
    assert gate.runs == 0
    await model.close()


async def test_a_cancelled_task_stays_cancelled() -> None:
    gate = Gate()
    model = model_of(gate)
    call = asyncio.ensure_future(model.infer(request()))
    await begun(gate)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.open.set()
    await model.close()


async def test_close_finishes_what_runs_and_refuses_what_comes() -> None:
    gate = Gate()
    model = model_of(gate)
    running = asyncio.ensure_future(model.infer(request()))
    queued = asyncio.ensure_future(model.infer(request()))
    await begun(gate)
    closing = asyncio.ensure_future(model.close())
    await asyncio.sleep(0.02)
    assert not closing.done()
    assert not (await model.ready()).ready
    with pytest.raises(InferenceError, match="'m' has no available versions") as caught:
        await model.infer(request())
    assert caught.value.code is ErrorCode.NOT_FOUND
    gate.open.set()
    await closing
    assert running.done()
    assert queued.done()
    assert running.result().outputs
    assert queued.result().outputs
    assert gate.closed
    await model.close()


async def test_close_waits_for_a_run_without_waiters() -> None:
    gate = Gate()
    model = model_of(gate)
    with pytest.raises(InferenceError):
        await model.infer(request(Context(deadline=time.monotonic() + 0.02)))
    closing = asyncio.ensure_future(model.close())
    await asyncio.sleep(0.02)
    assert gate.at_once == 1
    assert not gate.closed
    gate.open.set()
    await closing
    assert gate.closed


async def test_the_event_loop_goes_on_while_a_model_computes(tmp_path: Path) -> None:
    model = load_model(ModelSource("m", write_slow(tmp_path / "m.onnx")))
    turns = Tensor.from_numpy("turns", np.array(300_000, np.int64))
    call = asyncio.ensure_future(model.infer(InferRequest("m", (X, turns))))
    beats = 0
    while not call.done():
        await asyncio.sleep(0.005)
        beats += 1
    assert beats > 3, "the loop was blocked"
    assert call.result().outputs[0].shape == (2,)
    await model.close()


@pytest.mark.parametrize(("config", "refused"), [(True, True), (False, False)])
async def test_other_rows_than_were_given_are_an_error_where_a_batch_is_stated(
    tmp_path: Path, config: bool, refused: bool
) -> None:
    write(
        tmp_path / "m/1/model.onnx",
        [node("Concat", ["x", "x"], ["y"], axis=0)],
        [value("x", Datatype.FP32, ["n", 2])],
        [value("y", Datatype.FP32, [None, 2])],
    )
    if config:
        (tmp_path / "m/config.pbtxt").write_text("max_batch_size: 8")
    model = load_model(ModelSource("m", tmp_path / "m"))
    request = InferRequest("m", (Tensor.from_numpy("x", np.ones((3, 2), np.float32)),))
    if refused:
        with pytest.raises(
            InferenceError, match="output 'y' .* wrong number of rows: expected 3, got 6"
        ) as e:
            await model.infer(request)
        assert e.value.code is ErrorCode.MODEL_FAILED
    else:
        assert (await model.infer(request)).outputs[0].shape == (6, 2)
    await model.close()
