"""Requests of a front end to the runtime process, both ends on one event loop."""

from __future__ import annotations

import asyncio
import gc
import marshal
import math
import os
import pickle
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.runtime.ring import channel, records
from interlingua.runtime.ring.arena import Extent
from interlingua.runtime.ring.channel import SLOTS, create
from interlingua.runtime.ring.client import RuntimeClient
from interlingua.runtime.ring.server import WINDOW, RuntimeServer
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    Tensor,
)
from interlingua.schemas.datatypes import Datatype
from tests.runtime.ring.conftest import ARENA_BYTES, Link, Model
from tests.strategies import tensors
from tests.waiting import until


def of(size: int, value: int = 7) -> Tensor:
    return Tensor("IN", Datatype.UINT8, (size,), memoryview(bytes([value]) * size))


def request(*inputs: Tensor, **more: object) -> InferRequest:
    return InferRequest("model", inputs, **more)  # type: ignore[arg-type]


async def echo(received: InferRequest) -> InferResponse:
    received.context.timings["exec"] = 5
    return InferResponse("model", received.inputs, "3", received.id, {"n": 1.5, "b": True})


@pytest.mark.parametrize("size", [0, 1, 64, 2048, 2049, 4000, 5000, 65536, 1 << 20])
@pytest.mark.parametrize("at_once", [False, True])
async def test_tensors_of_every_size_come_back(link: Link, size: int, at_once: bool) -> None:
    link.models["model"] = Model(echo, at_once=at_once)
    response = await link.client.infer(request(of(size), of(100, 9)), "model")
    assert [bytes(each.view) for each in response.outputs] == [b"\x07" * size, b"\x09" * 100]
    assert response.outputs[0].view.readonly


class Arena:
    """The part of a channel that tensors need."""

    def __init__(self) -> None:
        self.places: list[memoryview] = []

    def place(self, data: memoryview) -> Extent:
        self.places.append(data)
        return Extent(len(self.places) - 1, 0, len(data))


@given(st.lists(tensors(), max_size=4))
def test_every_tensor_of_the_ir_comes_back(sent: list[Tensor]) -> None:
    arena: Any = Arena()
    values = records.plain_request(arena, request(*sent), "model", False, [])
    assert records.read_request(marshal.loads(marshal.dumps(values)), arena.places).inputs == tuple(sent)


async def test_a_request_keeps_its_fields(link: Link) -> None:
    model = link.models["model"] = Model(echo)
    deadline = time.monotonic() + 60
    context = Context(
        deadline=deadline,
        traceparent="00-1-2-01",
        tracestate="a=b",
        peer="1.2.3.4",
        headers={"x": "y"},
        copied=True,
    )
    sent = request(
        of(3),
        outputs=(RequestedOutput("OUT", 2), RequestedOutput("B")),
        version="4",
        id="an id",
        parameters={"i": -(1 << 63), "u": (1 << 64) - 1, "f": math.inf, "s": "\udc80", "b": False},
        sequence=Sequence(17, start=True),
        priority=2,
        timeout_us=300,
        context=context,
        answers="only",
    )
    sent.inputs[0].parameters = {"content_type": "np", "n": 1}
    response = await link.client.infer(sent, "model", headers=True)
    (received,) = model.received
    assert received == sent
    assert received.inputs[0].parameters == sent.inputs[0].parameters
    assert received.answers == "only"
    assert replace(received.context, cancel=context.cancel, timings={}) == replace(context, timings={})
    assert response == InferResponse("model", response.outputs, "3", "an id", {"n": 1.5, "b": True})
    assert context.timings == {"exec": 5}
    await link.client.infer(sent, "model")
    assert model.received[1].context.headers == {}


@pytest.mark.parametrize("at_once", [False, True])
async def test_errors_keep_their_fields(link: Link, at_once: bool) -> None:
    failure = InferenceError(
        ErrorCode.MODEL_FAILED,
        "it failed",
        origin="it",
        retryable=True,
        details={"kind": "unknown", "n": 3},
        begun=True,
    )

    async def fail(_: InferRequest) -> InferResponse:
        raise failure

    link.models["model"] = Model(fail, at_once=at_once)
    with pytest.raises(InferenceError) as raised:
        await link.client.infer(request(of(4)), "model")
    assert vars(raised.value) == vars(failure)
    with pytest.raises(InferenceError, match="unknown model 'other'"):
        await link.client.infer(InferRequest("model", ()), "other")


