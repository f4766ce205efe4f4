"""What we ask of a server over gRPC, and what we make of its answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from interlingua.protocols.wire import GrpcAnswer
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelRef,
    Operation,
    Readiness,
    RequestedOutput,
    Sequence,
    ServerMetadata,
    SharedMemoryRef,
    Tensor,
)
from tests.protocols.oip.grpc_exchange import CALLS, SERVICE

FLOATS = np.array([1, 2], np.float32).tobytes()
X = Tensor.checked("x", Datatype.FP32, (2,), FLOATS)
PLACE = SharedMemoryRef("r", 4, 8)


def sent(request: InferRequest) -> Any:
    """The message of a call, as tritonclient's classes read it."""
    call, _ = CALLS[Operation.INFER].encode(request, None)
    assert call.method == f"{SERVICE}ModelInfer"
    return service_pb2.ModelInferRequest.FromString(call.message)


def read(*, form: Any = None, **fields: Any) -> InferResponse:
    message = service_pb2.ModelInferResponse(model_name="m", **fields).SerializeToString()
    answer: InferResponse = CALLS[Operation.INFER].decode(form or {}, GrpcAnswer(message))
    return answer


def output(
    name: str = "x", datatype: str = "FP32", shape: tuple[int, ...] = (2,), **fields: Any
) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **fields}


def test_a_call() -> None:
    message = sent(
        InferRequest(
            "m",
            (X, Tensor("s", Datatype.FP32, (2,), PLACE), X.renamed("z")),
            (RequestedOutput("a", 3), RequestedOutput("b", placement=PLACE, parameters={"k": "v"})),
            version="3",
            id="i",
            parameters={"ratio": 0.5, "n": -1, "flag": False},
            sequence=Sequence("abc", end=True),
            priority=2**63,
            timeout_us=5,
        )
    )
    assert message == service_pb2.ModelInferRequest(
        model_name="m",
        model_version="3",
        id="i",
        parameters={
            "ratio": {"double_param": 0.5},
            "n": {"int64_param": -1},
            "flag": {"bool_param": False},
            "sequence_id": {"string_param": "abc"},
            "sequence_start": {"bool_param": False},
            "sequence_end": {"bool_param": True},
            "priority": {"uint64_param": 2**63},
            "timeout": {"int64_param": 5},
        },
        inputs=[
            output(),
            output("s", parameters=shared()),
            output("z"),
        ],
        outputs=[
            {"name": "a", "parameters": {"classification": {"int64_param": 3}}},
            {"name": "b", "parameters": {"k": {"string_param": "v"}, **shared()}},
        ],
        raw_input_contents=[FLOATS, FLOATS],
    )


def shared() -> dict[str, Any]:
    return {
        "shared_memory_region": {"string_param": "r"},
        "shared_memory_offset": {"int64_param": 4},
        "shared_memory_byte_size": {"int64_param": 8},
    }


@pytest.mark.parametrize("outputs", [None, ()])
def test_no_output_named(outputs: tuple[()] | None) -> None:
    assert not sent(InferRequest("m", (X,), outputs)).outputs


def test_what_is_about_streams_is_omitted() -> None:
    parameters = {"triton_enable_empty_final_response": True, "k": "v"}
    assert list(sent(InferRequest("m", (X,), parameters=parameters)).parameters) == ["k"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (InferRequest("m", (X,), parameters={"big": 2**63}), "parameter 'big' is 9223372036854775808"),
        (InferRequest("m", (X,), timeout_us=2**63), "parameter 'timeout'"),
        (InferRequest("m", (X,), sequence=Sequence(2**64 - 1)), "parameter 'sequence_id'"),
        (InferRequest("m", (X,), parameters={"triton_x": 1}), "parameter 'triton_x'"),
        (InferRequest("m", (X,), parameters={"k": "\ud800"}), "dialect 'oip' cannot carry this"),
        (InferRequest("m", (X.renamed("\ud800"),)), "dialect 'oip' cannot carry this"),
    ],
)
def test_calls_that_cannot_be_written(request_: InferRequest, words: str) -> None:
    with pytest.raises(InferenceError, match=words) as caught:
        CALLS[Operation.INFER].encode(request_, None)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_raw_contents() -> None:
    """As Triton and KServe answer, and MLServer with its empty typed contents left in place."""
    for extra in ({}, {"contents": {}}, {"parameters": {"binary_data_size": {"int64_param": 8}}}):
        answer = read(outputs=[output(**extra)], raw_output_contents=[FLOATS], model_version="1", id="i")
        assert answer == InferResponse("m", (X,), "1", "i")


def test_answers_are_not_copied() -> None:
    message = service_pb2.ModelInferResponse(outputs=[output()], raw_output_contents=[FLOATS])
    wire = message.SerializeToString()
    answer = CALLS[Operation.INFER].decode({}, GrpcAnswer(wire))
    assert answer.outputs[0].view.obj is wire


def test_typed_contents() -> None:
    """As KServe and MLServer answer."""
    answer = read(
        outputs=[
            output(contents={"fp32_contents": [1, 2]}),
            output("b", "BYTES", contents={"bytes_contents": [b"\xff", b""]}),
            output("i", "INT8", contents={"int_contents": [-1, 3]}),
            output("e", shape=(0,)),
        ],
        parameters={"k": {"string_param": "v"}, "unset": {}},
    )
    assert [bytes(tensor.view) for tensor in answer.outputs] == [
        FLOATS,
        b"\1\0\0\0\xff\0\0\0\0",
        b"\xff\3",
        b"",
    ]
    assert answer.parameters == {"k": "v"}


