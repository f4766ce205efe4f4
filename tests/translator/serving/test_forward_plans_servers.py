"""Repeated requests to an upstream of several servers: each gets the requests that it gets from the pipeline."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import yaml

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.runtime.upstream.pool import Member, Pool
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config.loader import parse
from tests.translator.serving import spied_plans
from tests.translator.serving.test_forward_plans import (
    LISTENER,
    TENSORS,
    USUAL,
    Standin,
    doing,
    reply,
    request,
)

CLOSING = doing(lambda data: reply(data, more="Connection: close\r\n"), goes_on=False)


@asynccontextmanager
async def pool_of(*there: Standin, **more: Any) -> AsyncIterator[tuple[Pool, Any]]:
    """The pool of a daemon in front of ``there``, and a function that asks it and returns the answer's number."""
    standins = [await asyncio.start_server(each.serve, "127.0.0.1", 0) for each in there]
    urls = [f"127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in standins]
    upstream = {"dialect": "oip", "transport": "http", "urls": urls, "flavor": "triton", **more}
    model = {"upstream": "there", "remote_model": "m", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
    config = {"listeners": [LISTENER], "upstreams": {"there": upstream}, "models": {"m": model}}
    options = parse(yaml.safe_dump(config))
    assembly = assemble(options, load_local(options))
    pipeline = assembly.pipeline(options.listeners[0])
    server = HttpServer(pipeline.handlers["http"], parse_address("127.0.0.1:0"), load=pipeline.load)
    address = await server.start()
    reader, writer = await asyncio.open_connection(address.host, address.port)

    async def ask(number: float) -> float:
        writer.write(request(number))
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            (length,) = [int(line[16:]) for line in lines if line.startswith(b"content-length: ")]
            body = await reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200 OK"), head + body
        return float(np.frombuffer(body[-4:], np.float32)[0])

    found = assembly.service.router.models["m"].upstream
    assert found is not None
    try:
        yield found.pool, ask
    finally:
        writer.close()
        await server.stop(0)
        await assembly.close()
        for each in standins:
            each.close()


async def test_a_server_that_joins_slowly_without_a_connection_has_its_share() -> None:
    there = Standin(), Standin([CLOSING] * 100)
    async with pool_of(*there, slow_start_secs=1e-3) as (_, ask):
        for number in range(40):
            assert await ask(number) == number
    assert [len(each.seen) for each in there] == [20, 20]


async def _by_weight(kept: bool) -> list[list[bytes]]:
    """What servers of weight 3 and 1 get, which keep their connections or not."""
    there = Standin([] if kept else [CLOSING, USUAL] * 100), Standin([] if kept else [CLOSING] * 100)
    async with pool_of(*there, slow_start_secs=1e-3) as (pool, ask):
        pool.members[0].weight = 3.0
        for number in range(40):
            assert await ask(number) == number
    return [each.seen for each in there]


@pytest.mark.parametrize("kept", [True, False])
async def test_servers_of_different_weight(
    kept: bool, sent: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = await _by_weight(kept)
    assert [len(each) for each in fast] == [30, 10]
    assert sent.count(True) > (30 if kept else 5)
    assert kept or sent.count(False) > 5
    spied_plans.off(monkeypatch)
    assert await _by_weight(kept) == fast


async def test_each_server_gets_its_own_host(sent: list[bool]) -> None:
    heads: list[set[bytes]] = [set(), set()]

    class Noting(Standin):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            read = reader.readuntil

            async def noted(separator: bytes = b"\n") -> bytes:
                head = await read(separator)
                if b"/infer" in head:
                    place = there.index(self)
                    port = writer.get_extra_info("sockname")[1]
                    heads[place].add(re.findall(rb"Host: (.*)\r", head)[0].replace(b"%d" % port, b"own"))
                return head

            reader.readuntil = noted  # type: ignore[method-assign]
            await super().serve(reader, writer)

    there = Noting(), Noting()
    async with pool_of(*there) as (_, ask):
        for number in range(20):
            assert await ask(number) == number
    assert heads == [{b"127.0.0.1:own"}] * 2
    assert sent.count(True) > 10


async def test_a_server_that_recovers_gets_requests_again() -> None:
    there = Standin(), Standin()
    async with pool_of(*there, probe_interval_secs=0) as (pool, ask):
        for number in range(12):
            assert await ask(number) == number
        failed: Member = pool.members[1]
        failed.failed("refuses connections", unreachable=True)
        failed._failed_at -= 60
        assert failed.open and not failed.rating
        for number in range(12):
            assert await ask(number) == number
        assert not failed.open
