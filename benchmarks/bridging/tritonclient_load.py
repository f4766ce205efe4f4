"""Clients of ``tritonclient.grpc.aio``, as ``benchmarks.clients`` in its orders and its results."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.grpc import service_pb2

from interlingua.protocols.transport import loop


def _inputs(request: Any) -> list[Any]:
    """The tensors of a recorded request, all of FP32, as a user of tritonclient builds them."""
    found = []
    for tensor, data in zip(request.inputs, request.raw_input_contents, strict=True):
        values = np.frombuffer(data, np.float32).reshape(tuple(tensor.shape))
        found.append(triton.InferInput(tensor.name, list(tensor.shape), "FP32"))
        found[-1].set_data_from_numpy(values)
    return found


async def drive(order: dict[str, Any], request: Any) -> dict[str, float]:
    """Carry out ``order``, all clients on one channel."""
    took: list[float] = []
    async with triton.InferenceServerClient(order["address"]) as client:
        await client.infer(request.model_name, _inputs(request))
        _tell({"head": "", "body": ""})
        sys.stdin.readline()
        began = time.monotonic()

        async def ask() -> None:
            while (now := time.monotonic()) < began + order["secs"]:
                answer = await client.infer(request.model_name, _inputs(request))
                answer.as_numpy("probabilities")
                took.append(time.monotonic() - now)

        await asyncio.gather(*(ask() for _ in range(order["clients"])))
        secs = time.monotonic() - began
    took.sort()
    return {
        "count": len(took),
        "secs": secs,
        "p50_ms": took[len(took) // 2] * 1e3,
        "p99_ms": took[len(took) * 99 // 100] * 1e3,
    }


def _read(file: str) -> Any:
    return service_pb2.ModelInferRequest.FromString(Path(file).read_bytes())


def _tell(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()


async def main() -> None:
    """Carry out every order on standard input."""
    while line := sys.stdin.readline():  # nothing else runs between two orders
        order = json.loads(line)
        _tell(await drive(order, _read(order["request"])))


if __name__ == "__main__":
    loop.run(main())
