"""The core of the listeners: how a set of connections drains, is cut and is aborted, and what a connection may hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from interlingua.protocols.transport.backlog import Backlog
from interlingua.protocols.transport.listener import ConnectionSet


class _NoSocket(asyncio.Transport):
    """A transport from which nothing more comes."""

    def is_closing(self) -> bool:
        return True


@dataclass(eq=False)
class Connection:
    """Records what is called; it leaves the set at ``leaves_at``, with its request."""

    among: ConnectionSet[Connection]
    leaves_at: str = "drain"
    unsent: bool = False
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.among.open[self] = _NoSocket()

    def drain(self) -> None:
        self._called("drain")

    def cut(self) -> None:
        self._called("cut")

    def abort(self) -> None:
        self._called("abort")

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if what == self.leaves_at:
            self.among.open.pop(self, None)
            self.among.in_flight.discard(self)
            self.among.changed()


async def test_an_empty_set_drains_at_once() -> None:
    assert await asyncio.wait_for(ConnectionSet[Connection]().drain(60), 5) == 0


async def test_connections_that_drain_are_not_cut() -> None:
    among: ConnectionSet[Connection] = ConnectionSet()
    connection = Connection(among)
    assert await asyncio.wait_for(among.drain(60), 5) == 0
    assert among.stopping and connection.calls == ["drain"]


@pytest.mark.parametrize(
    ("in_flight", "unsent", "expected"), [(True, False, 1), (False, True, 1), (False, False, 0)]
)
async def test_requests_and_unsent_answers_are_counted(in_flight: bool, unsent: bool, expected: int) -> None:
    among: ConnectionSet[Connection] = ConnectionSet()
    connection = Connection(among, "cut", unsent)
    if in_flight:
        among.in_flight.add(connection)
    assert await among.drain(0.01) == expected
    assert connection.calls == ["drain", "cut"]


async def test_a_request_may_outlive_its_connection() -> None:
    among: ConnectionSet[Connection] = ConnectionSet()
    among.in_flight.add("request")

    def end() -> None:
        among.in_flight.discard("request")
        among.changed()

    asyncio.get_running_loop().call_later(0.05, end)
    assert await asyncio.wait_for(among.drain(60), 5) == 0


class Transport(asyncio.Transport):
    """Records whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: list[bool] = []

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading.append(False)

    def resume_reading(self) -> None:
        self.reading.append(True)


def test_a_backlog_is_bounded_by_number_and_size() -> None:
    transport: Any = Transport()
    backlog = Backlog(transport, 2, 100)
    assert backlog.accepts
    backlog.requests, backlog.size = 1, 99
    assert backlog.accepts
    backlog.size = 100
    assert not backlog.accepts
    backlog.requests, backlog.size = 2, 0
    assert not backlog.accepts
    backlog.requests, backlog.writable = 0, False
    assert not backlog.accepts
