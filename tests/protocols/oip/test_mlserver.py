"""A listener with MLServer's quirks reads content types, raw contents and streams as MLServer 1.7.1 does; each
row is what that server made of the same input."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from interlingua.protocols.oip import DIALECT
from interlingua.protocols.oip.client import GRPC_MLSERVER_CALLS, HTTP_CALLS, HTTP_JSON_CALLS
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelControl,
    Operation,
    ServerMetadata,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.datatypes import DATATYPES
from interlingua.schemas.protobuf import load_messages

MLSERVER = DIALECT.bindings["grpc"].flavors["mlserver"]
PATHS = PathTable(DIALECT.bindings["http"].flavors["mlserver"].endpoints)
GRPC = {endpoint.method: endpoint for endpoint in MLSERVER.endpoints}
SERVICE = "/inference.GRPCInferenceService/"
OLD_SERVICE = "/inference.model_repository.ModelRepositoryService/"


def signature(datatype: str, rank: int = 1, elsewhere: bool = False) -> Signature:
    spec = TensorSpec("I", Datatype(datatype), (-1,) * rank)
    return Signature((spec,), (spec,), elsewhere=elsewhere)


def over_http(
    entry: dict[str, Any],
    rank: int = 1,
    parameters: dict[str, Any] | None = None,
    elsewhere: bool = False,
) -> InferRequest:
    document = {"inputs": [{"name": "I", **entry}], "parameters": parameters or {}}
    message = HttpRequest("POST", "/v2/models/m/infer", body=json.dumps(document).encode())
    methods, message.params = PATHS.find(message.path)
    opened = methods["POST"].open(message)
    assert opened.action.decode is not None
    return opened.action.decode(
        opened, signature(entry["datatype"] if entry["datatype"] in DATATYPES else "FP32", rank, elsewhere)
    )[0]


def entry(datatype: str, shape: list[int], data: Any, content_type: str = "") -> dict[str, Any]:
    told = {"parameters": {"content_type": content_type}} if content_type else {}
    return {"datatype": datatype, "shape": shape, "data": data, **told}


@pytest.mark.parametrize(
    ("given", "elements", "shape"),
    [
        (entry("BYTES", [2], ["aGVsbG8=", "!!"], "base64"), [b"hello", b"!!"], (2,)),
        (entry("BYTES", [1], ["aGVsbG8="]), [b"aGVsbG8="], (1,)),
        (entry("BYTES", [1], ["aGVsbG8="], "str"), [b"aGVsbG8="], (1,)),
        (entry("BYTES", [2], ["aGVsbG8=", "b"], "np"), [b"aGVsbG8=", b"b"], (2,)),
        (entry("BYTES", [11], "hello world", "str"), [b"hello world"], (1,)),
        (entry("BYTES", [8], "aGVsbG8=", "base64"), [b"hello"], (1,)),
    ],
)
def test_strings_in_json(given: dict[str, Any], elements: list[bytes], shape: tuple[int, ...]) -> None:
    (tensor,) = over_http(given).inputs
    assert (tensor.elements(), tensor.shape) == (elements, shape)


def test_strings_take_the_rank_of_the_model() -> None:
    (tensor,) = over_http(entry("BYTES", [11], "hello world", "str"), rank=2).inputs
    assert tensor.shape == (1, 1)


@pytest.mark.parametrize("size", [2, 2000])
@pytest.mark.parametrize("where", ["input", "request"])
@pytest.mark.parametrize("content_type", ["np", "pd"])
def test_null_is_nan_in_arrays(content_type: str, where: str, size: int) -> None:
    given = entry("FP32", [size], [1.5] * (size - 1) + [None], content_type if where == "input" else "")
    request = over_http(given, parameters={"content_type": content_type} if where == "request" else None)
    values = request.inputs[0].numpy().tolist()
    assert values[:-1] == [1.5] * (size - 1)
    assert math.isnan(values[-1])


def test_null_is_nothing_without_a_content_type() -> None:
    with pytest.raises(InferenceError, match=r"'I': element 1 must be a number, got null"):
        over_http(entry("FP32", [2], [1.5, None]))


def test_an_array_of_integers_has_no_null() -> None:
    with pytest.raises(InferenceError, match=r"'I': element 1 must be an integer"):
        over_http(entry("INT32", [2], [1, None], "np"))


@pytest.mark.parametrize("content_type", ["np", "pd", "str", "nonsense"])
def test_numbers_are_numbers(content_type: str) -> None:
    (tensor,) = over_http(entry("INT32", [2, 2], [[1, 2], [3, 4]], content_type), rank=2).inputs
    assert tensor.numpy().tolist() == [[1, 2], [3, 4]]


# --- gRPC


def message(raws: list[bytes], *inputs: dict[str, Any]) -> service_pb2.ModelInferRequest:
    told = service_pb2.ModelInferRequest(model_name="m", raw_input_contents=raws)
    for given in inputs:
        tensor = told.inputs.add(
            name=given.get("name", "I"), datatype=given["datatype"], shape=given["shape"]
        )
        if "content_type" in given:
            tensor.parameters["content_type"].string_param = given["content_type"]
        if "contents" in given:
            tensor.contents.SetInParent()
            for field, values in given["contents"].items():
                getattr(tensor.contents, field).extend(values)
    return told


def over_grpc(
    told: service_pb2.ModelInferRequest, rank: int = 1, rpc: str = "ModelInfer", elsewhere: bool = False
) -> InferRequest:
    endpoint = GRPC[SERVICE + rpc]
    opened = endpoint.open(GrpcRequest(endpoint.method, told.SerializeToString()))
    assert opened.action.decode is not None
    model = signature(told.inputs[0].datatype, rank, elsewhere)
    first = opened.action.decode(opened, model)[0]
    # a request may be decoded once more, for another model
    again = opened.action.decode(opened, model)[0]
    assert [bytes(each.view) for each in again.inputs] == [bytes(each.view) for each in first.inputs]
    return first


INTS = {"datatype": "INT32", "shape": [1]}


@pytest.mark.parametrize("rpc", ["ModelInfer", "ModelStreamInfer"])
def test_raw_contents_beside_empty_typed_ones(rpc: str) -> None:
    """MLServer's own converter leaves an empty ``contents {}`` beside raw data."""
    request = over_grpc(message([b"\5\0\0\0"], {**INTS, "contents": {}}), rpc=rpc)
    assert request.inputs[0].numpy().tolist() == [5]


