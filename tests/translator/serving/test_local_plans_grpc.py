"""Calls over gRPC to a local model that answers at once, held against the same by the pipeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.wire import GrpcRequest
from interlingua.schemas import (
    CancelToken,
    Context,
    ErrorCode,
    InferenceError,
)
from interlingua.schemas.trtis import MESSAGES as TRTIS_MESSAGES
from interlingua.translator.serving.plans.local import UnfinishedRun
from tests.spies import failing
from tests.translator.serving import spied_plans
from tests.translator.serving.local_daemon import WARM, LocalDaemon, compared, infer_call, local_models

OIP = "/inference.GRPCInferenceService/ModelInfer"
INLINE = ("oip", "tfserving", "trtis", "grps")
"""The dialects whose calls may follow plans."""


def message(dialect: str, *numbers: float, model: str = "m", name: str = "x") -> tuple[str, bytes]:
    """The method, and a request with ``numbers``."""
    data = np.float32(numbers).tobytes()
    call = infer_call(dialect, "grpc", data, len(numbers), model, name)
    return call.method, bytes(call.whole)


@dataclass
class Daemon(LocalDaemon):
    """With a caller of it."""

    channel: Any

    async def call(self, *numbers: float, body: bytes | None = None, **more: Any) -> Any:
        """The answer, or its status and text."""
        method, made = message(self.dialect, *(numbers or (1.5, -2.5)))
        try:
            return await self.channel.unary_unary(method)(made if body is None else body, **more)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details()


@asynccontextmanager
async def daemon(dialect: str = "oip", **listener: Any) -> AsyncIterator[Daemon]:
    async with local_models("grpc", dialect, **listener) as (assembly, pipeline, listening):
        server = GrpcServer(
            pipeline.handlers["grpc"],
            parse_address(listening.listen),
            load=pipeline.load,
            max_response_bytes=listening.max_response_bytes,
        )
        address = await server.start()
        async with grpc.aio.insecure_channel(f"{address.host}:{address.port}") as channel:
            here = Daemon(server, pipeline, assembly, dialect, channel)
            for number in range(WARM):
                assert isinstance(await here.call(number, 1), bytes)
            yield here
        await server.stop(0)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a plan has answered each call that it was offered."""
    return spied_plans.record(monkeypatch, spied_plans.LOCAL, lambda _, answer: answer)


async def test_answers_have_the_numbers_of_their_calls(
    inline: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that fail."""
    read = TRTIS_MESSAGES["nvidia.inferenceserver.InferResponse"].FromString

    async def scenario(here: Daemon) -> list[Any]:
        found = [await here.call(1, 1)]
        for error in (InferenceError(ErrorCode.MODEL_FAILED, "broken"), ValueError("a bug")):
            with monkeypatch.context() as patch:
                patch.setattr(here.version, "_run", failing(error))
                found.append(await here.call(2, 1))
            found.append(await here.call(3, 1))
        with monkeypatch.context() as patch:
            patch.setattr("interlingua.protocols.trtis.codec_grpc.MAX_MESSAGE_BYTES", 3)
            found += [await here.call(4, 1), await here.call(5, 1)]
        return [*found, await here.call(body=b"\xff\xff"), await here.call(6, 1)]

    answers, _ = await compared(partial(daemon, "trtis"), scenario, monkeypatch)
    statuses = [read(each).request_status for each in answers if isinstance(each, bytes)]
    numbers = [status.request_id for status in statuses]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(answers) - 1
    assert [status.code for status in statuses].count(1) == 4
    assert len([each for each in inline if isinstance(each, UnfinishedRun)]) >= 4


async def test_calls_that_take_the_usual_path(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed ones, and those whose end comes after their message."""

    async def scenario(here: Daemon) -> list[Any]:
        found = [await here.call(compression=grpc.Compression.Gzip) for _ in range(4)]
        method, body = message("oip", 1.5, 2.5)
        for _ in range(4):
            call = here.channel.stream_unary(method)()
            await call.write(body)
            await asyncio.sleep(0.02)
            await call.done_writing()
            found.append(await call)
        return found

    answers, _ = await compared(daemon, scenario, monkeypatch)
    assert all(isinstance(each, bytes) for each in answers)


async def test_calls_while_the_listener_stops(inline: list[Any]) -> None:
    async with daemon("oip") as here:
        calls = [asyncio.ensure_future(here.call(number, 1)) for number in range(200)]
        await asyncio.sleep(0.005)
        assert await here.server.stop(5) == 0
        for number, answer in enumerate(await asyncio.gather(*calls)):
            if isinstance(answer, bytes):
                assert np.float32([number, 1]).tobytes() in answer
            else:
                assert answer[0] is grpc.StatusCode.UNAVAILABLE
        assert here.counts["in flight"] == (0, 0, 0, 0)


async def test_calls_that_are_cancelled(inline: list[Any]) -> None:
    async with daemon("oip") as here:
        method, body = message("oip", 1.5, 2.5)
        here.version._run = failing(ValueError("a bug"))
        for number in range(100):
            call = here.channel.unary_unary(method)(body)
            await asyncio.sleep(0.0001 * (number % 10))
            call.cancel()
        del here.version._run
        here.version._run = here.version.instance.run
        assert isinstance(await here.call(), bytes)
        assert here.counts["in flight"] == (0, 0, 0, 0)


@pytest.mark.parametrize("how", ["deadline", "cancelled"])
async def test_a_call_that_is_over(how: str, inline: list[Any]) -> None:
    async with daemon("oip") as here:
        assert isinstance(await here.call(timeout=20), bytes)
        method, body = message("oip", 1.5, 2.5)
        plan = _plan(here)
        context = Context(time.monotonic() - 1 if how == "deadline" else None, CancelToken())
        if how == "cancelled":
            context.cancel.cancel()
        found: list[Any] = []
        plan.execute(body, None, context, SimpleNamespace(resume=found.append), None)
        (call,) = found
        assert isinstance(call, UnfinishedRun)
        answer = await call.serve(GrpcRequest(method, body, {}, context))
        assert answer.code == (4 if how == "deadline" else 1)
        assert here.counts["in flight"] == (0, 0, 0, 0)
        assert here.failures == 1


def _plan(here: Daemon) -> Any:
    """That of the requests until now."""
    handler: Any = here.pipeline.handlers["grpc"]
    (kind,) = handler.plans._kinds.values()
    (template,) = next(iter(kind.sizes.values()), [kind.decoded])
    return next(iter(template.plans.values()))


@pytest.mark.parametrize("dialect", INLINE)
async def test_a_plan_keeps_no_message(dialect: str) -> None:
    async with daemon(dialect) as here:
        _, body = message(dialect, 1.5, 2.5)
        plan, found = _plan(here), list[Any]()
        (kind,) = here.pipeline.handlers["grpc"].plans._kinds.values()
        by_codec = kind.decoded.plans[plan.target].reader
        waiting = SimpleNamespace(respond=found.append)
        for _ in range(2):
            assert (by_codec.request.message, by_codec.known.message) == (b"", None)
            assert plan.reader is by_codec or plan.reader.like.inputs == ()
            assert plan.execute(body, None, Context(), waiting, None) is not None
            assert (
                kind.decoded.plans[plan.target].execute(b"\xff\xff", None, Context(), waiting, None) is None
            )
        assert len(found) == 2
