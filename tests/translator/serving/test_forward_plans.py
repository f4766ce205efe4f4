"""Requests that repeat, held against the same requests by the pipeline: a caller, the upstream and every
count see no difference, whatever the upstream or the caller does."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import orjson
import pytest
import yaml

from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.http import client as http_client
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.wire import HttpReply
from interlingua.schemas import Context, ErrorCode, InferenceError
from interlingua.translator.access.authentication import Authenticator
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config.loader import parse
from interlingua.translator.serving.pipeline import Pipeline
from tests.translator.serving import spied_plans
from tests.waiting import until

TENSORS = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
LISTENER = {"listen": "127.0.0.1:0", "transport": "http"}
WARM = 6
"""So many requests of one connection repeat before the one of a test."""


def header(key: str, size: int = 4, **more: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": [size // 4], "parameters": {"binary_data_size": size}}
    return orjson.dumps({**more, key: [tensor]})


ASK = header("inputs", parameters={"binary_data_output": True})
ANSWER = header("outputs", model_name="m", model_version="1")


def request(number: float, ask: bytes = ASK, more: str = "") -> bytes:
    return (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: here\r\nInference-Header-Content-Length: {len(ask)}\r\n"
        f"{more}Content-Length: {len(ask) + 4}\r\n\r\n"
    ).encode() + (ask + np.float32(number).tobytes())


def reply(data: bytes, head: bytes = ANSWER, more: str = "", status: str = "200 OK") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nInference-Header-Content-Length: {len(head)}\r\n{more}"
        f"Content-Length: {len(head) + len(data)}\r\n\r\n"
    ).encode() + (head + data)


Act = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool] | bool | None]
"""Answers the tensor of a request. Whether the connection goes on; None: until the daemon ends it."""


def doing(make: Callable[[bytes], bytes], goes_on: bool = True) -> Act:
    def act(data: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(make(data))
        return goes_on

    return act


def hang(data: bytes, writer: asyncio.StreamWriter) -> None:
    """No answer until the daemon closes the connection."""


USUAL = doing(reply)
LARGE = header("outputs", 40_000, model_name="m", model_version="1")
HUGE = header("outputs", 400_000, model_name="m", model_version="1")
UNUSUAL: dict[str, Act] = {
    "an error": doing(lambda data: reply(b"", b'{"error":"bad"}', status="400 Bad Request")),
    "unavailable": doing(lambda data: reply(b"", b'{"error":"busy"}', status="503 Service Unavailable")),
    "half an answer": doing(lambda data: reply(data)[:-2], goes_on=False),
    "the last answer": doing(lambda data: reply(data, more="Connection: close\r\n"), goes_on=False),
    "a compressed answer": doing(
        lambda data: (
            (
                f"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: {len(ANSWER)}\r\nContent-Encoding: gzip\r\n"
                f"Content-Length: {len(gzip.compress(ANSWER + data))}\r\n\r\n"
            ).encode()
            + gzip.compress(ANSWER + data)
        )
    ),
    "a large answer": doing(lambda data: reply(10_000 * data, LARGE)),
    "silence": hang,
}


@dataclass
class Standin:
    """An upstream that answers the requests to infer with ``acts``, in turn, then as usual."""

    acts: list[Act] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)
    connections: int = 0
    ended: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            goes_on = True
            while goes_on:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
                if b"/infer" not in head:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    continue
                self.seen.append(re.sub(b"Host: .*", b"", head) + body)
                done = (self.acts.pop(0) if self.acts else USUAL)(body[-4:], writer)
                if done is None:
                    await reader.read()
                goes_on = await done if isinstance(done, Awaitable) else bool(done)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended += 1
            writer.close()


@dataclass
class Bridge:
    """A daemon in front of an upstream, and a caller of it."""

    address: Address
    server: HttpServer
    pipeline: Pipeline
    assembly: Assembly
    there: Standin
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    dialect: str = "oip"

    async def answer(self) -> tuple[bytes, list[bytes], bytes]:
        """The status line, the headers without times, and the body of the next answer."""
        async with asyncio.timeout(20):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
            (length,) = [int(line[16:]) for line in lines if line.lower().startswith(b"content-length: ")]
            body = await self.reader.readexactly(length)
        lines = [re.sub(rb"127\.0\.0\.1:\d+", b"there", line) for line in lines]
        body = re.sub(rb"127\.0\.0\.1:\d+", b"there", body)
        return (
            lines[0],
            [
                line
                for line in lines[1:]
                if not line.lower().startswith((b"server-timing", b"content-length"))
            ],
            body,
        )

    async def ask(self, message: bytes) -> tuple[bytes, list[bytes], bytes]:
        self.writer.write(message)
        return await self.answer()

    async def warm(self) -> None:
        for number in range(WARM):
            status, _, body = await self.ask(request(number))
            assert status == b"HTTP/1.1 200 OK"
            assert np.frombuffer(body[-4:], np.float32)[0] == number

    @property
    def counts(self) -> dict[str, Any]:
        """Everything that is counted, but the times."""
        metrics, load = self.pipeline.request_metrics[self.dialect], self.pipeline.load
        target = self.assembly.service.router.models["m"]
        assert target.upstream is not None
        (member,) = target.upstream.pool.members
        return {
            "ended": dict(metrics.ended),
            "in flight": (metrics.in_flight, load.requests, load.total.requests, self.server.at_work),
            "bytes": (metrics.received_bytes, metrics.sent_bytes),
            "flows": {key: (sum(flow.counts), flow.failed) for key, flow in metrics.flows.items()},
            "stages": {key: sum(each.counts) for key, each in metrics.stages.items()},
            "versions": {
                version: (
                    each.inference_count,
                    each.execution_count,
                    dict(each.failures),
                    sum(each.latencies.counts),
                )
                for version, each in target.statistics.items()
            },
            "server": (member.requests, member.running, member.failures, member.open),
            "requests": next(self.assembly.service.numbers),
            "trend": len(self.assembly.service.trends.counts().latencies_ns),
        }


@asynccontextmanager
async def bridge(there: Standin, more: str = "") -> AsyncIterator[Bridge]:
    """``more`` is the address of another server of the upstream."""
    standin = await asyncio.start_server(there.serve, "127.0.0.1", 0)
    port = standin.sockets[0].getsockname()[1]
    urls = [f"127.0.0.1:{port}", *([more] if more else [])]
    upstream = {"dialect": "oip", "transport": "http", "urls": urls, "flavor": "triton"}
    model = {"upstream": "there", "remote_model": "m", "signature": {"inputs": TENSORS, "outputs": TENSORS}}
    config = {
        "listeners": [LISTENER],
        "upstreams": {"there": {**upstream, "request_timeout_secs": 0.5}},
        "models": {"m": model},
    }
    options = parse(yaml.safe_dump(config))
    assembly = assemble(options, load_local(options))
    pipeline = assembly.pipeline(options.listeners[0])
    server = HttpServer(pipeline.handlers["http"], parse_address("127.0.0.1:0"), load=pipeline.load)
    address = await server.start()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield Bridge(address, server, pipeline, assembly, there, reader, writer)
    finally:
        writer.close()
        await server.stop(0)
        await assembly.close()
        standin.close()


def _fail_and_close(data: bytes, writer: asyncio.StreamWriter) -> None:
    """As uvicorn does if an application raises; what arrives before the end is not read."""
    writer.write(reply(b"", b'{"error":"failed"}', status="500 Internal Server Error"))


async def test_a_request_after_a_failure_of_the_server(
    sent: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes another connection than the one that the server closes."""
    monkeypatch.setattr(http_client, "REST_SECS", 60)
    async with bridge(Standin([USUAL] * WARM + [_fail_and_close, USUAL, _fail_and_close])) as here:
        await here.warm()
        statuses = [(await here.ask(request(number)))[0][9:12] for number in range(5)]
        assert statuses == [b"500", b"200", b"500", b"200", b"200"]
        assert here.there.connections == 3
        assert sent[-5:] == [True, False, True, False, True]


