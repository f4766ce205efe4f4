"""Messages from every dialect to every dialect, judged by what the other side reads."""

from __future__ import annotations

import contextlib
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.dialect import Binding
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Tensor,
    pack_bytes,
)
from interlingua.translator.config.bindings import binding_named, binding_of
from interlingua.translator.conversion.convert import (
    Conversion,
    convert_answer,
    convert_request,
    read_answer,
    read_request,
)
from interlingua.translator.conversion.raw import FORMS
from interlingua.translator.fidelity.verdict import Outcome
from tests.properties.through import WIRES
from tests.strategies import signature_of

BINDINGS = [binding_of(*wire) for wire in WIRES]
pairs = pytest.mark.parametrize(("source", "to"), list(product(BINDINGS, BINDINGS)), ids=attrgetter("name"))
INPUTS = (
    Tensor.from_numpy("x", np.array([[1, 2], [3, 4]], np.int32)),
    Tensor.checked("word", Datatype.BYTES, (2,), pack_bytes([b"a", b"text"])),
)
OUTPUTS = (Tensor.from_numpy("y", np.array([0.5, -1], np.float32)),)
SIGNATURE = signature_of(INPUTS, OUTPUTS)
REQUEST = InferRequest("m", INPUTS)


def findings(converted: Conversion) -> dict[str, Outcome]:
    return {finding.what: finding.verdict.outcome for finding in converted.findings}


def written(binding: Binding, request: InferRequest = REQUEST) -> bytes:
    """The request as it goes over the wire."""
    message = convert_request(request, binding, SIGNATURE).message
    assert message is not None
    return FORMS[binding.transport].write(message)


@pairs
def test_a_request_in_any_dialect(source: Binding, to: Binding) -> None:
    request = read_request(source, written(source), SIGNATURE, model="m")
    assert (request.model, request.inputs) == ("m", INPUTS)
    converted = convert_request(request, to, SIGNATURE)
    assert findings(converted)["input 'x' INT32"] is Outcome.EXACT
    assert converted.outcome in (Outcome.EXACT, Outcome.DROPPED)
    assert converted.message is not None
    again = read_request(to, FORMS[to.transport].write(converted.message), SIGNATURE, model="m")
    assert again.inputs == INPUTS


@pairs
def test_an_answer_in_any_dialect(source: Binding, to: Binding) -> None:
    given = InferResponse("m", OUTPUTS, "1")
    message = convert_answer(given, source, REQUEST, SIGNATURE).message
    assert message is not None
    response = read_answer(source, FORMS[source.transport].write(message), REQUEST, SIGNATURE)
    assert isinstance(response, InferResponse)
    converted = convert_answer(response, to, REQUEST, SIGNATURE)
    assert findings(converted)["output 'y' FP32"] is Outcome.EXACT
    assert converted.message is not None
    again = read_answer(to, FORMS[to.transport].write(converted.message), REQUEST, SIGNATURE)
    assert isinstance(again, InferResponse)
    assert again.outputs == OUTPUTS


@pytest.mark.parametrize("to", BINDINGS, ids=attrgetter("name"))
def test_a_large_answer_is_whole(to: Binding) -> None:
    outputs = (Tensor.from_numpy("y", np.arange(30_000, dtype=np.float32)),)
    message = convert_answer(InferResponse("m", outputs, "1"), to, REQUEST, SIGNATURE).message
    assert message is not None
    response = read_answer(to, FORMS[to.transport].write(message), REQUEST, SIGNATURE)
    assert isinstance(response, InferResponse)
    assert response.outputs == outputs


@pytest.mark.parametrize("to", BINDINGS, ids=attrgetter("name"))
def test_an_answer_whose_request_is_not_known(to: Binding) -> None:
    message = convert_answer(InferResponse("m", OUTPUTS), to, signature=SIGNATURE).message
    assert message is not None
    response = read_answer(to, FORMS[to.transport].write(message), signature=SIGNATURE)
    assert isinstance(response, InferResponse)
    assert response.outputs == OUTPUTS


@pytest.mark.parametrize("to", BINDINGS, ids=attrgetter("name"))
def test_an_error(to: Binding) -> None:
    converted = convert_answer(
        InferenceError(ErrorCode.INVALID_TENSOR, "no such thing"), to, REQUEST, SIGNATURE
    )
    assert converted.message is not None
    told = read_answer(to, FORMS[to.transport].write(converted.message), REQUEST, SIGNATURE)
    assert isinstance(told, InferenceError)
    assert "no such thing" in told.message
    kept = told.code is ErrorCode.INVALID_TENSOR
    assert findings(converted) == {"error INVALID_TENSOR": Outcome.CARRIED if kept else Outcome.DROPPED}


def converted(to: str, inputs: tuple[Tensor, ...] = INPUTS, **fields: Any) -> Conversion:
    return convert_request(
        InferRequest("m", inputs, **fields), binding_named(to), signature_of(inputs, OUTPUTS)
    )


def test_widening_is_reported() -> None:
    flags = (Tensor.from_numpy("flags", np.array([True, False])),)
    told = converted("graphpipe/http", flags)
    assert (told.outcome, findings(told)["input 'flags' BOOL"]) == (Outcome.WIDENED, Outcome.WIDENED)
    assert "widened to UINT8" in str(told.findings[0])
    assert converted("oip/grpc", flags).outcome is Outcome.EXACT


