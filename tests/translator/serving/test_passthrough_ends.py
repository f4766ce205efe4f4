"""Messages that pass on while they arrive, and end in the middle, from each side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest

from interlingua.protocols.transport.h2.frames import Code
from interlingua.schemas import Operation
from tests.protocols.transport.h2.flowing import (
    INITIAL_WINDOW,
    OK_HEAD,
    Act,
    Flowing,
    Upstream,
)
from tests.protocols.transport.h2.peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    block,
    frame,
    message,
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
    goaway,
    half,
    reply,
    request,
    right,
    sent_in,
    warm,
)
from tests.waiting import until

# ends in the middle of a message


async def _reset(there: Flowing, number: int, code: int) -> None:
    there.write(frame(RST_STREAM, 0, number, code.to_bytes(4, "big")))


async def _go_away(there: Flowing, number: int) -> None:
    there.write(goaway(number - 2))


async def _break(there: Flowing, number: int) -> None:
    there.writer.transport.abort()


async def _fail(there: Flowing, number: int) -> None:
    there.write(frame(HEADERS, END_HEADERS | END_STREAM, number, block((*OK_HEAD, ("grpc-status", "3")))))


async def _end(there: Flowing, number: int) -> None:
    there.write(frame(HEADERS, END_HEADERS | END_STREAM, number, block((*OK_HEAD, ("grpc-status", "0")))))


async def _babble(there: Flowing, number: int) -> None:
    there.write(b"\xff" * 100)


async def _end_early(there: Flowing, number: int) -> None:
    """Trailers that do not follow the headers' announcement of a message."""
    await there.begin_answer(number)
    await there.end_answer(number)


async def _fail_late(there: Flowing, number: int) -> None:
    await there.begin_answer(number)
    await there.end_answer(number, 13, "broken")


SERVER_ENDS: dict[str, Act] = {
    **{
        f"resets with {code}": partial(_reset, code=code)
        for code in (
            Code.REFUSED_STREAM,
            Code.CANCEL,
            Code.INTERNAL_ERROR,
            Code.NO_ERROR,
            Code.ENHANCE_YOUR_CALM,
        )
    },
    "goes away": _go_away,
    "breaks the connection": _break,
    "fails": _fail,
    "fails after headers": _fail_late,
    "ends without an answer": _end,
    "ends after headers": _end_early,
    "babbles": _babble,
}


@pytest.mark.parametrize("what", SERVER_ENDS)
async def test_a_server_ends_in_the_middle_of_a_request(what: str, passed: list[bool]) -> None:
    armed, done = [False], asyncio.Event()

    async def act(there: Flowing, number: int) -> None:
        if not armed[0]:
            await echo(there, number)
            return
        armed[0] = False
        await there.request(number, 200_000)
        await SERVER_ENDS[what](there, number)
        done.set()

    async with daemon(Upstream(act, WIDE)) as here, caller(here) as one:
        await warm(one)
        passed.clear()
        armed[0] = True
        data = contents(one.rng)
        whole = message(request(data))
        number = one.open(METHOD)
        side = one.side(number)
        await one.data(number, whole[:300_000])
        await asyncio.wait_for(done.wait(), 30)
        await asyncio.sleep(0.02)
        if not side.ended:
            await one.data(number, whole[300_000:], ended=True)
        await one.ended(number)
        assert side.status, side
        assert not side.body
        await until(here.idle)
        assert passed == [True]
        assert here.there.calls == WARM + 1
        for _ in range(3):
            again = contents(one.rng)
            assert right(await ask(one, again), again)
        await until(here.idle)
        assert here.there.calls == WARM + 4
        assert here.counts["ended"][Operation.INFER, None] == WARM + 3
        assert sum(here.counts["ended"].values()) == WARM + 4


async def test_an_answer_that_comes_before_the_request_is_complete(passed: list[bool]) -> None:
    armed, early = [False], [b""]

    async def act(there: Flowing, number: int) -> None:
        if not armed[0]:
            await echo(there, number)
            return
        armed[0] = False
        await there.request(number, 200_000)
        await there.answer(number, reply(early[0]))

    async with daemon(Upstream(act, WIDE)) as here, caller(here) as one:
        await warm(one)
        for size in (4, SIZE):
            passed.clear()
            armed[0], early[0] = True, contents(one.rng, size)
            whole = message(request(contents(one.rng)))
            number = one.open(METHOD)
            side = one.side(number)
            await one.data(number, whole[:300_000])
            await one.ended(number, reset=True)
            assert right(side, early[0])
            assert passed == [True]
            await until(here.idle)
            again = contents(one.rng)
            assert right(await ask(one, again), again)


async def _longer(there: Flowing, number: int, rest: bytes) -> None:
    await there.data(number, rest + b"more")
    await there.end_answer(number)


async def _longer_apart(there: Flowing, number: int, rest: bytes) -> None:
    await there.data(number, rest)
    await there.data(number, b"m" * 20_000)
    await there.end_answer(number)


