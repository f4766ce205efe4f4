"""Messages that pass from a gRPC caller to a gRPC server, and back, while they arrive."""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
from typing import Any

import pytest
import uvloop

from interlingua.protocols.transport.h2.options import STREAM_WINDOW
from interlingua.protocols.transport.h2.stream import Stream
from tests.e2e.daemon import ROOT
from tests.protocols.transport.h2.flowing import (
    INITIAL_WINDOW,
    MAX_FRAME,
    Flowing,
    Side,
    Upstream,
    trickle,
)
from tests.protocols.transport.h2.peer import (
    message,
    settings,
    window_update,
)
from tests.translator.serving.passthrough_daemon import (
    METHOD,
    SIZE,
    WARM,
    WIDE,
    ask,
    caller,
    contents,
    daemon,
    echo,
    reply,
    request,
    right,
    sent_in,
    warm,
)
from tests.waiting import until


async def test_contents_pass_both_ways(passed: list[bool]) -> None:
    async with daemon(Upstream(echo, WIDE)) as here, caller(here) as one:
        await warm(one)
        passed.clear()
        for _ in range(5):
            data = contents(one.rng)
            assert right(await ask(one, data), data)
        assert passed == [True] * 5
        await until(here.idle)


async def test_a_slow_caller_is_not_held_against_the_upstream(passed: list[bool]) -> None:
    """The time that a caller takes to send its message is not the server's."""
    async with daemon(Upstream(echo, WIDE), timeout=0.5) as here, caller(here) as one:
        await warm(one)
        passed.clear()
        data = contents(one.rng)
        whole = message(request(data))
        number = one.open(METHOD)
        await one.data(number, whole[:300_000])
        await asyncio.sleep(1)
        await one.data(number, whole[300_000:], ended=True)
        side = one.side(number)
        await one.ended(number)
        assert right(side, data), side.trailers or side.head
        assert passed == [True]


@pytest.mark.parametrize("what", ["connection window", "socket"])
async def test_the_queue_of_a_message_is_bounded(what: str, passed: list[bool]) -> None:
    """A server that takes no more holds its caller up, however wide the window of the stream."""
    size = 16_000_000
    stuck, went = asyncio.Event(), asyncio.Event()

    async def act(there: Flowing, number: int) -> None:
        await echo(there, number)

    def hold(there: Flowing) -> None:
        def given(number: int, count: int) -> None:
            if stuck.is_set() and not went.is_set() and what == "connection window":
                there.write(window_update(number, count))
                return
            there.give_back(number, count)

        there.given = given

    upstream = Upstream(act, ((INITIAL_WINDOW, 1 << 30), (MAX_FRAME, 1 << 20)), wide=1 << 17, begin=hold)
    async with daemon(upstream, timeout=60) as here, caller(here) as one:
        await warm(one, size)
        passed.clear()
        stuck.set()
        (there,) = upstream.connections
        if what == "socket":
            there.read(False)
        data = contents(one.rng, size)
        asked = asyncio.ensure_future(ask(one, data, secs=30))
        await until(lambda: passed)
        left, before = -1, -2
        while left != before:
            before = left
            await asyncio.sleep(0.2)
            left = one.side(max(one.streams)).window
        (connection,) = here.server.connections.open
        (call,) = connection.calls
        queued = call.passthrough.target.queued
        went.set()
        there.read(True)
        there.write(window_update(0, there.received))
        side = await asked
        assert right(side, data)
        assert passed == [True]
        assert queued <= 2 * STREAM_WINDOW


WINDOWS = 0, 1, 16_384, 65_535, 1 << 20
FRAMES = 1, 100, 9000, 16_384, 70_000, 400_000, 1 << 20


@pytest.mark.parametrize("seed", range(8))
async def test_every_byte_arrives_however_it_is_cut(seed: int, passed: list[bool]) -> None:
    """Several streams on several connections that share one to the server."""
    rng = random.Random(seed)
    sizes = [rng.choice((300_000, 400_000, SIZE)) for _ in range(2)]
    seen: list[bytes] = []

    async def act(there: Flowing, number: int) -> None:
        data = sent_in(await there.request(number))
        seen.append(data)
        await there.answer(number, reply(data), sizes=_frames(rng), padded=rng.random() < 0.5)

    upstream = Upstream(act, ((INITIAL_WINDOW, SIZE), (MAX_FRAME, rng.choice((1 << 14, 1 << 20)))), 0, rng)
    hello = (INITIAL_WINDOW, rng.choice(WINDOWS)), (MAX_FRAME, rng.choice((1 << 14, 1 << 20)))
    async with (
        daemon(upstream, timeout=30) as here,
        caller(here) as first,
        caller(here, hello=hello) as second,
    ):
        for size in sizes:
            await warm(first, size)
        passed.clear()
        seen.clear()
        (there,) = upstream.connections
        second.cut, there.cut = rng.random() < 0.7, rng.random() < 0.5
        resizes = [rng.choice(WINDOWS) for _ in range(rng.randrange(1, 5))]
        steps = [
            asyncio.create_task(trickle(there, rng, rng.choice((20_000, 100_000, 1 << 20)), resizes)),
            asyncio.create_task(trickle(second, rng, rng.choice((20_000, 200_000)))),
        ]
        sent = [contents(rng, rng.choice(sizes)) for _ in range(6)]
        sides = await asyncio.gather(
            *(
                ask(rng.choice((first, second)), data, secs=25, padded=rng.random() < 0.5, sizes=_frames(rng))
                for data in sent
            )
        )
        assert [right(side, data) for side, data in zip(sides, sent, strict=True)] == [True] * 6
        assert sorted(seen) == sorted(sent)
        assert passed.count(True) >= 2
        await until(here.idle)
        for step in steps:
            step.cancel()


def _frames(rng: random.Random) -> list[int]:
    """The sizes of frames, few of them tiny: a flood of these ends the connection."""
    return rng.choice(([], [1 << 20], [9000, 9001], [100, 9000, 16_384, 70_000], [1, *FRAMES[2:]]))


async def test_a_window_that_opens_by_settings(passed: list[bool]) -> None:
    """The server's windows have taken all that the caller could send, and are widened for all streams."""
    ours: list[Side] = []

    def begin(there: Flowing) -> None:
        there.given = lambda number, size: there.write(window_update(0, size)) if size else None

    async def act(there: Flowing, number: int) -> None:
        if ours:
            theirs, (mine,) = there.side(number), ours
            while theirs.flow < mine.sent or mine.window > 0:
                if mine.window <= 0 and there.stated + theirs.given == theirs.flow:
                    theirs.given += mine.sent - theirs.flow
                    there.write(window_update(number, mine.sent - theirs.flow))
                await asyncio.sleep(0.02)
            there.write(settings((INITIAL_WINDOW, 1 << 22)))
        else:
            there.write(window_update(number, 1 << 22))
        await echo(there, number)

    async with (
        daemon(Upstream(act, ((INITIAL_WINDOW, STREAM_WINDOW),), begin=begin)) as here,
        caller(here) as one,
    ):
        await warm(one)
        passed.clear()
        data = contents(one.rng)
        asked = asyncio.ensure_future(ask(one, data, secs=5, sizes=[8192]))
        await asyncio.sleep(0)
        ours.append(one.side(max(one.streams)))
        assert right(await asked, data)
        assert passed == [True]


async def test_callers_that_read_slowly(passed: list[bool]) -> None:
    """Answers of 3 MB through small windows, while others are served."""

    async def act(there: Flowing, number: int) -> None:
        data = sent_in(await there.request(number))
        await there.answer(number, reply(3 * data))

    rng = random.Random(5)
    hello = (INITIAL_WINDOW, 30_000), (MAX_FRAME, 1 << 14)
    async with daemon(Upstream(act, WIDE)) as here, caller(here) as one, caller(here, hello=hello) as slow:
        for _ in range(WARM):
            data = contents(rng)
            assert right(await ask(one, data), 3 * data)
        passed.clear()
        task = asyncio.create_task(trickle(slow, rng, 200_000))
        sent = [contents(rng) for _ in range(6)]
        sides = await asyncio.gather(*(ask((slow, one)[place % 2], data) for place, data in enumerate(sent)))
        assert [right(side, 3 * data) for side, data in zip(sides, sent, strict=True)] == [True] * 6
        assert passed == [True] * 6
        await until(here.idle)
        task.cancel()


async def test_a_server_that_takes_one_call_at_a_time(passed: list[bool]) -> None:
    running, most = [0], [0]

    async def act(there: Flowing, number: int) -> None:
        running[0] += 1
        most[0] = max(most[0], sum(not each.ended for each in there.streams.values()))
        await echo(there, number)
        running[0] -= 1

    async with daemon(Upstream(act, (*WIDE, (3, 1)))) as here, caller(here) as one, caller(here) as two:
        await warm(one)
        passed.clear()
        sent = [contents(one.rng) for _ in range(10)]
        sides = await asyncio.gather(*(ask((one, two)[place % 2], data) for place, data in enumerate(sent)))
        assert [right(side, data) for side, data in zip(sides, sent, strict=True)] == [True] * 10
        assert most == [1]
        assert passed.count(True) > 0
        await until(here.idle)


async def test_calls_leave_no_garbage(passed: list[bool]) -> None:
    """A cycle of references would keep the memory of a call until the collector runs."""
    async with daemon(Upstream(echo, WIDE)) as here, caller(here) as one:
        await warm(one)
        gc.collect()
        gc.disable()
        try:
            before = _calls()
            for _ in range(5):
                data = contents(one.rng)
                assert right(await ask(one, data), data)
            await until(here.idle)
            assert _calls() <= before
        finally:
            gc.enable()
        assert passed[-5:] == [True] * 5


def _calls() -> int:
    return sum(isinstance(each, Stream) for each in gc.get_objects())


# sockets

EXAMPLE = ROOT / "examples" / "tls"
CERTIFICATE, KEY = str(EXAMPLE / "localhost.pem"), str(EXAMPLE / "localhost.key")


def _server_side() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(CERTIFICATE, KEY)
    made.set_alpn_protocols(["h2"])
    return made


def _client_side() -> dict[str, Any]:
    made = ssl.create_default_context(cafile=CERTIFICATE)
    made.set_alpn_protocols(["h2"])
    return {"ssl": made, "server_hostname": "localhost"}


async def _over_sockets(listener: bool, server: bool, passed: list[bool]) -> None:
    """Many messages at once, to a server that stops reading now and then, and callers that do."""
    upstream = Upstream(echo, WIDE, cut=True, receives=1 << 14)
    stops: list[asyncio.Task[None]] = []

    async def stop(flowing: Flowing) -> None:
        while not flowing.closed:
            flowing.read(False)
            await asyncio.sleep(0.03)
            flowing.read(True)
            await asyncio.sleep(0.01)

    async with (
        daemon(
            upstream,
            listener={"tls": {"cert": CERTIFICATE, "key": KEY}} if listener else {},
            upstream={"tls": {"ca": CERTIFICATE, "server_name": "localhost"}} if server else {},
            tls={"ssl": _server_side()} if server else {},
        ) as here,
        caller(here, **(_client_side() if listener else {})) as one,
        caller(here, cut=True, **(_client_side() if listener else {})) as two,
    ):
        for size in (SIZE, 300_000):
            await warm(one, size)
        passed.clear()
        stops += [asyncio.create_task(stop(each)) for each in (*upstream.connections, one)]
        for _ in range(2):
            sent = [contents(one.rng, size) for size in (SIZE, 300_000, SIZE, SIZE, 300_000, 400, SIZE, SIZE)]
            sides = await asyncio.gather(
                *(ask((one, two)[place % 2], data, secs=30) for place, data in enumerate(sent))
            )
            assert [right(side, data) for side, data in zip(sides, sent, strict=True)] == [True] * len(sent)
        assert passed.count(True) >= 8
        for each in stops:
            each.cancel()
        await until(here.idle)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(("listener", "server"), [(False, False), (True, False), (False, True), (True, True)])
def test_over_sockets(loop: Any, listener: bool, server: bool, passed: list[bool]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_over_sockets(listener, server, passed))
