"""The cost of a request through the shared memory between a front end and the runtime process.

``python -m benchmarks.ring [--quick]``: CPU microseconds of each process per request to a model that returns
its input. The same call without the second process is subtracted. ``in place``: the tensor was received in
the arena. ``made``: the model returns a tensor of its own instead, as most models do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from interlingua.protocols.transport import loop
from interlingua.runtime.ring.channel import Ends, create
from interlingua.runtime.ring.client import RuntimeClient
from interlingua.runtime.ring.server import RuntimeServer
from interlingua.runtime.target import Target
from interlingua.schemas import InferRequest, InferResponse, Tensor
from interlingua.schemas.datatypes import Datatype

_ARENA_BYTES = 256 << 20


@dataclass(frozen=True)
class Row:
    """``nbytes`` of one tensor, ``clients`` requests in flight."""

    nbytes: int
    clients: int
    requests: int
    in_place: bool = False
    made: bool = False

    @property
    def name(self) -> str:
        return f"{self.nbytes:,}{', in place' * self.in_place}{', made' * self.made}"


ROWS = (
    Row(64, 1, 40_000),
    Row(64, 32, 100_000),
    Row(64 << 10, 32, 20_000),
    Row(4 << 20, 8, 2_000),
    Row(4 << 20, 8, 2_000, in_place=True),
    Row(4 << 20, 8, 2_000, in_place=True, made=True),
)


class EchoModel(Target):
    """Returns its input, or ``made``."""

    def __init__(self, made: Tensor | None) -> None:
        self._made = made

    def infer_now(self, request: InferRequest) -> InferResponse:
        return InferResponse("model", request.inputs if self._made is None else (self._made,), "1")

    async def infer(self, request: InferRequest) -> InferResponse:
        return self.infer_now(request)


def _model(row: Row) -> EchoModel:
    own = np.zeros(row.nbytes, np.uint8).data
    return EchoModel(Tensor("y", Datatype.UINT8, (row.nbytes,), own) if row.made else None)


async def _serve(ends: Ends, row: Row) -> float:
    """Answer until the other process ends. Returns the CPU seconds."""
    model, over = _model(row), asyncio.Event()
    server = RuntimeServer(ends, lambda _: model, {}, over.set)
    began = time.process_time()
    await over.wait()
    spent = time.process_time() - began
    await server.close()
    return spent


async def _load(ends: Ends, row: Row) -> tuple[float, float]:
    """Send the requests of ``row``. Returns the CPU seconds, and those of calls without the process."""
    client, model = RuntimeClient(ends), _model(row)
    own = np.zeros(row.nbytes, np.uint8).data

    def request() -> InferRequest:
        data = client.allocate(row.nbytes) if row.in_place else own
        assert data is not None
        return InferRequest("model", (Tensor("x", Datatype.UINT8, (row.nbytes,), data),))

    async def remote() -> None:
        for _ in range(row.requests // row.clients):
            await client.infer(request(), "model")

    async def local() -> None:
        for _ in range(row.requests // row.clients):
            await model.infer(request())

    spent = []
    for work in (remote, local):
        began = time.process_time()
        await asyncio.gather(*(work() for _ in range(row.clients)))
        spent.append(time.process_time() - began)
    client.close()
    return spent[0], spent[1]


def measure(row: Row) -> tuple[float, float]:
    """CPU microseconds per request that the front end spends more, and those of the runtime process."""
    here, there = create(_ARENA_BYTES)
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        for descriptor in here:
            os.close(descriptor)
        os.write(write, b"%f" % loop.run(_serve(there, row)))
        os._exit(0)
    for descriptor in there:
        os.close(descriptor)
    spent, alone = loop.run(_load(here, row))
    os.waitpid(process, 0)
    runtime = float(os.read(read, 64))
    os.close(read)
    os.close(write)
    return (spent - alone) / row.requests * 1e6, runtime / row.requests * 1e6


def main(arguments: list[str] | None = None, show: Callable[[str], object] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ring")
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    quick = parser.parse_args(arguments).quick
    show("| bytes | in flight | front end, µs | runtime, µs |\n|---|---|---|---|")
    for row in ROWS:
        front_end, runtime = measure(replace(row, requests=row.requests // 10) if quick else row)
        show(f"| {row.name} | {row.clients} | {front_end:.1f} | {runtime:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
