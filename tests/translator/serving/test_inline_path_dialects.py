"""Requests of other dialects to a local model that answers at once, held against the same on their usual path."""

from __future__ import annotations

import re
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from interlingua.protocols.transport.writes import WRITTEN_BYTES
from interlingua.protocols.wire import NO_CONTEXT
from interlingua.runtime.models.model import LocalModel
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    Tensor,
)
from interlingua.translator.serving.handler_http import HttpPipeline
from interlingua.translator.serving.inline_path import HandlerInlinePath, UnfinishedCall
from tests.spies import failing
from tests.translator.serving import inline_daemon, spied_paths
from tests.translator.serving.inline_daemon import WARM, infer_call
from tests.translator.serving.test_inline_path import Daemon, daemon, inline

__all__ = ["inline"]

HEAD = b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]'
BINARY = HEAD + b',"parameters":{"binary_data_output":true}}'
TRTIS = 'batch_size: 1 input { name: "x" dims: 1 dims: 2 } output { name: "x" }'

Make = Callable[[bytes], bytes]


def oip(data: bytes, head: bytes = BINARY) -> bytes:
    return (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: here\r\nInference-Header-Content-Length: {len(head)}\r\n"
        f"Content-Length: {len(head) + len(data)}\r\n\r\n"
    ).encode() + (head + data)


