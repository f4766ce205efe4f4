"""Requests over gRPC of many small fields: no method builds them on the event loop, or without a limit."""

from __future__ import annotations

import base64
import json
from typing import Any, cast

import pytest

from interlingua.protocols.base64_text import decode_base64
from interlingua.protocols.dialect import GrpcEndpoint
from interlingua.protocols.oip.model_control import read_load_body
from interlingua.protocols.protobuf_message import SHORT_BYTES, count_fields, parse_bounded
from interlingua.protocols.protobuf_wire import MAX_FIELDS
from interlingua.protocols.reflection import Reflection
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.tfserving import examples
from interlingua.protocols.tfserving.reload import open_reload
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import ErrorCode, InferenceError, ModelRef, Operation
from interlingua.schemas.offload import Offloader, OffloadRequired, OffloadRole
from interlingua.schemas.oip import MESSAGES as OIP
from interlingua.schemas.tfserving import MESSAGES as TFSERVING
from interlingua.schemas.trtis import MESSAGES as TRTIS

UNKNOWN = b"\xf8\x06\x01"
"""A field that no message has."""

LOAD: Any = OIP["inference.RepositoryModelLoadRequest"]
INPUT: Any = TFSERVING["tensorflow.serving.Input"]
RELOAD: Any = TFSERVING["tensorflow.serving.ReloadConfigRequest"]

OF_A_SERVER = (Operation.LIVE, Operation.READY, Operation.SERVER_METADATA)

ENDPOINTS = [
    pytest.param(endpoint, id=endpoint.method)
    for dialect in DIALECTS.values()
    if "grpc" in dialect.bindings
    for endpoint in dialect.bindings["grpc"].endpoints
]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_method(endpoint: GrpcEndpoint) -> None:
    request = GrpcRequest(endpoint.method, UNKNOWN * (MAX_FIELDS + 1))
    with OffloadRole(offloader=cast(Offloader, object())), pytest.raises((OffloadRequired, InferenceError)):
        endpoint.open(request)
    with pytest.raises(InferenceError, match=f"more than {MAX_FIELDS} fields") as refused:
        endpoint.open(request)
    assert refused.value.code is ErrorCode.MALFORMED


@pytest.mark.parametrize(
    ("dialect", "operation"),
    [
        (dialect, operation)
        for dialect in ("oip", "trtis", "tfserving")
        for operation in DIALECTS[dialect].bindings["grpc"].calls
        if operation not in (Operation.INFER, Operation.INFER_STREAM)
        # which learn it from a status
        and not (dialect == "tfserving" and operation in OF_A_SERVER)
    ],
)
def test_answers_of_upstreams(dialect: str, operation: Operation) -> None:
    call = DIALECTS[dialect].bindings["grpc"].calls[operation]
    _, form = call.encode(None if operation in OF_A_SERVER else ModelRef("m"), None)
    answer = GrpcAnswer(UNKNOWN * (MAX_FIELDS + 1))
    with OffloadRole(offloader=cast(Offloader, object())), pytest.raises((OffloadRequired, InferenceError)):
        call.decode(form, answer)
    with pytest.raises(InferenceError, match=f"more than {MAX_FIELDS} fields") as refused:
        call.decode(form, answer)
    assert refused.value.code is ErrorCode.BAD_UPSTREAM