def test_refusals_are_reported_tensor_by_tensor() -> None:
    brain = Tensor.checked("brain", Datatype.BF16, (1,), b"ab")
    told = converted("trtis/http", (INPUTS[0], brain, INPUTS[1]))
    assert told.message is None
    assert told.outcome is Outcome.REFUSED
    assert findings(told) == {
        "input 'x'": Outcome.EXACT,
        "input 'brain'": Outcome.REFUSED,
        "input 'word'": Outcome.EXACT,
    }
    assert "BF16" in str(told.findings[1])


def test_bytes_that_are_no_text() -> None:
    words = Tensor.checked("words", Datatype.BYTES, (2,), pack_bytes([b"\xff", b"a"]))
    assert findings(converted("grps/grpc", (words,))) == {"input 'words'": Outcome.REFUSED}


def test_a_nan_that_loses_its_payload() -> None:
    nan = Tensor.checked("nan", Datatype.FP32, (1,), b"\x01\x02\xc0\x7f")
    told = converted("grps/http", (nan,))
    assert findings(told)["input 'nan' FP32"] is Outcome.DROPPED
    assert "the values are the same" in str(told.findings[0])


def test_what_is_lost_beside_tensors() -> None:
    fields: dict[str, Any] = {
        "id": "request 1",
        "parameters": {"top": 5},
        "priority": 7,
        "sequence": Sequence(12, start=True),
        "outputs": (RequestedOutput("y"),),
    }
    carried = findings(converted("oip/grpc", **fields))
    assert set(carried.values()) == {Outcome.EXACT, Outcome.CARRIED}
    lost = {
        what for what, outcome in findings(converted("graphpipe/http", **fields)).items() if outcome.loses
    }
    assert lost == {"id 'request 1'", "parameter 'top'", "priority 7", "sequence 12"}
    lost = {what for what, outcome in findings(converted("trtis/grpc", **fields)).items() if outcome.loses}
    assert lost == {"id 'request 1'", "parameter 'top'"}


def test_a_sequence_that_cannot_be_expressed_refuses_the_request() -> None:
    told = converted("trtis/grpc", sequence=Sequence("a text"))
    assert (told.message, findings(told)["the request"]) == (None, Outcome.REFUSED)


def test_tensors_that_stand_in_shared_memory() -> None:
    there = Tensor("x", Datatype.FP32, (4,), SharedMemoryRef("region", 0, 16))
    outputs = (RequestedOutput("y", placement=SharedMemoryRef("region", 16, 16)),)
    request = InferRequest("m", (there,), outputs)
    for to in ("oip/http", "oip/grpc"):
        told = convert_request(request, binding_named(to))
        assert findings(told)["input 'x' FP32"] is Outcome.CARRIED
        assert findings(told)["'y' in shared memory"] is Outcome.CARRIED
    for to in ("graphpipe/http", "grps/grpc"):
        assert convert_request(request, binding_named(to)).outcome is Outcome.REFUSED


@pytest.mark.parametrize("to", BINDINGS, ids=attrgetter("name"))
def test_a_model_of_which_nothing_is_known(to: Binding) -> None:
    told = convert_request(InferRequest("m", INPUTS, (RequestedOutput("y"),)), to)
    assert told.message is not None
    assert findings(told)["input 'word' BYTES"] is Outcome.EXACT
    kept = to.capability.requested_outputs
    assert findings(told)["requested output 'y'"] is (Outcome.CARRIED if kept else Outcome.DROPPED)
    told = convert_request(InferRequest("m", INPUTS), to)
    assert ("all outputs" in findings(told)) == (to.dialect == "trtis")


def test_what_is_no_inference() -> None:
    head = b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n"
    with pytest.raises(InferenceError, match="asks for live, which is no inference"):
        read_request(binding_named("oip/http"), head)
    with pytest.raises(InferenceError, match="GET /nowhere is nothing that oip/http has"):
        read_request(binding_named("oip/http"), b"GET /nowhere HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("length", ["\xb2", "-1", "1e3", "9" * 5000])
def test_a_length_that_is_no_number(length: str) -> None:
    head = f"POST /v2/models/m/infer HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{{}}"
    with pytest.raises(InferenceError, match="is not the length of a body") as refused:
        read_request(binding_named("oip/http"), head.encode("latin-1"))
    assert refused.value.code is ErrorCode.MALFORMED


@pytest.mark.parametrize("code", ["\xb2", "9" * 5000, "OK"])
def test_a_status_that_is_no_number(code: str) -> None:
    with pytest.raises(InferenceError, match="is no status of gRPC"):
        read_answer(binding_named("oip/grpc"), f"grpc-status: {code}\r\n".encode("latin-1"))


@pytest.mark.parametrize(
    ("name", "message"), [("opi/http", "did you mean 'oip'"), ("oip/brpc", "transport of oip")]
)
def test_ends_that_there_are_not(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        binding_named(name)


@pytest.mark.parametrize("binding", BINDINGS, ids=attrgetter("name"))
@given(at=st.integers(0, 400), junk=st.binary(max_size=8), keep=st.integers(0, 600))
def test_damaged_messages_are_refused_in_our_words(binding: Binding, at: int, junk: bytes, keep: int) -> None:
    question = convert_request(REQUEST, binding, SIGNATURE).message
    answer = convert_answer(InferResponse("m", OUTPUTS, "1"), binding, REQUEST, SIGNATURE).message
    assert question is not None and answer is not None
    for message, read in ((question, read_request), (answer, read_answer)):
        data = FORMS[binding.transport].write(message)
        damaged = (data[:at] + junk + data[at + len(junk) :])[:keep]
        with contextlib.suppress(InferenceError):
            read(binding, damaged, signature=SIGNATURE, model="m")  # type: ignore[operator]
