"""What each dialect says that it carries, held against its codecs: a declaration that is not so fails here.

Over the registry, over every transport: a new dialect is covered with no edit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.dialect import Capability
from interlingua.protocols.registry import DIALECTS
from interlingua.runtime.upstream.dropped_fields import KINDS, dropped_fields
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)
from tests.properties.through import (
    WIRES,
    error_to,
    request_through,
    response_through,
    result_through,
    streamed_through,
)
from tests.strategies import LABELS, NUMBERS, PARAMETERS, TEXTS, signature_of

Wire = tuple[str, str]

wires = pytest.mark.parametrize("wire", WIRES, ids="/".join)
INPUT = Tensor.from_numpy("x", np.array([1, 2], np.int32))
OUTPUT = Tensor.from_numpy("y", np.array([3, 4], np.int32))
OTHER = Tensor.from_numpy("z", np.array([5], np.int64))
SIGNATURE = signature_of([INPUT], [OUTPUT, OTHER])
SIGNATURE_OF_BATCHES = signature_of([INPUT], [OUTPUT], max_batch_size=4)


def capability(wire: Wire) -> Capability:
    return DIALECTS[wire[0]].bindings[wire[1]].capability


def understood(wire: Wire, **fields: Any) -> InferRequest:
    """What a server of the dialect reads of a request with these fields."""
    return request_through(wire, InferRequest("model", (INPUT,), **fields), SIGNATURE)[0]


def refusal(wire: Wire, **fields: Any) -> ErrorCode:
    with pytest.raises(InferenceError) as caught:
        understood(wire, **fields)
    return caught.value.code


@wires
@given(number=NUMBERS, text=TEXTS)
def test_ids(wire: Wire, number: int, text: str) -> None:
    kind = capability(wire).ids
    assert understood(wire, id=str(number)).id == (str(number) if kind else "")
    if not text.isdigit():
        assert understood(wire, id=text).id == (text if kind == "text" else "")


@wires
def test_models(wire: Wire) -> None:
    """Where an address has several models, a request names the one that it is for."""
    opened = request_through(wire, InferRequest("model", (INPUT,)), SIGNATURE)[1]
    assert opened.model == ("model" if capability(wire).many_models else "")


@wires
@given(number=NUMBERS, text=LABELS)
def test_versions(wire: Wire, number: int, text: str) -> None:
    # a version may be joined to the model's name, and is taken from there once it is known which models are
    def asked(version: str) -> str:
        request, opened, _ = request_through(
            wire, InferRequest("model", (INPUT,), version=version), SIGNATURE
        )
        return opened.model.removeprefix("model-") if capability(wire).joined_versions else request.version

    kind = capability(wire).versions
    if kind:
        assert asked(str(number)) == str(number)
    if kind == "text":
        assert asked(text) == text
    else:
        assert refusal(wire, version=text) in (ErrorCode.UNREPRESENTABLE, ErrorCode.NOT_FOUND)


@wires
@given(
    name=LABELS,
    value=st.one_of(PARAMETERS.values()),
)
def test_parameters(wire: Wire, name: str, value: Any) -> None:
    said = capability(wire)
    names = said.parameter_names
    if name in ("priority", "timeout", "config"):
        return  # the IR has fields for two of them, and one has a place of its own
    carried = type(value) in said.parameters and (names is None or name in names)
    got = understood(wire, parameters={name: value}).parameters
    assert got == ({name: value} if carried else {})
    assert not carried or type(got[name]) is type(value)


@wires
def test_parameters_that_have_a_place_by_their_name(wire: Wire) -> None:
    for name in capability(wire).parameter_names or ():
        assert understood(wire, parameters={name: "some text"}).parameters == {name: "some text"}
        assert refusal(wire, parameters={name: 7}) is ErrorCode.UNREPRESENTABLE


@wires
@given(identity=NUMBERS | TEXTS, start=st.booleans(), end=st.booleans())
def test_sequences(wire: Wire, identity: int | str, start: bool, end: bool) -> None:
    sequence, kinds = Sequence(identity, start, end), capability(wire).sequences
    if type(identity) in kinds:
        assert understood(wire, sequence=sequence).sequence == sequence
    elif kinds:
        assert refusal(wire, sequence=sequence) is ErrorCode.UNREPRESENTABLE
    else:
        assert understood(wire, sequence=sequence).sequence is None


@wires
@given(
    number=NUMBERS,
    text=TEXTS,
    value=st.booleans() | st.integers(-99, 99) | TEXTS,
    sequence=st.none() | st.builds(Sequence, NUMBERS),
    priority=st.integers(0, 9),
    timeout_us=st.integers(0, 9),
    form=st.sampled_from(["", "number", "text"]),
)
def test_dropped_fields_are_reported(
    wire: Wire,
    number: int,
    text: str,
    value: bool | int | str,
    sequence: Sequence | None,
    priority: int,
    timeout_us: int,
    form: str,
) -> None:
    identity = {"": "", "number": str(number), "text": text}[form]
    sent = InferRequest("model", (INPUT,), None, "", identity, {"tag": value}, sequence, priority, timeout_us)
    got = request_through(wire, sent, SIGNATURE)[0]
    told = {kind for kind, _ in dropped_fields(sent, capability(wire))}
    assert told <= set(KINDS)
    assert ("id" in told) == (got.id != sent.id)
    assert ("parameter" in told) == (got.parameters != sent.parameters)
    assert ("sequence" in told) == (got.sequence != sent.sequence)
    assert ("priority" in told) == ((got.priority, got.timeout_us) != (priority, timeout_us))


@wires
@given(priority=st.integers(1, 2**32 - 1), timeout_us=st.integers(1, 2**63 - 1))
def test_priorities(wire: Wire, priority: int, timeout_us: int) -> None:
    got = understood(wire, priority=priority, timeout_us=timeout_us)
    carried = capability(wire).priorities
    assert (got.priority, got.timeout_us) == ((priority, timeout_us) if carried else (0, 0))


@wires
def test_requested_outputs(wire: Wire) -> None:
    got = understood(wire, outputs=(RequestedOutput("z"),)).outputs
    chosen = got is not None and [output.name for output in got] == ["z"]
    assert chosen == capability(wire).requested_outputs


@wires
def test_classification(wire: Wire) -> None:
    outputs = (RequestedOutput("z", classification=2),)
    if capability(wire).classification:
        # upstreams are never asked for classes, so a client may leave the count to the runtime
        sent = outputs if capability(wire).client_classification else (RequestedOutput("z"),)
        assert understood(wire, outputs=outputs).outputs == sent
    elif capability(wire).requested_outputs:
        assert refusal(wire, outputs=outputs) is ErrorCode.UNREPRESENTABLE
    else:
        assert understood(wire, outputs=outputs).outputs is None


@wires
def test_shared_memory(wire: Wire) -> None:
    placed = Tensor("x", INPUT.datatype, INPUT.shape, SharedMemoryRef("region", 8, INPUT.nbytes))
    request = InferRequest("model", (placed,))
    if capability(wire).shared_memory:
        assert request_through(wire, request, SIGNATURE)[0].inputs == (placed,)
        return
    with pytest.raises(InferenceError):
        request_through(wire, request, SIGNATURE)


@wires
def test_answers(wire: Wire) -> None:
    said = capability(wire)
    told = InferResponse("model", (OUTPUT, OTHER), "3", parameters={"tag": "blue"})
    got = response_through(wire, InferRequest("model", (INPUT,)), told, SIGNATURE)
    assert got.version == ("3" if said.answer_versions else "")
    assert got.parameters == (told.parameters if said.answer_parameters else {})
    assert got.outputs == told.outputs


@wires
def test_batch_limits(wire: Wire) -> None:
    told = ModelMetadata("model", SIGNATURE_OF_BATCHES, ("1",))
    got = result_through(wire, Operation.MODEL_METADATA, ModelRef("model"), told).signature.max_batch_size
    in_config = Operation.MODEL_CONFIG in DIALECTS[wire[0]].bindings[wire[1]].calls
    assert (got == 4 or in_config) == capability(wire).batch_limits


@wires
def test_scalars_and_nothing(wire: Wire) -> None:
    scalar = Tensor.from_numpy("x", np.array(7, np.int32))
    nothing = Tensor.from_numpy("x", np.zeros((0, 3), np.int32))
    for tensor in (scalar, nothing) if capability(wire).scalars else (nothing,):
        got = request_through(wire, InferRequest("model", (tensor,)), signature_of([tensor]))[0]
        assert got.inputs == (tensor,)


@wires
def test_names(wire: Wire) -> None:
    """Names that no signature tells."""
    other = Tensor.from_numpy("other", np.array([9], np.int32))
    signature = signature_of([INPUT, other])
    got = request_through(wire, InferRequest("model", (other, INPUT)), signature)[0].inputs
    assert ({tensor.name: tensor for tensor in got} == {"x": INPUT, "other": other}) == capability(
        wire
    ).input_names


@wires
def test_text(wire: Wire) -> None:
    binary = Tensor("x", Datatype.BYTES, (2,), memoryview(pack_bytes([b"\xff", b"\x00\xfe"])))
    request, signature = InferRequest("model", (binary,)), signature_of([binary])
    if capability(wire).text_only:
        with pytest.raises(InferenceError) as caught:
            request_through(wire, request, signature)
        assert caught.value.code is ErrorCode.UNREPRESENTABLE
    else:
        assert request_through(wire, request, signature)[0].inputs == (binary,)


@wires
@pytest.mark.parametrize("bits", [0x7F800001, 0xFFC12345])
def test_payloads_of_nan(wire: Wire, bits: int) -> None:
    tensor = Tensor.from_numpy("x", np.array([bits], "<u4").view("<f4"))
    got = request_through(wire, InferRequest("model", (tensor,)), signature_of([tensor]))[0].inputs
    assert np.isnan(got[0].numpy()).all()
    assert (got == (tensor,)) == capability(wire).nan_payloads


@wires
@given(code=st.sampled_from(ErrorCode), text=TEXTS)
def test_errors(wire: Wire, code: ErrorCode, text: str) -> None:
    error = InferenceError(code, text)
    assert error_to(wire, error, InferRequest("model", (INPUT,)), SIGNATURE).code is capability(
        wire
    ).reported_as.get(code, code)


@wires
def test_streams(wire: Wire) -> None:
    said = capability(wire).streams
    assert bool(said) == (Operation.INFER_STREAM in DIALECTS[wire[0]].bindings[wire[1]].calls)
    if not said:
        return
    one = Tensor.from_numpy("x", np.array([1], np.int32))
    answer = Tensor.from_numpy("y", np.array([3], np.int32))
    signature = signature_of([one], [answer])
    pieces = [InferResponse("model", (answer,), "1", final=False)] * 2 + [InferResponse("model", (), "1")]
    got = streamed_through(wire, InferRequest("model", (one,)), pieces, signature)
    assert [piece.outputs for piece in got if piece.outputs] == [(answer,), (answer,)]
    # two dimensions do not come back out of what has no shapes
    square = Tensor.from_numpy("x", np.ones((2, 2), np.int32))
    asked = InferRequest("model", (square,))
    free = Signature((TensorSpec("x", Datatype.INT32, (-1, -1)),), signature.outputs)
    if said == "whole":
        assert [piece.outputs for piece in streamed_through(wire, asked, pieces[:1], free)] == [(answer,)]
        return
    with pytest.raises(InferenceError) as caught:
        streamed_through(wire, asked, pieces[:1], free)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE
