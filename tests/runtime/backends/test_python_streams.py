"""Decoupled models written in Python, and those whose requests belong together."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from interlingua.runtime.models.model import LocalModel
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
)
from interlingua.schemas.messages import Sequence
from tests.runtime.python_models import (
    DECOUPLED,
    INT32,
    failure,
    loaded,
    numbers,
    request,
)
from tests.waiting import until


async def responses(model: LocalModel, asked: InferRequest) -> list[tuple[Any, bool]]:
    """What a stream gives: numbers, the text of an error or None, and whether it is the last."""
    return [
        (
            response.error.message if response.error else numbers(response) if response.outputs else None,
            response.final,
        )
        async for response in model.stream(asked)
    ]


async def collected(model: LocalModel, asked: InferRequest, found: list[list[int]]) -> None:
    async for response in model.stream(asked):
        found.append(numbers(response))


REPEATS = """
def execute(self, requests):
    for request in requests:
        sender = request.get_response_sender()
        for number in given(request):
            if number < 0:
                sender.send(pb.InferenceResponse(error=pb.TritonError("negative")))
            else:
                sender.send(answer([number], parameters={"n": int(number)}))
        sender.send(flags=FINAL)
"""


async def test_any_number_of_responses(tmp_path: Path) -> None:
    model = loaded(tmp_path, REPEATS, DECOUPLED)
    assert await responses(model, request(1, -1, 3)) == [
        ([1], False),
        ("negative", False),
        ([3], False),
        (None, True),
    ]
    assert await responses(model, request()) == [(None, True)]
    first = await anext(model.stream(request(9, id="x")))
    assert (first.id, first.version, first.parameters) == ("x", "1", {"n": 9})
    error = await failure(model, request(1))
    assert error.code is ErrorCode.UNSUPPORTED
    assert "doesn't support models with decoupled transaction policy" in error.message
    (version,) = (await model.status()).versions
    assert version.statistics.execution_count == 2
    await model.close()


async def test_the_only_answer_of_a_decoupled_model(tmp_path: Path) -> None:
    """A grps model answers Predict and PredictStreaming alike: one answer is that of a unary call."""
    model = loaded(tmp_path, REPEATS, DECOUPLED)
    response = await model.infer(request(7, id="x", answers="only"))
    assert (numbers(response), response.id, response.version) == ([7], "x", "1")
    assert response.final and response.parameters == {"n": 7}
    assert (await model.infer(request(answers="only"))).outputs == ()
    error = await failure(model, request(1, 2, 3, answers="only"))
    assert error.code is ErrorCode.UNSUPPORTED
    assert error.message == "model 'm' gives more than one answer to this request: call it as a stream"
    error = await failure(model, request(-1, answers="only"))
    assert (error.code, error.message) == (ErrorCode.MODEL_FAILED, "negative")
    (version,) = (await model.status()).versions
    counted = version.statistics.by_batch_size[1]
    assert (counted.failed.count, counted.success.count) == (2, 2)
    await model.close()


async def test_a_model_whose_second_answer_is_refused_sees_the_cancellation(tmp_path: Path) -> None:
    body = """
def execute(self, requests):
    (request,) = requests
    sender = request.get_response_sender()
    sender.send(answer([1]))
    sender.send(answer([2]))
    until = time.monotonic() + 10
    while not request.is_cancelled() and time.monotonic() < until:
        time.sleep(0.01)
    self.cancelled = request.is_cancelled()
    sender.send(flags=FINAL)

def finalize(self):
    open(os.environ["TOLD"], "w").write(str(self.cancelled))
"""
    told = tmp_path / "told"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOLD", str(told))
        model = loaded(tmp_path, body, DECOUPLED)
    error = await failure(model, request(1, answers="only"))
    assert error.code is ErrorCode.UNSUPPORTED
    await model.close()
    assert told.read_text() == "True"


@pytest.mark.parametrize("config", [INT32, DECOUPLED], ids=["one answer", "decoupled"])
async def test_a_model_knows_whether_its_caller_takes_a_stream(tmp_path: Path, config: str) -> None:
    """As ``context.if_streaming()`` says in a grps model; a model may so give one answer or many."""
    body = """
def execute(self, requests):
    told = [answer([request.is_streaming()]) for request in requests]
    if pb.using_decoupled_model_transaction_policy(self.config):
        for request, each in zip(requests, told):
            request.get_response_sender().send(each, FINAL)
        return None
    return told

def initialize(self, args):
    import json
    self.config = json.loads(args["model_config"])
"""
    model = loaded(tmp_path, body, config)
    assert numbers(await model.infer(request(answers="only"))) == [0]
    if config is INT32:
        assert numbers(await model.infer(request())) == [0]
    (streamed,) = [each async for each in model.stream(request(answers="many"))]
    assert numbers(streamed) == [1]
    await model.close()


async def test_who_leaves_a_stream_is_counted_as_a_failure(tmp_path: Path) -> None:
    model = loaded(tmp_path, REPEATS, DECOUPLED)
    async with aclosing(model.stream(request(1, 2))) as stream:
        await anext(stream)
    assert len(await responses(model, request(1))) == 2
    (version,) = (await model.status()).versions
    counted = version.statistics.by_batch_size[1]
    assert (counted.failed.count, counted.success.count) == (1, 1)
    await model.close()


async def test_a_response_may_come_with_the_flag_that_it_is_the_last(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        requests[0].get_response_sender().send(answer([1]), FINAL)
    """
    model = loaded(tmp_path, body, DECOUPLED)
    assert await responses(model, request(0)) == [([1], True)]
    await model.close()


