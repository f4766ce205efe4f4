"""What a client may send over gRPC, and what it is answered."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2

from interlingua.protocols.grpc_status import GRPC_STATUS
from interlingua.protocols.oip import codec_grpc
from interlingua.protocols.oip.grpc_probes import HEALTH_CHECK
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferResponse,
    ModelMetadata,
    Operation,
    Readiness,
    RequestedOutput,
    Sequence,
    ServerMetadata,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.protocols.oip.grpc_exchange import ENDPOINTS, RPCS, SERVICE, failed, inferred, opened

FLOATS = np.array([1, 2], np.float32).tobytes()


def message(**fields: Any) -> bytes:
    """A ModelInfer request as protobuf's own classes write it; one FP32 input where none is given."""
    given = {"model_name": "m", "inputs": [tensor("x")], "raw_input_contents": [FLOATS], **fields}
    written: bytes = service_pb2.ModelInferRequest(**given).SerializeToString()
    return written


def tensor(name: str, datatype: str = "FP32", shape: tuple[int, ...] = (2,), **fields: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **fields}


def shared(region: str = "r", size: int = 8, **more: Any) -> dict[str, Any]:
    return {
        "shared_memory_region": {"string_param": region},
        "shared_memory_byte_size": {"int64_param": size},
        **more,
    }


def refusal(sent: bytes) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        inferred(sent)
    return caught.value


# --- inference


def test_methods() -> None:
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    unary = {name for name, method in theirs.items() if not method.client_streaming}
    ours = {method.removeprefix(SERVICE) for method, endpoint in ENDPOINTS.items() if not endpoint.streaming}
    assert ours == {*unary, HEALTH_CHECK}


def test_a_request() -> None:
    sent = message(
        model_version="3",
        id="i",
        parameters={
            "sequence_id": {"int64_param": 7},
            "sequence_start": {"bool_param": True},
            "priority": {"uint64_param": 2**64 - 1},
            "timeout": {"int64_param": 5},
            "text": {"string_param": "é"},
            "ratio": {"double_param": 0.5},
            "triton_enable_empty_final_response": {"bool_param": True},
        },
        outputs=[
            {"name": "b", "parameters": {"classification": {"int64_param": 3}}},
            {"name": "a", "parameters": {"binary_data": {"bool_param": True}, "odd": {"uint64_param": 1}}},
            {"name": "b"},
        ],
    )
    found = opened("ModelInfer", sent)
    assert (found.model, found.version, found.action.operation) == ("m", "3", Operation.INFER)
    request, form = inferred(sent)
    assert request.id == "i"
    assert form == codec_grpc.OipGrpcReplyForm("i")
    assert request.inputs == (Tensor.checked("x", Datatype.FP32, (2,), FLOATS),)
    assert request.outputs == (RequestedOutput("b", 3), RequestedOutput("a", parameters={"odd": 1}))
    assert request.sequence == Sequence(7, start=True)
    assert (request.priority, request.timeout_us) == (2**64 - 1, 5)
    assert request.parameters == {"text": "é", "ratio": 0.5}


def test_data_is_not_copied() -> None:
    sent = message()
    request, _ = inferred(sent)
    assert request.inputs[0].view.obj is sent
    assert request.inputs[0].view.readonly


def test_nothing_requested_means_everything() -> None:
    request, form = inferred(message())
    assert (request.outputs, request.id, request.version) == (None, "", "")
    assert form == codec_grpc.OipGrpcReplyForm()


SHARED = tensor("s", parameters=shared(shared_memory_offset={"int64_param": 4}))
EMPTY = tensor("e", shape=(0, 2))
TYPED = tensor("t", contents={"fp32_contents": [1, 2]})


@pytest.mark.parametrize(
    ("inputs", "raws", "data"),
    [
        ([tensor("a"), tensor("b")], [FLOATS, b"12345678"], [FLOATS, b"12345678"]),
        ([tensor("a")], [FLOATS, b"more"], [FLOATS]),
        ([SHARED, tensor("b")], [FLOATS], [SharedMemoryRef("r", 4, 8), FLOATS]),
        ([tensor("b"), SHARED], [FLOATS], [FLOATS, SharedMemoryRef("r", 4, 8)]),
        ([SHARED], [], [SharedMemoryRef("r", 4, 8)]),
        ([SHARED, TYPED], [], [SharedMemoryRef("r", 4, 8), FLOATS]),
        ([EMPTY, tensor("b")], [b"", FLOATS], [b"", FLOATS]),
        ([{**EMPTY, "contents": {}}], [], [b""]),
        ([TYPED, {**TYPED, "name": "u"}], [], [FLOATS, FLOATS]),
        ([tensor("s", "BYTES", contents={"bytes_contents": [b"a", b""]})], [], [b"\1\0\0\0a\0\0\0\0"]),
        ([tensor("b", "BOOL")], [b"\x02\xff"], [b"\x02\xff"]),
        ([tensor("n", "INT32", ())], [b"1234"], [b"1234"]),
    ],
)
def test_where_data_may_be(inputs: list[Any], raws: list[bytes], data: list[Any]) -> None:
    request, _ = inferred(message(inputs=inputs, raw_input_contents=raws))
    assert [given.name for given in request.inputs] == [given["name"] for given in inputs]
    assert [given.data for given in request.inputs] == data


