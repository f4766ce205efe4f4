"""Requests above a limit get "try again" in their dialect's form; health and accepted requests are answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import grpc
import pytest
import yaml

from benchmarks.bridging.requests import request
from benchmarks.cases import CASES, CONFIG
from benchmarks.hostile.connections import brpc_request
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config import parse
from interlingua.translator.daemon import _listen

TEXT = "the server has 0 requests in flight, as many as its max_inflight_requests allows; try again"
LISTENERS = [*CONFIG["listeners"], {"listen": "127.0.0.1:0", "transport": "brpc"}]


@dataclass
class Serving:
    assembly: Assembly
    addresses: dict[str, str]

    @property
    def refused(self) -> int:
        return sum(load.refused["max_inflight_requests"] for load in self.assembly.loads)


@asynccontextmanager
async def serving(grpc_engine: str = "native") -> AsyncIterator[Serving]:
    listeners = [
        {**each, "engine": grpc_engine} if each["transport"] == "grpc" else each for each in LISTENERS
    ]
    config = parse(yaml.safe_dump({**CONFIG, "listeners": listeners, "admin": {"listen": "127.0.0.1:0"}}))
    assembly = assemble(config, load_local(config))
    listening = await _listen(assembly)
    try:
        yield Serving(assembly, {each.options.transport: str(each.address) for each in listening})
    finally:
        await asyncio.gather(*(each.server.stop(0) for each in listening))
        await assembly.close()


async def exchanged(address: str, sent: bytes) -> bytes:
    """What a server answers to ``sent`` at once."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    try:
        return await reader.read(1 << 16)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("dialect", "status", "header", "value"),
    [
        ("oip", 429, "Retry-After", "1"),
        ("graphpipe", 429, "Retry-After", "1"),
        ("tfserving", 429, "Retry-After", "1"),
        ("grps", 429, "Content-Type", "application/json;charset=utf-8"),
        ("trtis", 400, "NV-Status", "code: UNAVAILABLE msg:"),
    ],
)
async def test_over_http(dialect: str, status: int, header: str, value: str) -> None:
    sent = request(dialect, "http", 64)
    async with serving() as server, aiohttp.ClientSession() as client:
        url = f"http://{server.addresses['http']}"
        for limit, expected in ((0, status), (1, 200)):
            server.assembly.load.max_requests = limit
            async with client.post(f"{url}{sent.path}", data=sent.body, headers=sent.headers) as reply:
                assert reply.status == expected
                if expected != 200:
                    assert reply.headers[header].startswith(value)
                    assert TEXT in reply.headers.get("NV-Status", "") + await reply.text()
            for path in ("/v2/health/ready", "/api/health/ready", "/grps/v1/health/ready"):
                async with client.get(url + path) as health:
                    assert health.status == 200
        assert server.refused == 1
        assert server.assembly.load.requests == 0


async def test_over_grpc() -> None:
    sent = {dialect: request(dialect, "grpc", 64) for dialect in ("oip", "tfserving", "trtis", "grps")}
    async with serving() as server, grpc.aio.insecure_channel(server.addresses["grpc"]) as channel:
        server.assembly.load.max_requests = 0
        for dialect in ("oip", "tfserving"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(sent[dialect].path)(sent[dialect].body)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert refused.value.details() == TEXT
        for dialect in ("trtis", "grps"):
            assert TEXT.encode() in await channel.unary_unary(sent[dialect].path)(sent[dialect].body)
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert await live(b"") == b"\x08\x01"
        assert server.refused == 4


async def test_over_brpc_and_tcp() -> None:
    frame = next(case for case in CASES if case.transport == "tcp").request()[0]
    async with serving() as server:
        server.assembly.load.max_requests = 0
        assert TEXT.encode() in await exchanged(server.addresses["tcp"], frame)
        assert TEXT.encode() in await exchanged(server.addresses["brpc"], brpc_request()[0])
        assert server.refused == 2


async def test_a_listener_has_a_limit_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    sent = request("oip", "http", 64)
    async with serving() as server, aiohttp.ClientSession() as client:
        server.assembly.loads[0].max_requests = 0
        url = f"http://{server.addresses['http']}{sent.path}"
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                async with client.post(url, data=sent.body, headers=sent.headers) as reply:
                    assert reply.status == 429
                    assert "the listener has 0 requests" in await reply.text()
        assert caplog.messages == ["listener overloaded"]
        frame = next(case for case in CASES if case.transport == "tcp").request()[0]
        assert b"max_inflight_requests" not in await exchanged(server.addresses["tcp"], frame)
