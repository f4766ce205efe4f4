"""Parameters of tensors, and BYTES as base64, the way MLServer answers with them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from interlingua.protocols.oip.client import GRPC_CALLS, HTTP_CALLS, HTTP_JSON_CALLS
from interlingua.protocols.oip.client_http import NO_FORM
from interlingua.protocols.oip.codec_grpc import OipGrpcReplyForm, encode_infer
from interlingua.protocols.oip.codec_http import HEADER_LENGTH, OipHttpReplyForm, encode_response
from interlingua.protocols.wire import GrpcAnswer, HttpReply
from interlingua.schemas import InferRequest, InferResponse, Operation, Tensor, pack_bytes

ELEMENTS = [b"\x00\xff", b"plain!", b""]
SENT = ["AP8=", "plain!", ""]
"""The second is no base64, and MLServer takes such an element as it is."""


@pytest.mark.parametrize(
    ("content_type", "elements"),
    [
        ("base64", ELEMENTS),
        ("str", [text.encode() for text in SENT]),
        (None, [text.encode() for text in SENT]),
    ],
)
def test_elements(content_type: str | None, elements: list[bytes]) -> None:
    output = {"name": "o", "datatype": "BYTES", "shape": [3], "data": SENT}
    if content_type:
        output["parameters"] = {"content_type": content_type}
    body = json.dumps({"model_name": "m", "outputs": [output]}).encode()
    response = HTTP_CALLS[Operation.INFER].decode(NO_FORM, HttpReply(200, {}, body))
    assert response.outputs[0].elements() == elements

    message = service_pb2.ModelInferResponse(model_name="m")
    told = message.outputs.add(name="o", datatype="BYTES", shape=[3])
    told.contents.bytes_contents.extend(text.encode() for text in SENT)
    if content_type:
        told.parameters["content_type"].string_param = content_type
    response = GRPC_CALLS[Operation.INFER].decode({}, GrpcAnswer(message.SerializeToString()))
    assert response.outputs[0].elements() == elements


def test_other_datatypes_stay() -> None:
    output = {
        "name": "o",
        "datatype": "INT32",
        "shape": [1],
        "data": [7],
        "parameters": {"content_type": "base64"},
    }
    body = json.dumps({"model_name": "m", "outputs": [output]}).encode()
    response = HTTP_CALLS[Operation.INFER].decode(NO_FORM, HttpReply(200, {}, body))
    assert response.outputs[0].numpy().tolist() == [7]


# --- to callers of the dialect


GIVEN = {
    "words": ("BYTES", [3], SENT, {"content_type": "base64"}),
    "reals": ("FP32", [2], [0.5, 1.5], {"content_type": "np", "scale": 2, "exact": True}),
}


def answered_over_http() -> InferResponse:
    outputs = [
        {"name": name, "datatype": datatype, "shape": shape, "data": data, "parameters": parameters}
        for name, (datatype, shape, data, parameters) in GIVEN.items()
    ]
    body = json.dumps({"model_name": "m", "outputs": outputs}).encode()
    response: InferResponse = HTTP_CALLS[Operation.INFER].decode(NO_FORM, HttpReply(200, {}, body))
    return response


def answered_over_grpc() -> InferResponse:
    message = service_pb2.ModelInferResponse(model_name="m")
    for name, (datatype, shape, data, parameters) in GIVEN.items():
        output = message.outputs.add(name=name, datatype=datatype, shape=shape)
        field = {"BYTES": "bytes_contents", "FP32": "fp32_contents"}[datatype]
        getattr(output.contents, field).extend(each.encode() if type(each) is str else each for each in data)
        for key, value in parameters.items():
            setattr(output.parameters[key], KINDS[type(value)], value)
    response: InferResponse = GRPC_CALLS[Operation.INFER].decode({}, GrpcAnswer(message.SerializeToString()))
    return response


KINDS = {str: "string_param", int: "int64_param", bool: "bool_param"}
AGAIN = ["AP8=", base64.b64encode(b"plain!").decode(), ""]
"""The elements of ``words`` as a caller gets them: all of them are base64."""


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("answered", [answered_over_http, answered_over_grpc])
def test_parameters_of_outputs_reach_callers_over_http(
    answered: Callable[[], InferResponse], binary: bool
) -> None:
    headers, parts = encode_response(OipHttpReplyForm(all_binary=binary), answered())
    text = b"".join(parts)[: int(dict(headers)[HEADER_LENGTH])] if binary else b"".join(parts)
    outputs = {each["name"]: each for each in json.loads(text)["outputs"]}
    assert outputs.keys() == GIVEN.keys()
    for name, (*_, parameters) in GIVEN.items():
        found = outputs[name]["parameters"]
        assert ("binary_data_size" in found) is binary
        assert {key: value for key, value in found.items() if key != "binary_data_size"} == parameters
    if not binary:
        assert outputs["words"]["data"] == AGAIN


@pytest.mark.parametrize("answered", [answered_over_http, answered_over_grpc])
def test_parameters_of_outputs_reach_callers_over_grpc(answered: Callable[[], InferResponse]) -> None:
    answer = encode_infer(OipGrpcReplyForm(), answered())
    message = service_pb2.ModelInferResponse.FromString(b"".join(answer.parts) or bytes(answer.message))
    for output, (*_, parameters) in zip(message.outputs, GIVEN.values(), strict=True):
        found = {key: getattr(each, KINDS[type(parameters[key])]) for key, each in output.parameters.items()}
        assert found == parameters
    assert message.raw_output_contents[0] == pack_bytes(each.encode() for each in AGAIN)


def test_answers_that_differ_in_parameters_alone_are_told_apart() -> None:
    """The JSON before binary data is cached by its bytes."""
    for kind in ("np", "pd", None, "np"):
        entry: dict[str, Any] = {"name": "o", "datatype": "INT32", "shape": [1]}
        entry["parameters"] = {"binary_data_size": 4, **({"content_type": kind} if kind else {})}
        text = json.dumps({"model_name": "m", "outputs": [entry]}).encode()
        reply = HttpReply(200, {HEADER_LENGTH.lower(): str(len(text))}, text + b"\7\0\0\0")
        for _ in range(2):
            (output,) = HTTP_CALLS[Operation.INFER].decode(NO_FORM, reply).outputs
            assert (output.parameters or {}).get("content_type") == kind


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_parameters_of_inputs_reach_upstreams(over: str) -> None:
    given = Tensor.from_numpy("i", np.array([b"AP8="], object))
    given.parameters = {"content_type": "base64"}
    request = InferRequest("m", (given,))
    if over == "grpc":
        call, _ = GRPC_CALLS[Operation.INFER].encode(request, None)
        whole = b"".join(call.parts) or bytes(call.message)
        (sent,) = service_pb2.ModelInferRequest.FromString(whole).inputs
        assert sent.parameters["content_type"].string_param == "base64"
        return
    for calls in (HTTP_CALLS, HTTP_JSON_CALLS):
        call, _ = calls[Operation.INFER].encode(request, None)
        length = call.headers.get(HEADER_LENGTH)
        text = b"".join(call.parts)[: int(length) if length else None]
        assert json.loads(text)["inputs"][0]["parameters"]["content_type"] == "base64"