async def _second(there: Flowing, number: int, rest: bytes) -> None:
    await there.data(number, rest)
    await there.data(number, message(reply(bytes(SIZE))))
    await there.end_answer(number)


async def _whole_and_failed(there: Flowing, number: int, rest: bytes) -> None:
    await there.data(number, rest)
    await there.end_answer(number, 13, "broken")


async def _data_end(there: Flowing, number: int, rest: bytes) -> None:
    await there.data(number, rest, ended=True)


async def _headers_again(there: Flowing, number: int, rest: bytes) -> None:
    await there.begin_answer(number)
    await there.data(number, rest)
    await there.end_answer(number)


async def _reset_whole(there: Flowing, number: int, rest: bytes) -> None:
    await there.data(number, rest)
    await _reset(there, number, 2)


async def _silent(there: Flowing, number: int, rest: bytes) -> None:
    await there.until(lambda: False, 600)


async def _anyhow(there: Flowing, number: int, rest: bytes, end: Act) -> None:
    await end(there, number)


ANSWER_ENDS: dict[str, Callable[[Flowing, int, bytes], Awaitable[None]]] = {
    **{
        name: partial(_anyhow, end=end)
        for name, end in SERVER_ENDS.items()
        if name not in ("ends after headers", "fails after headers", "goes away")
    },
    "ends the headers": lambda there, number, rest: there.end_answer(number),
    "fails with trailers": lambda there, number, rest: there.end_answer(number, 5, "gone"),
    "is longer": _longer,
    "is longer later": _longer_apart,
    "has two messages": _second,
    "fails at the end": _whole_and_failed,
    "has no trailers": _data_end,
    "has headers twice": _headers_again,
    "is reset when it is whole": _reset_whole,
    "falls silent": _silent,
}


@pytest.mark.parametrize("what", ANSWER_ENDS)
async def test_an_answer_ends_in_the_middle(what: str, passed: list[bool]) -> None:
    armed = [False]

    async def act(there: Flowing, number: int) -> None:
        if not armed[0]:
            await echo(there, number)
            return
        armed[0] = False
        data = sent_in(await there.request(number))
        await ANSWER_ENDS[what](there, number, await half(there, number, data))

    async with (
        daemon(Upstream(act, WIDE), timeout=0.5 if what == "falls silent" else 20) as here,
        caller(here) as one,
    ):
        await warm(one)
        passed.clear()
        armed[0] = True
        side = await ask(one, contents(one.rng))
        assert side.body, "its answer has begun"
        assert side.status or side.reset is not None, side
        await until(here.idle)
        assert passed == [True]
        for _ in range(3):
            again = contents(one.rng)
            assert right(await ask(one, again), again)
        await until(here.idle)
        assert here.there.calls == WARM + 4
        assert here.counts["ended"][Operation.INFER, None] == WARM + 3
        assert sum(here.counts["ended"].values()) == WARM + 4


CALLER_ENDS = (
    "resets",
    "leaves",
    "has a deadline",
    "ends too early",
    "ends too early in an empty frame",
    "falls silent",
)


@pytest.mark.parametrize("what", CALLER_ENDS)
async def test_a_caller_ends_in_the_middle(what: str, passed: list[bool]) -> None:
    arrived = asyncio.Event()
    resets: list[int | None] = []

    async def act(there: Flowing, number: int) -> None:
        if armed:
            await there.request(number, 200_000)
            arrived.set()
            side = there.side(number)
            await there.until(lambda: side.reset is not None)
            assert not side.ended
            resets.append(side.reset)
        else:
            await echo(there, number)

    armed: list[bool] = []
    limits = {"body_timeout_secs": 0.4}
    async with (
        daemon(Upstream(act, WIDE), listener=limits) as here,
        caller(here) as one,
        caller(here) as other,
    ):
        await warm(one)
        passed.clear()
        armed.append(True)
        whole = message(request(contents(one.rng)))
        deadline = [("grpc-timeout", "300m")] if what == "has a deadline" else []
        number = other.open(METHOD, *deadline)
        side = other.side(number)
        await other.data(number, whole[:300_000])
        await asyncio.wait_for(arrived.wait(), 30)
        if what == "resets":
            other.write(frame(RST_STREAM, 0, number, (8).to_bytes(4, "big")))
        elif what == "leaves":
            other.writer.transport.abort()
        elif what == "ends too early":
            await other.data(number, whole[300_000:400_000], ended=True)
        elif what == "ends too early in an empty frame":
            other.write(frame(DATA, END_STREAM, number))
        if what not in ("resets", "leaves"):
            await other.ended(number)
            assert side.status == {"has a deadline": 4, "falls silent": 4}.get(what, 13), side
        await until(here.idle)
        await until(lambda: resets)
        assert resets == [8]
        assert passed == [True]
        armed.clear()
        for each in (one, other):
            if not each.closed:
                again = contents(one.rng)
                assert right(await ask(each, again), again)
        await until(here.idle)
        assert len(here.there.connections) == 1