@pytest.mark.parametrize("at_once", [False, True])
async def test_an_unexpected_error_is_logged_and_keeps_its_text(
    link: Link, caplog: pytest.LogCaptureFixture, at_once: bool
) -> None:
    async def fail(_: InferRequest) -> InferResponse:
        raise KeyError("a secret")

    link.models["model"] = Model(fail, at_once=at_once)
    with pytest.raises(InferenceError, match="internal error") as raised:
        await link.client.infer(request(of(4)), "model")
    assert raised.value.code is ErrorCode.INTERNAL
    assert "a secret" in caplog.text


async def test_a_model_that_waits_after_all_is_an_error(link: Link, caplog: pytest.LogCaptureFixture) -> None:
    async def wait(_: InferRequest) -> InferResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    link.models["model"] = Model(wait, at_once=True)
    with pytest.raises(InferenceError, match="internal error"):
        await link.client.infer(request(of(4)), "model")
    assert "answers at once" in caplog.text


async def test_many_requests_at_once_get_their_own_answers(link: Link) -> None:
    link.models["model"] = Model(echo)
    sizes = [1 + (number * 37) % 9000 for number in range(SLOTS // 2)]
    responses = await asyncio.gather(
        *(link.client.infer(request(of(size, size % 251)), "model") for size in sizes)
    )
    for size, response in zip(sizes, responses, strict=True):
        assert bytes(response.outputs[0].view) == bytes([size % 251]) * size


async def test_memory_comes_back(link: Link) -> None:
    link.models["model"] = Model(echo)
    for _ in range(5 * ARENA_BYTES // (1 << 20)):
        await link.client.infer(request(of(1 << 20)), "model")


async def test_a_full_arena_is_overload(link: Link) -> None:
    held = []

    async def keep(received: InferRequest) -> InferResponse:
        held.append(received)
        return InferResponse("model", ())

    model = link.models["model"] = Model(keep)
    for _ in range(4):
        await link.client.infer(request(of(1 << 20)), "model")
    with pytest.raises(InferenceError, match="no shared memory for 1048576 bytes") as raised:
        await link.client.infer(request(of(1 << 20)), "model")
    assert raised.value.code is ErrorCode.OVERLOADED
    held.clear()
    model.received.clear()
    await link.client.infer(request(of(1 << 20)), "model")


async def test_a_full_ring_is_overload(link: Link) -> None:
    link.models["model"] = Model(echo)
    tasks = [asyncio.create_task(link.client.infer(request(of(4)), "model")) for _ in range(SLOTS + 9)]
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [each for each in ended if isinstance(each, InferenceError)]
    # the first that finds no slot waits for one, the others are refused
    assert len(failed) == 8
    assert {each.code for each in failed} == {ErrorCode.OVERLOADED}
    await link.client.infer(request(of(4)), "model")


async def test_a_tensor_in_the_arena_is_not_copied(link: Link) -> None:
    model = link.models["model"] = Model(echo)
    memory = link.client.allocate(100_000)
    assert memory is not None
    memory[:] = bytes(100_000)
    sending = asyncio.create_task(
        link.client.infer(request(Tensor("IN", Datatype.UINT8, (99_000,), memory[1000:])), "model")
    )
    await asyncio.sleep(0)
    # written after it was sent: only a view in place shows it
    memory[1000] = 42
    response = await sending
    assert model.received[0].inputs[0].view[0] == 42
    assert response.outputs[0].view[0] == 42


async def test_an_output_that_is_an_input_is_not_sent_back(link: Link) -> None:
    async def answer(received: InferRequest) -> InferResponse:
        first, second, small = received.inputs
        part = Tensor("part", Datatype.UINT8, (4000,), first.view[1000:])
        own = Tensor("own", Datatype.UINT8, (5000,), memoryview(bytes(second.view)))
        return InferResponse("model", (second.renamed("same"), part, own, small))

    async def answers(received: InferRequest) -> AsyncGenerator[InferResponse, None]:
        yield await answer(received)

    link.models["model"] = Model(answer, answers)
    sent = request(of(5000, 1), of(5000, 2), of(3, 3))
    response = await link.client.infer(sent, "model")
    (streamed,) = [each async for each in link.client.stream(sent, "model")]
    for outputs in (response.outputs, streamed.outputs):
        assert outputs[0].view.obj is sent.inputs[1].view.obj
        assert [(each.name, each.view[0], len(each.view)) for each in outputs] == [
            ("same", 2, 5000),
            ("part", 1, 4000),
            ("own", 2, 5000),
            ("IN", 3, 3),
        ]


async def test_memory_of_requests_and_answers_without_a_reader_comes_back(link: Link) -> None:
    began, done = asyncio.Event(), asyncio.Event()

    async def answer(received: InferRequest) -> InferResponse:
        began.set()
        await done.wait()
        return InferResponse("model", (of(1 << 20),))

    async def endless(received: InferRequest) -> AsyncGenerator[InferResponse, None]:
        while True:
            yield InferResponse("model", (of(1 << 17),), final=False)

    link.models["model"] = Model(answer, endless)
    # cancelled before the runtime has begun it, and when its answer is on its way
    unread = asyncio.create_task(link.client.infer(request(of(1 << 20)), "model"))
    await asyncio.sleep(0)
    unread.cancel()
    late = asyncio.create_task(link.client.infer(request(of(1 << 20)), "model"))
    await asyncio.wait_for(began.wait(), 30)
    done.set()
    await until(lambda: link.server._channel.arena.used_bytes, pace_secs=0)
    late.cancel()
    await asyncio.wait((unread, late))
    assert unread.cancelled()
    assert late.cancelled()
    # their tracebacks refer to the answers
    del unread, late
    # a stream that its caller leaves with responses on their way
    stream = link.client.stream(request(of(1 << 20)), "model")
    await anext(stream)
    await stream.aclose()
    # a record of which a part finds no space
    with pytest.raises(InferenceError, match="no shared memory"):
        await link.client.infer(request(of(3 << 20), of(2 << 20)), "model")
    link.models["model"].received.clear()
    async with asyncio.timeout(30):
        for arena in (link.client._channel.arena, link.server._channel.arena):
            await until(lambda arena=arena: arena.allocate(ARENA_BYTES) is not None)


async def test_a_cancelled_caller_cancels_the_request(link: Link) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(received: InferRequest) -> InferResponse:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            assert received.context.cancel.cancelled
            ended.set()
        raise AssertionError

    link.models["model"] = Model(wait)
    sending = asyncio.create_task(link.client.infer(request(of(4)), "model"))
    await began.wait()
    sending.cancel()
    await asyncio.wait((sending,))
    await asyncio.wait_for(ended.wait(), 30)
    # also one that is cancelled before the runtime has begun it
    sending = asyncio.create_task(link.client.infer(request(of(4)), "model"))
    await asyncio.sleep(0)
    sending.cancel()
    link.models["model"] = Model(echo)
    await link.client.infer(request(of(4)), "model")


async def test_a_runtime_that_does_not_answer_is_late(link: Link) -> None:
    async def wait(_: InferRequest) -> InferResponse:
        await asyncio.sleep(60)
        raise AssertionError

    link.models["model"] = Model(wait)
    context = Context(deadline=time.monotonic() + 0.01)
    with pytest.raises(InferenceError, match="before the deadline") as raised:
        await link.client.infer(request(of(4), context=context), "model")
    assert raised.value.code is ErrorCode.DEADLINE_EXCEEDED


async def numbers(received: InferRequest, count: int) -> AsyncGenerator[InferResponse, None]:
    for number in range(count):
        yield InferResponse("model", (of(3000, number % 256),), final=False, ordered=False)
    yield InferResponse("model", (), "1", final=True)


async def test_a_stream_arrives_in_order(link: Link) -> None:
    link.models["model"] = Model(answers=lambda received: numbers(received, 100))
    got = [response async for response in link.client.stream(request(of(4), answers="many"), "model")]
    assert [each.outputs[0].view[0] for each in got[:-1]] == list(range(100))
    assert [each.final for each in got] == [False] * 100 + [True]


async def test_a_stream_does_not_run_ahead_of_its_caller(link: Link) -> None:
    sent = 0

    async def endless(received: InferRequest) -> AsyncGenerator[InferResponse, None]:
        nonlocal sent
        try:
            while True:
                sent += 1
                yield InferResponse("model", (of(4),), final=False)
        finally:
            ended.set()

    ended = asyncio.Event()
    link.models["model"] = Model(answers=endless)
    stream = link.client.stream(request(of(4)), "model")
    for _ in range(3):
        await anext(stream)
    await until(lambda: sent >= WINDOW)
    await asyncio.sleep(0.01)
    assert sent <= WINDOW + 3
    await stream.aclose()
    await asyncio.wait_for(ended.wait(), 30)


async def test_a_stream_that_fails_raises(link: Link) -> None:
    async def fails(_: InferRequest) -> AsyncGenerator[InferResponse, None]:
        yield InferResponse(
            "model", (of(4),), final=False, error=InferenceError(ErrorCode.MODEL_FAILED, "one")
        )
        raise InferenceError(ErrorCode.MODEL_FAILED, "all")

    link.models["model"] = Model(answers=fails)
    stream = link.client.stream(request(of(4)), "model")
    first = await anext(stream)
    assert first.error is not None
    assert first.error.message == "one"
    with pytest.raises(InferenceError, match="all"):
        await anext(stream)


async def test_calls_by_name(link: Link) -> None:
    async def add(one: int, other: Tensor) -> tuple[int, Tensor]:
        return one + 1, other

    async def refuse() -> None:
        raise InferenceError(ErrorCode.UNSUPPORTED, "not here")

    link.calls.update(add=add, refuse=refuse)
    assert await link.client.call("add", 1, Tensor("a", Datatype.INT8, (), 3)) == (  # type: ignore[arg-type]
        2,
        Tensor("a", Datatype.INT8, (), 3),  # type: ignore[arg-type]
    )
    with pytest.raises(InferenceError, match="not here"):
        await link.client.call("refuse")


async def test_notices(link: Link) -> None:
    link.server.notify(pickle.dumps({"models": ["a"]}))
    link.server.notify(pickle.dumps("x" * 10_000))
    await until(lambda: len(link.notices) >= 2)
    assert link.notices == [{"models": ["a"]}, "x" * 10_000]


async def test_a_lost_runtime_fails_what_runs(link: Link) -> None:
    async def wait(_: InferRequest) -> InferResponse:
        await asyncio.sleep(60)
        raise AssertionError

    link.models["model"] = Model(wait, lambda received: numbers(received, 1000))
    sending = asyncio.create_task(link.client.infer(request(of(4)), "model"))
    stream = link.client.stream(request(of(4)), "model")
    await anext(stream)
    await link.server.close()
    await asyncio.wait_for(link.client_lost.wait(), 30)

    async def rest() -> None:
        async for _ in stream:
            pass

    for failing in (sending, rest()):
        with pytest.raises(InferenceError, match="the runtime process has exited") as raised:
            await failing
        assert (raised.value.code, raised.value.begun) == (ErrorCode.UNAVAILABLE, True)
    with pytest.raises(InferenceError) as raised:
        await link.client.infer(request(of(4)), "model")
    assert (raised.value.code, raised.value.begun) == (ErrorCode.UNAVAILABLE, False)


async def test_a_lost_front_end_cancels_what_runs(link: Link) -> None:
    cancelled = asyncio.Event()

    async def wait(_: InferRequest) -> InferResponse:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        raise AssertionError

    link.models["model"] = Model(wait)
    sending = asyncio.create_task(link.client.infer(request(of(4)), "model"))
    await asyncio.sleep(0.01)
    link.client.close()
    await asyncio.wait_for(link.server_lost.wait(), 30)
    assert cancelled.is_set()
    with pytest.raises(InferenceError):
        await sending


async def test_damaged_memory_ends_the_channel(link: Link, caplog: pytest.LogCaptureFixture) -> None:
    link.models["model"] = Model(echo)
    link.client._channel._writer._counters[0] = 1 << 40
    link.client._channel._flush()
    await asyncio.wait_for(link.server_lost.wait(), 30)
    assert "channel memory damaged" in caplog.text


async def test_no_descriptor_stays_open() -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for _ in range(3):
        here, there = create(ARENA_BYTES)
        lost = asyncio.Event()
        server = RuntimeServer(there, lambda _: Model(echo), {}, lost.set)
        client = RuntimeClient(here)
        await client.infer(request(Tensor.from_numpy("IN", np.zeros(100_000, np.uint8))), "model")
        client.close()
        await lost.wait()
        del client, server
    assert count() == before


async def test_memory_of_large_tensors_goes_back_when_they_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_TRIM_SECS", 0.02)
    here, there = create(ARENA_BYTES)
    written, read = os.dup(here.written), os.dup(here.read)
    client = RuntimeClient(here)
    server = RuntimeServer(there, lambda _: Model(echo), {}, lambda: None)

    def held() -> int:
        return sum(os.fstat(each).st_blocks * 512 for each in (written, read))

    before = held()
    size = ARENA_BYTES // 2
    response = await client.infer(request(of(size)), "model")
    assert held() >= before + size
    del response
    await until(lambda: held() <= before + size // 8)
    await server.close()
    client.close()
    os.close(written)
    os.close(read)
