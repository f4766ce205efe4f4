"""Large tensors between clients and the runtime process: every dialect, over the memory that both read.

The front end, the runtime process and the clients are in this process, so their memory can be counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_address, parse_url
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.transport.h2.frames import PREFACE
from interlingua.runtime.front_end.catalog import FrontEndCatalog
from interlingua.runtime.front_end.hub import Hub
from interlingua.runtime.offload.pool import OffloadPool
from interlingua.runtime.ring.arena import Arena
from interlingua.runtime.ring.channel import create
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    InferRequest,
    InferResponse,
    Operation,
    Signature,
    Tensor,
)
from interlingua.translator.assembly import (
    Assembly,
    Models,
    assemble,
    assemble_around,
    build_models,
    load_local,
)
from interlingua.translator.config import load
from interlingua.translator.config.options import Config
from interlingua.translator.fidelity.parties import callers
from interlingua.translator.listening import server_of
from tests.protocols.transport.h2.peer import DATA, frame, head, message, settings
from tests.runtime.onnx_models import node, value, write
from tests.waiting import until

ARENA_BYTES = 32 << 20
SHAPE = (-1, -1)
ENDS = callers()
MODELS = ("same", "neg")


def configuration(folder: Path) -> Config:
    """A listener for each dialect, transport and model; ``same`` returns its input, ``neg`` makes its output."""
    write(
        folder / "neg.onnx",
        [node("Neg", ["x"], ["y"])],
        [value("x", Datatype.FP32, ["b", "n"])],
        [value("y", Datatype.FP32, ["b", "n"])],
    )
    specs = {
        f"{kind}s": [{"name": name, "datatype": "FP32", "shape": list(SHAPE)}]
        for kind, name in (("input", "x"), ("output", "y"))
    }
    listeners = [
        {
            "listen": "127.0.0.1:0",
            "transport": end.transport,
            "dialects": [end.dialect],
            "default_model": model,
        }
        for model in MODELS
        for end in ENDS.values()
    ]
    models = {
        "same": {"backend": "identity", "signature": specs},
        "neg": {"backend": "onnxruntime", "path": str(folder / "neg.onnx")},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"listeners": listeners, "models": models}))
    return load(str(path))


@dataclass
class Site:
    """Where a server listens, by caller and model, and the signatures of its models."""

    addresses: dict[tuple[str, str], str]
    signatures: dict[str, Signature]
    running: AsyncExitStack
    clients: dict[tuple[str, str], Upstream] = field(default_factory=dict)

    async def infer(self, caller: str, model: str, tensor: Tensor) -> InferResponse:
        end = ENDS[caller]
        client = self.clients.get((caller, model))
        if client is None:
            made = client_of(end.transport)(parse_url(self.addresses[caller, model], end.transport))
            calls = DIALECTS[end.dialect].bindings[end.transport].calls
            client = self.clients[caller, model] = Upstream("there", calls, [made], 30.0)
            self.running.push_async_callback(client.close)
        named = model if end.capability.many_models else ""
        request = InferRequest(named, (tensor,))
        found: InferResponse = await client.call(Operation.INFER, request, self.signatures[model])
        return found


@dataclass
class Front(Site):
    """A front end before the runtime process, and the arenas between them."""

    arenas: tuple[Arena, ...] = ()

    async def is_free(self) -> bool:
        """Whether all memory comes back."""
        for arena in self.arenas:
            await until(lambda arena=arena: arena.allocate(ARENA_BYTES) is not None)
        return True


async def listening(assembly: Assembly, running: AsyncExitStack) -> dict[tuple[str, str], str]:
    addresses: dict[tuple[str, str], str] = {}
    places = [(name, model) for model in MODELS for name in ENDS]
    for options, place in zip(assembly.config.listeners, places, strict=True):
        server = server_of(assembly, options, parse_address(options.listen))
        addresses[place] = str(await server.start())
        running.push_async_callback(server.stop, 0)
    return addresses


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[Front]:
    runtime = build_models(config, load_local(config))
    hub, catalog = Hub(runtime.catalog), FrontEndCatalog({})
    here, there = create(ARENA_BYTES)
    hub.connect(there)
    await catalog.link.connect(here)
    (server,) = hub._front_ends
    assembly = assemble_around(config, Models(catalog, {}))
    assembly.load.allocate = catalog.allocate
    async with AsyncExitStack() as running:
        running.push_async_callback(runtime.close)
        running.push_async_callback(hub.close)
        running.push_async_callback(assembly.close)
        addresses = await listening(assembly, running)
        signatures = {model: await catalog.find(model).signature() for model in MODELS}
        yield Front(
            addresses, signatures, running, arenas=(catalog.link.client._channel.arena, server._channel.arena)
        )


def tensor(count: int, seed: int = 0) -> Tensor:
    values = np.random.default_rng(seed).standard_normal((1, count), np.float32)
    return Tensor.from_numpy("x", values)


SIZES = [513, 16_250, 16_384, 100_003]
"""Floats: about as many as a record holds, and as the arena receives."""


async def test_every_dialect_answers_as_one_process(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    async with OffloadPool(), AsyncExitStack() as running, serving(config) as front:
        one = assemble(config, load_local(config))
        running.push_async_callback(one.close)
        alone = Site(await listening(one, running), front.signatures, running)
        for seed, size in enumerate(SIZES):
            sent = tensor(size, seed)
            for caller in ENDS:
                for model in MODELS:
                    answer = await front.infer(caller, model, sent)
                    assert answer == await alone.infer(caller, model, sent), (caller, model, size)
                    expected = sent.numpy() if model == "same" else -sent.numpy()
                    assert np.array_equal(answer.outputs[0].numpy(), expected)
        del answer
        assert await front.is_free()


def messages(front: Front) -> dict[tuple[str, str], bytes]:
    """A large request as it goes over the wire, by caller and model."""
    found = {}
    for caller in ("oip/http", "oip/grpc", "graphpipe/tcp"):
        end = ENDS[caller]
        for model in MODELS:
            named = model if end.capability.many_models else ""
            calls = DIALECTS[end.dialect].bindings[end.transport].calls
            request = InferRequest(named, (tensor(60_000),))
            call: Any
            call, _ = calls[Operation.INFER].encode(request, front.signatures[model])
            if caller == "oip/http":
                body = b"".join(call.parts)
                fields = {**dict(call.headers), "host": "a", "content-length": str(len(body))}
                lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                found[caller, model] = f"POST {call.path} HTTP/1.1\r\n{lines}\r\n".encode() + body
            elif caller == "oip/grpc":
                whole = message(bytes(call.whole))
                pieces = [whole[at : at + 16_000] for at in range(0, len(whole), 16_000)]
                data = (frame(DATA, piece is pieces[-1], 1, piece) for piece in pieces)
                begin = PREFACE + settings() + head(1, "/inference.GRPCInferenceService/ModelInfer")
                found[caller, model] = begin + b"".join(data)
            else:
                found[caller, model] = b"".join(call.parts)
    return found


async def test_disconnects_leave_no_memory_in_use(tmp_path: Path) -> None:
    chosen = random.Random(7)
    async with OffloadPool(), serving(configuration(tmp_path)) as front:
        sent = list(messages(front).items())

        async def visit() -> None:
            """Send a request, or a part of it; read the answer, a part, or nothing; and cut."""
            place, whole = chosen.choice(sent)
            address = parse_address(front.addresses[place])
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(whole[: chosen.choice([len(whole), chosen.randrange(len(whole))])])
            await asyncio.sleep(chosen.choice([0, 0.001, 0.003, 0.01]))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await reader.read(chosen.choice([1, 100_000, 1 << 20]))
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        gc.collect()
        gc.disable()
        try:
            for _ in range(25):
                await asyncio.gather(*(visit() for _ in range(8)))
            assert await front.is_free()
        finally:
            gc.enable()
