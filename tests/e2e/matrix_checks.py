"""What one cell of the matrix tries out. Every check sends real requests and gives the outcome that it saw.

A check that finds neither the outcome that is predicted nor any that there could be fails by itself: values
that differ, an error of another code or one that does not name what it is about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    Tensor,
)
from tests.e2e import matrix_values as values
from tests.e2e.matrix_models import NOT_EVERYWHERE, SUBJECTS
from tests.e2e.matrix_world import World, label
from tests.standins.trtis_client import Top
from tests.standins.trtis_grpc_client import TrtisGrpc
from tests.standins.trtis_http_client import TrtisHttp
from translator.fidelity import features, tensors
from translator.fidelity.ends import End
from translator.fidelity.verdict import Outcome, Verdict


@dataclass
class Cell:
    """One caller before one target."""

    world: World
    caller: End
    target: End

    def ask(self, subject: str, *inputs: Tensor, blind: bool = False, **fields: Any) -> InferResponse:
        """The caller asks the target's model; ``blind``: without knowing its signature. Raises."""
        request = InferRequest(label(self.target, subject), inputs, **fields)
        return self.world.infer(self.caller, request, None if blind else SUBJECTS[subject])

    def refusal(self, subject: str, *inputs: Tensor, **fields: Any) -> InferenceError:
        """The error that the caller gets."""
        with pytest.raises(InferenceError) as caught:
            self.ask(subject, *inputs, **fields)
        return caught.value


def _refused(cell: Cell, verdicts: Iterable[Verdict], subject: str, given: Tensor, *names: str) -> Outcome:
    """That a request is refused as one of ``verdicts`` says, in words that have ``names`` and the dialect's."""
    error = cell.refusal(subject, given)
    words = error.message.lower()
    assert any(each.code is error.code and each.by.partition("/")[0] in words for each in verdicts), error
    assert all(name.lower() in words for name in names), error
    return Outcome.REFUSED


# --- tensors


def tensor_sent(cell: Cell, datatype: Datatype) -> Outcome:
    """A tensor on its way to the model, and back."""
    verdict = tensors.sent(cell.caller, cell.target, datatype)
    if verdict.outcome is Outcome.ABSENT:
        return Outcome.ABSENT
    subject, given = f"same_{datatype.value}", values.edges(datatype)
    if verdict.outcome is Outcome.REFUSED:
        both = (f"'{cell.caller.dialect}'",) if cell.caller.capability.carries(datatype) else ()
        return _refused(cell, [verdict], subject, given, "'x'", datatype.value, *both)
    for tensor in (given, values.nothing(datatype)):
        (got,) = cell.ask(subject, tensor).outputs
        assert got == tensor.renamed("y")
    return _seen(cell, subject, given, given.renamed("y"), verdict)


def tensor_answered(cell: Cell, datatype: Datatype) -> Outcome:
    """A tensor on its way back alone."""
    verdict = tensors.answered(cell.caller, cell.target, datatype)
    if verdict.outcome is Outcome.ABSENT or datatype not in NOT_EVERYWHERE:
        return verdict.outcome  # seen with the former
    subject = f"make_{datatype.value}"
    given = Tensor.from_numpy("x", np.arange(3, dtype=np.float32))
    made = Tensor.from_numpy("y", values.MADE[datatype], datatype)
    if verdict.outcome is Outcome.REFUSED:
        verdicts = [verdict]
        if not cell.caller.capability.carries(datatype):  # it may be the first to notice
            code = cell.caller.told(ErrorCode.UNREPRESENTABLE)
            verdicts.append(replace(verdict, code=code, by=cell.caller.name))
        return _refused(cell, verdicts, subject, given, "'y'", datatype.value)
    assert cell.ask(subject, given).outputs == (made,)
    return _seen(cell, subject, given, made, verdict)


def _seen(cell: Cell, subject: str, given: Tensor, made: Tensor, verdict: Verdict) -> Outcome:
    """What a caller sees who does not know of which datatype the model is."""
    if not cell.caller.capability.widened:
        return Outcome.EXACT
    (got,) = cell.ask(subject, given, blind=True, outputs=(RequestedOutput("y"),)).outputs
    if got == made:
        return Outcome.EXACT
    assert got.datatype is verdict.datatype and values.same_values(got, made), got
    return Outcome.WIDENED


