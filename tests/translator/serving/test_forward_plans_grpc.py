"""Repeated calls over gRPC, held against the same calls by the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import grpc
import numpy as np
import pytest
import yaml

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcHandler, GrpcRequest
from interlingua.schemas import ErrorCode
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.serving.pipeline import Pipeline
from tests.waiting import until

METHOD = "/inference.GRPCInferenceService/ModelInfer"
TENSORS = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
LISTENER = {"listen": "127.0.0.1:0", "transport": "grpc"}
WARM = 10


def request(number: float) -> bytes:
    message: Any = MESSAGES["inference.ModelInferRequest"](model_name="m")
    message.inputs.add(name="x", datatype="FP32", shape=[1])
    message.raw_input_contents.append(np.float32(number).tobytes())
    return bytes(message.SerializeToString())


def reply(data: bytes, name: str = "x", model: str = "m", shape: int = 1) -> bytes:
    message: Any = MESSAGES["inference.ModelInferResponse"](model_name=model, model_version="1")
    message.outputs.add(name=name, datatype="FP32", shape=[shape])
    message.raw_output_contents.append(data)
    return bytes(message.SerializeToString())


def number_in(answer: bytes) -> float:
    return float(np.frombuffer(answer[-4:], np.float32)[0])


Act = Callable[["Standin", bytes], GrpcAnswer | None]
"""The answer to a tensor; None for none."""

UNUSUAL: dict[str, Act] = {
    "an error": lambda there, data: GrpcAnswer(code=3, details="bad"),
    "not found": lambda there, data: GrpcAnswer(code=5, details="gone"),
    "unavailable": lambda there, data: GrpcAnswer(code=14, details="busy"),
    "garbage": lambda there, data: GrpcAnswer(b"\xff\xff\xff"),
    "an empty answer": lambda there, data: GrpcAnswer(b""),
    "a connection that breaks": lambda there, data: there.abort(),
    "silence": lambda there, data: None,
}


@dataclass
class Standin(GrpcHandler):
    """A ``GrpcHandler`` that answers calls with ``acts``, in turn, then as usual."""

    acts: list[Act | None] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)
    cancelled: int = 0
    server: GrpcServer | None = None

    def offers(self, method: str) -> Literal["unary", "stream"] | None:
        return "unary" if method == METHOD else None

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        self.seen.append(bytes(request.message))
        data = bytes(request.message[-4:])
        act = self.acts.pop(0) if self.acts else None
        answer = GrpcAnswer(reply(data)) if act is None else act(self, data)
        if answer is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        assert answer is not None
        return answer

    async def stream(self, call: GrpcRequest, messages: AsyncIterator[Buffer]) -> AsyncIterator[GrpcAnswer]:
        yield GrpcAnswer(code=12)

    def abort(self) -> None:
        assert self.server is not None
        for connection in tuple(self.server.connections.open):
            connection.abort()


@dataclass
class Bridge:
    """A daemon in front of an upstream, and a caller of it."""

    server: GrpcServer
    pipeline: Pipeline
    assembly: Assembly
    there: Standin
    call: Any

    async def ask(self, message: bytes, timeout: float | None = None) -> Any:
        try:
            return await self.call(message, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            text = error.details() or ""
            return error.code(), text.replace(str(self.there.server and self.there.server.address), "there")

    async def warm(self) -> None:
        for number in range(WARM):
            assert number_in(await self.ask(request(number))) == number

    @property
    def counts(self) -> dict[str, Any]:
        """Everything that is counted, but the times."""
        metrics, load = self.pipeline.request_metrics["oip"], self.pipeline.load
        target = self.assembly.service.router.models["m"]
        assert target.upstream is not None
        (member,) = target.upstream.pool.members
        return {
            "ended": dict(metrics.ended),
            "in flight": (metrics.in_flight, load.requests, load.total.requests, self.server.at_work),
            "bytes": (metrics.received_bytes, metrics.sent_bytes),
            "versions": {
                version: (each.inference_count, dict(each.failures), sum(each.latencies.counts))
                for version, each in target.statistics.items()
            },
            "server": (member.requests, member.running, member.failures, member.open),
        }


@asynccontextmanager
async def bridge(there: Standin, timeout: float = 0.5) -> AsyncIterator[Bridge]:
    there.server = GrpcServer(there, parse_address("127.0.0.1:0"))
    upstream = {"dialect": "oip", "transport": "grpc", "urls": [str(await there.server.start())]}
    model = {"upstream": "there", "remote_model": "m", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
    config = {
        "listeners": [LISTENER],
        "upstreams": {"there": {**upstream, "flavor": "triton", "request_timeout_secs": timeout}},
        "models": {"m": model},
    }
    options = parse(yaml.safe_dump(config))
    assembly = assemble(options, load_local(options))
    pipeline = assembly.pipeline(options.listeners[0])
    server = GrpcServer(pipeline.handlers["grpc"], parse_address("127.0.0.1:0"), load=pipeline.load)
    address = await server.start()
    try:
        async with grpc.aio.insecure_channel(str(address)) as channel:
            yield Bridge(server, pipeline, assembly, there, channel.unary_unary(METHOD))
    finally:
        await server.stop(0)
        await assembly.close()
        await there.server.stop(0)


async def test_a_call_that_is_refused_is_made_again(sent: list[bool]) -> None:
    async with bridge(Standin(), timeout=20) as here:
        await here.warm()
        there = here.there.server
        assert there is not None
        there.retire_connections()  # GOAWAY; calls that cross it are not processed
        for number in range(5):
            assert number_in(await here.ask(request(number))) == number
    assert sent[-1] or sent.count(True) > 1


@pytest.mark.parametrize("how", ["cancels", "reaches its deadline", "disconnects"])
async def test_a_caller_is_gone(how: str, sent: list[bool]) -> None:
    there = Standin([None] * WARM + [UNUSUAL["silence"]])
    async with bridge(there, timeout=20) as here:
        await here.warm()
        before = sent.count(True)
        call = here.call(request(WARM), timeout=0.3 if how == "reaches its deadline" else None)
        asked = asyncio.ensure_future(call)
        await until(lambda: len(there.seen) > WARM)
        if how == "cancels":
            call.cancel()
        elif how == "disconnects":
            for connection in tuple(here.server.connections.open):
                connection.abort()
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await asked
        await until(lambda: there.cancelled == 1 and here.counts["in flight"] == (0, 0, 0, 0))
        counts = here.counts
        assert sent.count(True) == before + 1
    assert counts["server"][:2] == (WARM + 1, 0)
    failed = [code for _, code in counts["ended"] if code is not None]
    assert failed in ([ErrorCode.CANCELLED], [ErrorCode.DEADLINE_EXCEEDED])


async def test_other_connections_timeouts_and_metadata_share_a_plan(sent: list[bool]) -> None:
    async with bridge(Standin(), timeout=20) as here:
        await here.warm()
        before = sent.count(True)
        for number in range(5):
            assert number_in(await here.ask(request(number), timeout=10 + number)) == number
            async with grpc.aio.insecure_channel(str(here.server.address)) as channel:
                assert number_in(await channel.unary_unary(METHOD)(request(number))) == number
        assert sent.count(True) == before + 10
        elsewhere = here.call(request(1), metadata=(("x-other", "1"),))
        assert number_in(await elsewhere) == 1
        assert sent.count(True) == before + 11


async def test_calls_with_deadlines_repeat_too(sent: list[bool]) -> None:
    there = Standin([None] * WARM + [UNUSUAL["silence"]])
    async with bridge(there, timeout=20) as here:
        for number in range(WARM):
            assert number_in(await here.ask(request(number), timeout=2)) == number
        code, _ = await here.ask(request(WARM), timeout=2)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: there.cancelled == 1 and here.counts["in flight"] == (0, 0, 0, 0))