@pytest.mark.parametrize(
    ("inputs", "raws", "words"),
    [
        (
            [tensor("a"), tensor("b")],
            [FLOATS],
            "unable to find data for input tensor 'b' for model 'm' in request",
        ),
        ([tensor("a")], [], "unable to find data for input tensor 'a'"),
        ([EMPTY], [], "unable to find data for input tensor 'e'"),
        (
            [TYPED, tensor("b")],
            [FLOATS],
            "contents field must not be .* raw_input_contents for 't' for model",
        ),
        ([{**SHARED, "contents": {}}], [], "contents field must not be specified .* shared memory for 's'"),
        (
            [{**tensor("a"), "contents": {}}],
            [],
            "input byte size mismatch for input 'a' .* Expected 8, got 0",
        ),
        ([tensor("a")], [FLOATS + b"x"], "Expected 8, got 9"),
        ([tensor("a", "fp32")], [FLOATS], "input tensor 'a' for model 'm' has the unknown datatype 'fp32'"),
        ([tensor("a", "")], [FLOATS], "unknown datatype ''"),
        (
            [tensor("a", "FP16", contents={"fp32_contents": [1, 2]})],
            [],
            "input tensor 'a' .*FP16, send them raw",
        ),
        ([tensor("a", shape=(-1,))], [FLOATS], "tensor 'a' has a negative dimension"),
        ([tensor("a", shape=(2**62, 4))], [FLOATS], "tensor 'a' .* more elements than 64 bits can count"),
        ([{**SHARED, "shape": (-1,)}], [], "tensor 's' has a negative dimension"),
        ([tensor("a", "BYTES")], [b"\1\0\0\0a"], "tensor 'a' of datatype BYTES needs 2 length-prefixed"),
        (
            [tensor("s", parameters={"shared_memory_region": {"string_param": "r"}})],
            [],
            "shared_memory_byte_size",
        ),
    ],
)
def test_data_that_is_refused(inputs: list[Any], raws: list[bytes], words: str) -> None:
    error = refusal(message(inputs=inputs, raw_input_contents=raws))
    assert failed(error).code == 3
    assert re.search(words, error.message), error.message


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"u": {"uint64_param": 1}}, "invalid value type for 'u' parameter"),
        ({"unset": {}}, "invalid value type for 'unset' parameter"),
        ({"timeout": {"uint64_param": 1}}, "invalid value type for 'timeout' parameter"),
        ({"timeout": {"int64_param": -1}}, "'timeout'"),
        ({"priority": {"string_param": "1"}}, "'priority'"),
        ({"sequence_id": {"bool_param": True}}, "'sequence_id'"),
        ({"sequence_start": {"int64_param": 1}}, "'sequence_start'"),
        ({"triton_foo": {"int64_param": 1}}, "'triton_foo'"),
    ],
)
def test_parameters_that_are_refused(parameters: dict[str, Any], words: str) -> None:
    error = refusal(message(parameters=parameters))
    assert failed(error).code == 3
    assert words in error.message


@pytest.mark.parametrize("choice", [{"int64_param": 0}, {"int64_param": -1}, {"string_param": "2"}])
def test_classification_that_is_refused(choice: dict[str, Any]) -> None:
    error = refusal(message(outputs=[{"name": "o", "parameters": {"classification": choice}}]))
    assert failed(error).code == 3
    assert "classification" in error.message
    assert "'o'" in error.message


@pytest.mark.parametrize("sent", [b"\x0a", b"\x0a\x01\xff", message() + b"\x3a\x05", message(id="i")[:-1]])
def test_bytes_that_are_no_request(sent: bytes) -> None:
    with pytest.raises(InferenceError, match="unable to parse ModelInferRequest") as caught:
        opened("ModelInfer", sent)
    assert failed(caught.value).code == 13


@pytest.mark.parametrize("rpc", [rpc for rpc in (*RPCS, HEALTH_CHECK) if rpc != "ModelInfer"])
def test_bytes_that_are_no_probe(rpc: str) -> None:
    with pytest.raises(InferenceError, match="unable to parse") as caught:
        opened(rpc, b"\x0a\x05")
    assert caught.value.code is ErrorCode.MALFORMED


def test_unknown_fields_are_skipped() -> None:
    assert inferred(message() + b"\xfa\x01\x03abc\x90\x03\x01")[0] == inferred(message())[0]


@pytest.mark.parametrize("code", ErrorCode)
def test_errors(code: ErrorCode) -> None:
    answer = failed(InferenceError(code, "tensor 'é' \ud800"))
    assert (answer.code, answer.details) == (GRPC_STATUS[code], "tensor 'é' \\ud800")
    assert answer.message == b""


