"""What the context of a request says when the request has ended: the times of its stages, and who answered it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import yaml

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.wire import HttpRequest
from interlingua.schemas import Context
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse

TENSORS = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
IDENTITY = {"backend": "identity", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
HEADER = orjson.dumps(
    {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}],
        "parameters": {"binary_data_output": True},
    }
)
LISTENER = {"listen": "127.0.0.1:0", "transport": "http"}


@asynccontextmanager
async def assembled(**document: Any) -> AsyncIterator[Assembly]:
    config = parse(yaml.safe_dump({"listeners": [LISTENER], **document}))
    assembly = assemble(config, load_local(config))
    try:
        yield assembly
    finally:
        await assembly.close()


async def answered(assembly: Assembly, model: str = "m") -> Context:
    """The context of an inference over OIP and HTTP."""
    handler = assembly.pipeline(assembly.config.listeners[0]).handlers["http"]
    headers = {"inference-header-content-length": str(len(HEADER))}
    request = HttpRequest("POST", f"/v2/models/{model}/infer", "", headers, body=HEADER + bytes(4))
    before = time.monotonic_ns()
    assert handler.head(request) is None
    assert (await handler.serve(request)).status == 200
    context = request.context
    assert before <= context.began
    assert context.timings.keys() == context.ended.keys()
    last = context.began
    for stage, ended in context.ended.items():
        # stages follow each other, and lie within the request
        assert last <= ended - context.timings[stage] <= ended <= time.monotonic_ns(), stage
        last = ended
    return context


async def test_a_local_model() -> None:
    async with assembled(models={"m": IDENTITY}) as assembly:
        context = await answered(assembly)
    assert list(context.timings) == ["decode", "queue", "exec", "encode"]
    assert (context.target, context.version, context.upstream) == ("m", "1", "")


@pytest.mark.parametrize("passed", [True, False])
async def test_an_upstream(passed: bool) -> None:
    async with assembled(models={"m": IDENTITY}) as there:
        server = HttpServer(
            there.pipeline(there.config.listeners[0]).handlers["http"], parse_address("127.0.0.1:0")
        )
        address = await server.start()
        try:
            upstream = {"dialect": "oip", "transport": "http", "urls": [str(address)], "flavor": "triton"}
            model = {"upstream": "there", "remote_model": "m"}
            # a condition on a parameter needs the request decoded
            match = {} if passed else {"match": {"parameters": {"absent": 1}}}
            async with assembled(
                upstreams={"there": upstream}, models={"n": model}, routes=[{**match, "to": "n"}]
            ) as assembly:
                context = await answered(assembly, "n")
        finally:
            await asyncio.wait_for(server.stop(0), 30)
    assert list(context.timings) == (["upstream"] if passed else ["decode", "upstream", "encode"])
    assert (context.target, context.version, context.upstream) == ("n", "1", str(address))
