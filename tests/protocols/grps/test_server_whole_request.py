"""A model that is given an HTTP request and writes the answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from interlingua.protocols.dialect import Opened
from interlingua.protocols.grps.whole_request import INPUTS, fail, whole_request_action
from interlingua.protocols.wire import HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)

REQUEST = HttpRequest("POST", "/chat%20", "a=%62", {"content-type": "text/weird"}, memoryview(b"hello\xff"))
SIGNATURE = Signature(tuple(TensorSpec(name, Datatype.BYTES, (-1,)) for name in INPUTS), ())


def bytes_tensor(name: str, *elements: bytes) -> Tensor:
    return Tensor(name, Datatype.BYTES, (len(elements),), memoryview(pack_bytes(elements)))


def status(number: Any, dtype: Any = np.int32) -> Tensor:
    return Tensor.from_numpy("http_status", np.array([number], dtype))


def response(*outputs: Tensor, final: bool = True) -> InferResponse:
    return InferResponse("m", outputs, final=final)


def answers(*responses: InferResponse, stream_type: str = "") -> list[HttpAnswer | None]:
    action = whole_request_action(stream_type)
    assert action.decode is not None
    _, form = action.decode(Opened(action, "m", message=REQUEST), SIGNATURE)
    return [action.encode(form, each) for each in responses]


def body(answer: HttpAnswer | None) -> bytes:
    assert answer is not None
    return b"".join(parts_of(answer))


def requested(signature: Signature) -> dict[str, list[bytes]]:
    action = whole_request_action()
    assert action.decode is not None
    request, _ = action.decode(Opened(action, "m", message=REQUEST), signature)
    return {tensor.name: tensor.elements() for tensor in request.inputs}


def test_what_a_model_receives() -> None:
    told = requested(SIGNATURE)
    assert json.loads(told.pop("http_headers")[0]) == {"content-type": "text/weird"}
    assert told == {
        "http_method": [b"POST"],
        "http_path": [b"/chat%20"],
        "http_query": [b"a=%62"],
        "http_body": [b"hello\xff"],
    }


def test_header_names_are_reported_in_lower_case_once_each() -> None:
    headers = CIMultiDictProxy(CIMultiDict([("X-One", "1"), ("Accept", "a"), ("x-one", "2")]))
    told = json.loads(INPUTS["http_headers"](HttpRequest("GET", "/", "", headers)))
    assert told == {"x-one": "1, 2", "accept": "a"}


def test_only_what_the_model_takes_is_sent() -> None:
    specs = (TensorSpec("http_body", Datatype.BYTES, (-1, 1)), TensorSpec("x", Datatype.FP32, (1,), True))
    assert requested(Signature(specs, ())) == {"http_body": [b"hello\xff"]}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (TensorSpec("x", Datatype.BYTES, (1,)), "its input 'x' is none of http_method, "),
        (TensorSpec("http_body", Datatype.UINT8, (-1,)), "its input 'http_body' is not one BYTES element"),
        (TensorSpec("http_body", Datatype.BYTES, (2,)), "its input 'http_body' is not one BYTES element"),
    ],
)
def test_a_model_that_is_not_made_for_it(spec: TensorSpec, said: str) -> None:
    with pytest.raises(InferenceError, match=said) as caught:
        requested(Signature((spec,), ()))
    assert caught.value.code is ErrorCode.INVALID_TENSOR


def test_an_answer_as_a_whole() -> None:
    headers = bytes_tensor("http_headers", b'{"X-One": "1"}')
    first = response(
        bytes_tensor("http_body", b"a", b"b"),
        status(201, np.int64),
        bytes_tensor("http_content_type", b"text/html"),
        headers,
        final=False,
    )
    more = response(bytes_tensor("http_body", b"c"), status(500), final=False)
    *nothing, answer = answers(first, more, response())
    assert nothing == [None, None]
    assert answer is not None
    assert (answer.status, body(answer)) == (201, b"abc")
    assert list(answer.headers) == [("Content-Type", "text/html"), ("X-One", "1")]


def test_a_model_that_says_nothing() -> None:
    (answer,) = answers(response())
    assert answer is not None
    assert (answer.status, list(answer.headers), body(answer)) == (200, [("Content-Type", "text/plain")], b"")


def test_an_answer_in_chunks() -> None:
    chunks = answers(
        response(bytes_tensor("http_body", b"data: 1\n", b"\n"), status(202), final=False),
        InferResponse("m", (), final=False, error=InferenceError(ErrorCode.MODEL_FAILED, "half of it")),
        response(),
        stream_type="text/event-stream",
    )
    assert [body(chunk) for chunk in chunks] == [b"data: 1\n\n", b"half of it", b""]
    assert chunks[0] is not None
    assert (chunks[0].status, list(chunks[0].headers)) == (202, [("Content-Type", "text/event-stream")])


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (status(99), "http_status is"),
        (status(200.0, np.float32), "http_status is"),
        (bytes_tensor("http_status", b"200"), "http_status is"),
        (bytes_tensor("http_content_type", b"a\r\nb: c"), "no text that a header may have"),
        (bytes_tensor("http_content_type", b"a", b"b"), "not one element of text"),
        (bytes_tensor("http_content_type", b"\xff"), "not one element of text"),
        (bytes_tensor("http_headers", b"[]"), "no JSON object"),
        (bytes_tensor("http_headers", b"{"), "http_headers: "),
        (bytes_tensor("http_headers", b'{"a b": "1"}'), "no header that a model may set"),
        (bytes_tensor("http_headers", b'{"Content-Length": "1"}'), "no header that a model may set"),
        (bytes_tensor("http_headers", b'{"content-type": "a/b"}'), "no header that a model may set"),
        (bytes_tensor("http_headers", b'{"a": 1}'), "no text that a header may have"),
    ],
)
def test_an_answer_that_is_none(output: Tensor, said: str) -> None:
    with pytest.raises(InferenceError, match=said) as caught:
        answers(response(output))
    assert caught.value.code is ErrorCode.MODEL_FAILED


def test_an_error_is_a_line_of_text() -> None:
    answer = fail(REQUEST, None, InferenceError(ErrorCode.NOT_FOUND, "no model \udcff"))
    assert (answer.status, body(answer)) == (500, b"no model \\udcff")
    assert fail(REQUEST, None, InferenceError(ErrorCode.TOO_LARGE, "")).status == 413
    where = "ValueError: no\n\nAt:\n  /secret/model.py(8): execute\n"
    assert body(fail(REQUEST, None, InferenceError(ErrorCode.MODEL_FAILED, where))) == b"ValueError: no"