def test_tensors_of_version_1() -> None:
    """The data of tensors are no fields of the header, which has the tensors."""
    (infer,) = [
        each for each in DIALECTS["trtis"].bindings["grpc"].endpoints if each.method.endswith("/Infer")
    ]
    header = {"input": [{"name": "a"}] * (MAX_FIELDS // 2 + 1)}
    message = TRTIS["nvidia.inferenceserver.InferRequest"](meta_data=header).SerializeToString()
    with pytest.raises(InferenceError, match=f"more than {MAX_FIELDS} fields"):
        infer.open(GrpcRequest(infer.method, message))


def test_fields_count_at_all_depths() -> None:
    few = LOAD(model_name="m", parameters={str(n): {"int64_param": n} for n in range(100)})
    # the name, and for each parameter its entry, its key, its value and the number in that
    assert count_fields(LOAD, few.SerializeToString(), MAX_FIELDS, 1) == 401
    assert count_fields(LOAD, few.SerializeToString(), MAX_FIELDS, 10) == 2201
    many = LOAD(parameters={str(n): {} for n in range(MAX_FIELDS // 2)}).SerializeToString()
    assert MAX_FIELDS < count_fields(LOAD, many, MAX_FIELDS, 1) < MAX_FIELDS + 4
    with pytest.raises(InferenceError, match="more than"):
        parse_bounded(LOAD, many)


def test_large_values_are_few_fields() -> None:
    file = {"file:1/model.onnx": {"bytes_param": bytes(4 * SHORT_BYTES)}}
    message = LOAD(model_name="m", parameters=file).SerializeToString()
    assert parse_bounded(LOAD, message).parameters["file:1/model.onnx"].bytes_param == bytes(4 * SHORT_BYTES)


@pytest.mark.parametrize(
    "document",
    [
        {"example_list": {"examples": [{}] * 260_000}},
        {"example_list_with_context": {"examples": [{}] * 260_000}},
    ],
)
def test_examples_without_features(document: Any) -> None:
    with pytest.raises(InferenceError, match="max_elements") as refused:
        examples.check_size(INPUT(**document).SerializeToString())
    assert refused.value.code is ErrorCode.TOO_LARGE


def test_examples_of_usual_size() -> None:
    feature = {"float_list": {"value": [0.5] * 100}}
    document = {"example_list": {"examples": [{"features": {"feature": {"a": feature}}}] * 10_000}}
    examples.check_size(INPUT(**document).SerializeToString())


def test_a_list_of_many_models() -> None:
    """Each is compared with no other one."""
    entry = {"base_path": "/m", "model_platform": "tensorflow"}
    listed = [{**entry, "name": str(n)} for n in range(12_000)]
    message = RELOAD(config={"model_config_list": {"config": listed}}).SerializeToString()
    opened = open_reload(GrpcRequest("", message))
    assert len(opened.argument) == len(listed)


def test_reflection_repeats_no_long_request() -> None:
    answer = Reflection(()).answer(UNKNOWN * SHORT_BYTES)
    assert (answer.code, len(answer.message)) == (8, 0)


LONG_TEXT = base64.b64encode(bytes(range(256)) * 1024).decode()


def test_long_base64_is_that_of_the_standard_library() -> None:
    for end in range(8):
        text = LONG_TEXT[: len(LONG_TEXT) - end]
        try:
            expected: bytes | None = base64.b64decode(text, validate=True)
        except ValueError:
            expected = None
        if expected is None:
            with pytest.raises(ValueError, match="padding|base64"):
                decode_base64(text)
        else:
            assert decode_base64(text) == expected
    for wrong in ("=" + LONG_TEXT[1:], "?" + LONG_TEXT[1:], LONG_TEXT[:-1] + "?"):
        with pytest.raises(ValueError, match="adding|base64"):
            decode_base64(wrong)


@pytest.mark.parametrize(
    "parameters",
    [
        {"file:1/model.onnx": LONG_TEXT},
        {"config": json.dumps({str(n): 1 for n in range(20_000)})},
        {str(n): 1 for n in range(20_000)},
    ],
    ids=["file", "config", "parameters"],
)
def test_loads_over_http(parameters: dict[str, Any]) -> None:
    body = json.dumps({"parameters": parameters}).encode()
    with OffloadRole(offloader=cast(Offloader, object())), pytest.raises(OffloadRequired):
        read_load_body("m", "", body)


def test_a_configuration_of_too_many_members() -> None:
    body = json.dumps({"parameters": {"config": json.dumps({str(n): 1 for n in range(70_000)})}}).encode()
    with pytest.raises(InferenceError, match="failed to load 'm', .*max_elements") as refused:
        read_load_body("m", "", body)
    assert refused.value.code is ErrorCode.TOO_LARGE
