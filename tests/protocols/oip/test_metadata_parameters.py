"""Parameters of models and of tensors in metadata, and the names of platforms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlingua.protocols.oip import DIALECT
from interlingua.protocols.oip.client import GRPC_CALLS, HTTP_CALLS
from interlingua.protocols.oip.metadata_parameters import add_model_parameters, read_model_parameters
from interlingua.protocols.protobuf_wire import join
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpReply, HttpRequest, parts_of
from interlingua.schemas import Datatype, ModelMetadata, ModelRef, Operation, Signature, TensorSpec
from interlingua.schemas.oip import MESSAGES

METHOD = "/inference.GRPCInferenceService/ModelMetadata"
OF_MODEL = {"author": "us", "beams": 4, "exact": True, "share": 0.5}
OF_TENSOR = {"content_type": "np", "unit": 2}
METADATA = ModelMetadata(
    "m",
    Signature(
        (TensorSpec("I", Datatype.FP32, (-1,), parameters=OF_TENSOR),),
        (TensorSpec("O", Datatype.BYTES, (1,)),),
    ),
    ("1",),
    "python",
    parameters=OF_MODEL,
)


def over_http(metadata: ModelMetadata) -> dict[str, Any]:
    endpoint = next(each for each in DIALECT.bindings["http"].endpoints if each.path == "/v2/models/{model}")
    opened = endpoint.open(HttpRequest("GET", "/v2/models/m", params={"model": "m"}))
    answer = opened.action.encode(opened, metadata)
    assert answer is not None
    return json.loads(b"".join(parts_of(answer)))


def over_grpc(flavor: str, metadata: ModelMetadata) -> bytes:
    binding = DIALECT.bindings["grpc"].flavored(flavor)
    endpoint = next(each for each in binding.endpoints if each.method == METHOD)
    asked = MESSAGES["inference.ModelMetadataRequest"](name="m")  # type: ignore[call-arg]
    opened = endpoint.open(GrpcRequest(METHOD, asked.SerializeToString()))
    answer = opened.action.encode(opened, metadata)
    assert answer is not None
    return bytes(answer.message)


def read_grpc(message: bytes) -> ModelMetadata:
    call = GRPC_CALLS[Operation.MODEL_METADATA]
    _, form = call.encode(ModelRef("m"), None)
    return call.decode(form, GrpcAnswer(message))


def test_in_json_both_ways() -> None:
    told = over_http(METADATA)
    assert told["parameters"] == OF_MODEL
    assert told["inputs"][0]["parameters"] == OF_TENSOR
    assert "parameters" not in told["outputs"][0]
    call = HTTP_CALLS[Operation.MODEL_METADATA]
    _, form = call.encode(ModelRef("m"), None)
    assert call.decode(form, HttpReply(200, {}, json.dumps(told).encode())) == METADATA


def test_without_any_there_is_no_member() -> None:
    """As on Triton, which has none."""
    plain = ModelMetadata("m", Signature((), (TensorSpec("O", Datatype.BYTES, (1,)),)))
    assert "parameters" not in json.dumps(over_http(plain))
    assert over_grpc("mlserver", plain) == over_grpc("triton", plain)


def test_what_json_cannot_say_is_omitted() -> None:
    nonfinite = ModelMetadata(
        "m", Signature((), ()), parameters={"a": float("nan"), "b": float("inf"), "c": 1}
    )
    assert over_http(nonfinite)["parameters"] == {"c": 1}


@pytest.mark.parametrize("given", [None, {}, {"headers": {"a": "b"}, "list": [1], "nothing": None}])
def test_what_other_servers_nest_or_leave_empty(given: Any) -> None:
    """MLServer writes ``{}`` or its headers, KServe null."""
    call = HTTP_CALLS[Operation.MODEL_METADATA]
    _, form = call.encode(ModelRef("m"), None)
    document = {"name": "m", "inputs": [{"name": "I", "datatype": "FP32", "shape": [1], "parameters": given}]}
    told = call.decode(form, HttpReply(200, {}, json.dumps({**document, "parameters": given}).encode()))
    assert (dict(told.parameters), dict(told.signature.inputs[0].parameters)) == ({}, {})


def test_over_grpc_for_clients_of_mlserver() -> None:
    """MLServer has a map of messages in field 6 of the model, and in field 4 of a tensor."""
    message = over_grpc("mlserver", METADATA)
    assert b"\n\x06author\x12\x04\x1a\x02us" in message
    assert read_grpc(message).signature.inputs[0].parameters == OF_TENSOR
    # it has no floating-point numbers there
    assert read_grpc(message).parameters == {"author": "us", "beams": 4, "exact": True}


@pytest.mark.parametrize("flavor", ["triton", "kserve"])
def test_field_6_is_for_clients_of_mlserver_alone(flavor: str) -> None:
    """The protocol's own text has strings there, which MLServer's clients cannot parse, and the other way."""
    message = over_grpc(flavor, METADATA)
    assert b"author" not in message
    assert read_grpc(message).signature.inputs[0].parameters == OF_TENSOR


def test_both_readings_of_field_6() -> None:
    as_messages = add_model_parameters(b"", {"text": "np", "number": 7, "flag": True})
    assert read_model_parameters(as_messages) == {"text": "np", "number": 7, "flag": True}
    entries = [
        join(join(b"", 1, [key]), 2, [value]) for key, value in ((b"k", b"v"), (b"e", b""), (b"b", b"\xff"))
    ]
    # what is neither is left out
    assert read_model_parameters(join(b"", 6, [*entries, b"\xff"])) == {"k": "v", "e": ""}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("onnxruntime_onnx", "onnx_onnxv1"),
        ("pytorch_libtorch", "pytorch_torchscript"),
        ("onnx_onnxv1", "onnx_onnxv1"),
        ("tensorrt_plan", "tensorrt_plan"),
        ("tensorflow_savedmodel", "tensorflow_savedmodel"),
        ("python", "python"),
        ("ensemble", "ensemble"),
        ("", ""),
    ],
)
def test_platforms_have_the_protocols_names(given: str, told: str) -> None:
    metadata = ModelMetadata("m", Signature((), ()), platform=given)
    assert over_http(metadata)["platform"] == told
    assert read_grpc(over_grpc("triton", metadata)).platform == told