@pytest.mark.parametrize("typed", [0, 1])
def test_an_input_without_contents_takes_the_next_raw_ones(typed: int) -> None:
    inputs: list[dict[str, Any]] = [{**INTS, "name": name} for name in ("A", "B")]
    inputs[typed]["contents"] = {"int_contents": [7]}
    request = over_grpc(message([b"\5\0\0\0"], *inputs))
    assert [tensor.numpy().tolist() for tensor in request.inputs] == [[7], [5]][:: 1 if typed == 0 else -1]


def test_triton_takes_no_typed_contents_beside_raw_ones() -> None:
    for flavor in ("triton", "kserve"):
        endpoints = DIALECT.bindings["grpc"].flavored(flavor).endpoints
        endpoint = next(each for each in endpoints if each.method == SERVICE + "ModelInfer")
        told = message([b"\5\0\0\0"], {**INTS, "contents": {}})
        opened = endpoint.open(GrpcRequest(endpoint.method, told.SerializeToString()))
        assert opened.action.decode is not None
        with pytest.raises(InferenceError, match="contents field must not be specified"):
            opened.action.decode(opened, signature("INT32"))


def packed(*elements: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "little") + each for each in elements)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("content_type", "given", "shape", "elements", "found"),
    [
        ("base64", [b"aGVsbG8="], [1], [b"hello"], (1,)),
        ("base64", [b"\xff!"], [1], [b"\xff!"], (1,)),
        ("str", [b"hi"], [1], [b"hi"], (1,)),
        ("str", [b"hello world"], [11], [b"hello world"], (1,)),
        ("np", [b"abcdef"], [6, 1], [b"a", b"b", b"c", b"d", b"e", b"f"], (6, 1)),
        ("np", [b"ab", b"cd"], [2], [b"ab", b"cd"], (2,)),
        ("np", [b"abc", b"d"], [4, 1], [b"a", b"b", b"c", b"d"], (4, 1)),
        ("np", [b"a", b"b"], [2, 1], [b"a", b"b"], (2, 1)),
    ],
)
def test_strings_over_grpc(
    content_type: str,
    given: list[bytes],
    shape: list[int],
    elements: list[bytes],
    found: tuple[int, ...],
    raw: bool,
) -> None:
    one: dict[str, Any] = {"datatype": "BYTES", "shape": shape, "content_type": content_type}
    if not raw:
        one["contents"] = {"bytes_contents": given}
    request = over_grpc(message([packed(*given)] if raw else [], one), rank=len(shape))
    (tensor,) = request.inputs
    assert (tensor.elements(), tensor.shape) == (elements, found)