def oip_json(data: bytes) -> bytes:
    numbers = ",".join(map(repr, struct.unpack(f"<{len(data) // 4}f", data[: len(data) // 4 * 4])))
    body = (
        f'{{"id":"{data[0]}","inputs":[{{"name":"x","shape":[1,2],"datatype":"FP32","data":[{numbers}]}}]}}'
    )
    return f"POST /v2/models/m/infer HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def trtis(data: bytes) -> bytes:
    return (
        f"POST /api/infer/m HTTP/1.1\r\nHost: here\r\nNV-InferRequest: {TRTIS}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    ).encode() + data


def graphpipe(data: bytes) -> bytes:
    body = b"".join(infer_call("graphpipe", "http", data, 2).parts)
    return f"POST /graphpipe/m HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def grps(data: bytes, model: str = "m") -> bytes:
    # the values are positive
    numbers = ",".join(map(repr, struct.unpack(f"<{len(data) // 4}f", data[: len(data) // 4 * 4])))
    tensor = f'{{"name":"x","dtype":"DT_FLOAT32","shape":[1,2],"flat_float32":[{numbers}]}}'
    body = f'{{"model":"{model}","gtensors":{{"tensors":[{tensor}]}}}}'
    return (
        "POST /grps/v1/infer/predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


FORMS: dict[str, tuple[str, Make]] = {
    "oip, binary": ("oip", oip),
    "oip, JSON": ("oip", oip_json),
    "oip, binary to JSON": ("oip", lambda data: oip(data, HEAD + b"}")),
    "trtis": ("trtis", trtis),
    "graphpipe": ("graphpipe", graphpipe),
    "grps": ("grps", grps),
}


async def call(here: Daemon, message: bytes) -> tuple[bytes, bytes]:
    """The answer, with the names of its stages alone."""
    here.writer.write(message)
    head, body = await here.answer()
    return re.sub(rb"dur=[0-9.]+", b"", head), body


@asynccontextmanager
async def warm(form: str) -> AsyncIterator[Daemon]:
    """A daemon whose connection has repeated a request."""
    dialect, make = FORMS[form]
    async with daemon(dialect) as here:
        for number in range(WARM):
            head, body = await call(here, make(struct.pack("<2f", number, number + 0.5)))
            assert head.startswith(b"HTTP/1.1 200 OK"), body
        yield here


async def compared(form: str, scenario: Callable[[Daemon, Make], Any], patch: pytest.MonkeyPatch) -> Any:
    """What ``scenario`` returns, which is the same on the usual path, as are the counts."""
    make = FORMS[form][1]
    answers, _ = await inline_daemon.compared(partial(warm, form), lambda here: scenario(here, make), patch)
    return answers


@pytest.mark.parametrize("form", FORMS)
async def test_requests_that_repeat(form: str, inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: Daemon, make: Make) -> list[Any]:
        data = [struct.pack("<2f", 1.5 * number, -number) for number in range(10)]
        return [
            await call(here, make(each))
            for each in (*data, b"\xff\xff\xff\xff\0\0\0\0", b"short..", bytes(12))
        ]

    answers = await compared(form, scenario, monkeypatch)
    assert len([each for each in inline if each is not None]) >= 10
    assert all(head.startswith(b"HTTP/1.1 200 OK") for head, _ in answers[:10])
    assert answers[-1][0].startswith((b"HTTP/1.1 400", b"HTTP/1.1 500"))


@pytest.mark.parametrize("form", ["oip, binary", "trtis", "graphpipe"])
@pytest.mark.parametrize(
    "error", [InferenceError(ErrorCode.MODEL_FAILED, "broken"), ValueError("a bug")], ids=repr
)
async def test_a_model_that_fails(
    form: str, error: Exception, inline: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(here: Daemon, make: Make) -> list[Any]:
        with monkeypatch.context() as patch:
            patch.setattr(here.version, "_run", failing(error))
            failed = await call(here, make(bytes(8)))
        return [failed, await call(here, make(bytes(8)))]

    answers = await compared(form, scenario, monkeypatch)
    assert b" 200 " not in answers[0][0]
    assert any(isinstance(each, UnfinishedCall) for each in inline)


@pytest.mark.parametrize("form", ["oip, binary", "graphpipe"])
async def test_an_answer_that_takes_several_writes(
    form: str, inline: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Tensor(
        "x", Datatype.FP32, (1, WRITTEN_BYTES), memoryview(bytes(range(256)) * (WRITTEN_BYTES >> 6))
    )

    async def scenario(here: Daemon, make: Make) -> list[Any]:
        with monkeypatch.context() as growing:
            growing.setattr(here.version, "_run", lambda *_: (large,))
            head, body = await call(here, make(bytes(8)))
        assert bytes(large.view) in body
        return [head, body, await call(here, make(bytes(8)))]

    await compared(form, scenario, monkeypatch)
    assert len([each for each in inline if each is not None]) >= 2


async def test_another_id_of_the_server(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reload gives it one."""

    async def scenario(here: Daemon, make: Make) -> list[Any]:
        here.assembly.service.id = "another"
        return [await call(here, make(struct.pack("<2f", number, 0))) for number in range(3)]

    answers = await compared("trtis", scenario, monkeypatch)
    assert len([each for each in inline if each is not None]) >= 3
    assert all(b'server_id: "another"' in head for head, _ in answers)


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[HandlerInlinePath]:
    """The path of each request that was offered to one."""
    return spied_paths.record(monkeypatch, spied_paths.INLINE, lambda path, _: path)


@pytest.mark.parametrize("form", FORMS)
async def test_idle_connections_keep_no_message(form: str, paths: list[HandlerInlinePath]) -> None:
    dialect, make = FORMS[form]
    async with daemon(dialect) as here:
        for number in range(WARM):
            await call(here, make(struct.pack("<2f", number, 0)))
        assert bytes(paths[-1].request.body) == b""


@pytest.mark.parametrize("form", FORMS)
async def test_the_model_gets_the_context_of_the_request(
    form: str, inline: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[Context] = []
    infer = LocalModel.infer_now

    def spied(model: LocalModel, request: InferRequest) -> Any:
        contexts.append(request.context)
        return infer(model, request)

    monkeypatch.setattr(LocalModel, "infer_now", spied)

    async def scenario(here: Daemon, make: Make) -> None:
        for number in range(3):
            await call(here, make(struct.pack("<2f", number, 0)))

    await compared(form, scenario, monkeypatch)
    assert len([each for each in inline if each is not None]) >= 3
    assert all(context.headers["host"] == "here" and context.peer for context in contexts)
    # what requests without a context share has nothing of any
    assert (NO_CONTEXT.timings, NO_CONTEXT.server_id, NO_CONTEXT.request_number) == ({}, "", 0)


async def test_the_default_model(inline: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests without a model go to the one that the listener has now, which a reload may change."""

    async def scenario(here: Daemon) -> list[Any]:
        handler: Any = here.pipeline.handlers["http"]
        processor, found = handler._processor, []
        for model in ("n", "n", "m", "", "m"):
            processor.default_model = model
            found += [await call(here, grps(bytes(8), "")), await call(here, grps(bytes(8), "n-1"))]
        models = here.assembly.service.router.models
        return [*found, [models[name].statistics["1"].inference_count for name in "mn"]]

    found = []
    for usual in (False, True):
        if usual:
            monkeypatch.setattr(HttpPipeline, "inline_path", lambda *_: None)
        async with daemon("grps", default_model="m") as here:
            for _ in range(WARM):
                await call(here, grps(bytes(8), ""))
            found.append(await scenario(here))
    assert found[0] == found[1]
    assert found[0][-1] == [WARM + 2, 2 + 5]
    assert len([each for each in inline if each is not None]) >= 2
