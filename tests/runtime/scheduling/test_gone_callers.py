"""Callers that go away at the very moment at which their request would be taken from the queue."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.backends import Answers, Job
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.request_version import RequestVersion
from interlingua.runtime.scheduling.policy import DynamicBatching, Scheduling
from interlingua.runtime.scheduling.sequence_policy import Oldest, SequenceBatching
from interlingua.runtime.target import ServerHooks
from interlingua.schemas import (
    CancelToken,
    Context,
    Datatype,
    InferRequest,
    Readiness,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.messages import Sequence as Position

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, 1)),), (TensorSpec("y", Datatype.FP32, (-1, 1)),), max_batch_size=8
)


class Echo:
    """The answers to one job: its input, once."""

    def __init__(self, job: Job) -> None:
        self.closed = False
        self._job = job

    def __aiter__(self) -> Answers:
        return self

    async def __anext__(self) -> InstanceAnswer:
        outputs = tuple(tensor.renamed("y") for tensor in self._job.inputs)
        return InstanceAnswer(outputs, {}, None, True, 0, 0)

    async def aclose(self) -> None:
        self.closed = True


class OnePlace:
    """A ``RequestInstance`` with one place, which is free once ``open`` is set; it keeps its ``answers``."""

    signature: Signature | None = SIGNATURE
    decoupled = False
    places = 1
    batches = False
    composition = None
    room = 8

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.answers: list[Echo] = []

    async def claim(self, cancel: CancelToken | None = None, place: int | None = None) -> "OnePlace":
        await self.open.wait()
        return self

    def run(self, jobs: Sequence[Job]) -> list[Answers]:
        made = [Echo(job) for job in jobs]
        self.answers += made
        return list(made)

    def release(self) -> None:
        """Nobody else waits."""

    @contextmanager
    def guard(self, context: Context) -> Iterator[None]:
        yield

    def stream(self, *_: Any) -> Any:
        raise AssertionError("requests come by way of the scheduler")

    def join(self, hooks: ServerHooks) -> None:
        """It asks nobody."""

    def readiness(self, place: int | None = None) -> Readiness:
        return Readiness(True)

    async def close(self) -> None:
        """Nothing to free."""


def _request(value: float, sequence: Position | None) -> InferRequest:
    return InferRequest("m", (Tensor.from_numpy("x", np.full((1, 1), value, np.float32)),), sequence=sequence)


async def _answer(version: RequestVersion, request: InferRequest) -> float:
    async for answer in version.answers(request, ("y",)):
        return float(answer.outputs[0].numpy().item())
    raise AssertionError("no answer")


SCHEDULINGS: dict[str, tuple[Scheduling, Callable[[int], Position | None]]] = {
    "batches": (Scheduling(DynamicBatching()), lambda number: None),
    "sequences": (
        Scheduling(sequences=SequenceBatching(strategy=Oldest(8))),
        lambda number: Position(number, True, True),
    ),
}


@pytest.mark.parametrize("kind", SCHEDULINGS)
async def test_the_others_of_its_batch_are_answered(kind: str) -> None:
    scheduling, place_of = SCHEDULINGS[kind]
    instance = OnePlace()
    version = RequestVersion("m", 1, instance, SIGNATURE, scheduling=scheduling)
    tasks = [
        asyncio.ensure_future(_answer(version, _request(number, place_of(number)))) for number in (1, 2, 3)
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    # the place is free in the same round in which the first caller goes away, and a step before
    instance.open.set()
    tasks[0].cancel()
    async with asyncio.timeout(30):
        found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [2, 3]
    assert len(instance.answers) == 2, "nobody waits for the first"
    await version.close()
