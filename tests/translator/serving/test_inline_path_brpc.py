"""Calls over bRPC to a local model that answers at once, held against the same on their usual path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.serving.handler import TransportPipeline
from interlingua.translator.serving.inline_path import HandlerInlinePath, UnfinishedCall
from interlingua.translator.serving.pipeline import Pipeline
from tests.spies import failing, results_of
from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.brpc_frames import Received, request_frame

TENSORS = [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
SIGNATURE = Signature(*[(TensorSpec("x", Datatype.FP32, (-1, -1)),)] * 2)
WARM = 6


def message(*numbers: float, model: str = "m") -> bytes:
    """A request with ``numbers``."""
    tensor = Tensor("x", Datatype.FP32, (1, len(numbers)), memoryview(np.float32(numbers).tobytes()))
    encode = DIALECTS["grps"].bindings["brpc"].calls[Operation.INFER].encode
    return bytes(encode(InferRequest(model, (tensor,)), SIGNATURE)[0].message)


class Seen(NamedTuple):
    """An answer, without the address of its server."""

    code: int
    text: str
    payload: bytes
    fields: dict[str, str]
    number: int


def seen(answer: Received) -> Seen:
    code, text = answer.error
    return Seen(
        code, re.sub(r"^\[\w+\]", "", text), answer.payload, answer.user_fields, answer.correlation_id
    )


@dataclass
class Daemon:
    """A daemon with local models, and a caller of it."""

    server: BrpcServer
    pipeline: Pipeline
    assembly: Assembly
    client: BrpcStandinClient

    async def ask(self, *numbers: float, body: bytes | None = None, **options: Any) -> Seen:
        sent = message(*(numbers or (1.5, -2.5))) if body is None else body
        return seen(await self.client.call("Predict", sent, **options))

    @property
    def version(self) -> Any:
        return self.assembly.service.router.models["m"].version("")

    @property
    def counts(self) -> dict[str, Any]:
        """Everything that is counted, but the times."""
        metrics, load = self.pipeline.request_metrics["grps"], self.pipeline.load
        each = self.version.statistics
        return {
            "ended": dict(metrics.ended),
            "in flight": (metrics.in_flight, load.requests, load.total.requests, self.server.at_work),
            "bytes": (metrics.received_bytes, metrics.sent_bytes),
            "flows": {key: (sum(flow.counts), flow.failed) for key, flow in metrics.flows.items()},
            "stages": {key: sum(stage.counts) for key, stage in metrics.stages.items()},
            "version": (each.inference_count, each.refused, dict(each.failures), sum(each.latencies.counts)),
            "requests": next(self.assembly.service.numbers),
            "trend": len(self.assembly.service.trends.counts().latencies_ns),
            "failures": self.assembly.service.access.recorded,
        }


@asynccontextmanager
async def daemon(**listener: Any) -> AsyncIterator[Daemon]:
    model = {"backend": "identity", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
    config = {
        "server": {"access_log": "errors"},
        "admin": {"listen": "127.0.0.1:0"},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "brpc", "dialects": ["grps"]} | listener],
        "models": {"m": model, "n": model},
    }
    options = parse(yaml.safe_dump(config))
    assembly = assemble(options, load_local(options))
    (listening,) = options.listeners
    pipeline = assembly.pipeline(listening)
    handlers = pipeline.handlers
    server = BrpcServer(
        handlers["brpc"],
        handlers["http"],
        handlers["grpc"],
        parse_address(listening.listen),
        max_response_bytes=listening.max_response_bytes,
        load=pipeline.load,
    )
    address = await server.start()
    async with BrpcStandinClient.to(address.host, address.port) as client:
        here = Daemon(server, pipeline, assembly, client)
        for number in range(WARM):
            assert (await here.ask(number, 1)).code == 0
        yield here
    await server.stop(0)
    await assembly.close()


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the inline path has answered each call that it was offered."""
    return results_of(monkeypatch, HandlerInlinePath, "answer")


