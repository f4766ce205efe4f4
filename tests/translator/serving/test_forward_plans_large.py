"""Repeated requests with bodies of more than one piece, and with large answers, held against the pipeline."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import numpy as np
import pytest

from tests.translator.serving import spied_plans
from tests.translator.serving.test_forward_plans import (
    HUGE,
    UNUSUAL,
    USUAL,
    WARM,
    Act,
    Bridge,
    Standin,
    bridge,
    doing,
    hang,
    header,
    reply,
)
from tests.waiting import steady, until

SIZE = 80_000
ASK = header("inputs", SIZE, parameters={"binary_data_output": True})


def request(number: float, size: int = SIZE, more: str = "") -> bytes:
    ask = header("inputs", size, parameters={"binary_data_output": True})
    return (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: here\r\nInference-Header-Content-Length: {len(ask)}\r\n"
        f"{more}Content-Length: {len(ask) + size}\r\n\r\n"
    ).encode() + (ask + np.full(size // 4, number, np.float32).tobytes())


async def send(here: Bridge, message: bytes, pieces: int) -> None:
    """Write ``message`` so that it arrives in ``pieces``, at least."""
    step = -(-len(message) // pieces)
    for place in range(0, len(message), step):
        here.writer.write(message[place : place + step])
        await here.writer.drain()
        if pieces > 1:
            await asyncio.sleep(0.005)


async def ask(here: Bridge, message: bytes, pieces: int) -> tuple[bytes, list[bytes], bytes]:
    await send(here, message, pieces)
    return await here.answer()


def counts(here: Bridge) -> dict[str, Any]:
    load = here.pipeline.load
    return {**here.counts, "held": (load.body_bytes, load.total.body_bytes), "refused": dict(load.refused)}


async def warm(here: Bridge, pieces: int, size: int = SIZE) -> None:
    for number in range(WARM):
        status, _, _ = await ask(here, request(number, size), pieces)
        assert status == b"HTTP/1.1 200 OK"


ACTS: dict[str, Act] = {
    "as usual": USUAL,
    **{
        name: UNUSUAL[name]
        for name in ("an error", "unavailable", "half an answer", "a large answer", "silence")
    },
    "an answer that is read as it arrives": doing(lambda data: reply(100_000 * data, HUGE)),
}


async def _acts(what: str, pieces: int) -> tuple[Any, ...]:
    there = Standin([USUAL] * WARM + [ACTS[what]])
    async with bridge(there) as here:
        await warm(here, pieces)
        answers = [await ask(here, request(number), pieces) for number in range(4)]
        await until(lambda: here.pipeline.load.body_bytes == 0)
        return answers, counts(here), there.seen, there.connections


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("what", ACTS)
async def test_an_answer(what: str, pieces: int, sent: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    fast = await _acts(what, pieces)
    assert sent.count(True) >= 4
    sent.clear()
    spied_plans.off(monkeypatch)
    assert await _acts(what, pieces) == fast
    assert not sent


async def _body_counts(pieces: int) -> tuple[Any, ...]:
    there = Standin([USUAL] * WARM + [hang])
    async with bridge(there) as here:
        await warm(here, pieces)
        await send(here, request(7), pieces)
        await until(lambda: len(there.seen) > WARM)
        held = counts(here)["held"]
        here.writer.transport.abort()
        await until(lambda: not here.server.at_work and not here.counts["server"][1])
        after = counts(here)
        return held, {key: after[key] for key in after if key != "requests"}


@pytest.mark.parametrize("pieces", [1, 3])
async def test_a_body_counts_until_its_request_ends(
    pieces: int, sent: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = await _body_counts(pieces)
    assert sent[-1]
    assert fast[0] == (len(ASK) + SIZE, len(ASK) + SIZE)
    assert fast[1]["held"] == (0, 0)
    spied_plans.off(monkeypatch)
    assert await _body_counts(pieces) == fast


async def _above_limits(pieces: int) -> tuple[Any, ...]:
    async with bridge(Standin()) as here:
        await warm(here, pieces)
        load = here.pipeline.load
        load.body_bytes += 1  # another request's
        load.max_bytes = SIZE
        refused = await ask(here, request(7), pieces)
        load.body_bytes -= 1
        return refused, counts(here)


@pytest.mark.parametrize("pieces", [1, 3])
async def test_bytes_above_the_limit_are_refused_once(
    pieces: int, sent: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = await _above_limits(pieces)
    before = sent.count(True)
    assert fast[0][0] == b"HTTP/1.1 429 Too Many Requests"
    assert fast[1]["refused"] == {"max_inflight_bytes": 1}
    spied_plans.off(monkeypatch)
    assert await _above_limits(pieces) == fast
    assert sent.count(True) == before


async def test_a_body_alone_is_above_the_limit(sent: list[bool]) -> None:
    async with bridge(Standin()) as here:
        await warm(here, 1)
        here.pipeline.load.max_bytes = 1000
        assert (await ask(here, request(7), 1))[0] == b"HTTP/1.1 200 OK"
    assert sent[-1]


async def test_a_body_that_leaves_before_it_has_arrived(sent: list[bool]) -> None:
    async with bridge(Standin()) as here:
        await warm(here, 1, 400_000)
        assert (await ask(here, request(7, 400_000), 4))[0] == b"HTTP/1.1 200 OK"
    assert not sent


async def test_a_client_that_expects_continue(sent: list[bool]) -> None:
    expects = "Expect: 100-continue\r\n"
    async with bridge(Standin()) as here:
        for number in range(WARM + 2):
            message = request(number, more=expects)
            head = message.index(b"\r\n\r\n") + 4
            here.writer.write(message[:head])
            assert await here.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            here.writer.write(message[head:])
            assert (await here.answer())[0] == b"HTTP/1.1 200 OK"
    assert sent[-1]


async def _slow_reader(number: int) -> tuple[Any, ...]:
    """Pipelines requests whose answers are more than the sockets hold, and then reads."""
    large = header("outputs", 200_000, model_name="m", model_version="1")
    there = Standin([USUAL] * WARM + [doing(lambda data: reply(50_000 * data, large))] * number)
    async with bridge(there) as here:
        here.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        await warm(here, 1, 4)
        here.writer.transport.pause_reading()  # type: ignore[attr-defined]
        here.writer.write(request(7, 4) * number)
        # until the daemon waits for its client
        stopped = await steady(lambda: len(there.seen))
        here.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answers = [await here.answer() for _ in range(number)]
        await until(lambda: here.counts["in flight"][3] == 0)
        return stopped, answers, counts(here)


async def test_a_client_that_reads_slowly(sent: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    number = 60
    stopped, answers, counted = await _slow_reader(number)
    assert stopped < WARM + number
    assert len(answers) == number
    assert sent.count(True) >= number
    assert all(len(body) == len(answers[0][2]) for _, _, body in answers)
    spied_plans.off(monkeypatch)
    assert (await _slow_reader(number))[1:] == (answers, counted)
