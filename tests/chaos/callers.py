"""Clients of every dialect and transport that send one request after another and check every answer."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.schemas import (
    Context,
    Datatype,
    InferenceError,
    InferRequest,
    Operation,
    Signature,
    Tensor,
    TensorSpec,
)

PAIRS = [(name, transport) for name, dialect in DIALECTS.items() for transport in dialect.bindings]
INPUT = TensorSpec("INPUT0", Datatype.FP32, (-1,))
OUTPUTS = {"local": "INPUT0", "python": "OUTPUT0", "polled": "OUTPUT0", "remote": "INPUT0"}
"""The targets of the daemon, with the output of each, which is equal to its input."""

DEADLINE_SECS = 30.0
PAUSE_SECS = 0.1
NEW = "new connections"
"""Instead of a target: calls of ``local`` that open a connection each."""


@dataclass(frozen=True)
class Seen:
    """The answer to one request: ``outcome`` is ``ok``, the code of an error, ``lost`` (no answer: the connection broke,
    or the deadline passed) or ``wrong`` (other numbers)."""

    at: float
    took: float
    outcome: str


@dataclass
class Caller:
    """Calls ``target`` at ``address``. ``elements`` is the size of the tensor."""

    dialect: str
    transport: str
    target: str
    model: str
    address: str
    elements: int = 16
    pause_secs: float = PAUSE_SECS
    seen: list[Seen] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Call until cancelled."""
        new = self.target == NEW
        client = None if new else self._client()
        try:
            for number in itertools.count():
                began = time.monotonic()
                used = client or self._client()
                try:
                    outcome = await self._call(used, number)
                finally:
                    if new:
                        await used.close()
                self.seen.append(Seen(began, time.monotonic() - began, outcome))
                await asyncio.sleep(self.pause_secs)
        finally:
            if client is not None:
                await client.close()

    def _client(self) -> Any:
        return CLIENTS[self.transport, "native"](parse_url(self.address, self.transport))

    async def _call(self, client: Any, number: int) -> str:
        call = DIALECTS[self.dialect].bindings[self.transport].calls[Operation.INFER]
        numbers = (np.arange(self.elements) % 64 + number % 1000).astype(np.float32)
        tensor = Tensor("INPUT0", Datatype.FP32, numbers.shape, memoryview(numbers.tobytes()))
        name = "" if self.transport == "tcp" else self.model
        output = TensorSpec(OUTPUTS[self.target if self.target in OUTPUTS else "local"], Datatype.FP32, (-1,))
        request, form = call.encode(InferRequest(name, (tensor,)), Signature((INPUT,), (output,)))
        if self.dialect == "graphpipe" and self.transport == "http":
            request.path = f"/graphpipe/{self.model}"
        request = replace(request, context=Context(deadline=time.monotonic() + DEADLINE_SECS))
        try:
            async with asyncio.timeout(DEADLINE_SECS + 1):
                reply = await client.send(request)
        except (InferenceError, TimeoutError) as error:
            self.faults.append(f"lost: {error}")
            return "lost"
        try:
            response = call.decode(form, reply)
        except InferenceError as error:
            self.faults.append(f"{error.code.name}: {error.message}")
            return error.code.name
        (answer,) = response.outputs
        return "ok" if bytes(answer.data) == numbers.tobytes() else "wrong"
