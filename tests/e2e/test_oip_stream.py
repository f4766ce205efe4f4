"""ModelStreamInfer over real sockets: the recorded streams of Triton, directly and through an upstream."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import orjson
import pytest
from google.protobuf import json_format

from interlingua.protocols.oip.client import GRPC_CALLS
from interlingua.protocols.oip.stream_grpc import METHOD
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import Address, parse_url
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import InferRequest, InferResponse, ServerMetadata
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.conformance.oip_recordings import GOLDEN
from tests.streaming_models import AddSub, Repeat

REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
ANSWER: Any = MESSAGES["inference.ModelStreamInferResponse"]
RECORDED = {
    entry["name"]: entry
    for entry in orjson.loads((GOLDEN / "triton_grpc.json").read_bytes())
    if "requests" in entry
}


@asynccontextmanager
async def serving(*models: Target, max_request_bytes: int | None = None) -> AsyncIterator[Address]:
    service = Service(
        Router(ModelCatalog({model.name: model for model in models})), ServerMetadata("interlingua", "0")
    )
    pipeline = Pipeline(service, "test", [*DIALECTS["oip"].bindings.values()])
    server = GrpcServer(
        pipeline.handlers["grpc"], Address("127.0.0.1", 0), max_request_bytes=max_request_bytes
    )
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(0)


@asynccontextmanager
async def bridging(*models: Target) -> AsyncIterator[Address]:
    """A server whose models are those of another one, over its streams."""
    async with serving(*models) as behind:
        client = GrpcChannelClient(parse_url(str(behind), "grpc"))
        upstream = Upstream("behind", GRPC_CALLS, [client], 10)
        try:
            async with serving(
                *(UpstreamModel(model.name, upstream, model.name) for model in models)
            ) as address:
                yield address
        finally:
            await upstream.close()


WAYS = pytest.mark.parametrize("way", [serving, bridging])


@asynccontextmanager
async def calling(
    address: Address, requests: Any, metadata: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(str(address)) as channel:
        method = channel.stream_stream(METHOD, REQUEST.SerializeToString, ANSWER.FromString)
        yield method(requests, metadata=metadata)


async def sent(
    address: Address, requests: Sequence[Any], metadata: Sequence[tuple[str, str]] = ()
) -> tuple[list[Any], grpc.StatusCode, str]:
    """Every answer to ``requests``, and how the stream ended."""
    answers = []
    async with calling(address, requests, metadata) as call:
        try:
            async for answer in call:
                answers.append(answer)
        except grpc.aio.AioRpcError as status:
            return answers, status.code(), status.details() or ""
    return answers, grpc.StatusCode.OK, ""


def requested(name: str) -> list[Any]:
    return [json_format.ParseDict(request, REQUEST()) for request in RECORDED[name]["requests"]]


def one(name: str, identity: str = "") -> Any:
    request = next(found for entry in RECORDED for found in requested(entry) if found.model_name == name)
    request.id = identity
    return request


def repeat(*values: int, identity: str = "") -> Any:
    request = REQUEST(model_name="repeat", id=identity)
    request.inputs.add(name="IN", datatype="INT32", shape=[len(values)])
    request.raw_input_contents.append(b"".join(value.to_bytes(4, "little", signed=True) for value in values))
    return request


@WAYS
@pytest.mark.parametrize("name", [name for name in RECORDED if "grpc_error" not in name])
async def test_recorded_streams(way: Any, name: str) -> None:
    async with way(Repeat(), AddSub()) as address:
        answers, code, details = await sent(address, requested(name))
    assert (code.name, details) == (RECORDED[name]["code"], RECORDED[name]["details"])
    expected = [json_format.ParseDict(answer, ANSWER()) for answer in RECORDED[name]["responses"]]
    # answers to different requests may come between each other
    assert by_request(answers) == by_request(expected)


def by_request(answers: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for answer in answers:
        found.setdefault(answer.infer_response.id, []).append(answer)
    return found


@WAYS
async def test_an_error_as_the_status_of_the_call(way: Any) -> None:
    requests = [one("nope", "a"), repeat(5, -1, 6, identity="b")]
    async with way(Repeat(), AddSub()) as address:
        answers, code, details = await sent(address, requests, [("triton_grpc_error", "true")])
    assert (code, details) == (grpc.StatusCode.INTERNAL, "negative")
    assert sorted(answer.infer_response.id for answer in answers) == ["a", "b"]
    assert "nope" in next(answer.error_message for answer in answers if answer.infer_response.id == "a")


async def test_single_answers_keep_their_order_and_several_go_between() -> None:
    slow, quick = AddSub(0.05), Repeat(pace_secs=0.001)
    requests = [one("add_sub", f"s{index}") for index in range(5)]
    requests.insert(1, repeat(*range(10), identity="many"))
    async with serving(slow, quick) as address:
        answers, code, _ = await sent(address, requests)
    assert code is grpc.StatusCode.OK
    ids = [answer.infer_response.id for answer in answers]
    assert [identity for identity in ids if identity != "many"] == [f"s{index}" for index in range(5)]
    assert ids.count("many") == 10
    assert ids.index("many") < ids.index("s1")


class Once(AddSub):
    """A decoupled model that answers once, with the final flag."""

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        yield replace(await self.infer(request), ordered=False)


async def test_the_one_answer_of_a_decoupled_model_waits_for_no_other() -> None:
    """Triton sends it when it is there, whatever was asked before on the stream."""
    quick = Once()
    quick.name = "once"
    last = one("add_sub", "last")
    last.model_name = "once"
    async with serving(AddSub(0.3), quick) as address:
        answers, code, _ = await sent(address, [one("add_sub", "first"), last])
    assert code is grpc.StatusCode.OK
    assert [answer.infer_response.id for answer in answers] == ["last", "first"]


async def test_many_requests_on_one_stream() -> None:
    requests = [one("add_sub", str(index)) for index in range(300)]
    async with serving(AddSub()) as address:
        answers, code, _ = await sent(address, requests)
    assert code is grpc.StatusCode.OK
    assert [answer.infer_response.id for answer in answers] == [str(index) for index in range(300)]


@WAYS
async def test_a_stream_that_is_cancelled_cancels_its_work(way: Any) -> None:
    endless = Repeat(pace_secs=0.005)
    async with way(endless) as address, calling(address, [repeat(*range(100_000))]) as call:
        assert (await call.read()).infer_response.outputs[0].name == "OUT"
        call.cancel()
        async with asyncio.timeout(30):
            await endless.closed.wait()
    assert endless.given < 1000


async def test_unread_answers_hold_back_the_model() -> None:
    generous = Repeat(width=1 << 16)
    async with serving(generous) as address, calling(address, [repeat(*range(5000))]) as call:
        await call.read()
        held = -1
        async with asyncio.timeout(20):
            while held != generous.given:
                held = generous.given
                await asyncio.sleep(0.3)
        # what flow control lets out and the window holds was given, of 1.25 GiB
        assert held < 1000
        call.cancel()


async def test_a_message_above_the_limit_ends_the_stream() -> None:
    big = one("add_sub", "big" * 400)
    async with serving(AddSub(), max_request_bytes=1000) as address:
        answers, code, details = await sent(address, [one("add_sub", "small"), big])
    assert [answer.infer_response.id for answer in answers] == ["small"]
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max_request_bytes" in details


async def test_what_is_no_message_ends_the_stream() -> None:
    async with serving(AddSub()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        call = channel.stream_stream(METHOD)([b"\xff"])
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
    assert ended.value.code() is grpc.StatusCode.INTERNAL


async def test_bare_answers_of_mlserver() -> None:
    """MLServer's answers to a stream have no wrapping; that they end is all that tells the last one."""
    recorded = [
        entry
        for entry in orjson.loads((GOLDEN / "mlserver_grpc.json").read_bytes())
        if entry["name"] == "stream_text"
    ]
    assert recorded
    plain: Any = MESSAGES["inference.ModelInferResponse"]

    async def answers(requests: AsyncIterator[bytes], call: Any) -> AsyncIterator[bytes]:
        async for message in requests:
            asked = REQUEST.FromString(message)
            for word in base64.b64decode("YSBiIGM=").split():
                told = plain(model_name=asked.model_name, model_version="v1.2", id="made up")
                output = told.outputs.add(name="OUT", datatype="BYTES", shape=[1])
                output.contents.bytes_contents.append(word)
                yield told.SerializeToString()

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(answers)
    service, _, rpc = METHOD[1:].rpartition("/")
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {rpc: handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = GrpcChannelClient(parse_url(f"127.0.0.1:{port}", "grpc"))
    upstream = Upstream("mlserver", GRPC_CALLS, [client], 10)
    model = UpstreamModel("repeat", upstream, "repeat", declared=await Repeat().signature())
    async with serving(model) as address:
        request = repeat(1, identity="s")
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        found, code, _ = await sent(address, [request])
    await upstream.close()
    await server.stop(None)
    assert code is grpc.StatusCode.OK
    assert [not answer.error_message and answer.infer_response.id for answer in found] == ["s"] * 4
    assert [bytes(raw) for answer in found for raw in answer.infer_response.raw_output_contents] == [
        b"\1\0\0\0a",
        b"\1\0\0\0b",
        b"\1\0\0\0c",
    ]
    finals = [answer.infer_response.parameters["triton_final_response"].bool_param for answer in found]
    assert finals == [False, False, False, True]


async def test_an_upstream_without_streams_gets_single_requests() -> None:
    calls = {operation: call for operation, call in GRPC_CALLS.items() if operation.value != "infer_stream"}
    async with serving(AddSub()) as behind:
        client = GrpcChannelClient(parse_url(str(behind), "grpc"))
        upstream = Upstream("behind", calls, [client], 10)
        async with serving(UpstreamModel("add_sub", upstream, "add_sub")) as address:
            answers, code, _ = await sent(address, [one("add_sub", "x")])
        await upstream.close()
    assert code is grpc.StatusCode.OK
    assert answers[0].infer_response.parameters["triton_final_response"].bool_param
