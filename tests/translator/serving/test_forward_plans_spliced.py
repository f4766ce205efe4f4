"""Requests that repeat, to an upstream of another dialect, held against the same requests by the pipeline."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import grpc
import numpy as np
import pytest
import yaml

from interlingua.protocols.graphpipe import codec
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport import servers
from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.servers import ServerSettings
from interlingua.protocols.whole_message import whole_of
from interlingua.runtime.upstream.forward import UpstreamForward
from interlingua.runtime.upstream.replies import Replies
from interlingua.runtime.upstream.time_share import TimeShare
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    InferRequest,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.trtis import MESSAGES
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.serving.pipeline import Pipeline
from tests.translator.serving import spied_plans
from tests.translator.serving import test_forward_plans as passed
from tests.translator.serving.test_forward_plans import USUAL, WARM, Standin, hang, reply
from tests.waiting import until

# --- an upstream that does what a test says


def trtis(
    number: float, header: str = 'batch_size: 1 input { name: "x" dims: 1 } output { name: "x" }'
) -> bytes:
    return (
        f"POST /api/infer/m HTTP/1.1\r\nHost: here\r\nNV-InferRequest: {header}\r\nContent-Length: 4\r\n\r\n"
    ).encode() + np.float32(number).tobytes()


def number_in(body: bytes) -> float:
    return float(np.frombuffer(body[:4], np.float32)[0])


async def _warm(here: passed.Bridge) -> None:
    here.dialect = "trtis"
    for number in range(WARM):
        status, _, body = await here.ask(trtis(number))
        assert status == b"HTTP/1.1 200 OK"
        assert number_in(body) == number


async def _disconnects() -> tuple[Any, ...]:
    there = Standin([USUAL] * WARM + [hang])
    async with passed.bridge(there) as here:
        await _warm(here)
        here.writer.write(trtis(WARM))
        await until(lambda: len(there.seen) > WARM)
        assert await here.server.stop(0) == 1
        await until(lambda: not here.server.at_work and not here.counts["server"][1])
        await until(lambda: there.ended == 1)  # the upstream is notified
        counts = here.counts
        return {key: counts[key] for key in counts if key != "requests"}, there.seen


async def test_a_cut_request(sent: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    fast = await _disconnects()
    assert sent[-1]
    spied_plans.off(monkeypatch)
    assert await _disconnects() == fast


@pytest.mark.parametrize("changed", ["a route", "a model", "a signature", "an observer"])
async def test_what_changes_while_a_request_is_under_way_is_for_the_next(
    changed: str, sent: list[bool]
) -> None:
    """Its answer does not pass, so that the pipeline reads it: as what it was sent as."""
    release = asyncio.Event()

    async def wait(data: bytes, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        writer.write(reply(data, status="500 Internal Server Error"))
        return True

    async with passed.bridge(Standin([USUAL] * WARM + [wait])) as here:
        await _warm(here)
        here.writer.write(trtis(7))
        await until(lambda: len(here.there.seen) > WARM)
        router = here.assembly.service.router
        if changed == "a route":
            router.routes = (object(),)  # type: ignore[assignment]
        elif changed == "a model":
            del router.models["m"]  # type: ignore[attr-defined]
        elif changed == "a signature":
            router.models["m"]._signatures.forget()  # type: ignore[attr-defined]
        else:
            here.pipeline._processor.restricts_inference = True
        release.set()
        status, headers, _ = await here.answer()
        assert status == b"HTTP/1.1 400 Bad Request"
        assert any(b"code: UNAVAILABLE" in each or b"code: INTERNAL" in each for each in headers), headers
    assert sent[-1]
    assert len(here.there.seen) == WARM + 1


async def test_what_a_listener_counts_and_refuses_is_as_usual(sent: list[bool]) -> None:
    async with passed.bridge(Standin()) as here:
        await _warm(here)
        here.pipeline.load.max_requests = 0
        status, _, _ = await here.ask(trtis(7))
        assert status == b"HTTP/1.1 400 Bad Request"
        here.pipeline.load.max_requests = 10
        before = sent.count(True)
        here.assembly.service.access.every = True
        assert (await here.ask(trtis(7)))[0] == b"HTTP/1.1 200 OK"
        assert sent.count(True) == before + 1


# --- every pair of dialects

Inputs = dict[str, tuple[Datatype, tuple[int, ...]]]

MIXED: Inputs = {"a": (Datatype.FP32, (2, 3)), "b": (Datatype.INT64, (1, 2)), "c": (Datatype.UINT8, (5,))}


def specs(inputs: Inputs) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": each.value, "shape": list(shape)} for name, (each, shape) in inputs.items()
    ]


@asynccontextmanager
async def serving(
    config: dict[str, Any],
) -> AsyncIterator[tuple[Assembly, dict[str, Pipeline], dict[str, Address]]]:
    """A daemon, with its listeners by transport."""
    listeners = [
        {"listen": "127.0.0.1:0", "transport": each, "dialects": over(each)}
        for each in ("http", "grpc", "brpc")
    ]
    options = parse(yaml.safe_dump({"listeners": listeners, **config}))
    assembly = assemble(options, load_local(options))
    pipelines, addresses, running = {}, {}, []
    for each in options.listeners:
        pipeline = assembly.pipeline(each)
        for metrics in pipeline.request_metrics.values():
            metrics.timed = True
        settings = ServerSettings(1 << 20, load=pipeline.load)
        made = servers.SERVERS[each.transport](pipeline.handlers, parse_address("127.0.0.1:0"), settings)
        running.append(made)
        pipelines[each.transport], addresses[each.transport] = pipeline, await made.start()
    try:
        await assembly.start()
        yield assembly, pipelines, addresses
    finally:
        for server in running:
            await server.stop(0)
        await assembly.close()


def over(transport: str) -> list[str]:
    """Every dialect that ``transport`` carries."""
    return [name for name, dialect in DIALECTS.items() if transport in dialect.bindings]


def ask_of(dialect: str, transport: str, inputs: Inputs, seed: int) -> Any:
    """A call whose tensors have any bytes, also of NaN."""
    random = np.random.default_rng(seed)
    tensors = []
    for name, (datatype, shape) in inputs.items():
        data = random.bytes(datatype.itemsize * int(np.prod(shape)))
        tensors.append(Tensor(name, datatype, shape, memoryview(data)))
    outputs = tuple(map(RequestedOutput, inputs)) if dialect != "graphpipe" else None
    request = InferRequest("m", tuple(tensors), outputs)
    signature = Signature(*[tuple(TensorSpec(name, *inputs[name]) for name in inputs)] * 2)
    call, _ = DIALECTS[dialect].bindings[transport].calls[Operation.INFER].encode(request, signature)
    return call


async def _answers(
    caller: str,
    server: str,
    inputs: Inputs,
    count: int,
    names: dict[str, str] | None = None,
    order: Inputs | None = None,
) -> tuple[Any, ...]:
    """``names`` are those of the tensors at the server, in its order, by the caller's; ``order`` is the
    order of the caller."""
    asked = order or inputs
    dialect, transport = caller.split("/")
    theirs, way = server.split("/")
    signature = {"inputs": specs(inputs), "outputs": specs(inputs)}
    there = specs({name: inputs[ours] for ours, name in (names or {each: each for each in inputs}).items()})
    identity = {"backend": "identity", "signature": {"inputs": there, "outputs": there}}
    async with serving({"models": {"n": identity}}) as (_, _, upstreams):
        upstream = {"dialect": theirs, "transport": way, "urls": [str(upstreams[way])]}
        model: dict[str, Any] = {"upstream": "there", "remote_model": "n", "signature": signature}
        if names is not None:
            model |= {"inputs": names, "outputs": names}
        config = {"upstreams": {"there": upstream}, "models": {"m": model}}
        async with serving(config) as (assembly, pipelines, addresses):
            answers = []
            if transport == "grpc":
                async with grpc.aio.insecure_channel(str(addresses["grpc"])) as channel:
                    for seed in range(count):
                        call = ask_of(dialect, transport, asked, seed)
                        answers.append(await channel.unary_unary(call.method)(bytes(call.whole)))
            else:
                address = addresses["http"]
                reader, writer = await asyncio.open_connection(address.host, address.port)
                for seed in range(count):
                    call = ask_of(dialect, transport, asked, seed)
                    path = "/graphpipe/m" if dialect == "graphpipe" else f"{call.path}?{call.query}"
                    body = b"".join(call.parts)
                    fields = {**call.headers, "Host": "here", "Content-Length": len(body)}
                    lines = [f"POST {path} HTTP/1.1", *[f"{name}: {value}" for name, value in fields.items()]]
                    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                    head = await reader.readuntil(b"\r\n\r\n")
                    assert head.startswith(b"HTTP/1.1 200 OK"), head
                    (length,) = re.findall(rb"(?im)^content-length: (\d+)", head)
                    answers.append(
                        (re.sub(rb"(?i)server-timing: .*", b"", head), await reader.readexactly(int(length)))
                    )
                writer.close()
            metrics, target = (
                pipelines[transport].request_metrics[dialect],
                assembly.service.router.models["m"],
            )
            return answers, {
                "ended": dict(metrics.ended),
                "in flight": metrics.in_flight,
                "bytes": (metrics.received_bytes, metrics.sent_bytes),
                "flows": {key: (sum(flow.counts), flow.failed) for key, flow in metrics.flows.items()},
                "stages": {key: sum(each.counts) for key, each in metrics.stages.items()},
                "versions": {key: each.inference_count for key, each in target.statistics.items()},
                "requests": next(assembly.service.numbers),
            }


async def test_the_numbers_of_concurrent_requests(sent: list[bool]) -> None:
    """Over gRPC the answers of TRTIS have them in their messages, so that no path fits: also not for the
    requests that are under way when the first answer shows it."""
    inputs: Inputs = {"a": (Datatype.FP32, (4,))}
    there = {"backend": "identity", "signature": {"inputs": specs(inputs), "outputs": specs(inputs)}}
    async with serving({"models": {"m": there}}) as (_, _, upstreams):
        upstream = {"dialect": "oip", "transport": "grpc", "urls": [str(upstreams["grpc"])]}
        config = {"upstreams": {"there": upstream}, "models": {"m": {"upstream": "there"}}}
        async with (
            serving(config) as (_, _, addresses),
            grpc.aio.insecure_channel(str(addresses["grpc"])) as channel,
        ):
            call = ask_of("trtis", "grpc", inputs, 0)
            infer = channel.unary_unary(call.method)
            answers = [await infer(bytes(call.whole)) for _ in range(2)]
            for _ in range(4):
                answers += await asyncio.gather(*[infer(bytes(call.whole)) for _ in range(8)])
    assert sent.count(True) >= 3
    response: Any = MESSAGES["nvidia.inferenceserver.InferResponse"]
    numbers = [response.FromString(answer).request_status.request_id for answer in answers]
    assert sorted(numbers) == list(range(1, len(answers) + 1))


@pytest.mark.parametrize(
    ("caller", "server"), [("oip/http", "graphpipe/http"), ("graphpipe/http", "oip/grpc")]
)
async def test_large_messages(
    caller: str, server: str, sent: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, fits in ((20_000, True), (40_000, False)):
        inputs: Inputs = {"a": (Datatype.UINT16, (size,)), "b": (Datatype.INT8, (1, 7))}
        sent.clear()
        fast = await _answers(caller, server, inputs, 8)
        assert (sent.count(True) >= 4) == fits
        with monkeypatch.context() as patch:
            spied_plans.off(patch)
            assert await _answers(caller, server, inputs, 8) == fast


@pytest.mark.parametrize(
    ("caller", "server"),
    [
        ("oip/grpc", "trtis/http"),
        ("trtis/http", "oip/grpc"),
        ("trtis/http", "oip/http"),
        ("graphpipe/http", "oip/grpc"),
    ],
)
async def test_tensors_with_other_names_in_another_order(
    caller: str, server: str, sent: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"c": "a", "a": "z", "b": "c"}
    fast = await _answers(caller, server, MIXED, 10, names)
    assert sent.count(True) >= 6
    spied_plans.off(monkeypatch)
    assert await _answers(caller, server, MIXED, 10, names) == fast


@pytest.mark.parametrize("caller", ["oip/http", "oip/grpc", "trtis/http"])
async def test_a_server_that_reads_inputs_by_position(
    caller: str, sent: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tensors of a request in another order than the signature's are moved to their positions."""

    def bind(names: list[bytes], positions: list[int], signature: Signature) -> dict[str, int]:
        return dict(zip(signature.input_names, positions, strict=True))

    monkeypatch.setattr(codec, "_bind", bind)
    other = dict(reversed(MIXED.items()))
    fast = await _answers(caller, "graphpipe/http", MIXED, 10, order=other)
    assert sent.count(True) >= 6
    spied_plans.off(monkeypatch)
    assert await _answers(caller, "graphpipe/http", MIXED, 10, order=other) == fast


