"""A caller that opens a connection for every request: its requests take the fast path that others have found,
and nothing tells them from the same ones on their usual path."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import replace
from typing import Any

import pytest

from interlingua.translator.serving.handler import TransportPipeline
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import Conditions
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Split
from tests.translator.serving.test_fast_path import (
    USUAL,
    WARM,
    Bridge,
    Standin,
    bridge,
    hang,
    header,
    request,
)
from tests.waiting import until

OTHER = header("inputs", id="other", parameters={"binary_data_output": True})


async def once(here: Bridge, message: bytes) -> tuple[bytes, list[bytes], bytes]:
    """The answer to ``message`` on a new connection."""
    reader, writer = await asyncio.open_connection(here.address.host, here.address.port)
    try:
        return await replace(here, reader=reader, writer=writer).ask(message)
    finally:
        writer.close()


async def _separately(messages: list[bytes]) -> tuple[Any, ...]:
    async with bridge(Standin()) as here:
        answers = [await once(here, message) for message in messages]
        return answers, here.counts, here.there.seen


async def test_a_connection_for_every_request(sent: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [request(number) for number in range(6)] + [request(7, OTHER)] * 3
    fast = await _separately(messages)
    assert sent.count(True) >= 4
    monkeypatch.setattr(TransportPipeline, "fast_path", lambda *_: None)
    assert await _separately(messages) == fast


async def test_a_route_that_appears(sent: list[bool]) -> None:
    """New connections follow it, whatever those before it have found."""
    async with bridge(Standin()) as here:
        await here.warm()
        before = sent.count(True)
        assert before
        route, service = Route(Split.only("m"), Conditions("m")), here.assembly.service
        service.router = Router(service.router.models, [route])
        for number in range(4):
            assert (await once(here, request(number)))[0] == b"HTTP/1.1 200 OK"
        assert sent.count(True) == before
        assert route.counts.requests == 4


async def test_a_drain_after_a_caller_has_reset_its_first_request(sent: list[bool]) -> None:
    """Its connection has no task before it ends, and no request is left in flight."""
    async with bridge(Standin([USUAL] * WARM + [hang])) as here:
        await here.warm()
        _, writer = await asyncio.open_connection(here.address.host, here.address.port)
        writer.write(request(WARM))
        await until(lambda: len(here.there.seen) > WARM)
        assert sent[-1]
        linger = struct.pack("ii", 1, 0)  # a reset instead of an orderly end
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await until(lambda: not here.counts["server"][1])  # the upstream's request has ended
        assert here.server.at_work == 0
        assert await here.server.stop(0) == 0
