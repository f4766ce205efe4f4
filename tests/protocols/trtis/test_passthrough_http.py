"""Which messages of version 1 pass through over HTTP, and what remains of them."""

from __future__ import annotations

from typing import Any

import pytest

from interlingua.protocols.wire import HttpReply, HttpRequest, parts_of
from interlingua.schemas import Datatype, Signature, TensorSpec
from tests.properties.passing import Bridge, Outcome

DATA = bytes(range(32))
SIGNATURE = Signature(
    (TensorSpec("A", Datatype.FP32, (-1, 2)), TensorSpec("B", Datatype.INT64, (-1, -1))),
    (TensorSpec("X", Datatype.FP32, (-1, 2)), TensorSpec("Y", Datatype.INT64, (-1, -1))),
    max_batch_size=4,
)
HEADER = (
    'batch_size: 2 input { name: "A" dims: 2 } input { name: "B" dims: 1 } '
    'output { name: "Y" } output { name: "X" } id: 7'
)
ANSWER = (
    'model_name: "far" model_version: 3 batch_size: 2 output { name: "Y" raw { dims: 1 batch_byte_size: 16 } } '
    'output { name: "X" raw { dims: 2 batch_byte_size: 16 } } id: 9'
)


def request(header: str = HEADER, data: bytes = DATA, query: str = "format=binary") -> HttpRequest:
    return HttpRequest("POST", "/api/infer/model", query, {"nv-inferrequest": header}, data)


def reply(header: str = ANSWER, data: bytes = DATA) -> HttpReply:
    headers = {"nv-status": "code: SUCCESS", "nv-inferresponse": header}
    return HttpReply(200, headers, data + b"the copy")


async def outcome(message: HttpRequest, answer: HttpReply, **bridge: Any) -> Outcome:
    bridge = {"remote": "far", **bridge}
    return await Bridge(("trtis", "http"), SIGNATURE, **bridge).ask(message, answer, passing=True)


async def test_the_tensors_go_on_as_they_came() -> None:
    message, answer = request(), reply()
    found = await outcome(message, answer)
    (sent,) = found.seen
    assert found.passed and (sent.path, sent.query) == ("/api/infer/far", "format=binary")
    assert sent.headers["NV-InferRequest"] == HEADER and sent.parts[0] is message.body
    outputs, copy = parts_of(found.answer)
    assert outputs.obj is answer.body and bytes(outputs) == DATA and b"model" in copy  # type: ignore[union-attr]
    headers = dict(found.answer.headers)
    assert headers["NV-InferResponse"] == ANSWER.replace('"far"', '"model"').replace("id: 9", "id: 7")


async def test_names_and_dimensions_are_rewritten() -> None:
    header = HEADER.replace(" dims: 2", "")
    answer = reply(ANSWER.replace('"X"', '"there"'))
    found = await outcome(request(header, query=""), answer, inputs={"B": "left"}, outputs={"X": "there"})
    (sent,) = found.seen
    assert found.passed and sent.query == "format=text"
    assert sent.headers["NV-InferRequest"] == (
        'batch_size: 2 input { name: "A" dims: 2 } input { name: "left" dims: 1 } '
        'output { name: "Y" } output { name: "there" } id: 7'
    )
    assert '"X"' in dict(found.answer.headers)["NV-InferResponse"]
    assert b'name: "X"' in parts_of(found.answer)[1]


@pytest.mark.parametrize(
    "message",
    [
        request(f"{HEADER} correlation_id: 5"),
        request(f"{HEADER} flags: 1"),
        request(f"{HEADER} priority: 1"),
        request(f"{HEADER} timeout_microseconds: 1"),
        request(HEADER.replace('"X"', '"X" cls { count: 1 }')),
        request(
            HEADER.replace('"A" dims: 2', '"A" dims: 2 shared_memory { name: "r" byte_size: 16 }'), DATA[16:]
        ),
        request(HEADER.replace('"X"', '"X" shared_memory { name: "r" byte_size: 16 }')),
        request(HEADER.partition("output")[0]),
        request(HEADER.replace("batch_size: 2", "batch_size: 5"), bytes(80)),
        request(HEADER.replace("dims: 2", "dims: 3"), bytes(40)),
        request(data=DATA[1:]),
        request(data=DATA + b"\0"),
        request(query="format=json"),
    ],
)
async def test_other_requests_are_decoded(message: HttpRequest) -> None:
    found = await outcome(message, reply())
    assert not found.passed


async def test_a_model_in_another_place_has_its_own_answers() -> None:
    """The same headers, the same signature, other names."""
    for inputs in ({}, {"A": "left"}, {}):
        found = await outcome(request(), reply(), inputs=inputs)
        assert (list(inputs.values()) or ["A"])[0] in found.seen[0].headers["NV-InferRequest"]
    for outputs, there in (({}, "X"), ({"X": "there"}, "there"), ({}, "X")):
        found = await outcome(request(), reply(ANSWER.replace('"X"', f'"{there}"')), outputs=outputs)
        assert found.answer.status == 200


async def test_an_answer_without_dims_is_an_error() -> None:
    found = await outcome(request(), reply(ANSWER.replace("dims: 1 ", "")))
    headers = dict(found.answer.headers)
    assert r"output \'Y\' has no dims" in headers["NV-Status"]
