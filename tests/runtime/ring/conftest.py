"""Both ends of a channel on one event loop, with a table of models behind it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from interlingua.runtime.ring.channel import create
from interlingua.runtime.ring.client import RuntimeClient
from interlingua.runtime.ring.server import RuntimeServer
from interlingua.runtime.target import Target, result_of
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, InferResponse

ARENA_BYTES = 4 << 20


@dataclass
class Model(Target):
    """Answers with ``answer``, ``at_once`` or not, or with the responses of ``answers``."""

    answer: Callable[[InferRequest], Any] | None = None
    answers: Callable[[InferRequest], AsyncGenerator[InferResponse, None]] | None = None
    name: str = "model"
    at_once: bool = False
    received: deque[InferRequest] = field(default_factory=lambda: deque(maxlen=2))

    def infer_now(self, request: InferRequest) -> InferResponse | None:
        return result_of(self.infer(request)) if self.at_once else None

    async def infer(self, request: InferRequest) -> InferResponse:
        self.received.append(request)
        assert self.answer is not None
        found: InferResponse = await self.answer(request)
        return found

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        self.received.append(request)
        assert self.answers is not None
        async for response in self.answers(request):
            yield response


@dataclass
class Link:
    client: RuntimeClient
    server: RuntimeServer
    models: dict[str, Model]
    calls: dict[str, Any]
    notices: list[object]
    client_lost: asyncio.Event
    server_lost: asyncio.Event


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    models: dict[str, Model] = {}
    calls: dict[str, Any] = {}
    notices: list[object] = []
    client_lost, server_lost = asyncio.Event(), asyncio.Event()

    def find(name: str) -> Target:
        if name not in models:
            raise InferenceError(ErrorCode.NOT_FOUND, f"unknown model '{name}'", origin=name)
        return models[name]

    here, there = create(ARENA_BYTES)
    server = RuntimeServer(there, find, calls, server_lost.set)
    client = RuntimeClient(here, notices.append, client_lost.set)
    yield Link(client, server, models, calls, notices, client_lost, server_lost)
    client.close()
    await server.close()
