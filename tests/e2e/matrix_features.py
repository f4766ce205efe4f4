"""What one cell of the matrix tries out of everything that is no tensor's content: one check for each feature.

What has reached the model is told by the model itself, or by what it answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Tensor,
)
from interlingua.schemas.status import UNNAMED_VERSION
from interlingua.translator.fidelity.features import FEATURES
from interlingua.translator.fidelity.verdict import Outcome, Verdict
from tests.e2e.matrix_checks import FLOATS, NUMBERS, Cell
from tests.e2e.matrix_maps import maps
from tests.e2e.matrix_models import SUBJECTS
from tests.e2e.matrix_world import REGION, label
from tests.standins.trtis_client import Top
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp


def _verdict(cell: Cell, feature: str) -> Verdict:
    return FEATURES[feature](cell.caller, cell.target)


def _reported(cell: Cell, **fields: Any) -> dict[str, Any]:
    """What the model says that has reached it."""
    response = cell.ask("tell", NUMBERS, **fields)
    told: dict[str, Any] = json.loads({each.name: each for each in response.outputs}["told"].elements()[0])
    return told


def names_of_inputs(cell: Cell) -> Outcome:
    a = Tensor.from_numpy("a", np.array([[1, 2, 3], [4, 5, 6]], np.int32))
    b = Tensor.from_numpy("b", np.array([[10, 10, 10], [20, 20, 20]], np.int32))
    got = {tensor.name: tensor for tensor in cell.ask("add_sub", b, a).outputs}
    assert got.keys() == {"sum", "difference"}
    assert (got["sum"].numpy() == a.numpy() + b.numpy()).all()
    assert (got["difference"].numpy() == a.numpy() - b.numpy()).all()
    return Outcome.CARRIED


def names_of_outputs(cell: Cell) -> Outcome:
    a, b = (Tensor.from_numpy(name, np.full((1, 3), 5, np.int32)) for name in "ab")
    asked = (RequestedOutput("difference"), RequestedOutput("sum"))
    got = {tensor.name: tensor for tensor in cell.ask("add_sub", a, b, outputs=asked).outputs}
    assert (got["sum"].numpy() == 10).all() and (got["difference"].numpy() == 0).all()
    return Outcome.CARRIED


def scalars(cell: Cell) -> Outcome:
    given = Tensor.from_numpy("x", np.array(2.5, np.float32))
    assert cell.ask("scalar", given).outputs == (given.renamed("y"),)
    cube = Tensor.from_numpy("x", np.arange(-12, 12, dtype=np.int16).reshape(2, 3, 4))
    assert cell.ask("cube", cube).outputs == (cube.renamed("y"),)
    return Outcome.CARRIED


def versions(cell: Cell) -> Outcome:
    verdict = _verdict(cell, "the requested version")
    if verdict.outcome is Outcome.ABSENT:
        return Outcome.ABSENT
    if verdict.outcome is Outcome.REFUSED:
        # a version that is joined to the model's name is none of a model without versions
        code = cell.refusal("adder", NUMBERS, version="1").code
        assert code in (verdict.code, ErrorCode.NOT_FOUND)
        return Outcome.REFUSED
    for version in ("1", "2"):
        (got,) = cell.ask("adder", NUMBERS, version=version).outputs
        assert (got.numpy() == NUMBERS.numpy() + int(version)).all()
    return Outcome.CARRIED


def answer_versions(cell: Cell) -> Outcome:
    response = cell.ask("adder", NUMBERS)
    assert (response.outputs[0].numpy() == NUMBERS.numpy() + 2).all()
    if cell.target.capability.answer_versions and response.version:
        assert response.version == "2"
        return Outcome.CARRIED
    # a caller whose answers cannot omit it gets that of Status
    assert response.version in ("", UNNAMED_VERSION)
    return Outcome.DROPPED if cell.caller.capability.answer_versions else Outcome.ABSENT


def ids(cell: Cell, kind: str) -> Outcome:
    identity = {"number": "4711", "text": "blue \u00e9-7"}[kind]
    if cell.caller.capability.ids not in ("text", kind):
        return Outcome.ABSENT
    response = cell.ask("same_INT32", NUMBERS, id=identity)
    assert response.id == identity
    if not cell.target.dialect and not cell.target.capability.ids:
        return Outcome.DROPPED  # such a model is told nothing
    told = _reported(cell, id=identity)["id"]
    assert told in (identity, "")
    return Outcome.CARRIED if told else Outcome.DROPPED


def parameters(cell: Cell, value: Any) -> Outcome:
    if not cell.caller.capability.parameters or cell.caller.capability.parameter_names is not None:
        return Outcome.ABSENT
    if not cell.target.dialect and not cell.target.capability.parameters:
        assert cell.ask("same_INT32", NUMBERS, parameters={"tag": value}).outputs == (NUMBERS.renamed("y"),)
        return Outcome.DROPPED
    told = _reported(cell, parameters={"tag": value})["parameters"]
    assert told in ({"tag": value}, {})
    assert not told or type(told["tag"]) is type(value)
    return Outcome.CARRIED if told else Outcome.DROPPED


def named_parameters(cell: Cell) -> Outcome:
    verdict = _verdict(cell, "parameters with a place of their own")
    if verdict.outcome is Outcome.ABSENT:
        return Outcome.ABSENT
    ends = (cell.caller, cell.target)
    name = sorted(next(end.capability.parameter_names for end in ends if end.capability.parameter_names))[0]
    if not cell.target.dialect and not cell.target.capability.parameters:
        return Outcome.DROPPED
    told = _reported(cell, parameters={name: "some text"})["parameters"]
    assert told in ({name: "some text"}, {})
    return Outcome.CARRIED if told else Outcome.DROPPED


def answer_parameters(cell: Cell) -> Outcome:
    if not cell.target.capability.answer_parameters:
        return Outcome.ABSENT
    got = cell.ask("tell", NUMBERS).parameters
    assert got in ({"said": "yes", "times": 3}, {})
    return Outcome.CARRIED if got else Outcome.DROPPED


def tensor_parameters(cell: Cell) -> Outcome:
    """The far model echoes its input with its parameters; only the dialect itself can send them."""
    if not cell.target.capability.tensor_parameters:
        return Outcome.ABSENT
    given = {"content_type": "np", "place": 7}
    (got,) = cell.ask("same_INT32", replace(NUMBERS, parameters=given)).outputs
    assert got == NUMBERS.renamed("y") and got.parameters in (given, None)
    return Outcome.CARRIED if got.parameters else Outcome.DROPPED


def requested_outputs(cell: Cell) -> Outcome:
    if not cell.caller.capability.requested_outputs:
        return Outcome.ABSENT
    if not cell.target.dialect and cell.target.name != "python":
        inputs = (Tensor.from_numpy(name, np.full((1, 3), 5, np.int32)) for name in "ab")
        (got,) = cell.ask("add_sub", *inputs, outputs=(RequestedOutput("difference"),)).outputs
        assert got.name == "difference"
        return Outcome.CARRIED
    response = cell.ask("tell", NUMBERS, outputs=(RequestedOutput("told"),))
    assert [tensor.name for tensor in response.outputs] == ["told"]
    told = json.loads(response.outputs[0].elements()[0])["outputs"]
    assert told in (["told"], ["spare", "told"])
    return Outcome.CARRIED if told == ["told"] else Outcome.HERE


def classification(cell: Cell) -> Outcome:
    if not cell.caller.capability.classification:
        return Outcome.ABSENT
    if cell.caller.dialect in _CLASSIFIERS:
        got = _CLASSIFIERS[cell.caller.dialect](cell)
    else:
        asked = (RequestedOutput("y", classification=2),)
        (tensor,) = cell.ask("same_FP32", FLOATS, outputs=asked).outputs
        got = [(int(index), float(each)) for each, index in (e.split(b":") for e in tensor.elements())]
    assert got == [(1, 2.0), (2, 1.0)]
    return Outcome.HERE


def _classes_of_version_1(cell: Cell) -> list[tuple[int, float]]:
    """By the stand-in: our own client never asks for classes, because it ranks them itself."""
    model = label(cell.target, "same_FP32")
    client = {"http": TrtisHttp, "grpc": TrtisGrpc}[cell.caller.transport](
        cell.world.address(cell.caller, model)
    )
    try:
        answer = client.infer(model, {"x": FLOATS.numpy()}, {"y": Top(2)})
    finally:
        client.close()
    (entry,) = answer.outputs["y"]
    return [(index, each) for index, each, _ in entry]


_CLASSIFIERS: Mapping[str, Callable[[Cell], list[tuple[int, float]]]] = {"trtis": _classes_of_version_1}


def sequences(cell: Cell, identity: int | str) -> Outcome:
    if type(identity) not in cell.caller.capability.sequences:
        return Outcome.ABSENT
    kinds = cell.target.capability.sequences
    one = Tensor.from_numpy("x", np.array([[5]], np.int32))
    if type(identity) in kinds:
        own = f"{cell.caller.name} {cell.target.name} {identity}" if type(identity) is str else identity
        for step in range(3):
            place = Sequence(own, step == 0, step == 2)
            (got,) = cell.ask("total", one, sequence=place).outputs
            assert got.numpy().tolist() == [[5 * (step + 1)]]
        return Outcome.CARRIED
    place = Sequence(identity, True, False)
    verdict = FEATURES[f"sequence, id a {'text' if type(identity) is str else 'number'}"]
    if kinds:
        error = cell.refusal("tell", NUMBERS, sequence=place)
        assert error.code is verdict(cell.caller, cell.target).code and str(identity) in error.message
        return Outcome.REFUSED
    assert _reported(cell, sequence=place)["sequence"] in (0, "")
    return Outcome.DROPPED


def priorities(cell: Cell) -> Outcome:
    if not cell.caller.capability.priorities:
        return Outcome.ABSENT
    if not cell.target.dialect and cell.target.name != "python":
        cell.ask("same_INT32", NUMBERS, priority=1, timeout_us=50_000_000)
        return Outcome.CARRIED  # to the queue, which is ours
    told = _reported(cell, priority=1, timeout_us=50_000_000)["timeout_us"]
    assert told in (50_000_000, 0)
    return Outcome.CARRIED if told else Outcome.DROPPED


def streams(cell: Cell) -> Outcome:
    if not cell.caller.capability.streams:
        return Outcome.ABSENT
    assert _numbers(cell, "same_INT32") == [3]
    if cell.target.capability.streams:
        assert _numbers(cell, "count") == [0, 1, 2]
        return Outcome.CARRIED
    if not cell.target.dialect:
        return Outcome.ABSENT
    # grps' servers give one answer of such a model where it has one, and this has three
    with pytest.raises(InferenceError, match="decoupled|more than one answer"):
        _numbers(cell, "count")
    return Outcome.REFUSED


def shared_memory(cell: Cell) -> Outcome:
    if not cell.caller.capability.shared_memory:
        return Outcome.ABSENT
    memory, size = cell.world.shared.buf, NUMBERS.nbytes
    memory[:] = bytes(len(memory))
    memory[8 : 8 + size] = NUMBERS.view
    given = replace(NUMBERS, data=SharedMemoryRef(REGION, 8, size))
    place = SharedMemoryRef(REGION, 32, size)
    asked = (RequestedOutput("y", placement=place),)
    assert cell.ask("same_INT32", given, outputs=asked).outputs == (replace(given, name="y", data=place),)
    assert memory[32 : 32 + size] == NUMBERS.view and not any(memory[32 + size :])
    return Outcome.HERE


def _numbers(cell: Cell, subject: str) -> list[int]:
    """The answers to a stream that asks for 3. Raises what is told in it."""
    request = InferRequest(label(cell.target, subject), (Tensor.from_numpy("x", np.array([3], np.int32)),))
    answers = cell.world.stream(cell.caller, request, SUBJECTS[subject])
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return [each.outputs[0].numpy().item() for each in answers if each.outputs]


CHECKS: Mapping[str, Callable[[Cell], Outcome]] = {
    "names of inputs": names_of_inputs,
    "names of outputs": names_of_outputs,
    "tensors without dimensions": scalars,
    "the requested version": versions,
    "the version in the answer": answer_versions,
    "id, a number": lambda cell: ids(cell, "number"),
    "id, any text": lambda cell: ids(cell, "text"),
    "parameters: bool": lambda cell: parameters(cell, True),
    "parameters: int": lambda cell: parameters(cell, -(2**40)),
    "parameters: float": lambda cell: parameters(cell, 0.1),
    "parameters: str": lambda cell: parameters(cell, "\u00e9\u4f60"),
    "parameters with a place of their own": named_parameters,
    "parameters of a tensor": tensor_parameters,
    "parameters of the answer": answer_parameters,
    "requested outputs": requested_outputs,
    "classification": classification,
    "sequence, id a number": lambda cell: sequences(cell, _correlation(cell)),
    "sequence, id a text": lambda cell: sequences(cell, "seq-\u00e9"),
    "priority and time in the queue": priorities,
    "a map of scalars": maps,
    "several answers": streams,
    "shared memory": shared_memory,
}
"""The check of each feature."""


def _correlation(cell: Cell) -> int:
    """A number that no other cell uses: upstreams of several kinds lead to the same model."""
    return 1 + crc32(f"{cell.caller.name} {cell.target.name}".encode())
