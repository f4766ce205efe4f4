"""Every wire (a dialect over a transport) and every pair of wires, over the registry: a new dialect is covered
with no edit here.

Each property runs once per wire. Messages of one wire become messages of another, which is drawn with the data.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.dialect import Capability
from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Readiness,
    RequestedOutput,
    Signature,
)
from tests.properties.through import (
    WIRES,
    error_through,
    request_through,
    response_through,
    result_through,
)
from tests.strategies import (
    ALL_DATATYPES,
    carried,
    carried_batches,
    common,
    names,
    requests,
    responses,
    signature_of,
    tensors,
)

Wire = tuple[str, str]

wires = pytest.mark.parametrize("wire", WIRES, ids="/".join)
others = st.sampled_from(WIRES)


def declared(wire: Wire) -> Capability:
    """What the dialect declares for this wire."""
    return DIALECTS[wire[0]].bindings[wire[1]].capability


@cache
def capability(*wires: Wire) -> Capability:
    """What the tensors and fields of messages may be on all of these wires."""
    return common(*map(declared, wires))


def assert_same_request(understood: InferRequest, sent: InferRequest, signature: Signature) -> None:
    def wanted(request: InferRequest) -> list[str]:
        # a dialect may ask for all outputs by naming them
        return [output.name for output in signature.outputs if request.outputs is None] + [
            output.name for output in request.outputs or ()
        ]

    assert wanted(understood) == wanted(sent)
    assert replace(understood, outputs=None) == replace(sent, outputs=None)


@wires
@given(data=st.data())
def test_a_request_survives(wire: Wire, data: st.DataObject) -> None:
    """With every field that the wire carries."""
    can = capability(wire)
    outputs = data.draw(carried(can))
    request = data.draw(requests(can, carried(can), outputs))
    signature = signature_of(request.inputs, outputs)
    understood, _, _ = request_through(wire, request, signature)
    assert_same_request(understood, request, signature)


@wires
@given(data=st.data(), other=others)
def test_a_request_survives_another_wire_after_it(wire: Wire, other: Wire, data: st.DataObject) -> None:
    can = capability(wire, other)
    outputs = data.draw(carried(can))
    request = data.draw(requests(can, carried(can), outputs))
    signature = signature_of(request.inputs, outputs)
    once, _, _ = request_through(wire, request, signature)
    twice, _, _ = request_through(other, replace(once), signature)
    assert_same_request(twice, request, signature)


@wires
@given(data=st.data(), other=others)
def test_a_response_survives_another_wire_before_it(wire: Wire, other: Wire, data: st.DataObject) -> None:
    can = capability(wire, other)
    outputs = data.draw(carried(can))
    inputs = data.draw(carried(can, max_size=1))
    request, signature = InferRequest("model", inputs), signature_of(inputs, outputs)
    response = data.draw(responses(can, outputs))
    once = response_through(other, request, response, signature)
    twice = response_through(wire, request, replace(once), signature)
    for got in (once, twice):
        assert got.outputs == outputs
        assert not can.answer_versions or got.version == response.version
        assert not can.answer_parameters or got.parameters == response.parameters


@wires
@given(data=st.data(), other=others)
def test_a_batch_survives_another_wire(wire: Wire, other: Wire, data: st.DataObject) -> None:
    inputs, outputs = data.draw(carried_batches(capability(wire, other)))
    request, signature = InferRequest("model", inputs), signature_of(inputs, outputs, max_batch_size=4)
    once, _, _ = request_through(wire, request, signature)
    twice, _, _ = request_through(other, replace(once), signature)
    assert once.inputs == twice.inputs == inputs
    response = response_through(other, request, InferResponse("model", outputs, "1"), signature)
    again = response_through(wire, request, replace(response), signature)
    assert response.outputs == again.outputs == outputs


@wires
@given(data=st.data())
def test_requested_outputs_come_back(wire: tuple[str, str], data: st.DataObject) -> None:
    can = capability(wire)
    if not can.requested_outputs:
        return  # all of them do
    outputs = data.draw(carried(can, min_size=2))
    question = data.draw(carried(can, max_size=1))
    chosen = data.draw(st.lists(st.sampled_from(outputs), min_size=1, unique_by=lambda t: t.name))
    request = InferRequest("model", question)
    request.outputs = tuple(RequestedOutput(tensor.name) for tensor in chosen)
    signature = signature_of(question, outputs)
    understood, _, _ = request_through(wire, request, signature)
    assert understood.outputs is not None
    assert {output.name for output in understood.outputs} == {tensor.name for tensor in chosen}
    wanted = {tensor.name for tensor in chosen}
    answer = InferResponse("model", tuple(t for t in outputs if t.name in wanted), "1")
    back = response_through(wire, request, answer, signature)
    assert {t.name: t for t in back.outputs} == {t.name: t for t in chosen}


@wires
@given(data=st.data())
def test_what_a_dialect_cannot_carry_is_refused_by_name(wire: tuple[str, str], data: st.DataObject) -> None:
    refused = set(ALL_DATATYPES) - capability(wire).exact
    if not refused:
        return
    tensor = data.draw(tensors(refused))
    signature = signature_of([tensor], [tensor])
    with pytest.raises(InferenceError) as caught:
        request_through(wire, InferRequest("model", (tensor,)), signature)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE
    assert tensor.name in caught.value.message and tensor.datatype.value in caught.value.message


@wires
@given(data=st.data())
def test_metadata_survives(wire: tuple[str, str], data: st.DataObject) -> None:
    inputs, outputs = (data.draw(carried(capability(wire))) for _ in range(2))
    sent = ModelMetadata("model", signature_of(inputs, outputs), ("1", "3"), "onnxruntime_onnx")
    back = result_through(wire, Operation.MODEL_METADATA, ModelRef("model"), sent)
    if not declared(wire).signatures:
        assert (back.versions, back.signature) == (sent.versions, Signature((), ()))
        return
    widened = declared(wire).widened
    for before, after in ((sent.signature.inputs, back.signature.inputs),
                          (sent.signature.outputs, back.signature.outputs)):  # fmt: skip
        assert [(s.name, widened.get(s.datatype, s.datatype)) for s in before] == [
            (s.name, s.datatype) for s in after
        ]
        # a dialect may have one form for a scalar and for an unknown shape
        assert all(a.shape in (b.shape, ()) for b, a in zip(before, after, strict=True))


@wires
@pytest.mark.parametrize("ready", [True, False])
def test_readiness_survives(wire: tuple[str, str], ready: bool) -> None:
    state = Readiness(ready, "" if ready else "not yet")
    assert result_through(wire, Operation.MODEL_READY, ModelRef("model"), state).ready is ready
    assert result_through(wire, Operation.READY, None, state).ready is ready
    assert result_through(wire, Operation.LIVE, None, Readiness(True)).ready


@wires
@given(text=names(), code=st.sampled_from(list(ErrorCode)))
def test_errors_keep_their_message_and_their_kind(wire: Wire, text: str, code: ErrorCode) -> None:
    can = declared(wire)
    understood = error_through(wire, InferenceError(code, text), InferRequest("model", ()))
    if code not in can.wordless:
        assert text.strip() in understood.message or "\n" in text
    client_fault = {"MALFORMED", "INVALID_TENSOR", "UNREPRESENTABLE", "NOT_FOUND", "ALREADY_EXISTS", "UNSUPPORTED",
                    "UNAUTHENTICATED", "FORBIDDEN", "TOO_LARGE"}  # fmt: skip
    if not can.error_kinds:
        return
    # gRPC has one status for "too large" and "overloaded"; unparsable protobuf is an internal error there
    if code not in (ErrorCode.TOO_LARGE, ErrorCode.MALFORMED):
        assert (understood.code.name in client_fault) == (code.name in client_fault)
