"""A model written in Python is given all requests of a batch in one execution."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from interlingua.runtime.models.model import LocalModel
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest
from tests.runtime.python_models import loaded, numbers, request, worker
from tests.runtime.scheduling.models import refusal, requested, settled
from tests.waiting import until

CONFIG = """
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 2 ] } ]
"""
BATCHING = CONFIG + "dynamic_batching { }\n"
COUNTS = """
def execute(self, requests):
    if given(requests[0])[0] == 99:
        time.sleep(0.6)
    return [answer([[len(requests), *given(request)[0]]]) for request in requests]
"""


def one(number: int, **more: Any) -> InferRequest:
    """A request with one row."""
    plain = request(number, **more)
    (tensor,) = plain.inputs
    tensor.shape = (1, 1)
    return plain


async def busy(model: LocalModel) -> asyncio.Task[object]:
    """A run that takes 0.6 s, under way."""
    (task,) = requested(model, one(99))
    await until(lambda: worker(model).running)
    return task


async def test_a_batch_is_one_execution(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS, BATCHING)
    slow = await busy(model)
    tasks = requested(model, *(one(number) for number in range(11)))
    answers = [numbers(answer)[0] for answer in await asyncio.gather(slow, *tasks)]
    assert answers == [
        [1, 99],
        *([8, number] for number in range(8)),
        *([3, number] for number in (8, 9, 10)),
    ]
    (version,) = (await model.status()).versions
    counted = version.statistics
    assert (counted.inference_count, counted.execution_count) == (12, 3)
    assert {size: runs.compute_infer.count for size, runs in counted.executions.items()} == {1: 1, 8: 1, 3: 1}
    await model.close()


async def test_what_leaves_the_queue_is_not_given_to_it(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS, BATCHING)
    slow = await busy(model)
    context = Context()
    tasks = requested(model, one(1, context=context), one(2), one(3))
    await settled()
    context.cancel.cancel()
    tasks[1].cancel()
    assert (await refusal(tasks[0])).code is ErrorCode.CANCELLED
    assert numbers(await tasks[2])[0] == [1, 3]
    await slow
    # nobody waits any more, so nothing may be kept
    assert worker(model).idle
    await model.close()


async def test_requests_of_a_process_that_ends(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS, BATCHING)
    slow = await busy(model)
    tasks = requested(model, one(1), one(2))
    await settled()
    os.kill(worker(model)._process.pid, signal.SIGKILL)
    for task in (slow, *tasks):
        assert (await refusal(task)).code in (ErrorCode.UNAVAILABLE, ErrorCode.MODEL_FAILED)
    for _ in range(1200):
        if (await model.ready()).ready:
            break
        await asyncio.sleep(0.05)
    assert numbers(await model.infer(one(5)))[0] == [1, 5]
    await model.close()


async def test_decoupled_answers_of_a_batch(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        if given(requests[0])[0] == 99:
            time.sleep(0.3)
        for request in requests:
            for number in range(given(request)[0][0] % 90):
                request.get_response_sender().send(answer([[len(requests), number]]))
            request.get_response_sender().send(flags=FINAL)
    """
    config = CONFIG + "model_transaction_policy { decoupled: true }\n"
    model = loaded(tmp_path, body, config + "dynamic_batching { preserve_ordering: true }")

    async def told(number: int) -> list[list[int]]:
        return [numbers(answer)[0] async for answer in model.stream(one(number)) if answer.outputs]

    found = await asyncio.gather(*(told(number) for number in (99, 3, 1)))
    assert [len(each) for each in found] == [9, 3, 1]
    assert found[1] == [[found[1][0][0], number] for number in range(3)]
    await model.close()


async def test_preserved_order_over_two_processes(tmp_path: Path) -> None:
    config = CONFIG.replace("8", "1", 1) + "instance_group [ { count: 2 } ]"
    for ordered in ("false", "true"):
        folder = tmp_path / ordered
        model = loaded(folder, COUNTS, f"{config} dynamic_batching {{ preserve_ordering: {ordered} }}")
        left: list[int] = []

        async def ask(number: int, model: LocalModel = model, left: list[int] = left) -> None:
            await model.infer(one(number))
            left.append(number)

        await asyncio.gather(*(ask(number) for number in (99, 1, 2, 3)))
        assert left == ([99, 1, 2, 3] if ordered == "true" else [1, 2, 3, 99])
        await model.close()


async def test_an_error_of_one_is_its_own(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        return [
            pb.InferenceResponse(error=pb.TritonError("mine")) if given(request)[0] == 1
            else answer([[len(requests), *given(request)[0]]])
            for request in requests
        ]
    """
    model = loaded(tmp_path, body, BATCHING)
    bad, good = await asyncio.gather(*requested(model, one(1), one(2)), return_exceptions=True)
    assert isinstance(bad, InferenceError)
    assert bad.message == "mine"
    assert numbers(good)[0] == [2, 2]
    await model.close()


async def test_a_model_that_requests_batches_itself(tmp_path: Path) -> None:
    completes = """
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(8)
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [2]})
        config.set_dynamic_batching()
        return config
    """
    model = loaded(tmp_path, completes + COUNTS.replace("\n", "\n    "), "")
    slow = await busy(model)
    answers = await asyncio.gather(slow, *requested(model, one(1), one(2)))
    assert [numbers(answer)[0] for answer in answers] == [[1, 99], [2, 1], [2, 2]]
    await model.close()