async def test_threads_answer_after_the_run(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.work, args=(request.get_response_sender(), given(request)[0])).start()

    def work(self, sender, number):
        for step in range(3):
            time.sleep(0.02)
            sender.send(answer([number * 10 + step]))
        sender.send(flags=FINAL)
    """
    model = loaded(tmp_path, body, DECOUPLED)
    found = await asyncio.gather(*(responses(model, request(number)) for number in range(1, 5)))
    for number, each in enumerate(found, 1):
        assert each == [*(([number * 10 + step], False) for step in range(3)), (None, True)]
    await model.close()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def execute(self, requests):\n    raise ValueError('no')", "ValueError: no"),
        ("def execute(self, requests):\n    return []", "is using the decoupled mode"),
    ],
)
async def test_a_decoupled_run_that_fails(tmp_path: Path, body: str, said: str) -> None:
    model = loaded(tmp_path, body, DECOUPLED)
    with pytest.raises(InferenceError, match=said) as caught:
        await responses(model, request(1))
    assert caught.value.code is ErrorCode.MODEL_FAILED
    await model.close()


async def test_a_model_that_forgets_to_end(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        for request in requests:
            if given(request)[0]:
                request.get_response_sender().send(answer([1]))
    """
    model = loaded(tmp_path, body, DECOUPLED)
    assert await responses(model, request(1)) == [([1], False), (None, True)]
    assert await responses(model, request(0)) == [(None, True)]
    await model.close()


async def test_a_stream_without_a_reader(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    body = f"""
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        sent = 0
        while not sender.is_cancelled() and not requests[0].is_cancelled():
            sender.send(answer([sent]))
            sent += 1
        sender.send(flags=FINAL)
        with open({str(stopped)!r}, "w") as file:
            file.write(str(sent))
    """
    model = loaded(tmp_path, body, DECOUPLED)
    async with aclosing(model.stream(request(0))) as stream:
        assert numbers(await anext(stream)) == [0]
        # the model is held up by a client that does not read
        await asyncio.sleep(0.3)
        assert not stopped.exists()
        for expected in range(1, 400):
            assert numbers(await anext(stream)) == [expected]
    await until(lambda: stopped.exists() and stopped.read_text())
    assert 400 <= int(stopped.read_text()) < 1000
    await model.close()


async def test_the_deadline_of_a_stream(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        sender.send(answer([1]))
        while not sender.is_cancelled():
            time.sleep(0.01)
        sender.send(flags=FINAL)
    """
    model = loaded(tmp_path, body, DECOUPLED)
    found: list[list[int]] = []
    with pytest.raises(InferenceError) as caught:
        await collected(model, request(0, context=Context(deadline=time.monotonic() + 0.3)), found)
    assert found == [[1]]
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    assert (await failure(model, request(0))).code is ErrorCode.UNSUPPORTED
    await model.close()


async def test_a_crash_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        requests[0].get_response_sender().send(answer([1]))
        os._exit(1)
    """
    model = loaded(tmp_path, body, DECOUPLED)
    found: list[list[int]] = []
    with pytest.raises(InferenceError, match="exit code 1"):
        await collected(model, request(0), found)
    assert found == [[1]]
    await model.close()


# --- sequences


SUMS = """
def initialize(self, args):
    self.sums = {}

def execute(self, requests):
    (request,) = requests
    key = request.correlation_id()
    if request.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
        self.sums[key] = 0
    self.sums[key] += int(given(request)[0])
    told = pb.get_input_tensor_by_name(request, "END").as_numpy().tolist()
    return [answer([self.sums[key], *told])]
"""


async def test_a_sequence_runs_in_order_on_one_instance(tmp_path: Path) -> None:
    config = INT32 + (
        "sequence_batching { control_input { name: 'END' control { kind: CONTROL_SEQUENCE_END "
        "int32_false_true: [ 5, 6 ] } } } instance_group [ { count: 3 } ]"
    )
    model = loaded(tmp_path, SUMS, config)
    steps = [(1, "a"), (10, "b"), (2, "a"), (20, "b"), (3, "a")]
    asked = [
        request(number, sequence=Sequence(key, start=index < 2, end=index > 2))
        for index, (number, key) in enumerate(steps)
    ]
    found = await asyncio.gather(*(model.infer(each) for each in asked))
    assert [numbers(each) for each in found[:4]] == [[1, 5], [10, 5], [3, 5], [30, 6]]
    error = await failure(model, request(1, sequence=Sequence("a")))
    assert "must specify the START flag" in error.message
    await model.close()