async def _disconnects(reset: bool) -> tuple[Any, ...]:
    there = Standin([USUAL] * WARM + [hang])
    async with bridge(there) as here:
        await here.warm()
        here.writer.write(request(WARM))
        await until(lambda: len(there.seen) > WARM)
        if reset:  # instead of an orderly end
            linger = struct.pack("ii", 1, 0)
            here.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        here.writer.transport.abort()
        await until(lambda: not here.server.at_work and not here.counts["server"][1])
        await until(lambda: there.ended == 1)  # the upstream is notified
        counts = here.counts
        return {key: counts[key] for key in counts if key != "requests"}, there.seen


@pytest.mark.parametrize("reset", [True, False])
async def test_a_caller_disconnects(reset: bool, sent: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    fast = await _disconnects(reset)
    assert sent[-1]
    codes = [code for _, code in fast[0]["ended"]]
    assert codes == [None, ErrorCode.CANCELLED if reset else ErrorCode.DEADLINE_EXCEEDED]
    spied_plans.off(monkeypatch)
    assert await _disconnects(reset) == fast


async def test_an_answer_after_its_caller_is_gone(sent: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply may come before the task that cancels its call has begun."""

    def abandon(call: Any, request: Any) -> None:
        call.abandon(request)
        headers = {"inference-header-content-length": str(len(ANSWER))}
        call.set_result(HttpReply(200, headers, ANSWER + bytes(4)))

    execute = spied_plans.FORWARD.execute

    def raced(plan: Any, *arguments: Any) -> Any:
        call: Any = execute(plan, *arguments)
        return call and SimpleNamespace(abandon=partial(abandon, call))

    spied_plans.replace(monkeypatch, spied_plans.FORWARD, raced)
    async with bridge(Standin([USUAL] * WARM + [hang])) as here:
        await here.warm()
        here.writer.write(request(7))
        await until(lambda: len(here.there.seen) > WARM)
        assert await here.server.stop(0) == 1
        await until(lambda: not here.counts["server"][1])
        counts = here.counts
    assert counts["in flight"] == (0, 0, 0, 0)
    assert sum(counts["ended"].values()) == WARM + 1
    assert counts["server"][0] == WARM + 1


async def test_a_half_closed_caller_gets_its_answer(sent: list[bool]) -> None:
    release = asyncio.Event()

    async def wait(data: bytes, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        writer.write(reply(data))
        return True

    async with bridge(Standin([USUAL] * WARM + [wait])) as here:
        await here.warm()
        here.writer.write(request(7))
        here.writer.write_eof()
        await asyncio.sleep(0.02)
        release.set()
        status, headers, body = await here.answer()
        assert status == b"HTTP/1.1 200 OK"
        assert b"connection: close" in headers
        assert np.frombuffer(body[-4:], np.float32)[0] == 7
        assert await here.reader.read() == b""
    assert sent[-1]


@pytest.mark.parametrize("kept", [True, False])
async def test_servers_of_an_upstream_take_turns(kept: bool, sent: list[bool]) -> None:
    """Also if no connection to them is kept."""
    act = USUAL if kept else UNUSUAL["the last answer"]
    there, other = Standin([act] * 100), Standin([act] * 100)
    standin = await asyncio.start_server(other.serve, "127.0.0.1", 0)
    async with bridge(there, more=f"127.0.0.1:{standin.sockets[0].getsockname()[1]}") as here:
        for number in range(20):
            assert (await here.ask(request(number)))[0] == b"HTTP/1.1 200 OK"
    standin.close()
    assert len(there.seen) == len(other.seen) == 10
    assert (True in sent) == kept


async def test_a_stopping_server_answers_and_closes(sent: list[bool]) -> None:
    release = asyncio.Event()

    async def wait(data: bytes, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        writer.write(reply(data))
        return True

    async with bridge(Standin([USUAL] * WARM + [wait])) as here:
        await here.warm()
        here.writer.write(request(7))
        await until(lambda: len(here.there.seen) > WARM)
        stopping = asyncio.ensure_future(here.server.stop(20))
        await asyncio.sleep(0.02)
        release.set()
        status, headers, _ = await here.answer()
        assert status == b"HTTP/1.1 200 OK"
        assert b"connection: close" in headers
        assert await stopping == 0
    assert sent[-1]


async def test_a_cut_request_counts_as_cut(sent: list[bool]) -> None:
    async with bridge(Standin([USUAL] * WARM + [hang])) as here:
        await here.warm()
        here.writer.write(request(7))
        await until(lambda: len(here.there.seen) > WARM)
        assert await here.server.stop(0) == 1
        await until(lambda: not here.counts["server"][1])
        assert here.counts["in flight"] == (0, 0, 0, 0)
    assert sent[-1]


async def test_a_limit_of_requests_is_for_those_that_begin(sent: list[bool]) -> None:
    """Not for one that goes over to the pipeline: others may have begun in the meantime."""
    release = asyncio.Event()

    async def wait(data: bytes, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        return bool(UNUSUAL["a compressed answer"](data, writer))

    async with bridge(Standin([USUAL] * WARM + [wait])) as here:
        await here.warm()
        here.writer.write(request(7))
        await until(lambda: len(here.there.seen) > WARM)
        here.pipeline.load.max_requests = 0
        release.set()
        status, _, body = await here.answer()
        assert (status, body[-4:]) == (b"HTTP/1.1 200 OK", np.float32(7).tobytes())
        assert sent[-1]
        assert (await here.ask(request(7)))[0] == b"HTTP/1.1 429 Too Many Requests"


async def test_the_rest_of_an_answer_that_is_refused(sent: list[bool]) -> None:
    """Nothing reads it, so that its connection ends."""
    release = asyncio.Event()
    head = header("outputs", 8_000_000, model_name="m", model_version="1")

    async def wait(data: bytes, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        writer.write(reply(2_000_000 * data, head))
        return True

    class Refusing:
        def identify(self, context: Context) -> None:
            raise InferenceError(ErrorCode.UNAUTHENTICATED, "no")

    async with bridge(Standin([USUAL] * WARM + [wait])) as here:
        await here.warm()
        here.writer.write(request(7))
        await until(lambda: len(here.there.seen) > WARM)
        processor = here.pipeline._processor
        processor.authorization = Authorization("here", authenticator=cast("Authenticator", Refusing()))
        processor.authenticates = True
        release.set()
        status, _, _ = await here.answer()
        assert status == b"HTTP/1.1 401 Unauthorized"
        target = here.assembly.service.router.models["m"]
        assert target.upstream is not None
        (member,) = target.upstream.pool.members
        await until(lambda: len(member.client._open) == len(member.client._idle))
        assert member.running == 0


async def test_a_kept_connection_that_has_ended_is_not_used(sent: list[bool]) -> None:
    there = Standin([USUAL] * (WARM - 1) + [doing(reply, goes_on=False)])
    async with bridge(there) as here:
        await here.warm()
        await until(lambda: there.ended == 1)
        status, _, body = await here.ask(request(7))
        assert status == b"HTTP/1.1 200 OK"
        assert np.frombuffer(body[-4:], np.float32)[0] == 7
    assert there.connections == 2