def binary(cell: Cell) -> Outcome:
    """Strings that are no text."""
    verdict = tensors.binary(cell.caller, cell.target)
    if verdict.outcome is Outcome.ABSENT:
        return Outcome.ABSENT
    given = values.binary()
    if verdict.outcome is Outcome.REFUSED:
        error = cell.refusal("same_BYTES", given)
        assert error.code is verdict.code and "'x'" in error.message and "UTF-8" in error.message, error
        return Outcome.REFUSED
    assert cell.ask("same_BYTES", given).outputs == (given.renamed("y"),)
    return Outcome.EXACT


def payloads(cell: Cell) -> Outcome:
    """NaNs, of every float that gets there."""
    seen = set()
    for datatype in tensors.FLOATS:
        if tensors.sent(cell.caller, cell.target, datatype).outcome not in (Outcome.EXACT, Outcome.WIDENED):
            continue
        given = values.nans(datatype)
        (got,) = cell.ask(f"same_{datatype.value}", given).outputs
        with np.errstate(invalid="ignore"):  # ml_dtypes minds some of them
            assert np.isnan(got.numpy()).all() and got.shape == given.shape
        seen.add(Outcome.EXACT if got == given.renamed("y") else Outcome.DROPPED)
    (outcome,) = seen
    return outcome


# --- features

NUMBERS = Tensor.from_numpy("x", np.array([1, 2], np.int32))
FLOATS = Tensor.from_numpy("x", np.array([0.5, 2, 1], np.float32))


def _verdict(cell: Cell, feature: str) -> Verdict:
    return features.FEATURES[feature](cell.caller, cell.target)


def _told(cell: Cell, **fields: Any) -> dict[str, Any]:
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
    verdict = _verdict(cell, "the version asked for")
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
    if response.version:
        assert response.version == "2"
        return Outcome.CARRIED
    return Outcome.DROPPED if cell.caller.capability.answer_versions else Outcome.ABSENT


def ids(cell: Cell, kind: str) -> Outcome:
    identity = {"number": "4711", "text": "blue \u00e9-7"}[kind]
    if cell.caller.capability.ids not in ("text", kind):
        return Outcome.ABSENT
    response = cell.ask("same_INT32", NUMBERS, id=identity)
    assert response.id == identity
    if not cell.target.dialect and not cell.target.capability.ids:
        return Outcome.DROPPED  # such a model is told nothing
    told = _told(cell, id=identity)["id"]
    assert told in (identity, "")
    return Outcome.CARRIED if told else Outcome.DROPPED


def parameters(cell: Cell, value: Any) -> Outcome:
    if not cell.caller.capability.parameters or cell.caller.capability.parameter_names is not None:
        return Outcome.ABSENT
    if not cell.target.dialect and not cell.target.capability.parameters:
        assert cell.ask("same_INT32", NUMBERS, parameters={"tag": value}).outputs == (NUMBERS.renamed("y"),)
        return Outcome.DROPPED
    told = _told(cell, parameters={"tag": value})["parameters"]
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
    told = _told(cell, parameters={name: "some text"})["parameters"]
    assert told in ({name: "some text"}, {})
    return Outcome.CARRIED if told else Outcome.DROPPED


def answer_parameters(cell: Cell) -> Outcome:
    if not cell.target.capability.answer_parameters:
        return Outcome.ABSENT
    got = cell.ask("tell", NUMBERS).parameters
    assert got in ({"said": "yes", "times": 3}, {})
    return Outcome.CARRIED if got else Outcome.DROPPED


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
        if cell.target.name == "torch":
            return Outcome.CARRIED  # by the runtime, as for the others
        own = f"{cell.caller.name} {identity}" if type(identity) is str else identity
        for step in range(3):
            place = Sequence(own, step == 0, step == 2)
            (got,) = cell.ask("total", one, sequence=place).outputs
            assert got.numpy().tolist() == [[5 * (step + 1)]]
        return Outcome.CARRIED
    place = Sequence(identity, True, False)
    verdict = features.FEATURES[f"sequence, id a {'text' if type(identity) is str else 'number'}"]
    if kinds:
        error = cell.refusal("tell", NUMBERS, sequence=place)
        assert error.code is verdict(cell.caller, cell.target).code and str(identity) in error.message
        return Outcome.REFUSED
    assert _told(cell, sequence=place)["sequence"] in (0, "")
    return Outcome.DROPPED


