"""Requests of other dialects to a local model that answers at once, held against the same by the pipeline."""

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
    InferRequest,
    Tensor,
)
from interlingua.translator.serving.plans.local import LocalPlan
from tests.translator.serving import local_daemon, spied_plans
from tests.translator.serving.local_daemon import WARM, infer_call
from tests.translator.serving.test_local_plans import Daemon, daemon, inline

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
    """What ``scenario`` returns, which is the same by the pipeline, as are the counts."""
    make = FORMS[form][1]
    answers, _ = await local_daemon.compared(partial(warm, form), lambda here: scenario(here, make), patch)
    return answers


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


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[LocalPlan]:
    """The path of each request that was offered to one."""
    return spied_plans.record(monkeypatch, spied_plans.LOCAL, lambda path, _: path)


@pytest.mark.parametrize("form", FORMS)
async def test_idle_connections_keep_no_message(form: str, paths: list[LocalPlan]) -> None:
    dialect, make = FORMS[form]
    async with daemon(dialect) as here:
        for number in range(WARM):
            await call(here, make(struct.pack("<2f", number, 0)))
        reader: Any = paths[-1].reader
        if reader.template is None:
            assert bytes(reader.request.body) == b""
        else:
            assert reader.like.inputs == ()


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
