"""Repeated requests whose caller and upstream end at the same time, as with one deadline for both: each is counted
once, and no server keeps one."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.translator.serving import spied_plans
from tests.translator.serving import test_forward_plans as over_http
from tests.translator.serving import test_forward_plans_grpc as over_grpc
from tests.waiting import until


async def _settled(here: Any, count: int) -> None:
    """Wait until ``count`` requests are counted, and nothing runs."""

    def ended() -> bool:
        counts = here.counts
        return sum(counts["ended"].values()) == count and not any(counts["in flight"])

    await until(ended)
    assert here.counts["server"][1] == 0


def _race(monkeypatch: pytest.MonkeyPatch, end: Callable[[Any], object]) -> None:
    """``end`` every request of a caller as it falls back."""

    execute = spied_plans.FORWARD.execute

    def spied(plan: Any, message: Any, head: Any, context: Any, caller: Any, route: Any) -> Any:
        def resume(execution: Any) -> None:
            caller.resume(execution)
            end(caller)

        request: Any = SimpleNamespace(respond=caller.respond, resume=resume)
        return execute(plan, message, head, context, request, route)

    spied_plans.replace(monkeypatch, spied_plans.FORWARD, spied)


async def test_a_call_that_is_reset_as_it_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _race(monkeypatch, lambda call: call.connection.cancel(call))
    async with over_grpc.bridge(
        over_grpc.Standin([None] * over_grpc.WARM + [over_grpc.UNUSUAL["unavailable"]])
    ) as here:
        await here.warm()
        asked = asyncio.ensure_future(here.ask(over_grpc.request(7)))
        await _settled(here, over_grpc.WARM + 1)
        asked.cancel()


_MANY = over_http.header("outputs", 8_000_000, model_name="m", model_version="1")

ACTS = {
    "an error": over_http.UNUSUAL["an error"],
    "an answer that goes on arriving": over_http.doing(lambda data: over_http.reply(2_000_000 * data, _MANY)),
}


@pytest.mark.parametrize("what", ACTS)
async def test_a_connection_that_is_lost_as_its_request_falls_back(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _race(monkeypatch, lambda connection: connection.connection_lost(None))
    there = over_http.Standin([over_http.USUAL] * over_http.WARM + [ACTS[what]])
    async with over_http.bridge(there) as here:
        await here.warm()
        here.writer.write(over_http.request(7))
        await _settled(here, over_http.WARM + 1)


async def test_a_drain_after_a_caller_has_reset_its_first_request(sent: list[bool]) -> None:
    """Its connection has no task before it ends, and no request is left in flight."""
    async with over_http.bridge(
        over_http.Standin([over_http.USUAL] * over_http.WARM + [over_http.hang])
    ) as here:
        await here.warm()
        _, writer = await asyncio.open_connection(here.address.host, here.address.port)
        writer.write(over_http.request(over_http.WARM))
        await until(lambda: len(here.there.seen) > over_http.WARM)
        assert sent[-1]
        linger = struct.pack("ii", 1, 0)  # a reset instead of an orderly end
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await until(lambda: not here.counts["server"][1])  # the upstream's request has ended
        assert here.server.at_work == 0
        assert await here.server.stop(0) == 0
