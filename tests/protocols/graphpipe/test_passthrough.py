"""Which GraphPipe messages pass through to a GraphPipe server, and what remains of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graphpipe import convert

from interlingua.protocols.graphpipe import codec
from interlingua.protocols.wire import FramedAnswer, parts_of
from interlingua.schemas import Datatype, InferRequest, InferResponse, RequestedOutput, Signature, Tensor
from tests.properties.passing import MODEL, Bridge, Outcome
from tests.strategies import signature_of

A = Tensor.checked("a", Datatype.FP32, (2, 2), bytes(range(16)))
B = Tensor.checked("b", Datatype.INT64, (2,), bytes(range(16)))
X, Y = A.renamed("x"), B.renamed("y")
SIGNATURE = signature_of([A, B], [X, Y])
WIRES = [("graphpipe", "http"), ("graphpipe", "tcp")]


async def outcome(wire: tuple[str, str], request: InferRequest, **bridge: Any) -> tuple[Bridge, Outcome, Any]:
    """The outcome of ``request``, and the reply of the upstream."""
    found = Bridge(wire, SIGNATURE, **bridge)
    there = found.renamed(InferRequest(MODEL, (A, B)))
    outputs = tuple(each.renamed(found.outputs.get(each.name, each.name)) for each in (X, Y))
    reply = found.reply(there, InferResponse(MODEL, outputs))
    return found, await found.ask(found.message(request), reply, passing=True), reply


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("renames", [{}, {"inputs": {"a": "left"}, "outputs": {"y": "there"}}])
async def test_all_tensors_are_named_and_the_answer_stays(wire: tuple[str, str], renames: Any) -> None:
    bridge, found, reply = await outcome(wire, InferRequest(MODEL, (A, B)), **renames)
    assert found.passed
    (sent,) = found.seen
    _, request, outputs = bridge.understood(sent)
    assert [tensor.name for tensor in request.inputs] == [bridge.inputs.get("a", "a"), "b"]
    assert [bytes(tensor.view) for tensor in request.inputs] == [bytes(range(16))] * 2
    assert outputs == {"x", bridge.outputs.get("y", "y")}
    if isinstance(found.answer, FramedAnswer):
        size, message = found.answer.parts
        assert message is reply.message and int.from_bytes(size, "little") == len(message)
    else:
        assert parts_of(found.answer)[0] is reply.body


@pytest.mark.parametrize("wire", WIRES)
async def test_inputs_are_sent_in_the_order_of_the_signature(wire: tuple[str, str]) -> None:
    _, found, _ = await outcome(wire, InferRequest(MODEL, (B, A)))
    assert found.passed
    (sent,) = found.seen
    message = b"".join(bytes(part) for part in sent.parts)[4 if wire[1] == "tcp" else 0 :]
    received = convert.deserialize_request(message)
    assert received.input_names == [b"a", b"b"]
    assert [array.dtype for array in received.input_tensors] == [np.float32, np.int64]


@pytest.mark.parametrize("wire", WIRES)
async def test_the_data_of_a_request_are_not_copied(wire: tuple[str, str]) -> None:
    bridge = Bridge(wire, SIGNATURE)
    message = bridge.message(InferRequest(MODEL, (A, B)))
    reply = bridge.reply(InferRequest(MODEL, (A, B)), InferResponse(MODEL, (X, Y)))
    (sent,) = (await bridge.ask(message, reply, passing=True)).seen
    received = message.body if wire[1] == "http" else message.message
    views = [part for part in sent.parts if isinstance(part, memoryview)]
    assert [view.obj is received for view in views] == [True, True]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("wanted", [("y",), ("y", "x")])
async def test_some_outputs_are_chosen(wire: tuple[str, str], wanted: tuple[str, ...]) -> None:
    request = InferRequest(MODEL, (A, B), tuple(map(RequestedOutput, wanted)))
    bridge, found, _ = await outcome(wire, request)
    assert found.passed and bridge.understood(found.seen[0])[2] == {"x", "y"}
    body = b"".join(found.answer.parts)[4 if wire[1] == "tcp" else 0 :]
    assert len(codec.decode_response(body, wanted, None)) == len(wanted)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("change", ["config", "String", "BOOL", "shape", "missing", "no outputs"])
async def test_other_requests_are_decoded(wire: tuple[str, str], change: str) -> None:
    request, signature = InferRequest(MODEL, (A, B)), SIGNATURE
    if change == "config":
        request.parameters = {"config": "x"}
    elif change == "shape":
        request.inputs = (replace(A, shape=(4, 1)), B)
    elif change == "missing":
        request.inputs = (A,)
    elif change == "no outputs":
        signature = Signature(SIGNATURE.inputs, ())
    else:
        datatype = Datatype.BYTES if change == "String" else Datatype.BOOL
        request.inputs = (
            A,
            Tensor.checked("b", datatype, (2,), b"\0\0\0\0\0\0\0\0" if change == "String" else b"\0\1"),
        )
        signature = signature_of(request.inputs, [X, Y])
    bridge = Bridge(wire, signature)
    reply = Bridge(wire, SIGNATURE).reply(InferRequest(MODEL, (A, B)), InferResponse(MODEL, (X, Y)))
    found = await bridge.ask(bridge.message(request), reply, passing=True)
    assert not found.passed
