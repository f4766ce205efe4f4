"""Large bodies pass through while they arrive, in both directions: caller and upstream get what they would of
whole ones. The daemon's listener and client are real; caller and upstream are sockets."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_address, parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS, STREAM_WINDOW
from interlingua.protocols.transport.http import exchange, receiving
from interlingua.protocols.transport.http.client import PooledHttpClient
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.http1 import arriving, reply_reader
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.pool.gate import Gate
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Datatype, Operation, ServerMetadata, Signature, TensorSpec
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Part, Split
from tests.protocols.transport.http.http2_caller import Http2Caller
from tests.protocols.transport.peers import RawHttp, Reply, reset, stalling
from tests.waiting import until

MIB = 1 << 20
SIGNATURE = Signature(
    (TensorSpec("A", Datatype.UINT8, (-1,)),), (TensorSpec("X", Datatype.UINT8, (-1,)),), max_batch_size=0
)
Behave = Callable[["Conversation"], Awaitable[None]]


class Http1Caller(RawHttp):
    """What a test does with a caller over either version of HTTP."""

    @property
    def unsent(self) -> int:
        """How many bytes wait for the server."""
        return self.writer.transport.get_write_buffer_size()

    async def begin(self, size: int) -> Reply:
        """The head of a reply, and the first ``size`` bytes of its body."""
        line, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        headers = {name.lower(): value for name, value in (text.split(": ", 1) for text in lines)}
        return Reply(line, headers, await self.reader.readexactly(size))

    async def rest(self, begun: Reply) -> Reply:
        """The reply that has ``begun``, complete."""
        begun.body += await self.reader.readexactly(int(begun.headers["content-length"]) - len(begun.body))
        return begun

    def reset(self) -> None:
        """End the connection at once."""
        reset(self.writer)

    async def ends(self, reply: Reply) -> bool:
        """Whether the server takes no more of the request that ``reply`` answers early."""
        return reply.headers["connection"] == "close" and await self.ended()


Caller = type[Http1Caller] | type[Http2Caller]
HELD = {Http1Caller: MIB, Http2Caller: STREAM_WINDOW}
"""The most that is held of a body that arrives."""
SLOW = {Http1Caller: 64 * MIB, Http2Caller: 32 * MIB}
"""More than the daemon and the system hold of a body that nobody reads."""


OVER, IDS = (Http1Caller, Http2Caller), ("HTTP/1.1", "HTTP/2")


@pytest.fixture(params=OVER, ids=IDS)
def over(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The version of HTTP that the caller speaks."""
    monkeypatch.setattr(exchange, "LINGER_SECS", 0.1)
    return request.param