@pytest.mark.parametrize("data", [b"\5\0\0\0ab", b"\5\0"])
def test_strings_that_are_cut_short(data: bytes) -> None:
    told = message([data], {"datatype": "BYTES", "shape": [1], "content_type": "base64"})
    with pytest.raises(InferenceError, match="input tensor 'I' for model 'm'") as failure:
        over_grpc(told)
    assert failure.value.code is ErrorCode.INVALID_TENSOR


# --- to an upstream, whose server has the codecs


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_content_types_are_not_decoded_for_an_upstream(over: str) -> None:
    if over == "http":
        request = over_http(entry("BYTES", [1], ["aGVsbG8="], "base64"), elsewhere=True)
    else:
        told = {"datatype": "BYTES", "shape": [1], "content_type": "base64"}
        request = over_grpc(message([packed(b"aGVsbG8=")], told), elsewhere=True)
    (tensor,) = request.inputs
    assert tensor.elements() == [b"aGVsbG8="]
    assert tensor.parameters == {"content_type": "base64"}


@pytest.mark.parametrize("where", ["input", "request"])
def test_null_in_a_frame_for_an_upstream_is_refused(where: str) -> None:
    """MLServer fails to answer with a null over gRPC."""
    given = entry("FP32", [2], [1.5, None], "pd" if where == "input" else "")
    of_all = {"content_type": "pd"} if where == "request" else None
    with pytest.raises(InferenceError, match=r"'I': element 1 must be a number, got null") as failure:
        over_http(given, parameters=of_all, elsewhere=True)
    assert failure.value.code is ErrorCode.INVALID_TENSOR


def test_null_in_an_array_for_an_upstream_is_nan() -> None:
    (tensor,) = over_http(entry("FP32", [2], [1.5, None], "np"), elsewhere=True).inputs
    assert math.isnan(tensor.numpy()[1])


def test_parameters_may_be_lists_and_objects() -> None:
    """MLServer's models get them; over gRPC MLServer drops them."""
    nested = {"tags": [1, "two"], "of": {"a": 1}, "none": None}
    request = over_http(entry("INT32", [1], [1]), parameters={"plain": 3, **nested})
    assert request.parameters == {"plain": 3}
    call, _ = HTTP_JSON_CALLS[Operation.INFER].encode(request, None)
    assert json.loads(b"".join(call.parts))["parameters"] == {"plain": 3, **nested}
    for calls in (HTTP_CALLS, GRPC_MLSERVER_CALLS):
        call, _ = calls[Operation.INFER].encode(request, None)
        assert b"tags" not in (b"".join(call.parts) or bytes(getattr(call, "message", b"")))


def test_an_unknown_datatype_fails_the_validation() -> None:
    with pytest.raises(InferenceError, match="invalid datatype 'FLOAT' for input 'I'") as failure:
        over_http({"datatype": "FLOAT", "shape": [1], "data": [1]})
    request = HttpRequest("POST", "/v2/models/m/infer")
    statuses = {
        flavor: PathTable(DIALECT.bindings["http"].flavored(flavor).endpoints)
        .find(request.path)[0]["POST"]
        .fail(request, None, failure.value)
        .status
        for flavor in ("triton", "kserve", "mlserver")
    }
    assert statuses == {"triton": 400, "kserve": 400, "mlserver": 422}


# --- streams


def answered(**more: Any) -> InferResponse:
    return InferResponse("m", (Tensor("O", Datatype.INT32, (1,), memoryview(b"\1\0\0\0")),), "1", **more)


def test_a_stream_answers_bare_messages() -> None:
    endpoint = GRPC[SERVICE + "ModelStreamInfer"]
    told = message([], {**INTS, "contents": {"int_contents": [1]}})
    told.id = "x"
    opened = endpoint.open(GrpcRequest(endpoint.method, told.SerializeToString()))
    assert opened.action.operation is Operation.INFER_STREAM
    assert opened.action.decode is not None
    _, form = opened.action.decode(opened, signature("INT32"))
    answer = opened.action.encode(form, answered(final=False))
    assert answer is not None
    bare = service_pb2.ModelInferResponse.FromString(bytes(answer.message))
    assert (bare.model_name, bare.id, list(bare.raw_output_contents)) == ("m", "x", [b"\1\0\0\0"])
    assert not bare.parameters
    assert opened.action.encode(form, InferResponse("m", ())) is None
    failed = InferResponse("m", (), final=False, error=InferenceError(ErrorCode.MODEL_FAILED, "neg"))
    assert opened.action.encode(form, failed) == GrpcAnswer(code=13, details="neg")
    refused = endpoint.fail(
        GrpcRequest(endpoint.method, b""), opened, InferenceError(ErrorCode.NOT_FOUND, "no")
    )
    assert (refused.code, refused.details) == (5, "no")


