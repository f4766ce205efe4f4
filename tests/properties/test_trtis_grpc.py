"""Whatever version 1 can carry survives both transports; whatever the bytes, only answers come out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.trtis import DIALECT
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpReply
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelRef,
    Operation,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.conformance.mutations import mutated
from tests.loopback import echoing, serving
from tests.properties.through import request_through, response_through
from tests.standins.trtis_contract import SERVICE, message, parse
from tests.strategies import batches, names, signature_of, tensor_tuples

WIRES = [("trtis", "http"), ("trtis", "grpc")]
CARRIED = DIALECT.bindings["grpc"].capability.exact
UINT64 = st.integers(0, 2**64 - 1)
wires = pytest.mark.parametrize("wire", WIRES, ids="/".join)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], Signature]:
    """Inputs, outputs, and the model that they are of, with batches or without."""
    if draw(st.booleans()):
        inputs, outputs = draw(batches(CARRIED))
        return inputs, outputs, signature_of(inputs, outputs, draw(st.integers(4, 9)))
    inputs, outputs = draw(tensor_tuples(CARRIED)), draw(tensor_tuples(CARRIED))
    return inputs, outputs, signature_of(inputs, outputs)


@st.composite
def places(draw: st.DrawFn, tensor: Tensor) -> SharedMemoryRef:
    """A place that ``tensor`` fits, and whose size says how long its strings are."""
    return SharedMemoryRef(draw(names()), draw(UINT64), tensor.nbytes)


@st.composite
def requests(draw: st.DrawFn) -> tuple[InferRequest, tuple[Tensor, ...], Signature]:
    """A request that has everything, and the outputs of its answer."""
    inputs, outputs, signature = draw(worlds())
    chosen = draw(st.lists(st.sampled_from(outputs), unique_by=lambda tensor: tensor.name))
    given = tuple(
        replace(tensor, data=draw(places(tensor))) if draw(st.integers(0, 4)) == 0 else tensor
        for tensor in inputs
    )
    asked, answered = [], []
    for tensor in chosen:
        placement = draw(places(tensor)) if draw(st.integers(0, 3)) == 0 else None
        asked.append(RequestedOutput(tensor.name, placement=placement))
        answered.append(tensor if placement is None else replace(tensor, data=placement))
    sequence = draw(
        st.none() | st.builds(Sequence, st.integers(1, 2**64 - 1), start=st.booleans(), end=st.booleans())
    )
    request = InferRequest(
        "model",
        given,
        tuple(asked),
        draw(st.just("") | st.integers(0, 2**63 - 1).map(str)),
        draw(st.just("") | st.integers(1, 2**64 - 1).map(str)),
        sequence=sequence,
        priority=draw(st.integers(0, 2**32 - 1)),
        timeout_us=draw(UINT64),
    )
    return request, tuple(answered), signature


@wires
@given(requests())
def test_requests_and_answers(
    wire: tuple[str, str], world: tuple[InferRequest, tuple[Tensor, ...], Signature]
) -> None:
    request, outputs, signature = world
    understood, _, _ = request_through(wire, request, signature)
    assert understood == request
    response = InferResponse("model", outputs, "3", request.id)
    assert response_through(wire, request, response, signature) == response


@given(requests())
def test_both_transports_say_the_same(world: tuple[InferRequest, tuple[Tensor, ...], Signature]) -> None:
    request, _, signature = world
    sent, _ = DIALECT.bindings["grpc"].calls[Operation.INFER].encode(request, signature)
    told = parse("InferRequest", bytes(sent.message))
    assert told.model_version == (int(request.version) if request.version else -1)
    over_http, _ = DIALECT.bindings["http"].calls[Operation.INFER].encode(request, signature)
    assert b"".join(over_http.parts) == b"".join(told.raw_input)
    assert len(told.raw_input) == sum(isinstance(t.data, memoryview) for t in request.inputs)


# --- whatever the bytes

MODEL = Signature(
    (TensorSpec("a", Datatype.INT16, (-1, -1)), TensorSpec("s", Datatype.BYTES, (-1, 2))),
    (TensorSpec("x", Datatype.INT16, (-1, -1)), TensorSpec("t", Datatype.BYTES, (-1, 2))),
    4,
)
SERVER = serving(echoing({"m": MODEL}), "trtis")
GOOD = message(
    "InferRequest",
    model_name="m",
    model_version=-1,
    meta_data={
        "batch_size": 2,
        "id": 300,
        "input": [{"name": "a", "dims": [3]}, {"name": "s", "dims": [2], "batch_byte_size": 19}],
        "output": [{"name": "x", "cls": {"count": 2}}, {"name": "t"}],
    },
    raw_input=[bytes(range(12)), b"\x03\0\0\0abc" + bytes(12)],
).SerializeToString()
METHODS = sorted(endpoint.method for endpoint in DIALECT.bindings["grpc"].endpoints if not endpoint.streaming)


def ask(method: str, wire: bytes) -> GrpcAnswer:
    return asyncio.run(SERVER.handlers["grpc"].serve(GrpcRequest(method, wire)))


def test_a_good_request() -> None:
    answer = parse("InferResponse", bytes(ask(f"{SERVICE}Infer", GOOD).message))
    assert answer.request_status.code == 1, answer.request_status.msg
    assert answer.raw_output[1] == b"\x03\0\0\0abc" + bytes(12)


@given(mutated(GOOD))
def test_damaged_requests_are_answered(wire: bytes) -> None:
    answer = ask(f"{SERVICE}Infer", wire)
    if answer.code:
        assert answer.code == 13
        assert answer.details.startswith("unable to parse InferRequest")
    else:
        told = parse("InferResponse", bytes(answer.message))
        assert told.request_status.code in (1, 5, 6)  # SUCCESS, INVALID_ARG, UNAVAILABLE
        assert told.request_status.request_id > 0
        assert "internal error" not in told.request_status.msg


@pytest.mark.parametrize("method", METHODS)
@given(wire=st.binary(max_size=40))
def test_any_bytes_are_answered(method: str, wire: bytes) -> None:
    answer = ask(method, wire)
    assert answer.code in (0, 13)
    if not answer.code:
        told = parse(f"{method.removeprefix(SERVICE)}Response", bytes(answer.message))
        assert told.request_status.request_id > 0
        assert "internal error" not in told.request_status.msg


def outcome(operation: Operation, form: Any, reply: Any) -> ErrorCode | None:
    """What becomes of an upstream's reply: None for a result. Another exception is a failure."""
    calls: Any = (
        DIALECT.bindings["http"].calls if isinstance(reply, HttpReply) else DIALECT.bindings["grpc"].calls
    )
    try:
        calls[operation].decode(form, reply)
    except InferenceError as error:
        return error.code
    return None


