"""Calls over bRPC to a local model that answers at once, held against the same by the pipeline."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
)
from interlingua.translator.serving.plans.local import UnfinishedRun
from tests.spies import failing
from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.brpc_frames import Received, request_frame
from tests.translator.serving import spied_plans
from tests.translator.serving.local_daemon import WARM, LocalDaemon, infer_call, local_models


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
class Daemon(LocalDaemon):
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
    """What a plan has answered each call that it was offered."""
    return spied_plans.record(monkeypatch, spied_plans.LOCAL, lambda _, outcome: outcome)


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
        assert isinstance(inline[-1], UnfinishedRun)
        after = here.counts
        assert sum(after["ended"].values()) == sum(before.values()) + 1
        assert after["in flight"] == (0, 0, 0, 0)
        assert here.failures