async def test_a_caller_leaves_in_the_middle_of_an_answer(passed: list[bool]) -> None:
    armed: list[bool] = []
    resets: list[int | None] = []

    async def act(there: Flowing, number: int) -> None:
        if not armed:
            await echo(there, number)
            return
        await half(there, number, sent_in(await there.request(number)))
        side = there.side(number)
        await there.until(lambda: side.reset is not None)
        resets.append(side.reset)

    async with daemon(Upstream(act, WIDE)) as here, caller(here) as one:
        await warm(one)
        armed.append(True)
        for how in ("resets", "leaves"):
            async with caller(here) as other:
                number = other.open(METHOD)
                await other.data(number, message(request(contents(one.rng))), ended=True)
                await other.begun(number)
                if how == "leaves":
                    other.writer.transport.abort()
                else:
                    other.write(frame(RST_STREAM, 0, number, (8).to_bytes(4, "big")))
                await until(here.idle)
        await until(lambda: len(resets) == 2)
        armed.clear()
        again = contents(one.rng)
        assert right(await ask(one, again), again)
        assert passed[-3:] == [True] * 3


async def _half_sent(here: Flowing, *more: tuple[str, str]) -> tuple[int, bytes]:
    """Begin a message: its stream, and the rest."""
    whole = message(request(contents(here.rng)))
    number = here.open(METHOD, *more)
    await here.data(number, whole[:300_000])
    return number, whole[300_000:]


async def test_a_listener_that_stops_cuts_messages(passed: list[bool]) -> None:
    async with daemon(Upstream(echo, WIDE)) as here, caller(here) as one:
        await warm(one)
        passed.clear()
        number, _ = await _half_sent(one)
        await until(lambda: passed)
        assert await here.server.stop(0.1) == 1
        side = one.side(number)
        with suppress(EOFError):
            await one.ended(number)
        assert side.status == 14
        await until(here.idle)


async def test_a_caller_breaks_the_rules_in_the_middle(passed: list[bool]) -> None:
    resets: list[int | None] = []

    async def act(there: Flowing, number: int) -> None:
        await echo(there, number)
        resets.append(there.side(number).reset)

    async with daemon(Upstream(act, WIDE)) as here, caller(here) as one:
        await warm(one)
        passed.clear()
        async with caller(here) as other:
            number, rest = await _half_sent(other)
            good = frame(DATA, 0, number, rest[:20_000])
            other.write(good * 3 + frame(PING, 0, number, bytes(8)) + good)
            await other.until(lambda: other.goaway is not None)
        await until(here.idle)
        await until(lambda: resets[-1] == 8)
        assert passed == [True]
        data = contents(one.rng)
        assert right(await ask(one, data), data)


async def test_a_length_that_the_message_has_not(passed: list[bool]) -> None:
    async with daemon(Upstream(echo, WIDE)) as here, caller(here) as one:
        await warm(one)
        passed.clear()
        data = contents(one.rng)
        size = len(message(request(data)))
        for length in (size - 1, size + 1, 400_000, size):
            side = await ask(one, data, ("content-length", str(length)), sizes=[16_384])
            assert (length == size and right(side, data)) or side.reset == 1, (length, side)
            await until(here.idle)
        assert passed == [True] * 4


@pytest.mark.parametrize("what", ["has a deadline", "does not read"])
async def test_a_caller_stops_in_the_middle_of_an_answer(what: str, passed: list[bool]) -> None:
    armed: list[bool] = []
    resets: list[int | None] = []

    async def act(there: Flowing, number: int) -> None:
        if not armed:
            await echo(there, number)
            return
        rest = await half(there, number, sent_in(await there.request(number)))
        side = there.side(number)
        if what == "does not read":
            await there.data(number, rest)
            await there.end_answer(number)
        else:
            await there.until(lambda: side.reset is not None)
            resets.append(side.reset)

    hello = ((INITIAL_WINDOW, 20_000),)
    limits = {"write_timeout_secs": 0.4}
    async with daemon(Upstream(act, WIDE), listener=limits) as here, caller(here) as one:
        await warm(one)
        passed.clear()
        armed.append(True)
        async with caller(here, hello=hello if what == "does not read" else WIDE) as other:
            other.given = lambda number, size: None
            deadline = [("grpc-timeout", "300m")] if what == "has a deadline" else []
            side = await ask(other, contents(one.rng), *deadline)
            assert 0 < len(side.body) < SIZE
            assert side.status == 4 if what == "has a deadline" else side.reset == 8
            await until(here.idle)
            armed.clear()
            other.given = other.give_back
            small = contents(one.rng, 400)
            assert right(await ask(other, small), small)
        assert passed[0]
        assert what == "does not read" or resets == [8]
        data = contents(one.rng)
        assert right(await ask(one, data), data)