def test_bare_answers_of_an_upstream_are_read() -> None:
    """Even one that has nothing but the names of model and version, which look like a wrapped error."""
    call = GRPC_MLSERVER_CALLS[Operation.INFER_STREAM]
    _, form = call.encode(InferRequest("m", ()), None)
    bare = service_pb2.ModelInferResponse(model_name="m", model_version="1")
    (response,) = call.decode(form, GrpcAnswer(bare.SerializeToString()))
    assert (response.model, response.version, response.final, response.error) == ("m", "1", False, None)
    with pytest.raises(InferenceError, match="neg") as failure:
        call.decode(form, GrpcAnswer(code=13, details="neg"))
    assert failure.value.code is ErrorCode.MODEL_FAILED
    assert MLSERVER.calls is GRPC_MLSERVER_CALLS


# --- control


@pytest.mark.parametrize("prefix", [SERVICE, OLD_SERVICE])
def test_control_over_grpc(prefix: str) -> None:
    """MLServer has its repository under two services, and NOT_FOUND for models that are not there."""
    load, unload = GRPC[prefix + "RepositoryModelLoad"], GRPC[prefix + "RepositoryModelUnload"]
    asked = service_pb2.RepositoryModelLoadRequest(model_name="nope").SerializeToString()
    opened = load.open(GrpcRequest(load.method, asked))
    assert (opened.model, opened.action.operation) == ("nope", Operation.MODEL_LOAD)
    missing = InferenceError(
        ErrorCode.INTERNAL, "failed to load 'nope', failed to poll from model repository"
    )
    assert load.fail(GrpcRequest(load.method, asked), opened, missing).code == 5
    broken = InferenceError(ErrorCode.MODEL_FAILED, "failed to load 'm', no version is available")
    assert load.fail(GrpcRequest(load.method, asked), opened, broken).code == 3
    assert unload.open(GrpcRequest(unload.method, asked)).argument == ModelControl(served=True)
    index = GRPC[prefix + "RepositoryIndex"]
    assert index.open(GrpcRequest(index.method, b"")).action.operation is Operation.REPOSITORY_INDEX


def test_reflection_knows_the_second_service() -> None:
    assert ("interlingua.schemas.oip", "model_repository.desc") in MLSERVER.contracts
    for flavor in ("triton", "kserve"):
        binding = DIALECT.bindings["grpc"].flavored(flavor)
        assert ("interlingua.schemas.oip", "model_repository.desc") not in binding.contracts
        assert not any(each.method.startswith(OLD_SERVICE) for each in binding.endpoints)
    assert "inference.model_repository.RepositoryIndexRequest" in load_messages(
        "interlingua.schemas.oip", "model_repository.desc"
    )


@pytest.mark.parametrize("flavor", ["kserve", "mlserver"])
def test_unload_requires_a_served_model(flavor: str) -> None:
    """Both servers answer 404 where Triton says that all is well."""
    paths = PathTable(DIALECT.bindings["http"].flavors[flavor].endpoints)
    message = HttpRequest("POST", "/v2/repository/models/m/unload")
    methods, message.params = paths.find(message.path)
    assert methods["POST"].open(message).argument.served
    triton, message.params = PathTable(DIALECT.bindings["http"].endpoints).find(message.path)
    assert not triton["POST"].open(message).argument.served


@pytest.mark.parametrize("flavor", ["kserve", "mlserver"])
def test_a_slash_at_the_end_of_v2(flavor: str) -> None:
    """Both servers redirect ``/v2/`` to ``/v2``; on Triton there is no such path."""
    paths = PathTable(DIALECT.bindings["http"].flavors[flavor].endpoints)
    answers = []
    for path in ("/v2", "/v2/"):
        methods, _ = paths.find(path)
        opened = methods["GET"].open(HttpRequest("GET", path))
        answers.append(opened.action.encode(opened, ServerMetadata("s", "1")))
    assert answers[0] == answers[1] != None  # noqa: E711
    assert not PathTable(DIALECT.bindings["http"].endpoints).find("/v2/")[0]


@pytest.mark.parametrize(
    ("element", "shape"), [(b"abcde", [7, 2]), (b"ab", [9, 5]), (b"", [3, 1]), (b"abc", [3, 1 << 40])]
)
def test_pieces_that_do_not_make_the_shape(element: bytes, shape: list[int]) -> None:
    told = message([packed(element)], {"datatype": "BYTES", "shape": shape, "content_type": "np"})
    with pytest.raises(InferenceError, match="'I'") as failure:
        over_grpc(told, rank=2)
    assert failure.value.code is ErrorCode.INVALID_TENSOR
