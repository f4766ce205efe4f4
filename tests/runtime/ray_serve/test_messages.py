"""Messages between the daemon and a replica, with an object store that is a list."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pytest

from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.statistics import Execution
from interlingua.runtime.ray_serve.messages import (
    INLINE_BYTES,
    Executions,
    pack_answer,
    pack_error,
    pack_request,
    unpack_answer,
    unpack_error,
    unpack_request,
)
from interlingua.schemas import Context, Datatype, ErrorCode, InferenceError, InferRequest, Sequence, Tensor


def tensor(name: str, count: int) -> Tensor:
    return Tensor.from_numpy(name, np.arange(count, dtype=np.float32))


async def crossed(request: InferRequest) -> tuple[InferRequest, list[Any]]:
    """``request`` as the replica gets it, and the objects that went through the store."""
    store: list[Any] = []

    async def put(array: Any) -> Any:
        store.append(array)
        return len(store) - 1

    left = None if request.context.deadline is None else request.context.deadline - time.monotonic()
    packed, references = await pack_request(request, request.inputs, ("OUT",), ("gen", "3"), put, left)
    packed = pickle.loads(pickle.dumps(packed))
    return unpack_request("m", packed, [store[reference] for reference in references]), store


async def test_a_request_crosses_whole() -> None:
    small, large = tensor("a", 4), tensor("b", INLINE_BYTES)
    text = Tensor.from_numpy("c", np.array([b"", b"x\xff"], object))
    request = InferRequest(
        "m",
        (small, large, text),
        id="7",
        parameters={"p": 1},
        sequence=Sequence("s", start=True),
        priority=2,
        timeout_us=5,
        context=Context(deadline=time.monotonic() + 100, traceparent="00-1-2-01"),
        answers="many",
    )
    there, store = await crossed(request)
    assert [bytes(each.view) for each in there.inputs] == [bytes(each.view) for each in request.inputs]
    assert [(each.name, each.datatype, each.shape) for each in there.inputs] == [
        (each.name, each.datatype, each.shape) for each in request.inputs
    ]
    for name in ("id", "parameters", "sequence", "priority", "timeout_us", "answers"):
        assert getattr(there, name) == getattr(request, name)
    assert there.version == "3"
    assert [each.name for each in there.outputs or ()] == ["OUT"]
    assert there.context.traceparent == "00-1-2-01"
    assert there.context.deadline is not None
    assert 0 < there.context.deadline - time.monotonic() <= 100
    # the large one is in the store, and a view over the received memory is all that was made of it
    assert len(store) == 1
    assert np.shares_memory(store[0], np.frombuffer(large.view, np.uint8))


@pytest.mark.parametrize(("nbytes", "objects"), [(INLINE_BYTES, 0), (INLINE_BYTES + 1, 1)])
async def test_tensors_up_to_the_limit_are_inline(nbytes: int, objects: int) -> None:
    data = Tensor("x", Datatype.UINT8, (nbytes,), memoryview(bytes(nbytes)))
    _, store = await crossed(InferRequest("m", (data,)))
    assert len(store) == objects


def test_an_answer_crosses_whole() -> None:
    outputs = (tensor("a", 4), tensor("b", INLINE_BYTES))
    answer = InstanceAnswer(outputs, {"p": True}, None, True, 1_000, 4_000, 500, Execution(8))
    executions = Executions()
    packed = pickle.loads(pickle.dumps(pack_answer("r1", answer, (17, 8))))
    found = unpack_answer(packed, 0, executions)
    assert [bytes(each.view) for each in found.outputs] == [bytes(each.view) for each in outputs]
    assert (found.parameters, found.final, found.error, found.gathering) == ({"p": True}, True, None, 500)
    assert found.ended - found.started == 3_000
    # requests of one run share it, those of another replica do not
    assert unpack_answer(packed, 0, executions).execution is found.execution
    assert unpack_answer(packed._replace(replica="r2"), 0, executions).execution is not found.execution


def test_a_run_never_begins_before_its_request() -> None:
    sent = time.monotonic_ns()
    packed = pack_answer("r", InstanceAnswer((), {}, None, True, 0, 10**15), None)
    assert unpack_answer(packed, sent, Executions()).started == sent


def test_few_executions_are_kept() -> None:
    executions = Executions(most=3)
    first = executions.find("r", (0, 1))
    for number in range(1, 5):
        executions.find("r", (number, 1))
    assert executions.find("r", (0, 1)) is not first


@pytest.mark.parametrize("code", list(ErrorCode))
def test_errors_keep_all_that_they_have(code: ErrorCode) -> None:
    error = InferenceError(code, "why", retryable=True, details={"k": 1}, begun=True)
    found = unpack_error(pickle.loads(pickle.dumps(pack_error(error))))
    assert (found.code, found.message, found.retryable, found.details, found.begun) == (
        code,
        "why",
        True,
        {"k": 1},
        True,
    )
