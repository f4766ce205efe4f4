"""A request takes as many Python calls on a port of any transport as on a listener of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from benchmarks.calls import Calls, profiled
from interlingua.protocols.transport.any.server import AnyServer
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.listener import Listener
from tests.protocols.transport.brpc.test_server import BrpcEcho
from tests.protocols.transport.h2.peer import RawH2, call
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho, RawHttp
from tests.standins.brpc_client import BrpcStandinClient

WARM_UP, REQUESTS = 5, 7
Ask = Callable[[int], Awaitable[Any]]


def brpc(place: Listener) -> BrpcServer:
    return BrpcServer(BrpcEcho(), HttpEcho(), GrpcEcho(), place)


OWN: dict[str, Callable[[Listener], Any]] = {
    "brpc": brpc,
    "http": lambda place: HttpServer(HttpEcho(), place),
    "grpc": lambda place: GrpcServer(GrpcEcho(), place),
}


async def connect(stack: AsyncExitStack, transport: str, address: Any) -> Ask:
    """Open a connection; what makes the request of that number over it."""
    if transport == "brpc":
        client = await stack.enter_async_context(BrpcStandinClient.to(address.host, address.port))
        return lambda number: client.call("Predict", b"x", correlation_id=number)
    if transport == "http":
        http = await stack.enter_async_context(RawHttp.to(address))
        return lambda number: http.post("/echo", b"x")
    h2 = await stack.enter_async_context(RawH2.to(address))

    async def ask(number: int) -> Any:
        await h2.send(call(2 * number + 1, b"x"))
        return await h2.answer(2 * number + 1)

    return ask


async def calls_on(make: Callable[[Listener], Any], transport: str) -> Calls:
    """The calls of a request over a kept connection: the fewest of several, as now and then one has to look after
    the connection."""
    place = Listener(LOOPBACK)
    server = make(place)
    await server.start()
    found: list[Calls] = []
    try:
        async with AsyncExitStack() as stack:
            ask = await connect(stack, transport, place.address)
            with profiled() as counting:
                for number in range(WARM_UP + REQUESTS):
                    counting.calls, counting.on = Counter(), number >= WARM_UP
                    await ask(number)
                    await asyncio.sleep(0.01)
                    counting.on = False
                    found += [counting.calls] if number >= WARM_UP else []
    finally:
        await server.stop(0)
    return min(found, key=Counter.total)


@pytest.mark.parametrize("transport", OWN)
def test_a_request_takes_the_same_calls(transport: str) -> None:
    own = asyncio.run(calls_on(OWN[transport], transport))
    shared = asyncio.run(calls_on(lambda place: AnyServer(brpc(place), place), transport))
    assert own.total() > 5
    assert shared == own
