"""Whatever OIP can carry survives gRPC; whatever the bytes, no other error comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient import grpc as triton
from tritonclient.grpc import _utils as triton_utils
from tritonclient.grpc import service_pb2

from interlingua.protocols.oip import codec_grpc
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Parameter,
    Readiness,
    RequestedOutput,
    Sequence,
    ServerMetadata,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.protocols.oip.grpc_exchange import CALLS, ENDPOINTS, NOTHING, SERVICE, arriving, inferred
from tests.strategies import datatypes, names, shapes, tensor_tuples, tensors

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
VALUES = st.one_of(st.booleans(), INT64, TEXTS, st.floats(allow_nan=False))
OWN_NAMES = names().map(lambda name: f"own {name}")
PLACES = st.builds(SharedMemoryRef, names(), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))


def parameters(values: st.SearchStrategy[Any] = VALUES) -> st.SearchStrategy[dict[str, Parameter]]:
    return st.dictionaries(OWN_NAMES, values, max_size=3)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """Inputs, some of which stand in shared memory."""
    given = draw(tensor_tuples(min_size=0))
    return tuple(
        Tensor(tensor.name, tensor.datatype, tensor.shape, draw(PLACES))
        if draw(st.integers(0, 5)) == 0
        else tensor
        for tensor in given
    )


@st.composite
def requested(draw: st.DrawFn) -> RequestedOutput:
    own = draw(parameters())
    if draw(st.booleans()):
        return RequestedOutput(draw(names()), placement=draw(PLACES), parameters=own)
    return RequestedOutput(draw(names()), draw(st.integers(0, 2**63 - 1)), parameters=own)


def asked() -> st.SearchStrategy[tuple[RequestedOutput, ...] | None]:
    some = st.lists(requested(), min_size=1, max_size=3, unique_by=lambda output: output.name)
    return st.none() | some.map(tuple)


REQUESTS = st.builds(
    InferRequest,
    model=TEXTS,
    inputs=inputs(),
    outputs=asked(),
    version=TEXTS,
    id=TEXTS,
    parameters=parameters(),
    sequence=st.none()
    | st.builds(
        Sequence, st.integers(1, 2**63 - 1) | TEXTS.filter(bool), start=st.booleans(), end=st.booleans()
    ),
    priority=UINT64,
    timeout_us=st.integers(0, 2**63 - 1),
)


@given(REQUESTS)
def test_requests(request: InferRequest) -> None:
    call, _ = CALLS[Operation.INFER].encode(request, None)
    opened = arriving(call)
    assert (opened.model, opened.version) == (request.model, request.version)
    assert opened.action.decode is not None
    decoded, form = opened.action.decode(opened, NOTHING)
    assert decoded == request
    assert form == codec_grpc.OipGrpcReplyForm(request.id)


@given(tensor_tuples(min_size=0), TEXTS, TEXTS, TEXTS, parameters(VALUES | UINT64))
def test_answers(
    outputs: tuple[Tensor, ...], model: str, version: str, request_id: str, given: dict[str, Parameter]
) -> None:
    response = InferResponse(model, outputs, version, request_id, given)
    answer = codec_grpc.encode_infer(codec_grpc.OipGrpcReplyForm(request_id), response)
    assert CALLS[Operation.INFER].decode({}, answer) == response


@given(tensors(name="x"))
def test_tritonclient_reads_our_answers(tensor: Tensor) -> None:
    answer = codec_grpc.encode_infer(codec_grpc.OipGrpcReplyForm(), InferResponse("m", (tensor,)))
    result = triton.InferResult(service_pb2.ModelInferResponse.FromString(answer.message)).as_numpy("x")
    assert result.shape == tensor.shape
    if tensor.datatype is Datatype.BYTES:
        assert result.ravel().tolist() == tensor.elements()
    elif tensor.datatype is not Datatype.BF16:
        assert result.dtype == tensor.datatype.dtype
        assert result.tobytes() == tensor.view


@given(tensors(allowed=frozenset(Datatype) - {Datatype.BF16}, name="x"), UINT64, st.integers(1, 2**63 - 1))
def test_we_read_tritonclients_requests(tensor: Tensor, priority: int, sequence: int) -> None:
    given = triton.InferInput("x", list(tensor.shape), tensor.datatype.value)
    given.set_data_from_numpy(tensor.numpy())
    message = triton_utils._get_inference_request(
        model_name="m",
        inputs=[given],
        model_version="3",
        request_id="i",
        outputs=[triton.InferRequestedOutput("y", class_count=2), triton.InferRequestedOutput("z")],
        sequence_id=sequence,
        sequence_start=True,
        sequence_end=False,
        priority=priority,
        timeout=7,
        parameters={"own": "v"},
    )
    request, _ = inferred(message.SerializeToString())
    assert request == InferRequest(
        "m",
        (tensor,),
        (RequestedOutput("y", 2), RequestedOutput("z")),
        "3",
        "i",
        {"own": "v"},
        Sequence(sequence, start=True),
        priority,
        7,
    )


SPECS = st.builds(TensorSpec, TEXTS, datatypes(), st.lists(st.integers(-1, 2**63 - 1), max_size=4).map(tuple))
SIGNATURES = st.builds(
    Signature, st.lists(SPECS, max_size=3).map(tuple), st.lists(SPECS, max_size=3).map(tuple)
)
LISTS = st.lists(TEXTS, max_size=3).map(tuple)
RESULTS: dict[Operation, st.SearchStrategy[Any]] = {
    Operation.LIVE: st.builds(Readiness, st.booleans()),
    Operation.READY: st.builds(Readiness, st.booleans()),
    Operation.MODEL_READY: st.builds(Readiness, st.booleans()),
    Operation.SERVER_METADATA: st.builds(ServerMetadata, TEXTS, TEXTS, LISTS),
    Operation.MODEL_METADATA: st.builds(ModelMetadata, TEXTS, SIGNATURES, LISTS, TEXTS),
}


@pytest.mark.parametrize("operation", RESULTS)
@given(data=st.data())
def test_probes(operation: Operation, data: st.DataObject) -> None:
    of_a_model = operation in (Operation.MODEL_READY, Operation.MODEL_METADATA)
    argument = ModelRef(data.draw(TEXTS), data.draw(TEXTS)) if of_a_model else None
    result = data.draw(RESULTS[operation])
    call, form = CALLS[operation].encode(argument, None)
    opened = arriving(call)
    assert opened.action.operation is operation
    assert ModelRef(opened.model, opened.version) == (argument or ModelRef(""))
    assert CALLS[operation].decode(form, opened.action.encode(opened, result)) == result


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """``whole``, cut short, with bytes changed, or with a piece put in twice."""
    kind = draw(st.sampled_from(["cut", "changed", "spliced", "noise"]))
    if kind == "noise":
        return draw(st.binary(max_size=60))
    position = draw(st.integers(0, len(whole)))
    if kind == "cut":
        return whole[:position]
    if kind == "spliced":
        end = draw(st.integers(0, len(whole)))
        return whole[:position] + whole[min(position, end) : max(position, end)] + whole[position:]
    octets = bytearray(whole or b"\0")
    for _ in range(draw(st.integers(1, 3))):
        octets[draw(st.integers(0, len(octets) - 1))] = draw(st.integers(0, 255))
    return bytes(octets)


def code_of(function: Callable[..., Any], *arguments: Any) -> ErrorCode | None:
    """The code of the error that ``function`` raises, None for none; another exception is a failure."""
    try:
        function(*arguments)
    except InferenceError as error:
        return error.code
    return None


@given(REQUESTS, st.data())
def test_damaged_requests(request: InferRequest, data: st.DataObject) -> None:
    whole = bytes(CALLS[Operation.INFER].encode(request, None)[0].message)
    message = data.draw(damaged(whole))
    assert code_of(inferred, message) in (None, ErrorCode.MALFORMED, ErrorCode.INVALID_TENSOR)


@given(tensor_tuples(), st.data())
def test_damaged_answers(outputs: tuple[Tensor, ...], data: st.DataObject) -> None:
    whole = bytes(
        codec_grpc.encode_infer(codec_grpc.OipGrpcReplyForm("i"), InferResponse("m", outputs, "1")).message
    )
    answer = GrpcAnswer(data.draw(damaged(whole)))
    assert code_of(CALLS[Operation.INFER].decode, {}, answer) in (None, ErrorCode.BAD_UPSTREAM)


@given(st.sampled_from(sorted(ENDPOINTS)), st.binary(max_size=40))
def test_any_bytes_for_any_method(method: str, message: bytes) -> None:
    request = GrpcRequest(method, message)
    assert code_of(ENDPOINTS[method].open, request) in (None, ErrorCode.MALFORMED)


@given(st.sampled_from(sorted(RESULTS, key=str)), st.binary(max_size=40))
def test_any_bytes_from_an_upstream(operation: Operation, message: bytes) -> None:
    answer = GrpcAnswer(message)
    assert code_of(CALLS[operation].decode, None, answer) in (None, ErrorCode.BAD_UPSTREAM)


@given(shapes(), st.binary(max_size=20), st.sampled_from(sorted(Datatype, key=repr)))
def test_raw_contents_of_any_size(shape: tuple[int, ...], raw: bytes, datatype: Datatype) -> None:
    """The data of an accepted input is what its shape says; anything else is refused by name."""
    message = service_pb2.ModelInferRequest(
        inputs=[{"name": "input", "datatype": datatype.value, "shape": shape}], raw_input_contents=[raw]
    )
    wire = message.SerializeToString()
    count = int(np.prod(shape, dtype=int))
    if datatype is not Datatype.BYTES and count * datatype.itemsize != len(raw):
        with pytest.raises(InferenceError, match="'input'") as caught:
            inferred(wire)
        assert caught.value.code is ErrorCode.INVALID_TENSOR
    elif code_of(inferred, wire) is None:
        assert inferred(wire)[0].inputs[0].view == raw
        assert inferred(wire)[0].inputs[0].numpy().size == count
    else:
        assert datatype is Datatype.BYTES


def test_what_is_called_is_offered() -> None:
    asked = {
        CALLS[operation].encode(argument, None)[0].method
        for operation, argument in {
            **dict.fromkeys(RESULTS),
            Operation.INFER: InferRequest("m", ()),
            Operation.INFER_STREAM: InferRequest("m", ()),
        }.items()
    }
    assert asked <= {method for method in ENDPOINTS if method.startswith(SERVICE)}