@dataclass
class Conversation:
    """A connection that the daemon has opened to the upstream, after the head of a request."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str

    @property
    def length(self) -> int:
        (line,) = [line for line in self.head.split("\r\n") if line.lower().startswith("content-length")]
        return int(line.split(": ")[1])

    async def body(self) -> bytes:
        return await self.reader.readexactly(self.length)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


@dataclass
class Bridge:
    """The daemon: ``heads`` and ``bodies`` are what its upstream has got."""

    server: HttpServer
    pipeline: Pipeline
    target: UpstreamModel
    heads: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    @property
    def ended(self) -> dict[str, int]:
        """The inferences by outcome."""
        metrics = self.pipeline.request_metrics[self.target.upstream.name]
        found = {}
        for (operation, failure), count in metrics.ended.items():
            if operation is Operation.INFER and count:
                found["ok" if failure is None else failure.name] = count
        return found

    @property
    def running(self) -> int:
        (member,) = self.target.upstream.pool.members
        metrics = self.pipeline.request_metrics[self.target.upstream.name]
        gate = self.target.upstream.gate
        assert gate is not None and gate.running == member.running == metrics.in_flight
        assert gate.running or not gate.nbytes
        return member.running


@asynccontextmanager
async def bridging(
    behave: Behave,
    dialect: str = "oip",
    *,
    observers: tuple[Any, ...] = (),
    routes: tuple[Route, ...] = (),
    engine: str = "native",
    timeout_secs: float = 10.0,
    max_request_bytes: int | None = None,
    listener: Mapping[str, Any] | None = None,
    **names: Any,
) -> AsyncIterator[Bridge]:
    """The daemon before an upstream that does ``behave``."""
    bridge: Bridge
    conversations = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversations.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                bridge.heads.append(head)
                await behave(Conversation(reader, writer, head))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError) as error:
            bridge.errors.append(error)
        finally:
            writer.close()

    there = await asyncio.start_server(connected, "127.0.0.1", 0)
    host, port = there.sockets[0].getsockname()
    client = CLIENTS["http", engine](parse_url(f"{host}:{port}"))
    binding = DIALECTS[dialect].bindings["http"]
    upstream = Upstream(dialect, binding.calls, [client], timeout_secs, gate=Gate())
    target = UpstreamModel("m", upstream, "m", declared=SIGNATURE, **names)
    service = Service(Router({"m": target}, routes), ServerMetadata("interlingua", "0"))
    service.observers = observers
    pipeline = Pipeline(service, "here", [binding], max_request_bytes=max_request_bytes)
    options = {"http2": DEFAULT_OPTIONS, **(listener or {})}
    server = HttpServer(pipeline.handlers["http"], parse_address("127.0.0.1:0"), **options)
    await server.start()
    bridge = Bridge(server, pipeline, target)
    try:
        yield bridge
    finally:
        await server.stop(0)
        await target.close()
        await upstream.close()
        there.close()
        for conversation in conversations:
            conversation.cancel()
        await asyncio.gather(*conversations)


# --- messages


def oip_message(
    key: str, name: str, data: bytes, *, claimed: int | None = None, **more: Any
) -> tuple[str, bytes]:
    """The header line and the body of a message with one tensor."""
    size = len(data) if claimed is None else claimed
    tensor = {
        "name": name,
        "datatype": "UINT8",
        "shape": [size],
        "parameters": {"binary_data_size": size},
    }
    text = json.dumps({key: [tensor], **more}).encode()
    return f"Inference-Header-Content-Length: {len(text)}\r\n", text + data


def oip_request(data: bytes, *, extra: str = "", **more: Any) -> bytes:
    line, body = oip_message("inputs", "A", data, **{"parameters": {"binary_data_output": True}, **more})
    return (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n{line}{extra}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def oip_answer(data: bytes, name: str = "X", **more: Any) -> bytes:
    line, body = oip_message("outputs", name, data, model_name="m", model_version="1", **more)
    return f"HTTP/1.1 200 OK\r\n{line}Content-Length: {len(body)}\r\n\r\n".encode() + body


def json_answer(size: int) -> bytes:
    """The answer of a server without the binary extension."""
    tensor = {"name": "X", "datatype": "UINT8", "shape": [size], "data": [7] * size}
    body = json.dumps({"model_name": "m", "model_version": "1", "outputs": [tensor]}).encode()
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def trtis_request(data: bytes) -> bytes:
    header = f'id: 7 batch_size: 1 input {{ name: "A" dims: {len(data)} }} output {{ name: "X" }}'
    return (
        f"POST /api/infer/m HTTP/1.1\r\nHost: x\r\nNV-InferRequest: {header}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    ).encode() + data


def trtis_answer(data: bytes) -> bytes:
    header = (
        f'model_name: "m" model_version: 1 batch_size: 1 output {{ name: "X" raw {{ dims: {len(data)} '
        f"batch_byte_size: {len(data)} }} }}"
    )
    body = data + b"a copy of the header"
    return (
        f"HTTP/1.1 200 OK\r\nNV-InferResponse: {header}\r\nNV-Status: code: SUCCESS\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


REQUESTS: dict[str, Callable[[bytes], bytes]] = {"oip": oip_request, "trtis": trtis_request}
ANSWERS: dict[str, Callable[[bytes], bytes]] = {"oip": oip_answer, "trtis": trtis_answer}


def pattern(size: int) -> bytes:
    """Bytes that differ from place to place."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def answering(answer: bytes, bodies: list[bytes] | None = None) -> Behave:
    async def behave(conversation: Conversation) -> None:
        body = await conversation.body()
        if bodies is not None:
            bodies.append(body)
        await conversation.send(answer)

    return behave


async def ask(bridge: Bridge, over: Caller, *pieces: bytes) -> Reply:
    async with over.to(bridge.server.address) as caller:
        for piece in pieces:
            await caller.send(piece)
            await asyncio.sleep(0)
        return await asyncio.wait_for(caller.reply(), 20)


