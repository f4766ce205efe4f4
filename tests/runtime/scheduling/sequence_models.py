"""A model for the tests of sequences: it sums up what each sequence gives, and tells what it was given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from interlingua.runtime.backends import Instance
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.tensor_version import TensorVersion
from interlingua.runtime.scheduling.policy import DEFAULT_LIMITS, Limits, Scheduling
from interlingua.runtime.scheduling.sequence_policy import (
    CORRELATION_ID,
    END,
    READY,
    START,
    Control,
    Direct,
    Oldest,
    SequenceBatching,
    State,
)
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.messages import Sequence

CONTROLS = (
    Control("start", START, Datatype.INT32),
    Control("end", END, Datatype.FP32, (-1, 1)),
    Control("ready", READY, Datatype.BOOL),
    Control("id", CORRELATION_ID, Datatype.INT64),
)
SUM = State("sum", "next", Datatype.FP32, (-1, 1), Tensor.from_numpy("sum", np.zeros((1, 1), np.float32)))


class Sums(Instance):
    """y is the sum of the sequence so far. A row of a batch is recorded as (id, x, start, end) or None where
    it is nobody's. Runs wait for ``open``; a batch with a negative value fails."""

    signature = None

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Semaphore(0)
        self.batches: list[list[tuple[int, float, int, int] | None]] = []

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        given = {tensor.name: tensor.numpy() for tensor in inputs}
        x = given["x"]
        told = zip(*(given[name].ravel().tolist() for name in ("id", "start", "end", "ready")), strict=True)
        self.batches.append(
            [
                (int(identity), value, int(start), int(end)) if ready else None
                for value, (identity, start, end, ready) in zip(x[..., 0].ravel().tolist(), told, strict=True)
            ]
        )
        self.begun.release()
        assert self.open.wait(10)
        if (x < 0).any():
            raise InferenceError(ErrorCode.MODEL_FAILED, "negative")
        total = given["sum"] + x.sum(-1, keepdims=True)
        made = {name: Tensor.from_numpy(name, total) for name in ("y", "next")}
        return tuple(made[name] for name in outputs)

    def close(self) -> None:
        """Nothing to free."""

    async def has_begun(self) -> None:
        """Wait until one more run has begun."""
        assert await asyncio.to_thread(self.begun.acquire, timeout=10)


def model_of(
    instance: Instance,
    strategy: Direct | Oldest,
    *,
    rows: int = 4,
    instances: int = 1,
    limits: Limits = DEFAULT_LIMITS,
    **more: Any,
) -> LocalModel:
    """A model with one version that sums up sequences."""
    batch = (-1,) if rows else ()
    signature = Signature(
        (TensorSpec("x", Datatype.FP32, (*batch, -1)),), (TensorSpec("y", Datatype.FP32, (*batch, 1)),), rows
    )
    state = SUM if rows else State("sum", "next", Datatype.FP32, (1,), _flat(SUM.initial))
    batching = SequenceBatching(**{"controls": CONTROLS, "states": (state,), "strategy": strategy, **more})
    scheduling = Scheduling(limits=limits, sequences=batching)
    return LocalModel("m", [TensorVersion("m", 1, instance, signature, instances, scheduling=scheduling)])


def _flat(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, tensor.datatype, tensor.shape[1:], tensor.data)


def step(identity: int | str, value: float, flags: str = "", *, rows: int = 1, **more: Any) -> InferRequest:
    """A request of sequence ``identity`` with x; ``flags`` "s" starts it, "e" ends it."""
    x = np.full((rows, 1) if rows else (1,), value, np.float32)
    place = Sequence(identity, "s" in flags, "e" in flags) if identity else None
    return InferRequest("m", (Tensor.from_numpy("x", x),), sequence=place, **more)


def requested(model: LocalModel, *requests: InferRequest) -> list[asyncio.Task[Any]]:
    """Every request under way."""
    return [asyncio.ensure_future(model.infer(each)) for each in requests]


async def sums(tasks: Iterable[asyncio.Task[Any]]) -> list[float]:
    """What the answers say, each with nothing but its own."""
    answers = await asyncio.gather(*tasks)
    for answer in answers:
        assert [tensor.name for tensor in answer.outputs] == ["y"], "a state is nothing to a client"
    return [answer.outputs[0].numpy().item() for answer in answers]


async def total(model: LocalModel, *arguments: Any, **more: Any) -> float:
    """The sum after one step."""
    (found,) = await sums(requested(model, step(*arguments, **more)))
    return found
