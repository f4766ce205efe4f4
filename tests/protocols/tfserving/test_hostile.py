"""Whatever the bytes: a codec answers with an ``InferenceError`` or a request, and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.path_table import PathTable
from interlingua.protocols.tfserving import DIALECT
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpReply, HttpRequest
from interlingua.schemas import InferenceError, ModelRef, Operation
from tests.protocols.tfserving.exchange import MODELS
from tests.protocols.tfserving.test_grpc import proto, types
from tests.protocols.tfserving.test_grpc import request as predict

RPCS = {each.method: each for each in DIALECT.bindings["grpc"].endpoints}
PATHS = PathTable(DIALECT.bindings["http"].endpoints)
GRPC, HTTP = (DIALECT.bindings[transport].calls for transport in ("grpc", "http"))
PREDICT = "/tensorflow.serving.PredictionService/Predict"

MESSAGES = [
    (model, predict(model, {"x": tensor}).SerializeToString())
    for model, tensor in (
        ("row", proto(types.DT_FLOAT, 3, tensor_content=bytes(range(12)))),
        ("row", proto(types.DT_FLOAT, 3, float_val=[1, 2])),
        ("longs", proto(types.DT_INT64, 2, int64_val=[-1, 300])),
        ("halves", proto(types.DT_HALF, 2, half_val=[1, 2])),
        ("texts", proto(types.DT_STRING, 2, string_val=[b"a", b"bc"])),
        ("texts", proto(types.DT_STRING, 2, tensor_content=b"\x02\x01abc")),
    )
]
BODIES = [
    ("two:predict", {"instances": [{"a": 1, "b": ["x"]}, {"a": 2, "b": [{"b64": "YQ=="}]}]}),
    ("floats:predict", {"inputs": {"x": [[1, 2.5], [3, 4]]}}),
    ("texts:predict", {"inputs": ["a", {"b64": "YQ=="}]}),
    ("classes:classify", {"context": {"scores": [1, 2]}, "examples": [{}, {"scores": [0.5, 1]}]}),
    ("value:regress", {"examples": [{"x": 1}]}),
]
PIECES = [
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b'"',
    b"null",
    b"true",
    b"1e400",
    b"NaN",
    b'{"b64":"YQ=="}',
    b"[]",
    b"{}",
]


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """``whole`` with some of its bytes cut out, and others put in."""
    data = whole
    for _ in range(draw(st.integers(1, 4))):
        start, stop = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        stop = min(stop, start + draw(st.integers(0, 3)))
        data = data[:start] + draw(st.binary(max_size=3) | st.sampled_from(PIECES)) + data[stop:]
    return data


def decoded(opened: Any, model: str) -> None:
    request, _ = opened.action.decode(opened, MODELS[model])
    for tensor in request.inputs:
        assert tensor.numpy().shape == tensor.shape


@given(data=st.data())
def test_messages(data: st.DataObject) -> None:
    model, whole = data.draw(st.sampled_from(MESSAGES))
    message = data.draw(damaged(whole))
    with suppress(InferenceError):
        decoded(RPCS[PREDICT].open(GrpcRequest(PREDICT, message)), model)
    for operation, form in ((Operation.INFER, "m"), (Operation.MODEL_METADATA, ModelRef("m"))):
        with suppress(InferenceError):
            GRPC[operation].decode(form, GrpcAnswer(message))


@given(data=st.data())
def test_bodies(data: st.DataObject) -> None:
    place, document = data.draw(st.sampled_from(BODIES))
    body = data.draw(damaged(json.dumps(document).encode()))
    request = HttpRequest("POST", f"/v1/models/{place}", "", {}, body)
    methods, request.params = PATHS.find(request.path)
    model = place.partition(":")[0]
    with suppress(InferenceError):
        decoded(methods["POST"].open(request), model)
    answer = body.replace(b"instances", b"predictions").replace(b"inputs", b"outputs")
    for signature in (MODELS[model], None):
        with suppress(InferenceError):
            HTTP[Operation.INFER].decode(("m", signature), HttpReply(200, {}, answer))
