"""Headers of calls to an upstream that no stand-in shows: streams, loads, and what cannot be written."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import BrpcRequest, FramedCall, GrpcAnswer, GrpcRequest, HttpCall
from interlingua.runtime.upstream.forwarding import Forwarding
from interlingua.runtime.upstream.header_file import HeaderFile
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelRef,
    Operation,
    Tensor,
)
from interlingua.schemas.oip import MESSAGES

CALLER = {"x-request-id": "seven", "x-tenant": "blue", "x-private": "secret"}
CONTEXT = Context(traceparent="00-1", tracestate="a=b", headers=CALLER)
CARRIED = {"traceparent": "00-1", "tracestate": "a=b", "x-request-id": "seven", "x-tenant": "blue"}
STREAMED: Any = MESSAGES["inference.ModelStreamInferResponse"]


class Recording:
    """A ``GrpcClient`` that answers every call with success."""

    def __init__(self) -> None:
        self.seen: list[GrpcRequest] = []

    async def send(self, request: GrpcRequest) -> GrpcAnswer:
        self.seen.append(request)
        return GrpcAnswer()

    async def stream(self, request: GrpcRequest) -> AsyncGenerator[GrpcAnswer, None]:
        self.seen.append(request)
        answer = STREAMED()
        answer.infer_response.model_name = "m"
        yield GrpcAnswer(answer.SerializeToString())

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def token(tmp_path: Path) -> HeaderFile:
    path = tmp_path / "token"
    path.write_text("Bearer a")
    return HeaderFile(path)


def upstream(token: HeaderFile, *clients: Recording) -> Upstream:
    forwarding = Forwarding(["x-tenant"], {"authorization": token.value})
    return Upstream("there", DIALECTS["oip"].bindings["grpc"].calls, clients, 5.0, forwarding=forwarding)


async def test_a_streaming_call_carries_them(token: HeaderFile) -> None:
    client = Recording()
    request = InferRequest("m", (Tensor.checked("x", Datatype.UINT8, (1,), b"a"),))
    answers = [each async for each in upstream(token, client).stream(request, None, CONTEXT)]
    assert len(answers) == 1
    assert client.seen[0].metadata == {**CARRIED, "authorization": "Bearer a"}


async def test_loads_carry_the_configurations_own_to_every_server(token: HeaderFile) -> None:
    clients = Recording(), Recording()
    await upstream(token, *clients).call(Operation.MODEL_LOAD, ModelRef("m"))
    assert [client.seen[0].metadata for client in clients] == [{"authorization": "Bearer a"}] * 2


def test_what_a_message_has_is_kept() -> None:
    for message, name in (
        (HttpCall("POST", "/", headers={"Content-Type": "a"}), "headers"),
        (GrpcRequest("/a", b"", {"Content-Type": "a"}), "metadata"),
        (BrpcRequest("a", "b", b"", headers={"Content-Type": "a"}), "headers"),
    ):
        Forwarding(["x-tenant"]).of_the_caller(message, CONTEXT)
        assert getattr(message, name) == {"Content-Type": "a", **CARRIED}
    Forwarding(["x-tenant"]).of_the_caller(FramedCall(), CONTEXT)  # which has no place for any


def test_a_tracestate_goes_with_a_trace_alone() -> None:
    message = GrpcRequest("/a", b"")
    Forwarding().of_the_caller(message, Context(tracestate="a=b"))
    assert message.metadata == {}


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        ("José", (HttpCall, BrpcRequest)),
        ("", (HttpCall, BrpcRequest, GrpcRequest)),
        ("a\nb", ()),
        ("a\x7f", ()),
        ("\udce9", ()),  # what was no UTF-8
    ],
)
def test_a_value_goes_where_it_can_be_written(value: str, kinds: tuple[type, ...]) -> None:
    messages = HttpCall("GET", "/"), GrpcRequest("/a", b""), BrpcRequest("a", "b", b"")
    for message in messages:
        listed, trace = Context(headers={"x-tenant": value}), Context(headers={"x-request-id": value})
        if isinstance(message, kinds):
            Forwarding(["x-tenant"]).of_the_caller(message, listed)
            continue
        with pytest.raises(InferenceError, match="the header 'x-tenant' has a character") as raised:
            Forwarding(["x-tenant"]).of_the_caller(message, listed)
        assert raised.value.code is ErrorCode.MALFORMED and (not value or value not in raised.value.message)
        Forwarding().of_the_caller(message, trace)
        assert not getattr(message, "metadata", None) and not getattr(message, "headers", None)


def test_baggage_goes_with_every_request() -> None:
    message = HttpCall("POST", "/")
    Forwarding().of_the_caller(message, Context(headers={"baggage": "user=1", "x-tenant": "blue"}))
    assert message.headers == {"baggage": "user=1"}
