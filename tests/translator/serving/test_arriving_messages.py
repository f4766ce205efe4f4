"""Messages that pass on while they arrive, held against the pipeline; limits, and changes meanwhile."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from interlingua.protocols.wire import ArrivingMessage, GrpcAnswer, GrpcRequest
from interlingua.schemas.oip import MESSAGES
from tests.protocols.transport.h2.flowing import (
    Flowing,
    Upstream,
)
from tests.protocols.transport.h2.peer import (
    message,
)
from tests.translator.serving import spied_plans
from tests.translator.serving import test_forward_plans_grpc as over_grpc
from tests.translator.serving.passthrough_daemon import (
    METHOD,
    PREFIX,
    SIZE,
    TENSORS,
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

# held against the pipeline


def _shaped(data: bytes, times: int = 1, name: str = "x", model: str = "m") -> GrpcAnswer:
    return GrpcAnswer(over_grpc.reply(times * data, name, model, shape=times * len(data) // 4))


UNUSUAL: dict[str, over_grpc.Act] = {
    **{name: over_grpc.UNUSUAL[name] for name in ("an error", "not found", "unavailable", "garbage")},
    **{name: over_grpc.UNUSUAL[name] for name in ("an empty answer", "a connection that breaks", "silence")},
    "another output": lambda there, data: _shaped(data, name="y"),
    "another model": lambda there, data: _shaped(data, model="other"),
    "a wrong size": lambda there, data: GrpcAnswer(over_grpc.reply(data + data, shape=len(data) // 4)),
    "a longer answer": lambda there, data: _shaped(data, 3),
    "a short answer": lambda there, data: _shaped(data[:4]),
    "trailing metadata": lambda there, data: replace(_shaped(data), trailing=(("more", "words"),)),
    "an answer with an id": lambda there, data: GrpcAnswer(b"\x1a\x01x" + _shaped(data).message),
}


@dataclass
class Echo(over_grpc.Standin):
    """Answers with the contents of its requests."""

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        data = sent_in(message(bytes(request.message)))
        self.seen.append(data)
        act = self.acts.pop(0) if self.acts else None
        answer = _shaped(data) if act is None else act(self, data)
        if answer is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        assert answer is not None
        return answer


async def _unusual(what: str, size: int, caplog: pytest.LogCaptureFixture) -> tuple[Any, ...]:
    caplog.clear()
    rng = random.Random(size)
    there = Echo([None] * WARM + [UNUSUAL[what]] * 2)
    async with over_grpc.bridge(there) as here:
        answers, sent = [], [contents(rng, size) for _ in range(WARM + 4)]
        for data in sent:
            answers.append(await here.ask(request(data)))
        await until(lambda: here.counts["in flight"] == (0, 0, 0, 0))
        load = here.pipeline.load
        assert (load.body_bytes, load.total.body_bytes) == (0, 0)
        assert there.seen == sent
        assert there.server is not None
        logs = [
            (record.name, record.getMessage().replace(str(there.server.address), "there"))
            for record in caplog.records
            if record.name.startswith("interlingua")
        ]
        return answers, here.counts, logs


@pytest.mark.parametrize("size", [400_000, SIZE])
@pytest.mark.parametrize("what", UNUSUAL)
async def test_an_unusual_answer(
    what: str,
    size: int,
    passed: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    fast = await _unusual(what, size, caplog)
    assert passed.count(True) >= 4
    passed.clear()
    spied_plans.off(monkeypatch)
    usual = await _unusual(what, size, caplog)
    assert usual == fast
    assert not passed


# the daemon's own limits, and its changes


async def test_connections_that_retire_finish_their_messages(passed: list[bool]) -> None:
    begun, going = asyncio.Event(), asyncio.Event()

    async def act(there: Flowing, number: int) -> None:
        if not going.is_set():
            await echo(there, number)
            return
        await there.request(number, 200_000)
        begun.set()
        data = sent_in(await there.request(number))
        rest = await half(there, number, data)
        await there.data(number, rest)
        await there.end_answer(number)

    async with daemon(Upstream(act, WIDE)) as here:
        for how in ("retire", "stop"):
            begun.clear()
            going.clear()
            async with caller(here) as one:
                await warm(one)
                passed.clear()
                going.set()
                data = contents(one.rng)
                whole = message(request(data))
                number = one.open(METHOD)
                side = one.side(number)
                await one.data(number, whole[:300_000])
                await asyncio.wait_for(begun.wait(), 30)
                stopping = None
                if how == "retire":
                    here.server.retire_connections()
                else:
                    stopping = asyncio.ensure_future(here.server.stop(10))
                await one.until(lambda: one.goaway is not None)
                await asyncio.sleep(0.05)
                await one.data(number, whole[300_000:], ended=True)
                await one.ended(number)
                assert right(side, data)
                assert passed == [True]
                await until(here.idle)
                assert stopping is None or await stopping == 0


async def test_a_server_that_leaves_finishes_its_messages(passed: list[bool]) -> None:
    """GOAWAY that includes the call."""
    armed: list[bool] = []

    async def act(there: Flowing, number: int) -> None:
        if armed:
            armed.clear()
            await there.request(number, 200_000)
            there.write(goaway(number))
        await echo(there, number)

    async with daemon(Upstream(act, WIDE)) as here, caller(here) as one:
        await warm(one)
        armed.append(True)
        passed.clear()
        for _ in range(3):
            data = contents(one.rng)
            assert right(await ask(one, data), data)
        assert passed[0]
        await until(lambda: here.idle() and len(here.there.connections) == 2)
        assert here.there.calls == WARM + 3


async def _limited(limits: dict[str, Any], upstream: dict[str, Any]) -> tuple[Any, ...]:
    async with daemon(Upstream(echo, WIDE), listener=limits, upstream=upstream) as here, caller(here) as one:
        found = []
        for size in (*[300_000] * WARM, *[SIZE] * WARM):
            data = contents(one.rng, size)
            side = await ask(one, data)
            found.append(
                (right(side, data), side.status, {**side.head, **side.trailers}.get("grpc-message", ""))
            )
        await until(here.idle)
        return found, here.counts["ended"], here.counts["held"], dict(here.load.refused)


@pytest.mark.parametrize(
    ("limit", "upstream"),
    [("max_request_bytes", False), ("max_response_bytes", False), ("max_response_bytes", True)],
)
async def test_messages_above_a_limit(
    limit: str, upstream: bool, passed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {limit: 500_000}
    arguments = ({}, limits) if upstream else (limits, {})
    fast = await _limited(*arguments)
    assert passed.count(True) > 0
    passed.clear()
    assert [right for right, _, _ in fast[0]] == [True] * WARM + [False] * WARM
    spied_plans.off(monkeypatch)
    usual = await _limited(*arguments)
    for found in (fast, usual):
        found[0][:] = [(each, status, text.partition("127.0.0.1")[0]) for each, status, text in found[0]]
    assert usual == fast


async def test_bytes_above_the_limit_are_refused(passed: list[bool]) -> None:
    async with daemon(Upstream(echo, WIDE)) as here, caller(here) as one:
        await warm(one)
        passed.clear()
        load = here.load
        load.body_bytes += 1  # another request's
        most, load.max_bytes = load.max_bytes, 1000
        number = one.open(METHOD)
        side = one.side(number)
        await one.data(number, message(request(contents(one.rng)))[:600_000])
        await one.ended(number, reset=True)
        assert side.status == 8
        assert passed == []
        assert dict(load.refused) == {"max_inflight_bytes": 1}
        load.body_bytes -= 1
        load.max_bytes = most
        await until(here.idle)
        data = contents(one.rng)
        assert right(await ask(one, data), data)
        assert passed == [True]


async def test_a_reload_in_the_middle(passed: list[bool]) -> None:
    """The model has another target before the message has passed on: the server that has it answers, or the
    caller gets an error; nobody gets other contents."""
    begun, fails = asyncio.Event(), [False]
    elsewhere: list[bytes] = []

    async def act(there: Flowing, number: int) -> None:
        await there.request(number, 200_000)
        begun.set()
        data = sent_in(await there.request(number))
        if fails[0]:
            await there.begin_answer(number)
            await there.end_answer(number, 14, "busy")
        else:
            await there.answer(number, reply(data))

    async def other(there: Flowing, number: int) -> None:
        elsewhere.append(await there.request(number))
        await there.answer(number, reply(sent_in(elsewhere[-1])))

    async with (
        daemon(Upstream(act, WIDE)) as here,
        daemon(Upstream(other, WIDE)) as another,
        caller(here) as one,
    ):
        await warm(one)
        for fails[0] in (False, True):
            models: Any = here.assembly.service.router.models
            kept = models["m"]
            begun.clear()
            passed.clear()
            data = contents(one.rng)
            whole = message(request(data))
            number = one.open(METHOD)
            side = one.side(number)
            await one.data(number, whole[:300_000])
            await asyncio.wait_for(begun.wait(), 30)
            models["m"] = another.assembly.service.router.models["m"]
            await one.data(number, whole[300_000:], ended=True)
            await one.ended(number)
            if fails[0]:
                assert side.status == 14
            else:
                assert right(side, data)
            assert passed == [True]
            assert elsewhere == []
            models["m"] = kept
            await until(here.idle)


# messages that do not repeat


def _with(data: bytes, how: str) -> bytes:
    made: Any = MESSAGES["inference.ModelInferRequest"](model_name="m")
    made.inputs.add(name="x", datatype="FP32", shape=[len(data) // 4])
    if how == "another shape":
        made.inputs[0].shape[:] = [len(data) // 4, 1, 1, 1, 1]
    elif how == "an id":
        made.id = "id"
    elif how == "another name":
        made.inputs[0].name = "z"
    elif how == "a parameter":
        made.parameters["pppp"].int64_param = 7
    elif how == "requested outputs":
        for _ in range(4):
            made.outputs.add(name="x")
    elif how == "another version":
        made.model_version = "12"
    made.raw_input_contents.append(data)
    return bytes(made.SerializeToString())


KINDS = "another shape", "an id", "another name", "a parameter", "requested outputs", "another version"


async def _other_messages() -> tuple[Any, ...]:
    """Every kind of message, each of the size of one that repeats, and answers of the same size."""
    seen: list[bytes] = []

    async def act(there: Flowing, number: int) -> None:
        body = await there.request(number)
        seen.append(body)
        await there.answer(number, reply(sent_in(body)))

    async with daemon(Upstream(act, WIDE)) as here, caller(here) as one:
        found: list[Any] = []
        for how in KINDS:
            length = len(_with(contents(one.rng), how))
            plain = contents(one.rng, SIZE + length - len(request(bytes(SIZE))))
            assert len(request(plain)) == length
            for _ in range(WARM):
                assert right(await ask(one, plain), plain)
            for text in (_with(contents(one.rng), how), request(plain), _with(contents(one.rng), how)):
                number = one.open(METHOD)
                side = one.side(number)
                await one.data(number, message(text), ended=True)
                await one.ended(number)
                found.append((how, side.status, bytes(side.body), side.trailers.get("grpc-message")))
        await until(here.idle)
        return found, seen, here.counts


async def test_other_messages(passed: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    fast = await _other_messages()
    assert passed.count(True) > len(KINDS)
    spied_plans.off(monkeypatch)
    assert await _other_messages() == fast


async def test_messages_with_more_than_one_tensor_or_with_strings_are_complete_first(
    passed: list[bool],
) -> None:
    strings = [{**TENSORS[0], "datatype": "BYTES"}]
    pair = [{**TENSORS[0], "name": name} for name in "xy"]
    served = {"upstream": "there", "remote_model": "m"}
    models = {
        "m": {**served, "signature": {"inputs": TENSORS, "outputs": TENSORS}},
        "strings": {
            **served,
            "remote_model": "strings",
            "signature": {"inputs": strings, "outputs": TENSORS},
        },
        "pair": {**served, "remote_model": "pair", "signature": {"inputs": pair, "outputs": TENSORS}},
    }

    async def act(there: Flowing, number: int) -> None:
        data = sent_in(await there.request(number))
        made: Any = MESSAGES["inference.ModelInferRequest"].FromString(
            bytes(there.side(number).body[PREFIX:])
        )
        await there.answer(number, reply(data, model=made.model_name))

    async with daemon(Upstream(act, WIDE), models=models) as here, caller(here) as one:
        for name in ("strings", "pair"):
            for _ in range(WARM):
                data = contents(one.rng)
                made: Any = MESSAGES["inference.ModelInferRequest"](model_name=name)
                if name == "strings":
                    data = len(data).to_bytes(4, "little") + data
                    made.inputs.add(name="x", datatype="BYTES", shape=[1])
                    made.raw_input_contents.append(data)
                else:
                    for place, half in enumerate((data[: SIZE // 2], data[SIZE // 2 :])):
                        made.inputs.add(name="xy"[place], datatype="FP32", shape=[len(half) // 4])
                        made.raw_input_contents.append(half)
                number = one.open(METHOD)
                await one.data(number, message(made.SerializeToString()), ended=True)
                side = await one.ended(number)
                assert side.status == 0, side
                assert bytes(side.body) == message(reply(data, model=name))
        await until(here.idle)
    assert True not in passed


async def test_sizes_alternate_on_one_connection(passed: list[bool]) -> None:
    sizes = 64, 300_000, SIZE
    async with daemon(Upstream(echo, WIDE)) as here, caller(here) as one:
        for size in sizes:
            await warm(one, size)
        passed.clear()
        for size in sizes * 4:
            data = contents(one.rng, size)
            assert right(await ask(one, data, sizes=[1 << 14]), data)
        # that of 64 bytes is complete when it is offered
        assert passed == [False, True, True] * 4


async def test_a_known_connection_finds_another_path(passed: list[bool]) -> None:
    """A model of the same sizes takes its turn: the path that is known does not take its messages."""
    served = {"upstream": "there", "remote_model": "m", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
    models = {"m": served, "n": {**served, "remote_model": "n"}}

    async def act(there: Flowing, number: int) -> None:
        body = await there.request(number)
        made: Any = MESSAGES["inference.ModelInferRequest"].FromString(bytes(body[PREFIX:]))
        await there.answer(number, reply(sent_in(body), model=made.model_name))

    async with daemon(Upstream(act, WIDE), models=models) as here, caller(here) as one:
        for model in "mnm":
            for _ in range(WARM):
                data = contents(one.rng)
                number = one.open(METHOD)
                await one.data(number, message(request(data, model)), ended=True)
                side = await one.ended(number)
                assert bytes(side.body) == message(reply(data, model))
            assert passed[-1]
            passed.clear()
        await until(here.idle)


def test_a_message_that_arrives_has_no_bytes() -> None:
    arriving = ArrivingMessage(b"begin", 100)
    assert (len(arriving), arriving[1:3], arriving[0:9]) == (100, b"eg", b"begin")
    for read in (bytes, memoryview, lambda message: b"".join((message,))):
        with pytest.raises(TypeError):
            read(arriving)  # type: ignore[operator]
