"""A model's configuration as the recorded Triton tells it, and as no server should."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from interlingua.protocols.oip.client import GRPC_CALLS, HTTP_CALLS, HTTP_JSON_CALLS
from interlingua.protocols.wire import GrpcAnswer, HttpReply
from interlingua.schemas import ErrorCode, InferenceError, ModelRef, Operation
from interlingua.schemas.oip import MESSAGES

GOLDEN = Path(__file__).parents[2] / "golden" / "oip"
CALL = HTTP_CALLS[Operation.MODEL_CONFIG]


def recorded(transport: str, name: str) -> dict[str, Any]:
    exchanges = orjson.loads((GOLDEN / f"triton_{transport}.json").read_bytes())
    return next(exchange for exchange in exchanges if exchange["name"] == name)  # type: ignore[no-any-return]


HTTP = recorded("http", "config")["body"]["text"].encode()


def read(config: bytes) -> Any:
    return MESSAGES["inference.ModelConfig"].FromString(config)


def test_http() -> None:
    asked, form = CALL.encode(ModelRef("simple", "1"), None)
    assert (asked.method, asked.path) == ("GET", "/v2/models/simple/versions/1/config")
    config = read(CALL.decode(form, HttpReply(200, {}, HTTP)))
    assert (config.name, config.max_batch_size) == ("simple", 8)
    assert [(one.name, one.data_type, list(one.dims)) for one in config.input] == [
        ("INPUT0", 8, [16]),
        ("INPUT1", 8, [16]),
    ]
    assert HTTP_JSON_CALLS[Operation.MODEL_CONFIG] is CALL


def test_grpc() -> None:
    exchange = recorded("grpc", "mconfig_v1")
    call = GRPC_CALLS[Operation.MODEL_CONFIG]
    asked, form = call.encode(ModelRef("add_sub", "1"), None)
    assert asked.method == "/inference.GRPCInferenceService/ModelConfig"
    assert asked.message == base64.b64decode(exchange["request_bytes"])
    config = call.decode(form, GrpcAnswer(base64.b64decode(exchange["response_bytes"])))
    told = model_config_pb2.ModelConfig.FromString(config)
    assert (told.name, told.backend, told.max_batch_size) == ("add_sub", "python", 0)


@pytest.mark.parametrize(("status", "code"), [(404, ErrorCode.NOT_FOUND), (501, ErrorCode.UNSUPPORTED)])
def test_a_server_without(status: int, code: ErrorCode) -> None:
    with pytest.raises(InferenceError, match="Not Found") as caught:
        CALL.decode(None, HttpReply(status, {}, b'{"error": "Not Found"}'))
    assert caught.value.code is code


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800")
JUNK = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4)


@given(st.data())
def test_anything_in_place_of_anything(data: st.DataObject) -> None:
    document = orjson.loads(HTTP)
    place: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JUNK)
    # json writes what orjson does not: half a surrogate pair, integers beyond 64 bits, infinity
    reply = HttpReply(200, {}, json.dumps(document).encode())
    assert error_of(reply) in (None, ErrorCode.BAD_UPSTREAM)


def error_of(reply: HttpReply) -> ErrorCode | None:
    try:
        CALL.decode(None, reply)
    except InferenceError as error:
        return error.code
    return None
