"""Calls over bRPC to a local model that answers at once, held against the same on their usual path."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
)
from interlingua.translator.serving.inline_path import HandlerInlinePath, UnfinishedCall
from tests.spies import failing, results_of
from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.brpc_frames import Received, request_frame
from tests.translator.serving.inline_daemon import WARM, InlineDaemon, compared, infer_call, local_models


def message(*numbers: float, model: str = "m") -> bytes:
    """A request with ``numbers``."""
    return bytes(infer_call("grps", "brpc", np.float32(numbers).tobytes(), len(numbers), model).message)


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
class Daemon(InlineDaemon):
    """With a caller of it."""

    client: BrpcStandinClient

    async def call(self, *numbers: float, body: bytes | None = None, **options: Any) -> Seen:
        sent = message(*(numbers or (1.5, -2.5))) if body is None else body
        return seen(await self.client.call("Predict", sent, **options))


@asynccontextmanager
async def daemon(**listener: Any) -> AsyncIterator[Daemon]:
    async with local_models("brpc", "grps", **listener) as (assembly, pipeline, listening):
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
            here = Daemon(server, pipeline, assembly, "grps", client)
            for number in range(WARM):
                assert (await here.call(number, 1)).code == 0
            yield here
        await server.stop(0)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the inline path has answered each call that it was offered."""
    return results_of(monkeypatch, HandlerInlinePath, "answer")


async def test_calls_that_repeat(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: Daemon) -> list[Seen]:
        return [await here.call(number / 2, -number) for number in range(10)]

    answers, _ = await compared(daemon, scenario, monkeypatch)
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
            found += [await here.call(body=body), await here.call(3.5, 4)]
        found.append(await here.call(attachment=b"attached"))
        found.append(await here.call(attachment_size=1 << 20))
        found.append(await here.call(user_fields={"x-request-id": "an id"}))
        found.append(await here.call(timeout_ms=20_000))
        found.append(seen(await here.client.call("CheckLiveness")))
        found += [await here.call(number, 1) for number in range(5)]
        return found

    await compared(daemon, scenario, monkeypatch)
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
            failed = await here.call()
        return [failed, await here.call()]

    (failed, answered), _ = await compared(daemon, scenario, monkeypatch)
    assert np.float32([1.5, -2.5]).tobytes() not in failed.payload
    assert np.float32([1.5, -2.5]).tobytes() in answered.payload
    assert any(isinstance(each, UnfinishedCall) for each in inline)


async def test_an_answer_above_the_limit(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: Daemon) -> list[Seen]:
        return [await here.call(*range(100)), await here.call()]

    daemons = partial(daemon, max_response_bytes=100)
    answers, _ = await compared(daemons, scenario, monkeypatch)
    assert [bool(each.code) for each in answers] == [True, False]
    assert any(isinstance(each, UnfinishedCall) for each in inline)


async def test_many_calls_at_once(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    count = 500

    async def scenario(here: Daemon) -> list[Seen]:
        frames = [request_frame("Predict", message(number, -number), number) for number in range(count)]
        await here.client.send(b"".join(frames))
        return sorted([seen(await here.client.receive()) for _ in frames], key=lambda each: each.number)

    answers, _ = await compared(daemon, scenario, monkeypatch)
    for number, answer in enumerate(answers):
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
        assert here.failures