async def compared(scenario: Callable[[Daemon], Any], patch: pytest.MonkeyPatch, **listener: Any) -> Any:
    """What ``scenario`` returns, which is the same on the usual path, as are the counts."""
    found = []
    for usual in (False, True):
        if usual:
            patch.setattr(TransportPipeline, "inline_path", lambda *_: None)
        async with daemon(**listener) as here:
            found.append((await scenario(here), here.counts))
    assert found[0] == found[1]
    return found[0][0]


async def test_calls_that_repeat(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: Daemon) -> list[Seen]:
        return [await here.ask(number / 2, -number) for number in range(10)]

    answers = await compared(scenario, monkeypatch)
    for number, answer in enumerate(answers):
        assert np.float32([number / 2, -number]).tobytes() in answer.payload
    assert len([each for each in inline if each is not None]) >= 10


async def test_calls_that_differ(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: Daemon) -> list[Seen]:
        found = []
        for body in (
            message(1, 2, 3),
            message(1, 2, model="n"),
            message(1, 2, model="unknown"),
            message(1, 2, model=""),
            message(1, 2)[:-3],
            b"",
            b"\xff\xff",
            message(),
        ):
            found += [await here.ask(body=body), await here.ask(3.5, 4)]
        found.append(await here.ask(attachment=b"attached"))
        found.append(await here.ask(attachment_size=1 << 20))
        found.append(await here.ask(user_fields={"x-request-id": "an id"}))
        found.append(await here.ask(timeout_ms=20_000))
        found.append(seen(await here.client.call("CheckLiveness")))
        found += [await here.ask(number, 1) for number in range(5)]
        return found

    await compared(scenario, monkeypatch)
    assert any(each is not None for each in inline)


@pytest.mark.parametrize(
    "error", [InferenceError(ErrorCode.MODEL_FAILED, "broken"), ValueError("a bug"), MemoryError()], ids=repr
)
async def test_a_model_that_fails(
    error: Exception, inline: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(here: Daemon) -> list[Seen]:
        with monkeypatch.context() as patch:
            patch.setattr(here.version, "_run", failing(error))
            failed = await here.ask()
        return [failed, await here.ask()]

    failed, answered = await compared(scenario, monkeypatch)
    assert np.float32([1.5, -2.5]).tobytes() not in failed.payload
    assert np.float32([1.5, -2.5]).tobytes() in answered.payload
    assert any(isinstance(each, UnfinishedCall) for each in inline)


async def test_an_answer_above_the_limit(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: Daemon) -> list[Seen]:
        return [await here.ask(*range(100)), await here.ask()]

    answers = await compared(scenario, monkeypatch, max_response_bytes=100)
    assert [bool(each.code) for each in answers] == [True, False]
    assert any(isinstance(each, UnfinishedCall) for each in inline)


async def test_many_calls_at_once(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    count = 500

    async def scenario(here: Daemon) -> list[Seen]:
        frames = [request_frame("Predict", message(number, -number), number) for number in range(count)]
        await here.client.send(b"".join(frames))
        return sorted([seen(await here.client.receive()) for _ in frames], key=lambda each: each.number)

    for number, answer in enumerate(await compared(scenario, monkeypatch)):
        assert answer.number == number
        assert np.float32([number, -number]).tobytes() in answer.payload
    assert len([each for each in inline if each is not None]) >= count


async def test_clients_that_leave_before_they_have_the_error(inline: list[Any]) -> None:
    """Each call counts, whether its task has begun or not."""
    async with daemon() as here:
        before = here.counts["ended"]
        here.version._run = failing(InferenceError(ErrorCode.MODEL_FAILED, "broken"))
        (connection,) = here.server.connections.open
        connection.data_received(request_frame("Predict", message(1, 2)))
        connection.connection_lost(None)
        for _ in range(10):
            await asyncio.sleep(0)
        assert isinstance(inline[-1], UnfinishedCall)
        after = here.counts
        assert sum(after["ended"].values()) == sum(before.values()) + 1
        assert after["in flight"] == (0, 0, 0, 0)
        assert after["version"][2]
