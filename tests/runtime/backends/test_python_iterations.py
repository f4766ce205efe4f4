"""Models written in Python with iterative sequences: a request comes again until the model lets it go."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.models.model import LocalModel
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, Sequence, Tensor
from tests.runtime.python_models import DECOUPLED, INT32, failure, instance, loaded, numbers, request

SECS = 20
"""What no test comes near unless something waits for ever."""

ITERATIVE = "sequence_batching { iterative_sequence: true }\n"
AGAIN = "request.set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)"

COUNTS_DOWN = f"""
def initialize(self, args):
    self.left = {{}}

def execute(self, requests):
    for request in requests:
        key = request.correlation_id()
        if request.flags() & pb.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            assert key not in self.left
            self.left[key] = given(request).item()
        self.left[key] -= 1
        told = answer(np.reshape([self.left[key], request.flags(), len(requests)], self.shape(request)))
        if self.left[key]:
            {AGAIN}
            request.get_response_sender().send(told)
        else:
            del self.left[key]
            request.get_response_sender().send(told, FINAL)
    time.sleep(0.01)

def shape(self, request):
    return (1, 3) if len(given(request).shape) == 2 else (3,)
"""

COLLECTS = f"""
def initialize(self, args):
    self.runs = {{}}

def execute(self, requests):
    return [self.one(request) for request in requests]

def one(self, request):
    runs = self.runs[request.correlation_id()] = self.runs.get(request.correlation_id(), 0) + 1
    if runs == given(request)[0]:
        return answer([runs])
    {AGAIN}
"""


async def streamed(model: LocalModel, asked: InferRequest) -> list[Any]:
    async with asyncio.timeout(SECS):
        return [np.ravel(numbers(response)).tolist() async for response in model.stream(asked)]


def row(number: int) -> InferRequest:
    return InferRequest("m", (Tensor.from_numpy("IN", np.array([[number]], np.int32)),))


async def test_a_request_comes_again_until_it_has_ended(tmp_path: Path) -> None:
    """As Triton gives it: the start flag the first time alone, and an id of its own."""
    model = loaded(tmp_path, COUNTS_DOWN, DECOUPLED + ITERATIVE)
    assert await streamed(model, request(3)) == [[2, 1, 1], [1, 0, 1], [0, 0, 1]]
    assert await streamed(model, request(1)) == [[0, 1, 1]]
    await model.close()


async def test_without_batches_one_follows_the_other(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS_DOWN, DECOUPLED + ITERATIVE)
    ended: list[int] = []

    async def ask(number: int) -> None:
        assert len(await streamed(model, request(5))) == 5
        ended.append(number)

    await asyncio.gather(*(ask(number) for number in range(3)))
    assert ended == [0, 1, 2]
    await model.close()


async def test_requests_join_what_runs_already(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS_DOWN, "max_batch_size: 4\n" + DECOUPLED + ITERATIVE)
    first = asyncio.create_task(streamed(model, row(100)))
    await asyncio.sleep(0.1)
    others = await asyncio.gather(*(streamed(model, row(4)) for _ in range(9)))
    assert not first.done()
    for found in others:
        # beside the first, and never more than a batch has
        assert [left for left, _, _ in found] == [3, 2, 1, 0]
        assert [flags for _, flags, _ in found] == [1, 0, 0, 0]
        assert all(2 <= together <= 4 for _, _, together in found)
    assert [left for left, _, _ in await first] == list(range(99, -1, -1))
    await model.close()


async def test_more_candidates_than_a_batch_has_rows_take_turns(tmp_path: Path) -> None:
    strategy = "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 4 } }\n"
    model = loaded(tmp_path, COUNTS_DOWN, "max_batch_size: 2\n" + DECOUPLED + strategy)
    found = await asyncio.gather(*(streamed(model, row(6)) for _ in range(8)))
    assert [[left for left, _, _ in each] for each in found] == [[5, 4, 3, 2, 1, 0]] * 8
    assert {together for each in found for _, _, together in each} <= {1, 2}
    await model.close()


async def test_a_model_that_is_not_decoupled(tmp_path: Path) -> None:
    model = loaded(tmp_path, COLLECTS, INT32 + ITERATIVE)
    async with asyncio.timeout(SECS):
        found = await asyncio.gather(*(model.infer(request(runs)) for runs in (1, 3, 2)))
    assert [numbers(each) for each in found] == [[1], [3], [2]]
    await model.close()


async def test_a_request_whose_client_has_gone_comes_no_more(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS_DOWN, DECOUPLED + ITERATIVE)
    async with aclosing(model.stream(request(1_000_000))) as stream:
        assert numbers(await anext(stream)) == [999_999, 1, 1]
    # it had the only place
    assert await streamed(model, request(1)) == [[0, 1, 1]]
    (worker,) = instance(model)._workers
    assert worker is not None
    assert not worker.held
    await model.close()


async def test_a_run_that_fails_is_the_end(tmp_path: Path) -> None:
    body = f"def execute(self, requests):\n    request = requests[0]\n    {AGAIN}\n    raise ValueError('no')"
    model = loaded(tmp_path, body, DECOUPLED + ITERATIVE)
    for _ in range(2):
        with pytest.raises(InferenceError, match="ValueError: no"):
            await streamed(model, request(1))
    await model.close()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (INT32, "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE"),
        (INT32 + ITERATIVE, "Expected a None object in the execute function return list"),
    ],
)
async def test_what_a_model_must_not_do(tmp_path: Path, config: str, said: str) -> None:
    returned = "[answer([1])]" if ITERATIVE in config else "[None]"
    body = f"def execute(self, requests):\n    request = requests[0]\n    {AGAIN}\n    return {returned}"
    model = loaded(tmp_path, body, config)
    error = await failure(model, request(1))
    assert error.code is ErrorCode.MODEL_FAILED
    assert said in error.message
    await model.close()


async def test_sequences_of_clients_and_batches(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS_DOWN, "max_batch_size: 4\n" + DECOUPLED + ITERATIVE)
    own = row(2)
    own.sequence = Sequence(77, start=True)
    assert len(await streamed(model, own)) == 2
    own = row(2)
    own.sequence = Sequence(77)
    with pytest.raises(InferenceError, match="for sequence 77 to model 'm' must specify the START flag"):
        await streamed(model, own)
    two = InferRequest("m", (Tensor.from_numpy("IN", np.ones((2, 1), np.int32)),))
    with pytest.raises(InferenceError, match="to model 'm' must specify batch-size 1") as caught:
        await streamed(model, two)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    await model.close()


async def test_an_unload_lets_requests_go_on_to_their_end(tmp_path: Path) -> None:
    model = loaded(tmp_path, COUNTS_DOWN, DECOUPLED + ITERATIVE)
    asking = asyncio.create_task(streamed(model, request(20)))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(SECS):
        await model.close()
    assert len(await asking) == 20