# --- answers, as tritonclient reads them


def client_result(response: InferResponse, request_id: str = "") -> triton.InferResult:
    answer = codec_grpc.encode_infer(codec_grpc.OipGrpcReplyForm(request_id), response)
    return triton.InferResult(service_pb2.ModelInferResponse.FromString(answer.message))


def test_an_answer() -> None:
    numbers = np.arange(6, dtype=np.int16).reshape(2, 3)
    texts = np.array([b"a", b"", "é".encode()], object)
    response = InferResponse(
        "m",
        (
            Tensor.from_numpy("n", numbers),
            Tensor.from_numpy("t", texts),
            Tensor.from_numpy("e", np.zeros((0, 4), np.float32)),
        ),
        version="3",
        parameters={"p": "v", "big": 2**64 - 1, "low": -(2**63), "f": 1.5, "b": False},
    )
    result = client_result(response, "i")
    told = result.get_response()
    assert (told.model_name, told.model_version, told.id) == ("m", "3", "i")
    assert (result.as_numpy("n") == numbers).all()
    assert result.as_numpy("t").tolist() == texts.tolist()
    assert result.as_numpy("e").shape == (0, 4)
    assert len(told.raw_output_contents) == 3
    assert told.parameters["big"].uint64_param == 2**64 - 1
    assert told.parameters["low"].int64_param == -(2**63)
    assert told.parameters["f"].double_param == 1.5
    assert told.parameters["b"].HasField("bool_param")
    assert told.parameters["p"].string_param == "v"


def test_an_output_in_shared_memory_keeps_its_place_among_the_raw_ones() -> None:
    response = InferResponse(
        "m",
        (
            Tensor("s", Datatype.FP32, (2,), SharedMemoryRef("r", 0, 8)),
            Tensor.checked("x", Datatype.FP32, (2,), FLOATS),
        ),
    )
    told = client_result(response).get_response()
    assert list(told.raw_output_contents) == [b"", FLOATS]


def test_an_answer_that_cannot_be_written() -> None:
    for response in (
        InferResponse("m\ud800", ()),
        InferResponse("m", (Tensor("x", Datatype.FP32, (0, 2**63), memoryview(b"")),)),
    ):
        with pytest.raises(InferenceError, match="dialect 'oip' cannot carry this") as caught:
            codec_grpc.encode_infer(codec_grpc.OipGrpcReplyForm(), response)
        assert caught.value.code is ErrorCode.UNREPRESENTABLE


# --- health and metadata


@pytest.mark.parametrize(
    ("rpc", "sent", "result", "answer"),
    [
        ("ServerLive", b"", Readiness(True), service_pb2.ServerLiveResponse(live=True)),
        ("ServerReady", b"", Readiness(False, "why"), service_pb2.ServerReadyResponse()),
        ("ModelReady", b"\x0a\x01m\x12\x011", Readiness(True), service_pb2.ModelReadyResponse(ready=True)),
        (
            "ServerMetadata",
            b"",
            ServerMetadata("s", "1", ("a", "b")),
            service_pb2.ServerMetadataResponse(name="s", version="1", extensions=["a", "b"]),
        ),
        (
            "ModelMetadata",
            b"\x0a\x01m\x12\x011",
            ModelMetadata(
                "m",
                Signature(
                    (TensorSpec("x", Datatype.BF16, (-1, 3)),),
                    (TensorSpec("y", Datatype.BYTES, (), True, ("l",)),),
                    8,
                ),
                ("1", "2"),
                "onnx",
                "words",
            ),
            service_pb2.ModelMetadataResponse(
                name="m",
                versions=["1", "2"],
                platform="onnx",
                inputs=[tensor("x", "BF16", (-1, 3))],
                outputs=[tensor("y", "BYTES", ())],
            ),
        ),
    ],
)
def test_probes(rpc: str, sent: bytes, result: Any, answer: Any) -> None:
    found = opened(rpc, sent)
    assert found.action.operation is RPCS[rpc]
    assert (found.model, found.version) == (("m", "1") if sent else ("", ""))
    assert found.action.decode is None
    written = found.action.encode(found, result).message
    # the same bytes: no field that tritonclient does not know
    assert written == answer.SerializeToString()


@pytest.mark.parametrize(("ready", "status"), [(True, b"\x08\x01"), (False, b"\x08\x02")])
@pytest.mark.parametrize("sent", [b"", b"\x0a\x03any"])
def test_health_check(ready: bool, status: bytes, sent: bytes) -> None:
    found = opened(HEALTH_CHECK, sent)
    assert found.action.operation is Operation.READY
    assert found.action.encode(found, Readiness(ready)).message == status


def test_metadata_that_cannot_be_written() -> None:
    found = opened("ServerMetadata", b"")
    with pytest.raises(InferenceError, match="cannot carry") as caught:
        found.action.encode(found, ServerMetadata("\ud800", "1"))
    assert caught.value.code is ErrorCode.UNREPRESENTABLE