def test_an_output_placed_in_shared_memory() -> None:
    request = InferRequest("m", (X,), (RequestedOutput("s", placement=PLACE), RequestedOutput("x")))
    _, form = CALLS[Operation.INFER].encode(request, None)
    answer = read(form=form, outputs=[output("s"), output()], raw_output_contents=[b"", FLOATS])
    assert answer.outputs == (Tensor("s", Datatype.FP32, (2,), PLACE), X)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outputs": [output(), output("y")], "raw_output_contents": [FLOATS]}, "2 outputs, but 1 raw_output_contents"),
        ({"outputs": [output()]}, "tensor 'x' of datatype FP32 and shape .2. needs 8 bytes, got 0"),
        ({"outputs": [output()], "raw_output_contents": [b"123"]}, "needs 8 bytes, got 3"),
        ({"outputs": [output(datatype="STR")], "raw_output_contents": [FLOATS]}, "output 'x' has the unknown datatype 'STR'"),
        ({"outputs": [output(contents={"int_contents": [1, 2]})]}, "output 'x' of datatype FP32 has int_contents"),
        ({"outputs": [output(shape=(-1,))], "raw_output_contents": [FLOATS]}, "negative dimension"),
    ],
)  # fmt: skip
def test_answers_that_make_no_sense(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InferenceError, match=f"unusable answer: .*{words}") as caught:
        read(**fields)
    assert caught.value.code is ErrorCode.BAD_UPSTREAM


@pytest.mark.parametrize("operation", CALLS)
def test_bytes_that_are_no_answer(operation: Operation) -> None:
    with pytest.raises(InferenceError, match="unable to parse") as caught:
        CALLS[operation].decode({}, GrpcAnswer(b"\x0a\x05"))
    assert caught.value.code is ErrorCode.BAD_UPSTREAM


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (1, ErrorCode.CANCELLED),
        (2, ErrorCode.MODEL_FAILED),
        (3, ErrorCode.INVALID_TENSOR),
        (8, ErrorCode.OVERLOADED),
        (12, ErrorCode.UNSUPPORTED),
        (14, ErrorCode.UNAVAILABLE),
        (15, ErrorCode.BAD_UPSTREAM),
        (99, ErrorCode.BAD_UPSTREAM),
    ],
)
def test_statuses(operation: Operation, code: int, expected: ErrorCode) -> None:
    for details, words in (("their words", "their words"), ("", f"gRPC status {code} without a message")):
        with pytest.raises(InferenceError) as caught:
            CALLS[operation].decode({}, GrpcAnswer(code=code, details=details))
        assert (caught.value.code, caught.value.message) == (expected, words)


PROBES = {
    Operation.LIVE: ("ServerLive", None, service_pb2.ServerLiveRequest()),
    Operation.READY: ("ServerReady", None, service_pb2.ServerReadyRequest()),
    Operation.MODEL_READY: (
        "ModelReady",
        ModelRef("m", "1"),
        service_pb2.ModelReadyRequest(name="m", version="1"),
    ),
    Operation.SERVER_METADATA: ("ServerMetadata", None, service_pb2.ServerMetadataRequest()),
    Operation.MODEL_METADATA: ("ModelMetadata", ModelRef("m"), service_pb2.ModelMetadataRequest(name="m")),
}


@pytest.mark.parametrize("operation", PROBES)
def test_what_probes_ask(operation: Operation) -> None:
    rpc, argument, message = PROBES[operation]
    call, _ = CALLS[operation].encode(argument, None)
    assert (call.method, call.message) == (SERVICE + rpc, message.SerializeToString())


def test_a_model_name_that_cannot_be_written() -> None:
    with pytest.raises(InferenceError, match="cannot carry") as caught:
        CALLS[Operation.MODEL_READY].encode(ModelRef("\ud800"), None)
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_what_probes_see() -> None:
    def told(operation: Operation, message: bytes) -> Any:
        return CALLS[operation].decode(None, GrpcAnswer(message))

    assert told(Operation.LIVE, b"\x08\x01") == Readiness(True)
    assert told(Operation.READY, b"") == Readiness(False)
    assert told(Operation.MODEL_READY, b"\x08\x01") == Readiness(True)
    assert told(Operation.SERVER_METADATA, b"\x0a\x01s\x1a\x01e") == ServerMetadata("s", "", ("e",))


def test_a_model_that_is_not_known_is_not_ready() -> None:
    answer = GrpcAnswer(code=5, details="Model with name m does not exist.")
    ready = CALLS[Operation.MODEL_READY].decode(None, answer)
    assert ready == Readiness(False, "Model with name m does not exist.")
    with pytest.raises(InferenceError) as caught:
        CALLS[Operation.MODEL_METADATA].decode(None, answer)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_metadata_with_a_map_in_field_6() -> None:
    """MLServer's parameters, or the protocol's properties: two types that share a number."""
    known = service_pb2.ModelMetadataResponse(name="m", inputs=[output(shape=(-1, 2))]).SerializeToString()
    metadata = CALLS[Operation.MODEL_METADATA].decode(
        None, GrpcAnswer(known + b"\x32\x0c\x0a\x01k\x12\x07\x1a\x05value")
    )
    without = CALLS[Operation.MODEL_METADATA].decode(None, GrpcAnswer(known))
    assert metadata == replace(without, parameters={"k": "value"})
    assert metadata.signature.inputs[0].shape == (-1, 2)
    assert metadata.signature.max_batch_size == 0


def test_metadata_of_an_unknown_datatype() -> None:
    message = service_pb2.ModelMetadataResponse(outputs=[output("o", "STR")]).SerializeToString()
    with pytest.raises(InferenceError, match="tensor 'o' has the unknown datatype 'STR'") as caught:
        CALLS[Operation.MODEL_METADATA].decode(None, GrpcAnswer(message))
    assert caught.value.code is ErrorCode.BAD_UPSTREAM
