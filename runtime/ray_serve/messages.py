"""Requests and answers between this process and a replica, as plain values.

A tensor of up to 64 KiB travels inside the message. A larger one is an object of Ray's store, an array of
bytes: written once by its sender, and read in place by any process of the receiver's node. Errors travel as
values, so that they keep their code.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.statistics import Execution
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Tensor,
)
from interlingua.schemas import Sequence as Place
from interlingua.schemas.datatypes import DATATYPES

INLINE_BYTES = 1 << 16
"""Larger tensors go through the object store."""

ANOTHER_GENERATION = "another_generation"
"""The key in the details of an UNAVAILABLE by a replica without the files of the request."""

Put = Callable[[Any], Awaitable[Any]]
"""Puts an array into the object store and returns its reference."""


class PackedTensor(NamedTuple):
    """``data`` are the bytes, an array of them, or the number of the object that has them."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Any


class PackedRequest(NamedTuple):
    """``generation`` and ``version`` are those of the files to run; ``left_secs`` is the time to the
    deadline, by whose clock it does not matter."""

    generation: str
    version: str
    outputs: tuple[str, ...]
    inputs: tuple[PackedTensor, ...]
    id: str
    parameters: dict[str, Any]
    sequence: tuple[int | str, bool, bool] | None
    priority: int
    timeout_us: int
    left_secs: float | None
    traceparent: str
    answers: Any


class PackedAnswer(NamedTuple):
    """One answer of ``replica``, which ran it for ``run_ns``, of which gathering the batch took
    ``gathering_ns``; ``execution`` is the number of a run that several requests share, with its rows.
    ``error`` is what :func:`pack_error` returns."""

    replica: str
    outputs: tuple[PackedTensor, ...]
    parameters: dict[str, Any]
    final: bool
    run_ns: int
    gathering_ns: int = 0
    execution: tuple[int, int] | None = None
    error: tuple[Any, ...] | None = None


async def pack_request(
    request: InferRequest,
    inputs: Sequence[Tensor],
    outputs: tuple[str, ...],
    version: tuple[str, str],
    put: Put,
    left_secs: float | None,
) -> tuple[PackedRequest, list[Any]]:
    """The message, and the references of its objects in the order of their numbers."""
    packed: list[PackedTensor] = []
    objects: list[Any] = []
    for tensor in inputs:
        data: Any
        if tensor.nbytes > INLINE_BYTES:
            data = len(objects)
            objects.append(await put(np.frombuffer(tensor.view, dtype=np.uint8)))
        else:
            data = bytes(tensor.view)
        packed.append(PackedTensor(tensor.name, tensor.datatype.value, tensor.shape, data))
    place = request.sequence
    message = PackedRequest(
        *version,
        outputs,
        tuple(packed),
        request.id,
        dict(request.parameters),
        None if place is None else (place.id, place.start, place.end),
        request.priority,
        request.timeout_us,
        left_secs,
        request.context.traceparent,
        request.answers,
    )
    return message, objects


def unpack_request(model: str, packed: PackedRequest, objects: Sequence[Any]) -> InferRequest:
    """The request as the replica runs it."""
    left = packed.left_secs
    return InferRequest(
        model,
        tuple(_unpacked(tensor, objects) for tensor in packed.inputs),
        tuple(map(RequestedOutput, packed.outputs)),
        packed.version,
        packed.id,
        packed.parameters,
        None if packed.sequence is None else Place(*packed.sequence),
        packed.priority,
        packed.timeout_us,
        Context(None if left is None else time.monotonic() + left, traceparent=packed.traceparent),
        answers=packed.answers,
    )


def pack_answer(replica: str, answer: InstanceAnswer, execution: tuple[int, int] | None) -> PackedAnswer:
    """``answer`` of ``replica``. Large outputs are arrays, which Ray serializes without a copy."""
    outputs = []
    for tensor in answer.outputs:
        large = tensor.nbytes > INLINE_BYTES
        data: Any = np.frombuffer(tensor.view, dtype=np.uint8) if large else bytes(tensor.view)
        outputs.append(PackedTensor(tensor.name, tensor.datatype.value, tensor.shape, data))
    return PackedAnswer(
        replica,
        tuple(outputs),
        dict(answer.parameters),
        answer.final,
        answer.ended - answer.started,
        answer.gathering,
        execution,
        None if answer.error is None else pack_error(answer.error),
    )


@dataclass(slots=True)
class Executions:
    """The runs that several requests share, by replica and number: the latest ``most``."""

    most: int = 1024
    _known: dict[tuple[str, int], Execution] = field(default_factory=dict)

    def find(self, replica: str, execution: tuple[int, int]) -> Execution:
        number, rows = execution
        found = self._known.get((replica, number))
        if found is None:
            found = self._known[replica, number] = Execution(rows)
            while len(self._known) > self.most:
                del self._known[next(iter(self._known))]
        return found


def unpack_answer(packed: PackedAnswer, sent: int, executions: Executions) -> InstanceAnswer:
    """The answer to a request ``sent`` at that ``time.monotonic_ns()``. All time that is not of the run
    counts as queue: the clocks of two machines do not compare."""
    ended = time.monotonic_ns()
    return InstanceAnswer(
        tuple(_unpacked(tensor, ()) for tensor in packed.outputs),
        packed.parameters,
        None if packed.error is None else unpack_error(packed.error),
        packed.final,
        max(sent, ended - packed.run_ns),
        ended,
        packed.gathering_ns,
        None if packed.execution is None else executions.find(packed.replica, packed.execution),
    )


def pack_error(error: InferenceError) -> tuple[Any, ...]:
    """``error`` as plain values: an exception would lose its attributes on the way."""
    return error.code.name, error.message, error.retryable, dict(error.details), error.begun


def unpack_error(packed: tuple[Any, ...]) -> InferenceError:
    code, message, retryable, details, begun = packed
    return InferenceError(ErrorCode[code], message, retryable=retryable, details=details, begun=begun)


def _unpacked(packed: PackedTensor, objects: Sequence[Any]) -> Tensor:
    data = objects[packed.data] if isinstance(packed.data, int) else packed.data
    return Tensor(packed.name, DATATYPES[packed.datatype], packed.shape, memoryview(data).toreadonly())
