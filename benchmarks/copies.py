"""How often a request's tensors are copied in the host's memory between the socket and the engine.

Counted, not read off the code: the request runs through the listener's own pipeline in this process while
tracemalloc watches, and what is held at the highest point, in sizes of the input, is the copies that were
made of it. What an engine keeps for itself, and what crosses to a device, is not seen here.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import Any, TypeVar

import yaml

from interlingua.protocols.transport.memory import end_aligned, unfilled
from interlingua.protocols.wire import Buffer, GrpcRequest, HttpRequest
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config import load

K = TypeVar("K")


def copies_of(config: dict[str, Any], folder: Path, messages: dict[K, Any]) -> dict[K, float]:
    """For each of ``messages`` (a request of HTTP or gRPC and the size of its input, by name), how many
    copies of the input were held at once, beside the message itself. ``config`` has a listener of either
    kind, HTTP first. An input of a few KiB tells nothing: what else a request needs is as large."""
    path = folder / "copies.yaml"
    path.write_text(yaml.safe_dump(config))
    return asyncio.run(_copies(path, messages))


async def _copies(path: Path, messages: dict[K, Any]) -> dict[K, float]:
    config = load(str(path))
    assembly = assemble(config, load_local(config))
    handlers = [assembly.pipeline(listener) for listener in config.listeners]
    try:
        return {
            name: await _held(handlers, message, nbytes) / nbytes
            for name, (message, nbytes) in messages.items()
        }
    finally:
        await assembly.close()


async def _held(handlers: list[Any], message: Any, nbytes: int) -> int:
    """The most bytes that were held beside what was there before. The first run is for what stays."""
    most = 0
    body = _arrived(bytes(message.whole)) if isinstance(message, GrpcRequest) else b"".join(message.parts)
    for _ in range(2):
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        answer = await _serve(handlers, message, body)
        most = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        del answer
    return most


def _arrived(message: bytes) -> Buffer:
    """A message of gRPC where our own engine receives it."""
    received = end_aligned(unfilled, len(message))
    received[:] = message
    return received.toreadonly()


async def _serve(handlers: list[Any], message: Any, body: Buffer) -> object:
    if isinstance(message, GrpcRequest):
        answer = await handlers[1].handlers["grpc"].serve(GrpcRequest(message.method, body))
        if answer.code:
            raise RuntimeError(f"{message.method} was answered {answer.code}: {answer.details}")
        return answer
    headers = {name.lower(): value for name, value in message.headers.items()}  # as a server gets them
    request = HttpRequest(message.method, message.path, message.query, headers, body)
    refused = handlers[0].handlers["http"].head(request)
    answer = refused or await handlers[0].handlers["http"].serve(request)
    if answer.status != 200:
        raise RuntimeError(f"{message.path} was answered {answer.status}: {answer.parts!r}"[:500])
    return answer
