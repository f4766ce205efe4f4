"""The cost of a request through the shared memory between a front end and the runtime process.

``python -m benchmarks.ring [--quick]``: CPU microseconds of each process per request to a model that returns
its input. The same call without the second process is subtracted. ``in place``: the tensor was received in
the arena.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

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


ROWS = (
    Row(64, 1, 40_000),
    Row(64, 32, 100_000),
    Row(64 << 10, 32, 20_000),
    Row(4 << 20, 8, 2_000),
    Row(4 << 20, 8, 2_000, in_place=True),
)


class _Identity(Target):
    async def infer(self, request: InferRequest) -> InferResponse:
        return InferResponse("identity", request.inputs, "1")


async def _serve(ends: Ends) -> float:
    """Answer until the other process ends. Returns the CPU seconds."""
    model, over = _Identity(), asyncio.Event()
    server = RuntimeServer(ends, lambda _: model, {}, over.set)
    began = time.process_time()
    await over.wait()
    spent = time.process_time() - began
    await server.close()
    return spent


async def _load(ends: Ends, row: Row) -> tuple[float, float]:
    """Send the requests of ``row``. Returns the CPU seconds, and those of calls without the process."""
    client, model = RuntimeClient(ends), _Identity()
    own = np.zeros(row.nbytes, np.uint8).data

    def request() -> InferRequest:
        data = client.allocate(row.nbytes) if row.in_place else own
        assert data is not None
        return InferRequest("identity", (Tensor("x", Datatype.UINT8, (row.nbytes,), data),))

    async def remote() -> None:
        for _ in range(row.requests // row.clients):
            await client.infer(request(), "identity")

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
        os.write(write, b"%f" % loop.run(_serve(there)))
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
        chosen = Row(row.nbytes, row.clients, row.requests // 10, row.in_place) if quick else row
        front_end, runtime = measure(chosen)
        size = f"{row.nbytes:,}" + (", in place" if row.in_place else "")
        show(f"| {size} | {row.clients} | {front_end:.1f} | {runtime:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
