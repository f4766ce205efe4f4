"""A connection whose input takes long lets others go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlingua.protocols.transport import received
from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.transport.http import client_connection, connection
from interlingua.protocols.transport.turns import end_turn
from interlingua.protocols.wire import BrpcRequest, GrpcRequest, HttpCall
from tests.protocols.transport.brpc.test_server import serving
from tests.standins.brpc_frames import SERVICE


class Transport:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


@pytest.mark.parametrize("wanted", [True, False])
async def test_reading_goes_on_in_the_next_turn_if_it_is_wanted(wanted: bool) -> None:
    transport: Any = Transport()
    end_turn(asyncio.get_running_loop(), transport, lambda: wanted)
    assert transport.calls == ["pause"]
    await asyncio.sleep(0)
    assert transport.calls == ["pause", "resume"][: 1 + wanted]


async def test_a_connection_that_closes_meanwhile_is_left_alone() -> None:
    transport: Any = Transport()
    end_turn(asyncio.get_running_loop(), transport, lambda: True)
    transport.closing = True
    await asyncio.sleep(0)
    end_turn(asyncio.get_running_loop(), transport, lambda: True)
    assert transport.calls == ["pause"]


@pytest.mark.parametrize("transport", ["http", "grpc", "brpc"])
async def test_nothing_is_lost_where_every_turn_ends_early(
    monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    for module in (received, client_connection, connection):
        monkeypatch.setattr(module, "TURN_SECS", -1)
    async with serving() as here:
        client: Any = client_of(transport)(Url(here.server.address))
        try:
            for nbytes in (10, 100_000, 4_000_000):
                body = bytes(range(250)) * (nbytes // 250) + bytes(nbytes % 250)
                call = {
                    "http": lambda body=body: HttpCall("POST", "/echo", parts=(body,)),
                    "grpc": lambda body=body: GrpcRequest("/test.Echo/Call", body),
                    "brpc": lambda body=body: BrpcRequest(SERVICE, "Predict", body),
                }[transport]
                for answer in await asyncio.gather(*(client.send(call()) for _ in range(5))):
                    assert (answer.body if transport == "http" else answer.message) == body
        finally:
            await client.close()
