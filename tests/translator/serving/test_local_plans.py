"""Requests that repeat the headers of others, held against the same requests by the pipeline: neither the
caller nor any count sees a difference."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from interlingua.protocols import numeric_json
from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.wire import HttpRequest
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.offload.pool import OffloadPool
from interlingua.schemas import Context, ErrorCode, Operation
from interlingua.translator.serving.plans.local import UnfinishedRun
from tests.spies import failing
from tests.translator.serving import spied_plans
from tests.translator.serving.local_daemon import WARM, LocalDaemon, compared, local_models

ROW = b'{"instances":[[1.5,2.5,3.5]]}'


def request(body: bytes, more: str = "", path: str = "/v1/models/m:predict") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass
class Daemon(LocalDaemon):
    """With a caller of it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answer(self) -> tuple[bytes, bytes]:
        """The next answer: its head and its body."""
        async with asyncio.timeout(20):
            head = await self.reader.readuntil(b"\r\n\r\n")
            (length,) = re.findall(rb"content-length: (\d+)", head)
            return head, await self.reader.readexactly(int(length))

    async def call(self, body: bytes = ROW, more: str = "") -> tuple[bytes, bytes]:
        self.writer.write(request(body, more))
        return await self.answer()


@asynccontextmanager
async def daemon(dialect: str = "tfserving", **listener: Any) -> AsyncIterator[Daemon]:
    async with local_models("http", dialect, **listener) as (assembly, pipeline, listening):
        server = HttpServer(pipeline.handlers["http"], parse_address(listening.listen), load=pipeline.load)
        address = await server.start()
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            yield Daemon(server, pipeline, assembly, dialect, reader, writer)
        finally:
            writer.close()
            await server.stop(0)


@asynccontextmanager
async def warm(**listener: Any) -> AsyncIterator[Daemon]:
    """A daemon whose connection has repeated a request."""
    async with daemon(**listener) as here:
        for _ in range(WARM):
            assert (await here.call())[1] == b'{"predictions":[[1.5,2.5,3.5]]}'
        yield here


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a plan has answered each request that it was offered."""
    return spied_plans.record(monkeypatch, spied_plans.LOCAL, lambda _, answer: answer)


async def test_an_answer_that_takes_long_to_write(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric_json, "_LONG_BYTES", 12)

    async def scenario(here: Daemon) -> list[Any]:
        return [await here.call(b'{"instances":[[1,2,3,4]]}'), await here.call()]

    async with OffloadPool(1):
        answers, _ = await compared(warm, scenario, monkeypatch)
    assert answers[0][1] == b'{"predictions":[[1.0,2.0,3.0,4.0]]}'
    assert any(isinstance(each, UnfinishedRun) for each in inline)


async def test_a_body_in_pieces(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: Daemon) -> list[Any]:
        found = []
        for body in (ROW, b'{"instances":[[1.5,2.5,3.5],[4.5,5.5,6.25]]}', ROW[:-3]):
            message = request(body)
            here.writer.write(message[:-9])
            await here.writer.drain()
            await asyncio.sleep(0.05)
            here.writer.write(message[-9:])
            found.append(await here.answer())
        return found

    await compared(warm, scenario, monkeypatch)
    assert len([each for each in inline if each is not None]) >= 4


async def test_connections_that_call_at_once(inline: list[Any]) -> None:
    """Their answers leave together, before the listener closes as well."""
    async with daemon() as here:
        host, port = here.writer.get_extra_info("peername")
        callers = [await asyncio.open_connection(host, port) for _ in range(40)]
        for turn in range(WARM + 4):
            bodies = [b'{"instances":[[%d,2.5,3.5]]}' % (100 * turn + place) for place in range(40)]
            for (_, writer), body in zip(callers, bodies, strict=True):
                writer.write(request(body))
            for (reader, _), body in zip(callers, bodies, strict=True):
                (length,) = re.findall(rb"content-length: (\d+)", await reader.readuntil(b"\r\n\r\n"))
                values = json.loads(await reader.readexactly(int(length)))["predictions"]
                assert values == json.loads(body)["instances"]
        assert len([each for each in inline if each is not None]) >= 40
        assert here.counts["in flight"][1:] == (0, 0, 0)
        for _, writer in callers:
            writer.write(request(ROW))
        await here.server.stop(5)
        for reader, writer in callers:
            assert (await reader.read()).endswith(b'{"predictions":[[1.5,2.5,3.5]]}')
            writer.close()


async def test_a_model_that_waits(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that a model does not answer at once are seldom read twice."""
    async with warm() as here:
        monkeypatch.setattr(LocalModel, "infers_at_once", lambda *_: False)
        monkeypatch.setattr(LocalModel, "infer_now", lambda *_: None)
        decoded: list[object] = []
        check = numeric_json.pack_values
        monkeypatch.setattr(
            "interlingua.protocols.tfserving.json_tensors.pack_values",
            lambda *arguments: decoded.append(0) or check(*arguments),
        )
        for _ in range(100):
            assert (await here.call())[1] == b'{"predictions":[[1.5,2.5,3.5]]}'
        assert len(decoded) < 120
        monkeypatch.undo()


async def test_a_caller_that_is_gone_before_its_failure(
    inline: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with warm() as here:
        monkeypatch.setattr(here.version, "_run", failing(ValueError("a bug")))
        whole = HttpRequest("POST", "/v1/models/m:predict", context=Context(peer="here"))
        handler: Any = here.pipeline.handlers["http"]
        assert handler.head(whole) is None
        whole.body = ROW
        await here.call()
        call = inline[-1]
        assert isinstance(call, UnfinishedRun)
        before = here.counts
        call.abandon(whole)
        after = here.counts
    assert after["ended"][Operation.INFER, ErrorCode.CANCELLED] == 1
    assert after["in flight"] == before["in flight"]


async def test_events_of_kserve_that_repeat_have_ids_of_their_own(inline: list[Any]) -> None:
    event = "ce-id: 7\r\nce-source: me\r\nce-specversion: 1.0\r\nce-type: t\r\n"
    async with daemon(flavors={"tfserving": "kserve"}) as here:
        found = [await here.call(more=event) for _ in range(8)]
    assert {body for _, body in found} == {b'{"predictions":[[1.5,2.5,3.5]]}'}
    assert len({re.search(rb"(?i)ce-id: (\S+)", head)[1] for head, _ in found}) == 8  # type: ignore[index]
    assert inline[-1] is not None
