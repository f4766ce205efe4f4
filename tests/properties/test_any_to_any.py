"""Every dialect to every dialect, over the registry: a new dialect is covered with no edit here."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import (
    Datatype,
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
    Tensor,
    pack_bytes,
)
from tests.properties.through import (
    WIRES,
    error_through,
    request_through,
    response_through,
    result_through,
)
from tests.strategies import ALL_DATATYPES, batches, names, signature_of, tensor_tuples, tensors

wires = pytest.mark.parametrize("wire", WIRES, ids="/".join)
pairs = pytest.mark.parametrize(
    ("first", "second"), list(product(WIRES, WIRES)), ids=lambda wire: "/".join(wire)
)


def carried(*wires: tuple[str, str]) -> set[Datatype]:
    """The datatypes that all of these dialects carry, exact or widened."""
    sets = [DIALECTS[name].capability.exact | DIALECTS[name].capability.widened.keys() for name, _ in wires]
    return set.intersection(*map(set, sets))


def plain(tensors: tuple[Tensor, ...], *wires: tuple[str, str]) -> tuple[Tensor, ...]:
    """``tensors`` with such contents as all of these dialects can tell apart."""
    capabilities = [DIALECTS[name].capability for name, _ in wires]
    if any(capability.text_only for capability in capabilities):
        tensors = tuple(map(with_text, tensors))
    if not all(capability.nan_payloads for capability in capabilities):
        tensors = tuple(map(with_one_nan, tensors))
    return tensors


def with_text(tensor: Tensor) -> Tensor:
    if tensor.datatype is not Datatype.BYTES:
        return tensor
    data = pack_bytes(element.decode("latin-1").encode() for element in tensor.elements())
    return Tensor.checked(tensor.name, tensor.datatype, tensor.shape, data)


def with_one_nan(tensor: Tensor) -> Tensor:
    if tensor.datatype not in (Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64):
        return tensor
    array = tensor.numpy()
    with np.errstate(invalid="ignore"):  # ml_dtypes minds some of them
        return Tensor.from_numpy(tensor.name, np.where(np.isnan(array), array.dtype.type("nan"), array))


def asked(inputs: Any) -> InferRequest:
    return InferRequest("model", inputs)


@pairs
@given(data=st.data())
def test_a_request_survives_every_pair(
    first: tuple[str, str], second: tuple[str, str], data: st.DataObject
) -> None:
    inputs = plain(data.draw(tensor_tuples(carried(first, second))), first, second)
    signature = signature_of(inputs)
    once, _, _ = request_through(first, asked(inputs), signature)
    twice, _, _ = request_through(second, replace(once), signature)
    assert once.inputs == twice.inputs == inputs


@pairs
@given(data=st.data())
def test_an_answer_survives_every_pair(
    first: tuple[str, str], second: tuple[str, str], data: st.DataObject
) -> None:
    outputs = plain(data.draw(tensor_tuples(carried(first, second))), first, second)
    question = plain(data.draw(tensor_tuples(carried(first, second), max_size=1)), first, second)
    signature = signature_of(question, outputs)
    answer = InferResponse("model", outputs, "1")
    once = response_through(second, asked(question), answer, signature)
    twice = response_through(first, asked(question), replace(once), signature)
    assert once.outputs == twice.outputs == outputs


@pairs
@given(data=st.data())
def test_a_batch_survives_every_pair(
    first: tuple[str, str], second: tuple[str, str], data: st.DataObject
) -> None:
    inputs, outputs = (plain(side, first, second) for side in data.draw(batches(carried(first, second))))
    signature = signature_of(inputs, outputs, max_batch_size=4)
    once, _, _ = request_through(first, asked(inputs), signature)
    twice, _, _ = request_through(second, replace(once), signature)
    assert once.inputs == twice.inputs == inputs
    answer = response_through(second, asked(inputs), InferResponse("model", outputs, "1"), signature)
    again = response_through(first, asked(inputs), replace(answer), signature)
    assert answer.outputs == again.outputs == outputs


@wires
@given(data=st.data())
def test_requested_outputs_come_back(wire: tuple[str, str], data: st.DataObject) -> None:
    if not DIALECTS[wire[0]].capability.requested_outputs:
        return  # all of them do
    outputs = data.draw(tensor_tuples(carried(wire), min_size=2))
    question = data.draw(tensor_tuples(carried(wire), max_size=1))
    chosen = data.draw(st.lists(st.sampled_from(outputs), min_size=1, unique_by=lambda t: t.name))
    request = asked(question)
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
    refused = set(ALL_DATATYPES) - carried(wire)
    if not refused:
        return
    tensor = data.draw(tensors(refused))
    signature = signature_of([tensor], [tensor])
    with pytest.raises(InferenceError) as caught:
        request_through(wire, asked((tensor,)), signature)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE
    assert tensor.name in caught.value.message and tensor.datatype.value in caught.value.message


@wires
@given(data=st.data())
def test_metadata_survives(wire: tuple[str, str], data: st.DataObject) -> None:
    inputs, outputs = (data.draw(tensor_tuples(carried(wire))) for _ in range(2))
    told = ModelMetadata("model", signature_of(inputs, outputs), ("1", "3"), "onnxruntime_onnx")
    back = result_through(wire, Operation.MODEL_METADATA, ModelRef("model"), told)
    if not DIALECTS[wire[0]].capability.signatures:
        assert (back.versions, back.signature) == (told.versions, Signature((), ()))
        return
    widened = DIALECTS[wire[0]].capability.widened
    for before, after in ((told.signature.inputs, back.signature.inputs),
                          (told.signature.outputs, back.signature.outputs)):  # fmt: skip
        assert [(s.name, widened.get(s.datatype, s.datatype)) for s in before] == [
            (s.name, s.datatype) for s in after
        ]
        # GraphPipe cannot tell a scalar from an unknown shape
        assert all(a.shape in (b.shape, ()) for b, a in zip(before, after, strict=True))


@wires
@pytest.mark.parametrize("ready", [True, False])
def test_readiness_survives(wire: tuple[str, str], ready: bool) -> None:
    if wire[0] == "graphpipe":
        return  # it has no readiness: a server that tells its metadata is ready
    said = Readiness(ready, "" if ready else "not yet")
    assert result_through(wire, Operation.MODEL_READY, ModelRef("model"), said).ready is ready
    assert result_through(wire, Operation.READY, None, said).ready is ready
    assert result_through(wire, Operation.LIVE, None, Readiness(True)).ready


@wires
@given(text=names(), code=st.sampled_from(list(ErrorCode)))
def test_errors_keep_their_words_and_their_kind(wire: tuple[str, str], text: str, code: ErrorCode) -> None:
    question = InferRequest("model", ())
    understood = error_through(wire, InferenceError(code, text), question)
    # neither over HTTP in version 1 nor over bRPC are there words for a request that makes no sense
    if wire not in (("trtis", "http"), ("grps", "brpc")) or code is not ErrorCode.MALFORMED:
        assert text.strip() in understood.message or "\n" in text
    client_fault = {"MALFORMED", "INVALID_TENSOR", "UNREPRESENTABLE", "NOT_FOUND", "ALREADY_EXISTS", "UNSUPPORTED",
                    "UNAUTHENTICATED", "FORBIDDEN", "TOO_LARGE"}  # fmt: skip
    if not DIALECTS[wire[0]].capability.error_kinds:
        return
    # gRPC has one status for "too large" and "overloaded"; unparsable protobuf is INTERNAL on Triton
    if code not in (ErrorCode.TOO_LARGE, ErrorCode.MALFORMED):
        assert (understood.code.name in client_fault) == (code.name in client_fault)
