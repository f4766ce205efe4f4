"""A daemon between callers and a server that keep the rules of flow control, and their messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from interlingua.schemas.oip import MESSAGES
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config import parse
from interlingua.translator.daemon import _listen
from tests.protocols.transport.h2.flowing import (
    INITIAL_WINDOW,
    MAX_FRAME,
    Flowing,
    Side,
    Upstream,
    calling,
    serving,
)
from tests.protocols.transport.h2.peer import (
    GOAWAY,
    frame,
    message,
    window_update,
)

METHOD = "/inference.GRPCInferenceService/ModelInfer"
TENSORS = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
WARM = 8
SIZE = 1_000_000
PREFIX = 5
WIDE = (INITIAL_WINDOW, 1 << 22), (MAX_FRAME, 1 << 20)


def contents(rng: random.Random, size: int = SIZE) -> bytes:
    return rng.randbytes(size)


def request(data: bytes, model: str = "m") -> bytes:
    made: Any = MESSAGES["inference.ModelInferRequest"](model_name=model)
    made.inputs.add(name="x", datatype="FP32", shape=[len(data) // 4])
    made.raw_input_contents.append(data)
    return bytes(made.SerializeToString())


def reply(data: bytes, model: str = "m", name: str = "x") -> bytes:
    made: Any = MESSAGES["inference.ModelInferResponse"](model_name=model, model_version="1")
    made.outputs.add(name=name, datatype="FP32", shape=[len(data) // 4])
    made.raw_output_contents.append(data)
    return bytes(made.SerializeToString())


def sent_in(body: bytes) -> bytes:
    """The contents of the tensor in the body of a request, which must be one message."""
    assert body[0] == 0
    assert int.from_bytes(body[1:5], "big") == len(body) - PREFIX
    made: Any = MESSAGES["inference.ModelInferRequest"].FromString(body[PREFIX:])
    return b"".join(made.raw_input_contents)


async def echo(there: Flowing, number: int) -> None:
    """Answer with the contents of the request."""
    body = await there.request(number)
    if there.side(number).reset is None:
        await there.answer(number, reply(sent_in(body)))


@dataclass
class Daemon:
    assembly: Assembly
    bound: Any
    there: Upstream

    @property
    def load(self) -> Any:
        return self.assembly.loads[0]

    @property
    def server(self) -> Any:
        return self.bound.server

    @property
    def counts(self) -> dict[str, Any]:
        """Everything that is counted, but the times."""
        metrics, load = self.assembly.request_metrics[0]["oip"], self.load
        target = self.assembly.service.router.models["m"]
        assert target.upstream is not None
        (member,) = target.upstream.pool.members
        return {
            "ended": dict(metrics.ended),
            "in flight": (metrics.in_flight, load.requests, load.total.requests, self.server.at_work),
            "held": (load.body_bytes, load.total.body_bytes),
            "bytes": (metrics.received_bytes, metrics.sent_bytes),
            "versions": {
                version: (each.inference_count, dict(each.failures), sum(each.latencies.counts))
                for version, each in target.statistics.items()
            },
            "server": (member.requests, member.running, member.failures, member.open),
        }

    def idle(self) -> bool:
        counts = self.counts
        held = *counts["in flight"], *counts["held"], counts["server"][1]
        return not any(held)


@asynccontextmanager
async def daemon(
    there: Upstream,
    *,
    timeout: float = 20,
    listener: dict[str, Any] | None = None,
    upstream: dict[str, Any] | None = None,
    tls: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Daemon]:
    async with serving(there, **(tls or {})):
        config = {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "grpc", "dialects": ["oip"], **(listener or {})}
            ],
            "upstreams": {
                "there": {
                    "dialect": "oip",
                    "transport": "grpc",
                    "flavor": "triton",
                    "urls": [there.address],
                    "request_timeout_secs": timeout,
                    "probe_interval_secs": 0.0,
                    **(upstream or {}),
                }
            },
            "models": {
                "m": {
                    "upstream": "there",
                    "remote_model": "m",
                    "signature": {"inputs": TENSORS, "outputs": TENSORS},
                }
            },
            **more,
        }
        options = parse(yaml.safe_dump(config))
        assembly = assemble(options, load_local(options))
        (bound,) = await _listen(assembly)
        try:
            yield Daemon(assembly, bound, there)
        finally:
            await bound.server.stop(0)
            await assembly.close()


@asynccontextmanager
async def caller(
    here: Daemon, *, seed: int = 1, cut: bool = False, hello: Any = WIDE, **tls: Any
) -> AsyncIterator[Flowing]:
    address = here.bound.address
    flowing, running = await calling(
        address.host, address.port, random.Random(seed), cut=cut, hello=hello, **tls
    )
    flowing.write(window_update(0, 1 << 30))
    try:
        yield flowing
    finally:
        flowing.writer.transport.abort()
        await running


async def ask(here: Flowing, data: bytes, *more: tuple[str, str], secs: float = 10, **how: Any) -> Side:
    """The answer to a request with ``data``."""
    number = here.open(METHOD, *more)
    side = here.side(number)
    await here.data(number, message(request(data)), ended=True, secs=secs, **how)
    await here.ended(number, secs=secs)
    return side


def right(side: Side, data: bytes) -> bool:
    return side.status == 0 and bytes(side.body) == message(reply(data))


async def warm(here: Flowing, size: int = SIZE) -> None:
    for _ in range(WARM):
        data = contents(here.rng, size)
        assert right(await ask(here, data), data)


async def half(there: Flowing, number: int, data: bytes) -> bytes:
    """Begin an answer: the rest of it."""
    whole = message(reply(data))
    await there.begin_answer(number)
    await there.data(number, whole[: len(whole) // 2])
    await asyncio.sleep(0.02)
    return whole[len(whole) // 2 :]


def goaway(last: int, code: int = 0) -> bytes:
    """A GOAWAY frame."""
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big"))
