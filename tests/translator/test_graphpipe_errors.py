"""Errors of GraphPipe over HTTP: by status, or in band where a listener says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import requests
import yaml
from graphpipe import convert, remote
from graphpipe.graphpipefb import InferResponse

from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, Tensor
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config import parse
from interlingua.translator.daemon import _listen

SPEC = {"datatype": "FP32", "shape": [-1, 4]}
SIGNATURE = {"inputs": [{"name": "X", **SPEC}], "outputs": [{"name": "Y", **SPEC}]}
VALUES = np.ones((1, 4), np.float32)
WRONG = VALUES.astype(np.int64)


@asynccontextmanager
async def listening(errors: str, *dialects: str) -> AsyncIterator[tuple[str, Any]]:
    """The address of an HTTP listener, and a model that stands behind it."""
    echo = {"backend": "identity", "signature": SIGNATURE}
    listener: dict[str, Any] = {"listen": "127.0.0.1:0", "transport": "http", "graphpipe_errors": errors}
    listener |= {
        "max_request_bytes": 1000,
        "dialects": list(dialects) or ["graphpipe"],
        "default_model": "echo",
    }
    config = parse(yaml.safe_dump({"listeners": [listener], "models": {"echo": echo}}))
    assembly = assemble(config, load_local(config))
    (bound,) = await _listen(assembly)
    there = {"dialect": "graphpipe", "transport": "http", "urls": [str(bound.address)]}
    model = {"upstream": "there", "remote_model": "echo", "signature": SIGNATURE}
    bridge = parse(
        yaml.safe_dump(
            {
                "listeners": [{"listen": ":0", "transport": "http"}],
                "upstreams": {"there": there},
                "models": {"m": model, "absent": {**model, "remote_model": "absent"}},
            }
        )
    )
    behind = assemble(bridge, load_local(bridge))
    try:
        yield f"http://{bound.address}", behind.service.router.models
    finally:
        await behind.close()
        await bound.server.stop(0)
        await assembly.close()


def posted(url: str, array: np.ndarray) -> requests.Response:
    body = bytes(convert.serialize_infer_request(convert.InferReq("", [array], [], [])))
    return requests.post(url, body, timeout=30)


def error_in(body: bytes) -> tuple[int, bytes]:
    answer = InferResponse.InferResponse.GetRootAsInferResponse(body, 0)
    assert answer.ErrorsLength() == 1
    assert answer.OutputTensorsLength() == 0
    return answer.Errors(0).Code(), answer.Errors(0).Message()


async def test_a_status_is_what_a_client_gets_by_default() -> None:
    async with listening("status") as (url, models):
        said = await asyncio.to_thread(posted, url, WRONG)
        assert (said.status_code, said.headers["content-type"]) == (400, "text/plain; charset=utf-8")
        assert b"FP32" in said.content
        assert not (await models["absent"].ready()).ready


@pytest.mark.parametrize("dialects", [("graphpipe",), ("graphpipe", "oip", "grps")])
async def test_errors_in_band(dialects: tuple[str, ...]) -> None:
    async with listening("inband", *dialects) as (url, models):
        for place in ("/graphpipe/echo", "/"):
            said = await asyncio.to_thread(posted, url + place, WRONG)
            assert (said.status_code, said.headers["content-type"]) == (200, "application/octet-stream")
            code, words = error_in(said.content)
            assert (code, b"FP32" in words) == (ErrorCode.INVALID_TENSOR.value, True)
        said = await asyncio.to_thread(posted, url + "/graphpipe/absent", VALUES)
        assert error_in(said.content)[0] == ErrorCode.NOT_FOUND.value
        said = await asyncio.to_thread(posted, url + "/graphpipe/echo", VALUES.repeat(100, 0))
        assert error_in(said.content)[0] == ErrorCode.TOO_LARGE.value
        # what is no message is told as before
        said = await asyncio.to_thread(requests.get, url + "/graphpipe/absent", timeout=30)
        assert said.status_code == 404
        assert not (await models["absent"].ready()).ready
        assert (await models["m"].ready()).ready
        answer = await models["m"].infer(asking(VALUES))
        assert np.array_equal(answer.outputs[0].numpy(), VALUES)
        with pytest.raises(InferenceError) as caught:
            await models["absent"].infer(asking(VALUES))
        assert caught.value.code is ErrorCode.NOT_FOUND


async def test_graphpipes_own_client_hears_of_them() -> None:
    async with listening("inband") as (url, _):
        with pytest.raises(Exception, match="FP32"):
            await asyncio.to_thread(remote.execute, url, WRONG)
        assert np.array_equal(await asyncio.to_thread(remote.execute, url, VALUES), VALUES)


def asking(array: np.ndarray) -> InferRequest:
    return InferRequest("m", (Tensor.from_numpy("X", array),), context=Context())
