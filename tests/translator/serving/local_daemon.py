"""Local models that answer at once, in this process: plans against the pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import yaml

from interlingua.protocols.registry import DIALECTS
from interlingua.schemas import Datatype, InferRequest, Operation, Signature, Tensor, TensorSpec
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.config.options import ListenerOptions
from interlingua.translator.serving.pipeline import Pipeline
from tests.translator.serving import spied_plans

_TENSORS = [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
_SIGNATURE = Signature(*[(TensorSpec("x", Datatype.FP32, (-1, -1)),)] * 2)
WARM = 6
"""So many requests of one connection repeat before those of a test."""


def infer_call(
    dialect: str, transport: str, data: bytes, count: int, model: str = "m", name: str = "x"
) -> Any:
    """What a client sends with ``data`` as the tensor ``name`` of ``count`` numbers."""
    tensor = Tensor(name, Datatype.FP32, (1, count), memoryview(data))
    encode = DIALECTS[dialect].bindings[transport].calls[Operation.INFER].encode
    return encode(InferRequest(model, (tensor,)), _SIGNATURE)[0]


@dataclass
class LocalDaemon:
    """A daemon with the local models ``m`` and ``n``, and its only server."""

    server: Any
    pipeline: Pipeline
    assembly: Assembly
    dialect: str

    @property
    def model(self) -> Any:
        return self.assembly.service.router.models["m"]

    @property
    def version(self) -> Any:
        return self.model.version("")

    @property
    def counts(self) -> dict[str, Any]:
        """Everything that is counted, but the times."""
        metrics, load = self.pipeline.request_metrics[self.dialect], self.pipeline.load
        return {
            "ended": dict(metrics.ended),
            "in flight": (metrics.in_flight, load.requests, load.total.requests, self.server.at_work),
            "bytes": (metrics.received_bytes, metrics.sent_bytes),
            "flows": {key: (sum(flow.counts), flow.failed) for key, flow in metrics.flows.items()},
            "stages": {key: sum(stage.counts) for key, stage in metrics.stages.items()},
            "versions": {
                version: (each.inference_count, each.refused, dict(each.failures), sum(each.latencies.counts))
                for version, each in self.model.statistics.items()
            },
            "requests": next(self.assembly.service.numbers),
            "trend": len(self.assembly.service.trends.counts().latencies_ns),
            "failures": self.assembly.service.access.recorded,
        }

    @property
    def failures(self) -> int:
        """How many requests to ``m`` have failed."""
        return sum(self.version.statistics.failures.values())


D = TypeVar("D", bound=LocalDaemon)


@asynccontextmanager
async def local_models(
    transport: str, dialect: str, **listener: Any
) -> AsyncIterator[tuple[Assembly, Pipeline, ListenerOptions]]:
    """The models behind a listener, and what its server is made of."""
    model = {"backend": "identity", "signature": {"inputs": _TENSORS, "outputs": _TENSORS}}
    listen = {"listen": "127.0.0.1:0", "transport": transport, "dialects": [dialect]}
    config = {
        "server": {"access_log": "errors"},
        "admin": {"listen": "127.0.0.1:0"},
        "listeners": [listen | listener],
        "models": {"m": model, "n": model},
    }
    options = parse(yaml.safe_dump(config))
    assembly = assemble(options, load_local(options))
    (listening,) = options.listeners
    try:
        yield assembly, assembly.pipeline(listening), listening
    finally:
        await assembly.close()


async def compared(
    daemon: Callable[[], AbstractAsyncContextManager[D]],
    scenario: Callable[[D], Awaitable[Any]],
    patch: pytest.MonkeyPatch,
) -> tuple[Any, dict[str, Any]]:
    """What ``scenario`` returns, and the counts after it, which are those of the pipeline."""
    found = []
    for usual in (False, True):
        if usual:
            spied_plans.off(patch)
        async with daemon() as here:
            found.append((await scenario(here), here.counts))
    assert found[0] == found[1]
    return found[0]
