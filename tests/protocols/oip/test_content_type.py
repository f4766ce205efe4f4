"""BYTES as base64, the way MLServer answers with them."""

from __future__ import annotations

import json

import pytest
from tritonclient.grpc import service_pb2

from interlingua.protocols.oip.client import GRPC_CALLS, HTTP_CALLS
from interlingua.protocols.wire import GrpcAnswer, HttpReply
from interlingua.schemas import Operation

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
    response = HTTP_CALLS[Operation.INFER].decode({}, HttpReply(200, {}, body))
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
    response = HTTP_CALLS[Operation.INFER].decode({}, HttpReply(200, {}, body))
    assert response.outputs[0].numpy().tolist() == [7]
