"""A model for the tests of batches: it tells what it was given, and runs as long as the test wants."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np

from interlingua.runtime.backends import Instance
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.tensor_version import TensorVersion
from interlingua.runtime.scheduling.policy import DEFAULT_LIMITS, DynamicBatching, Limits, Scheduling
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Signature,
    Tensor,
    TensorSpec,
)

STAMP = 1000.0
SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, -1)), TensorSpec("text", Datatype.BYTES, (-1, 2), optional=True)),
    (TensorSpec("y", Datatype.FP32, (-1, -1)), TensorSpec("said", Datatype.BYTES, (-1, 2))),
    max_batch_size=8,
)


_PLAIN = DynamicBatching()


class Stamps(Instance):
    """y is x plus a stamp, said is text, or the stamp where there is none. Runs wait for ``open``; a batch
    with a negative value fails, one with a value of 7777 comes back a row short."""

    signature = SIGNATURE

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Semaphore(0)
        self.batches: list[list[float]] = []
        self.closed = False

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        assert not self.closed, "ran after it was closed"
        given = {tensor.name: tensor.numpy() for tensor in inputs}
        x = given["x"]
        self.batches.append([float(row[0]) for row in x])
        self.begun.release()
        assert self.open.wait(10)
        if (x < 0).any():
            raise InferenceError(ErrorCode.MODEL_FAILED, "negative")
        if (x == 7777).any():
            x = x[:-1]
        text = given.get("text", np.full((len(x), 2), b"none", object))
        made = {"y": Tensor.from_numpy("y", x + np.float32(STAMP)), "said": Tensor.from_numpy("said", text)}
        return tuple(made[name] for name in outputs)

    def close(self) -> None:
        self.closed = True

    async def has_begun(self) -> None:
        """Wait until one more run has begun."""
        assert await asyncio.to_thread(self.begun.acquire, timeout=10)


def model_of(
    instance: Stamps,
    batching: DynamicBatching | None = _PLAIN,
    *,
    limits: Limits = DEFAULT_LIMITS,
    instances: int = 1,
    ragged: bool = False,
    signature: Signature = SIGNATURE,
) -> LocalModel:
    """A model with one version that batches, by default without waiting; for None it does not."""
    scheduling = Scheduling(batching, limits, ragged)
    return LocalModel("m", [TensorVersion("m", 1, instance, signature, instances, scheduling=scheduling)])


def request(value: float, rows: int = 1, width: int = 1, **more: Any) -> InferRequest:
    """``rows`` rows of x, all with ``value``."""
    x = np.full((rows, width), value, np.float32)
    return InferRequest("m", (Tensor.from_numpy("x", x),), **more)


def requested(model: LocalModel, *requests: InferRequest) -> list[asyncio.Task[Any]]:
    """Every request under way."""
    return [asyncio.ensure_future(model.infer(each)) for each in requests]


async def settled() -> None:
    """Let what was asked come to the queue."""
    for _ in range(5):
        await asyncio.sleep(0)


def value_of(response: Any) -> float:
    """What was asked, if all of the answer is its own."""
    values = {float(value) - STAMP for value in response.outputs[0].numpy().ravel()}
    (value,) = values
    return value


async def refusal(task: asyncio.Task[Any]) -> InferenceError:
    """The error that ``task`` ends with."""
    (error,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(error, InferenceError), error
    return error
