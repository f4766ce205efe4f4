"""The index of an upstream's repositories, as our own server and as others write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlingua.protocols.oip.client import GRPC_CALLS, HTTP_CALLS
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpCall, HttpReply
from interlingua.schemas import ErrorCode, InferenceError, ModelState, ModelStatus, Operation, VersionStatus
from tests.properties.through import result_through

GOLDEN = Path(__file__).parents[2] / "golden" / "oip"
INDEX = Operation.REPOSITORY_INDEX
MODELS = (
    ModelStatus(
        "a",
        versions=(VersionStatus("1", ModelState.UNAVAILABLE, "old"), VersionStatus("2", ModelState.READY)),
    ),
    ModelStatus("b"),
)


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_what_our_server_tells(transport: str) -> None:
    assert result_through(("oip", transport), INDEX, None, MODELS) == MODELS


def recorded(file: str, of: str) -> list[Any]:
    return [each for each in json.loads((GOLDEN / file).read_text()) if of in json.dumps(each["request"])]


def test_what_triton_tells_over_http() -> None:
    sent, form = HTTP_CALLS[INDEX].encode(None, None)
    assert isinstance(sent, HttpCall)
    assert (sent.method, sent.path) == ("POST", "/v2/repository/index")
    found = 0
    for exchange in recorded("triton_http.json", "POST /v2/repository/index"):
        if not exchange["status"].startswith("HTTP/1.1 200") or "text" not in exchange["body"]:
            continue
        reply = HttpReply(200, {}, exchange["body"]["text"].encode())
        models = HTTP_CALLS[INDEX].decode(form, reply)
        assert {model.name for model in models} == {entry["name"] for entry in json.loads(reply.body)}
        found += 1
    assert found


@pytest.mark.parametrize("body", [b"{}", b"[1]", b'[{"version": "1"}]', b"no json"])
def test_what_is_no_index_over_http(body: bytes) -> None:
    with pytest.raises(InferenceError) as caught:
        HTTP_CALLS[INDEX].decode(None, HttpReply(200, {}, body))
    assert caught.value.code is ErrorCode.BAD_UPSTREAM


def test_servers_without_the_extension() -> None:
    for reply in (HttpReply(404, {}, b'{"error": "no"}'), HttpReply(405, {}, b"")):
        with pytest.raises(InferenceError):
            HTTP_CALLS[INDEX].decode(None, reply)
    sent, form = GRPC_CALLS[INDEX].encode(None, None)
    assert sent == GrpcRequest("/inference.GRPCInferenceService/RepositoryIndex", b"", context=sent.context)
    with pytest.raises(InferenceError) as caught:
        GRPC_CALLS[INDEX].decode(form, GrpcAnswer(code=12, details="no"))
    assert caught.value.code is ErrorCode.UNSUPPORTED
    with pytest.raises(InferenceError):
        GRPC_CALLS[INDEX].decode(form, GrpcAnswer(b"\xff"))
