"""Large bodies over HTTP/1.1 go from socket to socket inside the kernel, except where they cannot."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest

from interlingua.protocols.transport import kernel_pipe
from interlingua.protocols.transport.http1 import arriving
from interlingua.protocols.transport.kernel_pipe import KernelPipe
from tests.protocols.transport.http.test_arriving_bodies import (
    MIB,
    Conversation,
    Http1Caller,
    answering,
    ask,
    bridging,
    oip_answer,
    oip_request,
    pattern,
    trtis_answer,
    trtis_request,
)
from tests.protocols.transport.peers import stalling
from tests.waiting import until

pytestmark = pytest.mark.skipif(not hasattr(os, "SPLICE_F_MOVE"), reason="splice(2) is Linux's")


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each pipe has moved so far."""
    counts: list[int] = []

    class Counted(KernelPipe):
        def __init__(self, source: Any, sink: Any, left: int, moved: Any, blocked: Any) -> None:
            number = len(counts)

            def count(size: int) -> None:
                counts[number] += size
                moved(size)

            super().__init__(source, sink, left, count, blocked)
            counts.append(0)

    monkeypatch.setattr(arriving, "KernelPipe", Counted)
    return counts


MESSAGES = {"oip": (oip_request, oip_answer), "trtis": (trtis_request, trtis_answer)}


@pytest.mark.parametrize("dialect", MESSAGES)
async def test_most_of_a_large_body_goes_through_a_pipe(dialect: str, moved: list[int]) -> None:
    bodies: list[bytes] = []
    request, answer = (write(pattern(16 * MIB + 5)) for write in MESSAGES[dialect])
    async with bridging(answering(answer, bodies), dialect) as bridge:
        for _ in range(3):
            reply = await ask(bridge, Http1Caller, request)
            assert reply.status == 200 and pattern(16 * MIB + 5) in reply.body
        assert len(bridge.heads) == 3 and bridge.ended == {"ok": 3}
        assert all(body.endswith(pattern(16 * MIB + 5)) for body in bodies)
    assert 3 * 24 * MIB < sum(moved) <= 3 * len(request + answer)


@pytest.mark.parametrize("without", ["descriptors", "splice"])
async def test_without_a_relay_it_passes_in_pieces(
    without: str, moved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if without == "descriptors":
        monkeypatch.setattr(kernel_pipe, "pipe_ceiling", lambda: 3)
    else:
        monkeypatch.setattr(kernel_pipe, "_FLAGS", 0)
    bodies: list[bytes] = []
    async with bridging(answering(oip_answer(pattern(4 * MIB)), bodies)) as bridge:
        reply = await ask(bridge, Http1Caller, oip_request(pattern(4 * MIB)))
        assert reply.body.endswith(pattern(4 * MIB)) and bodies[0].endswith(pattern(4 * MIB))
    assert not moved


async def test_a_system_that_refuses_splices_gets_pieces(
    moved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "splice", refused)
    bodies: list[bytes] = []
    async with bridging(answering(oip_answer(pattern(4 * MIB)), bodies)) as bridge:
        reply = await ask(bridge, Http1Caller, oip_request(pattern(4 * MIB)))
        assert reply.body.endswith(pattern(4 * MIB)) and bodies[0].endswith(pattern(4 * MIB))
    assert moved and not sum(moved)


async def test_a_caller_that_reads_nothing_of_a_piped_answer_is_cut(moved: list[int]) -> None:
    async with (
        bridging(answering(oip_answer(bytes(64 * MIB))), listener={"timeouts": stalling(0.3)}) as bridge,
        Http1Caller.to(bridge.server.address) as caller,
    ):
        await caller.send(oip_request(b"x"))
        begun = await caller.begin(0)
        assert bridge.running == 1
        await until(lambda: not bridge.running)
        assert moved
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(caller.rest(begun), 30)
        assert bridge.ended == {"CANCELLED": 1}


async def test_a_caller_that_stalls_between_piped_bytes_is_refused(moved: list[int]) -> None:
    async with (
        bridging(answering(b""), listener={"timeouts": stalling(0.3)}) as bridge,
        Http1Caller.to(bridge.server.address) as caller,
    ):
        await caller.send(oip_request(pattern(4 * MIB))[: 3 * MIB])
        reply = await asyncio.wait_for(caller.reply(), 30)
        assert reply.status == 504 and await caller.ends(reply)
        assert sum(moved) and not bridge.running


async def test_an_upstream_that_ends_in_a_relay_is_asked_once(moved: list[int]) -> None:
    async def behave(conversation: Conversation) -> None:
        await conversation.reader.readexactly(12 * MIB)
        raise ConnectionResetError

    async with bridging(behave) as bridge, Http1Caller.to(bridge.server.address) as caller:
        sending = asyncio.create_task(caller.send(oip_request(pattern(64 * MIB))))
        reply = await asyncio.wait_for(caller.reply(), 30)
        assert reply.status == 503 and len(bridge.heads) == 1 and moved
        assert bridge.ended == {"UNAVAILABLE": 1} and not bridge.running
        sending.cancel()


async def test_a_sink_that_no_pipe_can_write_to_fails_at_once(
    moved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the pipe is lost then, and the upstream waits for it."""
    splice, calls = os.splice, []

    def into_the_pipe(*arguments: Any, **more: Any) -> int:
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError(errno.EINVAL, "no splice")
        return splice(*arguments, **more)

    monkeypatch.setattr(os, "splice", into_the_pipe)
    async with (
        bridging(answering(oip_answer(b"x")), timeout_secs=60) as bridge,
        Http1Caller.to(bridge.server.address) as caller,
    ):
        sending = asyncio.create_task(caller.send(oip_request(pattern(16 * MIB))))
        reply = await asyncio.wait_for(caller.reply(), 30)
        assert reply.status == 503 and b"no splice" in reply.body and moved
        assert bridge.ended == {"UNAVAILABLE": 1} and not bridge.running
        sending.cancel()


async def test_connections_and_descriptors_are_free_after_relays(moved: list[int]) -> None:
    """Callers that leave at any time, in a request or in its answer."""
    async with bridging(answering(oip_answer(bytes(4 * MIB)))) as bridge:
        assert (await ask(bridge, Http1Caller, oip_request(pattern(4 * MIB)))).status == 200
        before = len(os.listdir("/proc/self/fd"))
        for size in (1, 2, 3):
            async with Http1Caller.to(bridge.server.address) as caller:
                await caller.send(oip_request(pattern(4 * MIB))[: size * MIB])
                await asyncio.sleep(0.01)
            async with Http1Caller.to(bridge.server.address) as caller:
                await caller.send(oip_request(pattern(4 * MIB)))
                await caller.begin(size * MIB)
        await until(lambda: not bridge.running)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert sum(moved)
