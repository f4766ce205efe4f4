"""generate_stream as a call: what goes out is what our own server reads, what comes back its events."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.oip.client import HTTP_CALLS
from interlingua.protocols.oip.generate import generate_endpoints
from interlingua.protocols.wire import HttpCall, HttpReply, HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Sequence,
    Signature,
    Tensor,
    TensorSpec,
)

CALL = HTTP_CALLS[Operation.INFER_STREAM]
SIGNATURE = Signature(
    (TensorSpec("text", Datatype.BYTES, (1,)), TensorSpec("grid", Datatype.INT32, (2, -1))),
    (TensorSpec("said", Datatype.BYTES, (-1,)), TensorSpec("odds", Datatype.FP32, (-1, 2))),
)
TEXT = Tensor.from_numpy("text", np.array([b"hi"], object))
GRID = Tensor.from_numpy("grid", np.arange(6, dtype=np.int32).reshape(2, 3))
EVENTS = (
    b'data: {"id":"a","model_name":"m","model_version":"2","odds":[0.5,0.25],"said":"x"}\n\n'
    b'data: {"error":"no more"}\n\n'
    b'data: {"model_name":"m","model_version":"2","said":["y","\xc3\xbc\\n"]}\n\n'
)


def sent(request: InferRequest) -> tuple[HttpCall, Any]:
    return CALL.encode(request, SIGNATURE)


def read(form: Any, *pieces: bytes, status: int = 200) -> list[InferResponse]:
    return [
        response for piece in (*pieces, b"") for response in CALL.decode(form, HttpReply(status, {}, piece))
    ]


def failed(*pieces: bytes, status: int = 200) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        read(sent(InferRequest("m", (TEXT,)))[1], *pieces, status=status)
    return caught.value


def test_our_own_server_reads_what_is_sent() -> None:
    request = InferRequest(
        "m",
        (TEXT, GRID),
        version="2",
        id="a",
        parameters={"n": 3, "flag": True},
        sequence=Sequence(7, start=True),
    )
    call, _ = sent(request)
    assert (call.method, call.path) == ("POST", "/v2/models/m/versions/2/generate_stream")
    endpoint = generate_endpoints()[-1]
    received = HttpRequest(
        "POST", call.path, headers={}, body=b"".join(call.parts), params={"model": "m", "version": "2"}
    )
    opened = endpoint.open(received)
    decode = opened.action.decode
    assert decode is not None
    again, _ = decode(opened, SIGNATURE)
    assert again == request


@given(st.lists(st.integers(0, len(EVENTS)), max_size=8))
def test_events_however_they_are_cut(cuts: list[int]) -> None:
    _, form = sent(InferRequest("m", (TEXT,)))
    edges = [0, *sorted(set(cuts) - {0, len(EVENTS)}), len(EVENTS)]
    first, error, last = read(form, *(EVENTS[a:b] for a, b in pairwise(edges)))
    assert (first.model, first.version, first.id, first.final) == ("m", "2", "a", False)
    said, odds = first.outputs
    assert (said.name, said.shape, said.elements()) == ("said", (1,), [b"x"])
    assert (odds.name, odds.shape, odds.numpy().tolist()) == ("odds", (1, 2), [[0.5, 0.25]])
    assert error.error is not None and error.error.message == "no more"
    assert [tensor.elements() for tensor in last.outputs] == [[b"y", "ü\n".encode()]]


def test_no_events_are_no_responses() -> None:
    assert read(sent(InferRequest("m", (TEXT,)))[1]) == []


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (Tensor.from_numpy("grid", np.zeros((1, 2, 3), np.int32)), "'grid' of shape"),
        (Tensor.from_numpy("other", np.zeros(1, np.int32)), "'other' of shape"),
        (Tensor.from_numpy("grid", np.zeros((2, 1), np.float16)), "FP16 .* input grid"),
        (Tensor.from_numpy("text", np.array([b"\xff"], object)), "'text'"),
    ],
)
def test_what_the_flat_form_cannot_carry_is_refused(tensor: Tensor, word: str) -> None:
    with pytest.raises(InferenceError, match=word) as caught:
        sent(InferRequest("m", (tensor,)))
    assert caught.value.code is ErrorCode.UNREPRESENTABLE


def test_without_a_signature_there_is_no_telling() -> None:
    with pytest.raises(InferenceError) as caught:
        CALL.encode(InferRequest("m", (TEXT,)), None)
    assert caught.value.code is ErrorCode.UNSUPPORTED


def test_the_upstreams_own_errors() -> None:
    error = failed(b'{"error":"no such model"}', status=404)
    assert (error.code, error.message) == (ErrorCode.NOT_FOUND, "no such model")
    assert failed(status=503).code is ErrorCode.UNAVAILABLE


def test_a_model_that_fails_first_goes_on() -> None:
    events = b'data: {"error":"gen failed"}\n\ndata: {"model_name":"m","said":"y"}\n\n'
    first, second = read(sent(InferRequest("m", (TEXT,)))[1], events, status=400)
    assert first.error is not None
    assert (first.error.code, first.error.message) == (ErrorCode.MODEL_FAILED, "gen failed")
    assert [tensor.elements() for tensor in second.outputs] == [[b"y"]]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"data: {",),
        (b"hello\n\n",),
        (b"data: []\n\n",),
        (b"data: {\n\n",),
        (b'data: {"odds":[1,2,3]}\n\n',),
        (b'data: {"said":1}\n\n',),
        (b'data: {"model_name":1}\n\n',),
        (b'data: {"error":1}\n\n',),
    ],
)
def test_what_are_no_events(pieces: tuple[bytes, ...]) -> None:
    assert failed(*pieces).code is ErrorCode.BAD_UPSTREAM


@given(st.binary(max_size=60), st.sampled_from([200, 400, 500]))
def test_any_answer(body: bytes, status: int) -> None:
    with suppress(InferenceError):
        read(sent(InferRequest("m", (TEXT,)))[1], body, status=status)


def test_the_form_of_a_request() -> None:
    call, _ = sent(InferRequest("m", (TEXT, GRID)))
    assert orjson.loads(b"".join(call.parts)) == {"text": "hi", "grid": [0, 1, 2, 3, 4, 5]}
