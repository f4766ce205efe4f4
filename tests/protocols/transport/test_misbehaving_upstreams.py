"""Upstreams that misbehave: every error typed, within its deadline, on its own connection."""

from __future__ import annotations

import asyncio
import gc
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.wire import BrpcRequest, FramedCall, GrpcRequest, HttpCall
from interlingua.schemas import Context, InferenceError
from tests.misbehaving import MISBEHAVING
from tests.misbehaving.server import (
    BAD,
    DEADLINE_SECS,
    DOWN,
    LATE,
    LIMIT,
    UNREAD_BYTES,
    Outcome,
    Server,
    deaf,
)
from tests.standins.brpc_frames import SERVICE

SLACK_SECS = 15.0
"""What a busy machine may add."""

BLOCKED_SECS = 0.05
GROWTH_KIB = 64 << 10

MORE_CALLS = {"grpc": 2}
"""How many calls may still meet the connection that misbehaves. (Over HTTP/2 a call may fail alone.)"""

CASES = [(transport, name) for transport, (_, table) in MISBEHAVING.items() for name in table]


@pytest.fixture(scope="module", autouse=True)
def _few_objects() -> Iterator[None]:
    """Hide the objects of other tests from the garbage collector, whose time would count as the client's."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@asynccontextmanager
async def misbehaving(transport: str, name: str, engine: str = "native") -> AsyncIterator[tuple[Any, Server]]:
    session, table = MISBEHAVING[transport]
    server = Server(session, table[name][0])
    client: Any = CLIENTS[transport, engine](
        parse_url(server.url, transport), ClientOptions(max_response_bytes=LIMIT)
    )
    try:
        yield client, server
    finally:
        await client.close()
        await asyncio.to_thread(server.close)


@contextmanager
def watched() -> Iterator[list[float]]:
    """The CPU seconds of the loop's thread between two of its ticks."""
    loop, steps, last = asyncio.get_running_loop(), [0.0], time.thread_time()
    handle: asyncio.TimerHandle

    def tick() -> None:
        nonlocal last, handle
        now = time.thread_time()
        steps.append(now - last)
        last = now
        handle = loop.call_later(0.005, tick)

    handle = loop.call_later(0, tick)
    try:
        yield steps
    finally:
        handle.cancel()


def request(transport: str, size: int = 64, seconds: float = DEADLINE_SECS) -> Any:
    context = Context(deadline=time.monotonic() + seconds)
    body = bytes(size)
    if transport == "http":
        return HttpCall("POST", "/", parts=(body,), context=context)
    if transport == "grpc":
        return GrpcRequest("/test.Echo/Call", body, context=context)
    if transport == "tcp":
        return FramedCall(parts=(struct.pack("<I", size), body), context=context)
    return BrpcRequest(SERVICE, "Predict", body, context=context)


async def outcome_of(client: Any, request: Any) -> tuple[Outcome, bytes]:
    """The code of its error, or None with the answer; a gRPC status that is an error counts as one."""
    (outcome,) = await asyncio.gather(client.send(request), return_exceptions=True)
    if isinstance(outcome, InferenceError):
        assert outcome.message
        return outcome.code, b""
    assert not isinstance(outcome, BaseException), outcome
    if isinstance(request, HttpCall):
        return (None if outcome.status == 200 else outcome.status), bytes(outcome.body)
    return getattr(outcome, "code", 0) or None, bytes(outcome.message)


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.parametrize(("transport", "name"), CASES, ids=[f"{each[0]}: {each[1]}" for each in CASES])
async def test_a_misbehaving_upstream_costs_its_own_connection(transport: str, name: str) -> None:
    behaviour, outcomes = MISBEHAVING[transport][1][name]
    before = resident_kib()
    # a flood that is to be refused must not run into the deadline on a busy machine
    seconds = DEADLINE_SECS if LATE in outcomes else 20.0
    async with misbehaving(transport, name) as (client, server):
        with watched() as steps:
            began = time.monotonic()
            outcome, _ = await outcome_of(
                client, request(transport, UNREAD_BYTES if behaviour is deaf else 64, seconds)
            )
            took = time.monotonic() - began
            # what a server sends later must not fail the next calls
            await asyncio.sleep(0.05)
            assert outcome in outcomes, outcome
            assert took < seconds + SLACK_SECS
            for _ in range(MORE_CALLS.get(transport, 1)):
                assert (await outcome_of(client, request(transport)))[0] in (None, BAD, LATE, DOWN)
            for _ in range(3):
                assert await outcome_of(client, request(transport, seconds=60)) == (None, b"well")
        assert max(steps) < BLOCKED_SECS, max(steps)
        assert server.accepted <= 3
    assert resident_kib() - before < GROWTH_KIB


LIBRARY_CASES = [
    case for case in CASES if case[0] == "http" or (case[0] == "grpc" and "endless" not in case[1])
]
"""grpcio's channels may outlive a flood."""

REFUSED_BY_LIBRARY = {("http", "garbage behind an answer")}
"""Where the native client has an answer already."""


@pytest.mark.parametrize(
    ("transport", "name"), LIBRARY_CASES, ids=[f"{each[0]}: {each[1]}" for each in LIBRARY_CASES]
)
async def test_the_library_engines_fail_where_the_native_ones_do(transport: str, name: str) -> None:
    """With an error of some kind in time. Which one is a matter of the library: grpcio ignores floods until the
    deadline, and tells a broken rule of HTTP/2 as UNKNOWN or INTERNAL."""
    behaviour, outcomes = MISBEHAVING[transport][1][name]
    async with misbehaving(transport, name, "library") as (client, _):
        began = time.monotonic()
        outcome, _ = await outcome_of(client, request(transport, UNREAD_BYTES if behaviour is deaf else 64))
        assert time.monotonic() - began < DEADLINE_SECS + SLACK_SECS
    if (transport, name) not in REFUSED_BY_LIBRARY:
        assert (outcome is None) <= (None in outcomes), outcome
        assert (outcome is not None) <= (outcomes != {None}), outcome