HEADER = (
    'model_name: "m" model_version: 1 batch_size: 2 output { name: "x" raw { dims: 3 batch_byte_size: 12 } } '
    'output { name: "t" raw { dims: 2 batch_byte_size: 19 } }'
)
BODY = bytes(range(12)) + b"\x03\0\0\0abc" + bytes(12)
FORM = (
    DIALECT.bindings["http"]
    .calls[Operation.INFER]
    .encode(
        InferRequest(
            "m",
            (
                Tensor.checked("a", Datatype.INT16, (2, 3), bytes(12)),
                Tensor.checked("s", Datatype.BYTES, (2, 2), bytes(16)),
            ),
        ),
        MODEL,
    )[1]
)


def test_good_replies() -> None:
    assert outcome(Operation.INFER, FORM, http_reply(HEADER.encode(), BODY)) is None
    assert outcome(Operation.INFER, FORM, GrpcAnswer(grpc_reply())) is None


def http_reply(header: bytes, body: bytes, status: bytes = b"code: SUCCESS") -> HttpReply:
    headers = {"nv-inferresponse": header, "nv-status": status}
    text = {name: value.decode("utf-8", "surrogateescape") for name, value in headers.items()}
    return HttpReply(200, text, body)


def grpc_reply() -> bytes:
    asked = message("InferRequest")
    asked.ParseFromString(GOOD)
    asked.meta_data.output[0].ClearField("cls")
    return bytes(ask(f"{SERVICE}Infer", asked.SerializeToString()).message)


GRPC_REPLY = grpc_reply()


@given(mutated(HEADER.encode()), mutated(BODY), mutated(b"code: SUCCESS"), st.integers(0, 6))
def test_damaged_replies_over_http(header: bytes, body: bytes, status: bytes, which: int) -> None:
    reply = http_reply(
        header if which & 1 else HEADER.encode(),
        body if which & 2 else BODY,
        status if which & 4 else b"code: SUCCESS",
    )
    assert outcome(Operation.INFER, FORM, reply) in (None, ErrorCode.BAD_UPSTREAM)


@given(mutated(GRPC_REPLY))
def test_damaged_replies_over_grpc(wire: bytes) -> None:
    # a status may turn into another by the change of one bit
    assert outcome(Operation.INFER, FORM, GrpcAnswer(wire)) is not ErrorCode.INTERNAL


ARGUMENTS = {
    operation: ModelRef("m")
    for operation in DIALECT.bindings["http"].calls
    if operation is not Operation.INFER
}


@pytest.mark.parametrize("operation", ARGUMENTS, ids=lambda operation: operation.value)
@given(st.binary(max_size=40))
def test_any_bytes_from_an_upstream(operation: Operation, body: bytes) -> None:
    form = ARGUMENTS[operation]
    outcome(operation, form, GrpcAnswer(body))
    reply = HttpReply(200, {"nv-status": "code: SUCCESS"}, body)
    expected = {None, ErrorCode.BAD_UPSTREAM, ErrorCode.UNREPRESENTABLE}
    assert outcome(operation, form, reply) in expected
