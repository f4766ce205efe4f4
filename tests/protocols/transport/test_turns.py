"""A connection whose input takes long lets others go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlingua.protocols.transport.turns import end_turn


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