def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every body received before it is sent."""
    monkeypatch.setattr(exchange, "STREAMED_BYTES", 1 << 40)
    monkeypatch.setattr(receiving, "STREAMED_BYTES", 1 << 40)
    monkeypatch.setattr(reply_reader, "STREAMED_BYTES", 1 << 40)


def told(reply: Reply) -> tuple[str, dict[str, str], bytes]:
    # request_id in NV-Status counts the requests of the process
    own = {"server-timing", "nv-status"}
    return reply.line, {name: value for name, value in reply.headers.items() if name not in own}, reply.body


# --- what arrives


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("dialect", ["oip", "trtis"])
async def test_both_sides_get_what_they_would_of_whole_bodies(
    dialect: str, renamed: bool, monkeypatch: pytest.MonkeyPatch, over: Caller
) -> None:
    names: dict[str, Any] = {}
    answer = ANSWERS[dialect](pattern(3 * MIB + 7))
    if renamed:
        names = {"inputs": {"A": "A there"}, "outputs": {"X": "X there"}}
        answer = oip_answer(pattern(3 * MIB + 7), "X there")
        if dialect == "trtis":
            answer = trtis_answer(pattern(3 * MIB + 7)).replace(b'"X"', b'"X there"')
    request = REQUESTS[dialect](pattern(2 * MIB + 3))
    outcomes = []
    for _ in range(2):
        bodies: list[bytes] = []
        async with bridging(answering(answer, bodies), dialect, **names) as bridge:
            reply = await ask(bridge, over, request)
            again = await ask(bridge, over, request)
            assert told(again) == told(reply) and bodies[0] == bodies[1]
            await until(lambda: not bridge.running)
            assert bridge.ended == {"ok": 2}
            (statistics,) = bridge.target.statistics.values()
            metrics = bridge.pipeline.request_metrics[dialect]
            outcomes.append(
                (
                    told(reply),
                    bodies,
                    [re.sub("Host: .*", "", head) for head in bridge.heads],
                    statistics.inference_count,
                    metrics.received_bytes,
                    metrics.sent_bytes,
                )
            )
        whole(monkeypatch)
    assert outcomes[0] == outcomes[1]
    assert pattern(3 * MIB + 7) in outcomes[0][0][2]


@pytest.mark.parametrize("over", OVER, ids=IDS)
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@settings(max_examples=20)
@given(
    dialect=st.sampled_from(["oip", "trtis"]),
    asked=st.lists(st.integers(0, 1500), max_size=6),
    answered=st.lists(st.integers(0, 1500), max_size=6),
)
def test_conversations_cut_anywhere(
    loop: Callable[[], asyncio.AbstractEventLoop],
    dialect: str,
    asked: list[int],
    answered: list[int],
    over: Caller,
) -> None:
    async def converse() -> None:
        bodies: list[bytes] = []

        async def behave(conversation: Conversation) -> None:
            bodies.append(await conversation.body())
            for piece in cut(answer, answered):
                await conversation.send(piece)
                await asyncio.sleep(0.001)

        async with bridging(behave, dialect) as bridge, over.to(bridge.server.address) as caller:
            for _ in range(2):  # on one connection
                for piece in cut(request, asked):
                    await caller.send(piece)
                    await asyncio.sleep(0.001)
                reply = await asyncio.wait_for(caller.reply(), 20)
                assert reply.status == 200 and pattern(999) in reply.body
                assert "connection" not in reply.headers
            assert bodies[0] == bodies[1] and bodies[0].endswith(pattern(888))
            await until(lambda: not bridge.running)
            assert bridge.ended == {"ok": 2} and not bridge.errors

    request, answer = REQUESTS[dialect](pattern(888)), ANSWERS[dialect](pattern(999))
    with pytest.MonkeyPatch.context() as patch:
        for module in (exchange, receiving, reply_reader):
            patch.setattr(module, "STREAMED_BYTES", 64)
        for name, size in {"_HELD_BYTES": 300, "_PIECE_BYTES": 100, "_COPIED_BYTES": 40}.items():
            patch.setattr(arriving, name, size)
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(converse())


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(ends)]


async def test_bodies_leave_before_they_have_arrived(over: Caller) -> None:
    request, answer = oip_request(pattern(MIB)), oip_answer(pattern(MIB))
    got, sent = asyncio.Event(), asyncio.Event()

    async def behave(conversation: Conversation) -> None:
        await conversation.reader.readexactly(MIB // 2)
        got.set()
        await conversation.reader.readexactly(conversation.length - MIB // 2)
        await conversation.send(answer[: MIB // 2])
        await sent.wait()
        await conversation.send(answer[MIB // 2 :])

    async with bridging(behave) as bridge, over.to(bridge.server.address) as caller:
        await caller.send(request[: MIB * 3 // 4])
        await asyncio.wait_for(got.wait(), 30)
        assert bridge.running == 1
        await caller.send(request[MIB * 3 // 4 :])
        whole = answer.partition(b"\r\n\r\n")[2]
        begun = await asyncio.wait_for(caller.begin(MIB // 4), 30)
        assert begun.headers["content-length"] == str(len(whole)) and "transfer-encoding" not in begun.headers
        assert bridge.running == 1 and MIB // 4 <= len(begun.body) < len(whole)
        sent.set()
        assert (await asyncio.wait_for(caller.rest(begun), 30)).body == whole
        await until(lambda: not bridge.running)


async def test_a_request_that_does_not_fit_is_refused_unsent(
    monkeypatch: pytest.MonkeyPatch, over: Caller
) -> None:
    texts = []
    wrong = [
        oip_request(pattern(MIB), claimed=MIB + 1),
        oip_request(pattern(MIB), claimed=MIB - 1),
        oip_request(pattern(MIB)).replace(b'"UINT8"', b'"INT16"'),
        oip_request(pattern(MIB)).replace(b'"name": "A"', b'"name": "B"'),
        trtis_request(pattern(MIB)).replace(b"dims: 1048576", b"dims: 1048570"),
        trtis_request(pattern(MIB)).replace(b"dims: 1048576", b"dims: 1048579"),
    ]
    for _ in range(2):
        for request in wrong:
            dialect = "trtis" if b"NV-Infer" in request else "oip"
            async with bridging(answering(b""), dialect) as bridge:
                reply = await ask(bridge, over, request)
                assert reply.status == 400 and not bridge.heads
                texts.append((reply.body, reply.headers.get("nv-status", "").partition("request_id")[0]))
        whole(monkeypatch)
    assert texts[: len(wrong)] == texts[len(wrong) :]


async def test_the_limit_of_the_listener_holds(over: Caller) -> None:
    async with bridging(answering(b""), max_request_bytes=MIB) as bridge:
        reply = await ask(bridge, over, oip_request(pattern(MIB))[:1000])
        assert reply.status == 413 and not bridge.heads
    answer = oip_answer(pattern(MIB))
    async with bridging(answering(answer), listener={"max_response_bytes": MIB}) as bridge:
        reply = await ask(bridge, over, oip_request(pattern(MIB)))
        assert reply.status == 413
        await until(lambda: not bridge.running)


@pytest.mark.parametrize("change", ["gzip", "json output", "another order", "json answer"])
async def test_answers_that_need_decoding_are_received_first(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, answer = oip_request(pattern(MIB)), oip_answer(pattern(MIB))
    if change == "gzip":
        request = oip_request(pattern(MIB), extra="Accept-Encoding: gzip\r\n")
    elif change == "json output":
        request = oip_request(pattern(MIB), parameters={})
    elif change == "json answer":
        answer = json_answer(MIB)
    else:
        answer = oip_answer(pattern(MIB), id="other")
    outcomes = []
    for _ in range(2):
        async with bridging(answering(answer)) as bridge:
            outcomes.append(told(await ask(bridge, Http1Caller, request)))
            await until(lambda: not bridge.running)
        whole(monkeypatch)
    assert outcomes[0] == outcomes[1]


# --- slow sides


async def test_a_slow_upstream_slows_the_caller(over: Caller) -> None:
    go = asyncio.Event()

    async def behave(conversation: Conversation) -> None:
        await go.wait()
        await conversation.body()
        await conversation.send(oip_answer(b"x"))

    size = SLOW[over]
    async with bridging(behave) as bridge, over.to(bridge.server.address) as caller:
        sending = asyncio.create_task(caller.send(oip_request(bytes(size))))
        await until(lambda: bool(bridge.heads))
        await asyncio.sleep(0.1)
        assert bridge.running == 1 and not sending.done() and caller.unsent > size // 4
        go.set()
        assert (await asyncio.wait_for(caller.reply(), 30)).status == 200
        await sending


async def test_bodies_that_arrive_count_while_they_are_here(over: Caller) -> None:
    """Two bodies whose upstream does not read: the second one exceeds the limit, and the first one goes on."""
    go = asyncio.Event()

    async def behave(conversation: Conversation) -> None:
        await go.wait()
        await conversation.body()
        await conversation.send(oip_answer(b"x"))

    size, load = 16 * MIB, ListenerLoad(max_bytes=3 * HELD[over] // 2)
    async with (
        bridging(behave, listener={"load": load}) as bridge,
        over.to(bridge.server.address) as first,
        over.to(bridge.server.address) as second,
    ):
        sending = asyncio.create_task(first.send(oip_request(bytes(size))))
        await until(lambda: bool(bridge.heads))
        assert load.body_bytes == HELD[over]  # the most of it that is here at a time
        refused = asyncio.create_task(second.send(oip_request(bytes(size))))
        assert (reply := await asyncio.wait_for(second.reply(), 30)).status == 429
        assert b"max_inflight_bytes" in reply.body and load.refused == {"max_inflight_bytes": 1}
        go.set()
        assert (await asyncio.wait_for(first.reply(), 20)).status == 200
        await sending
        refused.cancel()
    await until(lambda: not load.body_bytes)


async def test_a_slow_caller_slows_the_upstream(over: Caller) -> None:
    size = SLOW[over]
    writers = []

    async def behave(conversation: Conversation) -> None:
        await conversation.body()
        writers.append(conversation.writer)
        await conversation.send(oip_answer(bytes(size)))

    async with bridging(behave) as bridge, over.to(bridge.server.address) as caller:
        await caller.send(oip_request(b"x"))
        await until(lambda: bool(writers))
        await asyncio.sleep(0.1)
        assert writers[0].transport.get_write_buffer_size() > size // 4 and bridge.running == 1
        assert (await asyncio.wait_for(caller.reply(), 30)).body.endswith(bytes(size))


async def test_the_time_that_the_caller_takes_is_no_time_of_the_upstream(over: Caller) -> None:
    answer = oip_answer(bytes(12 * MIB))
    async with bridging(answering(answer), timeout_secs=0.4) as bridge:
        async with over.to(bridge.server.address) as caller:
            for piece in cut(oip_request(pattern(MIB)), [300_000, 600_000]):
                await caller.send(piece)
                await asyncio.sleep(0.25)
            await asyncio.sleep(0.25)
            assert (await asyncio.wait_for(caller.reply(), 30)).body.endswith(bytes(12 * MIB))
        assert bridge.ended == {"ok": 1}


@pytest.mark.parametrize("reads", [False, True])
async def test_an_upstream_that_hangs_runs_into_the_deadline(reads: bool, over: Caller) -> None:
    async def behave(conversation: Conversation) -> None:
        if reads:
            await conversation.body()
        await asyncio.Event().wait()

    async with bridging(behave, timeout_secs=0.2) as bridge, over.to(bridge.server.address) as caller:
        sending = asyncio.create_task(caller.send(oip_request(bytes(32 * MIB))))
        reply = await asyncio.wait_for(caller.reply(), 30)
        assert reply.status == 504 and b"did not answer before the deadline" in reply.body
        assert bridge.ended == {"DEADLINE_EXCEEDED": 1} and not bridge.running
        sending.cancel()


async def test_an_answer_that_stops_is_cut_at_the_deadline(over: Caller) -> None:
    async def behave(conversation: Conversation) -> None:
        await conversation.body()
        await conversation.send(oip_answer(pattern(MIB))[:-1])
        await asyncio.Event().wait()

    async with bridging(behave, timeout_secs=0.2) as bridge, over.to(bridge.server.address) as caller:
        await caller.send(oip_request(b"x"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(caller.reply(), 30)
        assert bridge.ended == {"DEADLINE_EXCEEDED": 1} and not bridge.running


async def test_a_caller_that_stalls_gets_the_usual_refusal(
    monkeypatch: pytest.MonkeyPatch, over: Caller
) -> None:
    outcomes = []
    for _ in range(2):
        async with (
            bridging(answering(b""), listener={"timeouts": stalling(0.2)}) as bridge,
            over.to(bridge.server.address) as caller,
        ):
            await caller.send(oip_request(pattern(MIB))[:-1])
            reply = await asyncio.wait_for(caller.reply(), 30)
            assert reply.status == 504 and await caller.ends(reply)
            outcomes.append(reply.body)
            assert not bridge.running
            await until(lambda: len(bridge.errors) == len(bridge.heads))
        whole(monkeypatch)
    assert outcomes[0] == outcomes[1]


# --- sides that end


async def test_a_caller_that_disconnects_cancels_the_call(over: Caller) -> None:
    async with bridging(answering(b"")) as bridge:
        async with over.to(bridge.server.address) as caller:
            await caller.send(oip_request(pattern(MIB))[:-1])
            await until(lambda: bool(bridge.heads))
        await until(lambda: bool(bridge.errors))
        assert bridge.ended == {"CANCELLED": 1} and not bridge.running


@pytest.mark.parametrize("piped", [True, False])
async def test_a_caller_that_resets_while_its_upstream_does_not_read_cancels_the_call(
    piped: bool, over: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def behave(conversation: Conversation) -> None:
        await asyncio.sleep(60)

    if not piped:
        monkeypatch.setattr(arriving, "can_pipe", lambda source, sink: False)
    load = ListenerLoad()
    there = bridging(behave, timeout_secs=60.0, listener={"load": load})
    async with there as bridge, over.to(bridge.server.address) as caller:
        sending = asyncio.create_task(caller.send(oip_request(pattern(SLOW[over]))))
        await until(lambda: bool(bridge.heads))
        await asyncio.sleep(0.3)  # all buffers on the way are full
        assert bridge.running == 1 and not sending.done()
        assert load.body_bytes > 0
        caller.reset()
        await until(lambda: not bridge.running, secs=10)
        assert bridge.ended == {"CANCELLED": 1} and load.body_bytes == 0
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_caller_that_disconnects_in_its_answer_cancels_the_call(over: Caller) -> None:
    async with bridging(answering(oip_answer(bytes(64 * MIB)))) as bridge:
        async with over.to(bridge.server.address) as caller:
            await caller.send(oip_request(b"x"))
            await caller.begin(0)
            assert bridge.running == 1
        await until(lambda: bool(bridge.errors))
        assert bridge.ended == {"CANCELLED": 1} and not bridge.running


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_an_answer_that_breaks_off_never_looks_complete(ending: str, over: Caller) -> None:
    async def behave(conversation: Conversation) -> None:
        await conversation.body()
        await conversation.send(oip_answer(pattern(MIB))[:-1])
        if ending == "reset":
            conversation.writer.transport.abort()
        raise ConnectionResetError

    async with bridging(behave) as bridge, over.to(bridge.server.address) as caller:
        await caller.send(oip_request(b"x"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(caller.reply(), 30)
        await until(lambda: not bridge.running)
        assert bridge.ended == {"UNAVAILABLE": 1}
        (member,) = bridge.target.upstream.pool.members
        assert member.failures == 1 and "broke off" in member.reason


async def test_an_upstream_that_ends_before_it_answers_is_asked_once(over: Caller) -> None:
    async def behave(conversation: Conversation) -> None:
        await conversation.reader.readexactly(MIB)
        raise ConnectionResetError

    async with bridging(behave) as bridge, over.to(bridge.server.address) as caller:
        sending = asyncio.create_task(caller.send(oip_request(pattern(16 * MIB))))
        reply = await asyncio.wait_for(caller.reply(), 30)
        assert reply.status == 503 and len(bridge.heads) == 1
        assert bridge.ended == {"UNAVAILABLE": 1} and not bridge.running
        sending.cancel()


async def test_a_server_that_refuses_connections_is_passed_over() -> None:
    bodies: list[bytes] = []
    async with bridging(answering(oip_answer(pattern(MIB)), bodies)) as bridge:
        refusing = Member(PooledHttpClient(parse_url("127.0.0.1:1")), "127.0.0.1:1")
        bridge.target.upstream.pool.members.append(refusing)
        for _ in range(2):
            assert (await ask(bridge, Http1Caller, oip_request(pattern(2 * MIB)))).status == 200
        assert refusing.failures == 1 and len(bodies) == 2
        assert all(body.endswith(pattern(2 * MIB)) for body in bodies)
        await refusing.close()


async def test_an_early_answer_goes_to_the_caller_and_ends_both_connections(over: Caller) -> None:
    text = b'{"error": "no"}'
    early = b"HTTP/1.1 413 No\r\nContent-Length: %d\r\n\r\n" % len(text) + text

    async def behave(conversation: Conversation) -> None:
        await conversation.reader.readexactly(1000)
        await conversation.send(early)
        await conversation.body()

    async with bridging(behave) as bridge, over.to(bridge.server.address) as caller:
        request = oip_request(pattern(16 * MIB))
        await caller.send(request[: 2 * MIB])
        reply = await asyncio.wait_for(caller.reply(), 30)
        assert reply.status == 413 and json.loads(reply.body)["error"] == "no"
        await caller.send(request[2 * MIB : 3 * MIB])  # is read and thrown away
        assert await caller.ends(reply)
        await until(lambda: bool(bridge.errors))
        assert not bridge.running


async def test_a_streamed_answer_to_half_a_request(over: Caller) -> None:
    async def behave(conversation: Conversation) -> None:
        await conversation.reader.readexactly(1000)
        await conversation.send(oip_answer(pattern(MIB)))
        await conversation.reader.readexactly(conversation.length - 1000)

    async with bridging(behave) as bridge, over.to(bridge.server.address) as caller:
        request = oip_request(pattern(2 * MIB))
        await caller.send(request[:MIB])
        reply = await asyncio.wait_for(caller.reply(), 30)
        assert reply.body.endswith(pattern(MIB)) and await caller.ends(reply)
        assert bridge.ended == {"ok": 1} and not bridge.running


# --- observers


class Seeing:
    """An observer of every request, or of none."""

    max_stream_bytes = 0

    def __init__(self, sees: bool) -> None:
        self.sees = sees
        self.observed: list[Any] = []

    def should_observe(self, request: Any) -> bool:
        return self.sees

    def on_response(self, observed: Any) -> None:
        self.observed.append(observed)


@pytest.mark.parametrize("sees", [False, True])
@pytest.mark.parametrize("dialect", ["oip", "trtis"])
async def test_a_request_that_is_observed_arrives_first(dialect: str, sees: bool, over: Caller) -> None:
    observer = Seeing(sees)
    got = asyncio.Event()

    async def behave(conversation: Conversation) -> None:
        await conversation.reader.readexactly(1000)
        got.set()
        await conversation.reader.readexactly(conversation.length - 1000)
        await conversation.send(ANSWERS[dialect](pattern(MIB)))

    async with (
        bridging(behave, dialect, observers=(observer,)) as bridge,
        over.to(bridge.server.address) as caller,
    ):
        request = REQUESTS[dialect](pattern(2 * MIB))
        await caller.send(request[:-1])
        if sees:
            await asyncio.sleep(0.1)
        else:
            await asyncio.wait_for(got.wait(), 30)
        assert got.is_set() is not sees
        await caller.send(request[-1:])
        assert pattern(MIB) in (await asyncio.wait_for(caller.reply(), 30)).body
        await until(lambda: len(observer.observed) == sees)
        if sees:
            (observed,) = observer.observed
            assert bytes(observed.request.inputs[0].data) == pattern(2 * MIB)
            assert bytes(observed.responses[0].outputs[0].data) == pattern(MIB)


@pytest.mark.parametrize(("fallback", "engine"), [("", "native"), ("m", "native"), ("", "library")])
async def test_a_request_with_a_fallback_or_to_the_library_arrives_first(fallback: str, engine: str) -> None:
    routes = (Route(Split([Part("m")]), fallback=fallback),)
    answer = oip_answer(pattern(MIB))
    async with (
        bridging(answering(answer), routes=routes, engine=engine) as bridge,
        Http1Caller.to(bridge.server.address) as caller,
    ):
        request = oip_request(pattern(2 * MIB))
        await caller.send(request[:-1])
        if fallback or engine == "library":
            await asyncio.sleep(0.1)
            assert not bridge.heads
        else:
            await until(lambda: bool(bridge.heads))
        await caller.send(request[-1:])
        assert (await asyncio.wait_for(caller.reply(), 30)).body == answer.partition(b"\r\n\r\n")[2]
        assert routes[0].counts.requests == 1