def priorities(cell: Cell) -> Outcome:
    if not cell.caller.capability.priorities:
        return Outcome.ABSENT
    if not cell.target.dialect and cell.target.name != "python":
        cell.ask("same_INT32", NUMBERS, priority=1, timeout_us=50_000_000)
        return Outcome.CARRIED  # to the queue, which is ours
    told = _told(cell, priority=1, timeout_us=50_000_000)["timeout_us"]
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
    with pytest.raises(InferenceError, match="decoupled"):
        _numbers(cell, "count")
    return Outcome.REFUSED


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
    "the version asked for": versions,
    "the version in the answer": answer_versions,
    "id, a number": lambda cell: ids(cell, "number"),
    "id, any text": lambda cell: ids(cell, "text"),
    "parameters: bool": lambda cell: parameters(cell, True),
    "parameters: int": lambda cell: parameters(cell, -(2**40)),
    "parameters: float": lambda cell: parameters(cell, 0.1),
    "parameters: str": lambda cell: parameters(cell, "\u00e9\u4f60"),
    "parameters with a place of their own": named_parameters,
    "parameters of the answer": answer_parameters,
    "requested outputs": requested_outputs,
    "classification": classification,
    "sequence, id a number": lambda cell: sequences(cell, _correlation(cell)),
    "sequence, id a text": lambda cell: sequences(cell, "seq-\u00e9"),
    "priority and time in the queue": priorities,
    "several answers": streams,
}
"""The check of each feature. Tensors in shared memory have tests of their own: they never reach a target."""


def _correlation(cell: Cell) -> int:
    """A number that no other cell uses: upstreams of several kinds lead to the same model."""
    return 1 + int.from_bytes(f"{cell.caller.name}{cell.target.name}".encode()[-7:], "little")


# --- errors


def unknown_model(cell: Cell) -> None:
    """A model that the bridge does not have. The kind of the error arrives, or what the dialect makes of it."""
    if not cell.caller.capability.many_models:
        return  # it cannot be named
    request = InferRequest("nobody", (NUMBERS,))
    with pytest.raises(InferenceError) as caught:
        cell.world.infer(cell.caller, request, SUBJECTS["same_INT32"])
    _is_not_found(cell, caught.value, ErrorCode.NOT_FOUND)


def unknown_there(cell: Cell, missing: str) -> None:
    """A model that the upstream does not have."""
    if not cell.target.dialect or not cell.target.capability.many_models:
        return
    request = InferRequest(label(cell.target, missing), (replace(FLOATS, shape=(), data=FLOATS.view[:4]),))
    with pytest.raises(InferenceError) as caught:
        cell.world.infer(cell.caller, request, SUBJECTS["scalar"])
    _is_not_found(cell, caught.value, cell.target.told(ErrorCode.NOT_FOUND))


def _is_not_found(cell: Cell, error: InferenceError, code: ErrorCode) -> None:
    # some tell it by their words alone, which not all pass on as they were
    likely = {ErrorCode.NOT_FOUND, code}
    assert error.code in likely | {cell.caller.told(each) for each in likely}, error


def failing_model(cell: Cell) -> None:
    """A model that fails at work: the error says so to everybody."""
    error = cell.refusal("fails", FLOATS)
    assert error.code is cell.caller.told(cell.target.told(ErrorCode.MODEL_FAILED)), error


def bad_input(cell: Cell) -> None:
    """A tensor with one dimension too many; who finds that out first depends on what each one knows."""
    error = cell.refusal("same_FP32", Tensor.from_numpy("x", np.zeros((2, 2), np.float32)))
    invalid = ErrorCode.INVALID_TENSOR
    likely = {cell.caller.told(invalid), cell.caller.told(cell.target.told(invalid))}
    assert error.code in likely, error
    assert "x" in error.message
