"""Which messages over HTTP pass through to an upstream over HTTP, and what remains of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from interlingua.protocols.oip import DIALECT
from interlingua.protocols.wire import HttpReply, HttpRequest, parts_of
from interlingua.schemas import Datatype, InferRequest, Operation, Signature, TensorSpec
from tests.properties.passing import Bridge, Counting, Outcome

DATA = bytes(range(16))
SIGNATURE = Signature(
    (TensorSpec("A:0", Datatype.FP32, (-1, 2)), TensorSpec("B", Datatype.INT64, (-1,))),
    (TensorSpec("X", Datatype.FP32, (-1, 2)), TensorSpec("Y", Datatype.INT64, (-1,))),
)
WIRE = ("oip", "http")


def tensor(name: str, datatype: str, shape: list[int], **parameters: Any) -> dict[str, Any]:
    own = parameters or {"binary_data_size": 16}
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": own}


def asked(**changes: Any) -> dict[str, Any]:
    inputs = [tensor("A:0", "FP32", [2, 2]), tensor("B", "INT64", [2])]
    return {"inputs": inputs, "parameters": {"binary_data_output": True}, **changes}


def told(**changes: Any) -> dict[str, Any]:
    outputs = [tensor("X", "FP32", [2, 2]), tensor("Y", "INT64", [2])]
    return {"model_name": "model", "model_version": "3", "outputs": outputs, **changes}


def body(document: Any, data: bytes = DATA + DATA) -> tuple[dict[str, str], bytes]:
    header = document if isinstance(document, bytes) else orjson.dumps(document)
    return {"inference-header-content-length": str(len(header))}, header + data


def request(document: Any, data: bytes = DATA + DATA, **headers: str) -> HttpRequest:
    own, whole = body(document, data)
    return HttpRequest("POST", "/v2/models/model/infer", headers={**own, **headers}, body=whole)


def reply(document: Any, data: bytes = DATA + DATA) -> HttpReply:
    return HttpReply(200, *body(document, data))


async def outcome(message: HttpRequest, answer: HttpReply, **bridge: Any) -> Outcome:
    return await Bridge(WIRE, SIGNATURE, **bridge).ask(message, answer, passing=True)


async def test_both_messages_stay_as_they_are() -> None:
    message, answer = request(asked(id="7")), reply(told(id="7"))
    found = await outcome(message, answer)
    (sent,) = found.seen
    assert found.passed and b"".join(sent.parts) == message.body
    assert (
        sent.headers["Inference-Header-Content-Length"] == message.headers["inference-header-content-length"]
    )
    assert b"".join(parts_of(found.answer)) == answer.body
    # not even copied
    assert sent.parts[0] is message.body and parts_of(found.answer)[0] is answer.body


async def test_only_names_are_rewritten() -> None:
    outputs = [{"name": "Y", "parameters": {"binary_data": True}}]
    message = request(asked(id="7", outputs=outputs))
    answer = reply(told(model_name="far", outputs=[tensor("there", "INT64", [2])]), DATA)
    found = await outcome(message, answer, inputs={"A:0": "left"}, outputs={"Y": "there"}, remote="far/2")
    (sent,) = found.seen
    assert found.passed and sent.path == "/v2/models/far%2F2/infer"
    length = int(sent.headers["Inference-Header-Content-Length"])
    whole = b"".join(sent.parts)
    document = orjson.loads(whole[:length])
    assert [each["name"] for each in document["inputs"]] == ["left", "B"]
    assert (document["id"], document["outputs"][0]["name"]) == ("7", "there")
    assert whole[length:] == DATA + DATA
    headers, said = dict(found.answer.headers), b"".join(parts_of(found.answer))
    length = int(headers["Inference-Header-Content-Length"])
    document = orjson.loads(said[:length])
    assert (document["model_name"], document["id"], document["outputs"][0]["name"]) == ("model", "7", "Y")
    assert said[length:] == DATA


NAN = orjson.dumps(asked()).replace(b"true", b"NaN")
REPEATED = orjson.dumps(asked()).replace(b'"inputs"', b'"id":"1","id":"2","inputs"')
A, B = asked()["inputs"]


@pytest.mark.parametrize(
    "message",
    [
        request(asked(parameters={})),
        request(asked(parameters={"binary_data_output": True, "priority": 1})),
        request(asked(parameters={"binary_data_output": 1})),
        request(asked(outputs=[])),
        request(asked(outputs=[{"name": "X"}])),
        request(asked(outputs=[{"name": "X", "parameters": {"binary_data": True, "classification": 1}}])),
        request(asked(outputs=[{"name": "X", "parameters": {"binary_data": 1}}])),
        request(asked(outputs=[{"name": "X", "parameters": {"binary_data": True}}] * 2)),
        request(asked(id=None)),
        request(asked(model_name="model")),
        request(asked(inputs=[{**A, "data": [1, 2, 3, 4]}, B])),
        request(asked(inputs=[tensor("A:0", "FP32", [2, 2], binary_data_size=16, content_type="np"), B])),
        request(asked(inputs=[tensor("A:0", "FP32", [2, 2], binary_data_size=12), B]), DATA + DATA[4:]),
        request(asked(inputs=[tensor("A:0", "FP32", [4, 1]), B])),
        request(asked(), DATA),
        request(asked(), DATA * 3),
        request(asked(inputs=[A])),
        request(NAN),
        request(REPEATED),
        request(b"\xef\xbb\xbf" + orjson.dumps(asked())),
        request(asked(id="x" * 5000)),
        request(asked(), **{"accept-encoding": "gzip"}),
        request(asked(), **{"content-encoding": "gzip"}),
        request(b""),
        request(b"[]"),
    ],
)
async def test_other_requests_are_decoded(message: HttpRequest) -> None:
    found = await outcome(message, reply(told()))
    assert not found.passed


@pytest.mark.parametrize("name", ["kserve", "mlserver"])
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_listeners_with_a_flavor_decode(name: str, transport: str) -> None:
    binding = DIALECT.bindings[transport]
    assert binding.calls[Operation.INFER].passthrough is not None
    wanted = "/v2/models/{model}/infer" if transport == "http" else "ModelInfer"
    (endpoint,) = (
        each
        for each in binding.flavored(name).endpoints
        if (each.path if transport == "http" else each.method.rpartition("/")[2]) == wanted
    )
    message: Any = request(asked())
    message.params = {"model": "model"}
    if transport == "grpc":
        message = Bridge(("oip", "grpc"), SIGNATURE).message(InferRequest("model", ()))
    assert endpoint.open(message).action.passthrough is None


async def test_nothing_passes_before_the_flavor_is_known() -> None:
    binding = DIALECT.bindings["http"]
    upstream = Counting("there", binding.calls, [object()], 5.0, binding.call_flavors)
    assert upstream.passthrough is None