async def test_answers_to_head_have_no_body(sent: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """GraphPipe takes messages by every method; a body would be read as the next answer."""
    monkeypatch.setitem(passed.LISTENER, "dialects", ["graphpipe"])
    monkeypatch.setitem(passed.LISTENER, "default_model", "m")
    body = b"".join(ask_of("graphpipe", "http", {"x": (Datatype.FP32, (1,))}, 1).parts)
    async with passed.bridge(Standin()) as here:
        head = f"HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        for method in (b"HEAD", b"PUT"):
            for _ in range(WARM):
                here.writer.write(method + b" / " + head + body)
                answer = await here.reader.readuntil(b"\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 200 OK")
                if method != b"HEAD":
                    (length,) = re.findall(rb"(?im)^content-length: (\d+)", answer)
                    assert len(await here.reader.readexactly(int(length))) > 4
            assert bool(sent) == (method != b"HEAD")


# --- what paths cost


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[UpstreamForward]:
    """The path of each message that was offered to one."""
    return spied_plans.record(monkeypatch, spied_plans.FORWARD, lambda path, _: path.forward)


async def test_no_time_is_left_to_learn(sent: list[bool]) -> None:
    """Requests and replies go through the codecs; what is learned already stays."""
    async with passed.bridge(Standin()) as here:
        here.dialect = "trtis"
        upstream = here.assembly.service.router.models["m"].upstream
        assert isinstance(upstream, Upstream)
        learning, upstream.learning = upstream.learning, TimeShare(0, 0)
        for number in range(20):
            assert number_in((await here.ask(trtis(number)))[2]) == number
        assert not sent
        upstream.learning = learning
        for number in range(20):
            assert number_in((await here.ask(trtis(number)))[2]) == number
        assert sent[-1]
        count, upstream.learning = len(sent), TimeShare(0, 0)
        assert number_in((await here.ask(trtis(7)))[2]) == 7
        assert len(sent) == count + 1


@pytest.mark.parametrize("padding", [1000, 5000])
async def test_requests_with_much_besides_their_tensors(
    padding: int, sent: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths would keep it, and callers choose it."""
    plain = ask_of

    def padded(*arguments: Any) -> Any:
        call = plain(*arguments)
        (name,) = [each for each in call.headers if each.lower() == "inference-header-content-length"]
        body, length = b"".join(call.parts), int(call.headers[name])
        call.parts = body[:length] + b" " * padding, body[length:]
        call.headers = {**call.headers, name: str(length + padding)}
        return call

    monkeypatch.setitem(globals(), "ask_of", padded)
    await _answers("oip/http", "trtis/http", MIXED, 6)
    assert bool(sent) == (padding < 4096)


@pytest.mark.parametrize("message", [trtis, passed.request])
async def test_paths_keep_no_message(message: Callable[[float], bytes], paths: list[UpstreamForward]) -> None:
    """A plan outlives its request."""
    async with passed.bridge(Standin()) as here:
        for number in range(WARM):
            await here.ask(message(number))
        assert whole_of(paths[-1].call) == b""
        replies = cast("Replies", paths[-1].read.__self__)  # type: ignore[attr-defined]
        last = replies._exchange._last[0]
        if isinstance(last, partial):
            assert last.args[0].message is None
        else:
            assert last.inputs == ()
        (known,) = replies._sizes.values()
        assert [whole_of(each.response) for each in known] == [b""]
