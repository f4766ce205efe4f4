"""Which grps messages pass whole where a signature is declared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from interlingua.protocols.grps.codec_grpc import read_message, write_message
from interlingua.protocols.grps.message import DT_STRING, OK, GenericTensor, GrpsMessage, Kind
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest, GrpcAnswer, GrpcRequest
from interlingua.schemas import Datatype, InferRequest, Tensor
from tests.properties.passing import MODEL, Bridge, Outcome
from tests.strategies import signature_of

A = Tensor.checked("a", Datatype.FP32, (2, 2), bytes(range(16)))
B = Tensor.checked("b", Datatype.INT64, (2,), bytes(range(16)))
X, Y = A.renamed("x"), B.renamed("y")
SIGNATURE = signature_of([A, B], [X, Y])
WIRES = [("grps", "grpc"), ("grps", "brpc")]

wires = pytest.mark.parametrize("wire", WIRES, ids="/".join)


def asked(*tensors: Tensor) -> GrpsMessage:
    message: Any = Bridge(WIRES[0], SIGNATURE).message(InferRequest(MODEL, tensors or (A, B)))
    return read_message(message.message)


def told(*tensors: Tensor) -> GrpsMessage:
    return replace(asked(*(tensors or (X, Y))), model="far-1", status=OK)


async def outcome(wire: tuple[str, str], request: GrpsMessage, answer: GrpsMessage, **bridge: Any) -> Outcome:
    shown: Any = Bridge(wire, SIGNATURE).message(InferRequest(MODEL, (A, B)))
    message: GrpcRequest | BrpcRequest = replace(shown, message=write_message(request))
    reply = (GrpcAnswer if wire[1] == "grpc" else BrpcAnswer)(write_message(answer))
    return await Bridge(wire, SIGNATURE, remote="far", **bridge).ask(message, reply, passing=True)


@wires
async def test_only_the_model_is_rewritten(wire: tuple[str, str]) -> None:
    found = await outcome(wire, asked(), told())
    assert found.passed and not found.answer.code
    (sent,) = found.seen
    assert bytes(sent.message) == write_message(replace(asked(), model="far"))
    assert bytes(found.answer.message) == write_message(replace(told(), model=""))


@wires
@pytest.mark.parametrize(
    "request_",
    [
        GrpsMessage(Kind.STR_DATA, MODEL, str_data="x"),
        GrpsMessage(Kind.GMAP, MODEL, gmap={"s_i32": {"a": 1}}),
        replace(
            asked(), tensors=(replace(asked().tensors[0], name=""), replace(asked().tensors[1], name=""))
        ),
        replace(asked(), tensors=asked().tensors[:1]),
        replace(asked(), tensors=(asked().tensors[0], asked().tensors[0])),
        replace(asked(), tensors=(replace(asked().tensors[0], shape=(3, 2)), asked().tensors[1])),
        replace(asked(), tensors=(GenericTensor("a", DT_STRING, (1,), ["x"]), asked().tensors[1])),
    ],
    ids=["text", "gmap", "unnamed", "missing", "twice", "shape", "strings"],
)
async def test_other_requests_are_decoded(wire: tuple[str, str], request_: GrpsMessage) -> None:
    assert not (await outcome(wire, request_, told())).passed


@wires
async def test_renamed_tensors_are_decoded(wire: tuple[str, str]) -> None:
    found = await outcome(wire, asked(), told(), inputs={"a": "left"})
    assert not found.passed and not found.answer.code


@wires
async def test_answers_in_another_order_are_decoded(wire: tuple[str, str]) -> None:
    found = await outcome(wire, asked(), told(Y, X))
    assert found.passed
    assert bytes(found.answer.message) == write_message(replace(told(), model=""))
