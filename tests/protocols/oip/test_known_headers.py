"""Headers that come again: the second time they mean what they meant the first time, and no more."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from interlingua.protocols.oip import known_headers
from interlingua.protocols.oip.codec_http import (
    OipHttpReplyForm,
    decode_request,
    decode_response,
    encode_request,
)
from interlingua.protocols.oip.known_headers import KnownHeaders
from interlingua.protocols.oip.mlserver import reader_of as reader_of_mlserver
from interlingua.protocols.wire import HttpRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
)
from tests.protocols.oip.http_exchange import decoded, post

ANY = Signature(
    (TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("y", Datatype.FP32, (-1,), labels=("a", "b")),)
)
KEY = (b"{}", "")


def entry(size: int, name: str = "x", datatype: str = "FP32", shape: Any = (2,)) -> dict[str, Any]:
    return {
        "name": name,
        "datatype": datatype,
        "shape": shape,
        "parameters": {"binary_data_size": size},
    }


def request(*inputs: Any, tail: bytes, headers: Any = (), **more: Any) -> HttpRequest:
    header = json.dumps({"inputs": inputs, **more}).encode()
    given = {"inference-header-content-length": str(len(header)), **dict(headers)}
    return post(header + tail, given)


def floats(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def test_the_data_is_the_one_that_came_with_it() -> None:
    for values in ((1, 2), (3, 4), (5, 6)):
        message = request(entry(8), entry(4, "z", shape=[1]), tail=floats(*values, 7))
        asked, _ = decoded(message, ANY)
        first, second = asked.inputs
        np.testing.assert_array_equal(first.numpy(), np.array(values, np.float32))
        np.testing.assert_array_equal(second.numpy(), np.array([7], np.float32))
        assert first.view.obj is message.body
        assert first.view.readonly


def test_a_request_that_is_read_again_is_the_same() -> None:
    more: dict[str, Any] = {
        "parameters": {"sequence_id": 7, "sequence_end": True, "priority": 2, "timeout": 9},
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    first, again = (decoded(request(entry(8), tail=floats(1, 2), **more), ANY) for _ in range(2))
    assert first == again
    asked, form = again
    assert (asked.sequence, asked.priority, asked.timeout_us) == (Sequence(7, end=True), 2, 9)
    assert (asked.outputs, form) == ((RequestedOutput("y"),), OipHttpReplyForm(binary=frozenset({"y"})))


def test_data_of_another_size_is_refused_as_the_first_time() -> None:
    decoded(request(entry(8), tail=floats(1, 2)), ANY)
    for tail, text in (
        (bytes(7), "expecting 1 additional bytes"),
        (bytes(9), "additional input data .* 1 bytes"),
    ):
        with pytest.raises(InferenceError, match=text):
            decoded(request(entry(8), tail=tail), ANY)


def test_elements_of_bytes_are_counted_each_time() -> None:
    words = entry(10, datatype="BYTES")
    packed = b"\1\0\0\0a\1\0\0\0b"
    for _ in range(2):
        asked, _ = decoded(request(words, tail=packed), ANY)
        assert asked.inputs[0].elements() == [b"a", b"b"]
    with pytest.raises(InferenceError, match="needs 2 length-prefixed elements"):
        decoded(request(words, tail=b"\6\0\0\0abcdef"), ANY)


def test_each_caller_has_its_own_coding_and_its_own_id() -> None:
    for accepted, coding in (("gzip", "gzip"), ("deflate", "deflate"), ("identity", "")):
        message = request(entry(8), tail=floats(1, 2), headers={"accept-encoding": accepted})
        assert decoded(message, ANY)[1].coding == coding
    for identity in ("a", "b", "a"):
        asked, form = decoded(request(entry(8), tail=floats(1, 2), id=identity), ANY)
        assert asked.id == form.id == identity


def test_another_model_is_another_matter() -> None:
    half = Signature((), (TensorSpec("y", Datatype.FP16, (-1,)),))
    decoded(request(entry(8), tail=floats(1, 2)), ANY)
    with pytest.raises(InferenceError) as caught:
        decoded(request(entry(8), tail=floats(1, 2)), half)
    assert caught.value.code is ErrorCode.INVALID_TENSOR
    ranked: dict[str, Any] = {"outputs": [{"name": "y", "parameters": {"classification": 1}}]}
    for labels in (("a", "b"), ("c",)):
        labelled = Signature((), (TensorSpec("y", Datatype.FP32, (-1,), labels=labels),))
        form = decoded(request(entry(8), tail=floats(1, 2), **ranked), labelled)[1]
        assert form.classes["y"].labels == labels


def test_inputs_in_json_are_read_by_the_rules_of_each_server() -> None:
    words = {
        "name": "w",
        "datatype": "BYTES",
        "shape": [0],
        "data": ["a"],
        "parameters": {"content_type": "str"},
    }
    shapes = []
    for reader_of in (None, reader_of_mlserver):
        message = request(entry(8), words, tail=floats(1, 2))
        asked, _ = decode_request(message, "m", "", ANY, reader_of)
        shapes.append(asked.inputs[1].shape)
    assert shapes == [(0,), (1,)]


def remembered(asked: InferRequest, size: int) -> bool:
    known = KnownHeaders()
    known.remember(KEY, size, asked, None)
    return known.find(KEY, size) is not None


def test_what_comes_once_is_not_kept() -> None:
    x = Tensor("x", Datatype.FP32, (2,), memoryview(bytes(8)))
    place = Tensor("x", Datatype.FP32, (2,), SharedMemoryRef("r", 0, 8))
    assert remembered(InferRequest("m", (x,)), 8)
    assert not remembered(InferRequest("m", (x,), id="i"), 8)
    assert not remembered(InferRequest("m", (x,), parameters={"seed": 1}), 8)
    assert not remembered(InferRequest("m", (place,)), 8)
    # part of the data stood in the JSON
    assert not remembered(InferRequest("m", (x, x)), 8)


def test_the_first_is_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_headers, "_MOST", 2)
    known = KnownHeaders()
    keys = [(text, "", False) for text in (b"1", b"2", b"3")]
    for key in keys:
        known.remember(key, 0, InferRequest("m", ()), None)
    assert [known.find(key, 0) is not None for key in keys] == [False, True, True]
    assert known.find(keys[1], 1) is None


def exchanged(values: tuple[float, ...], **fields: Any) -> tuple[Any, InferResponse]:
    """The body of a request, and the response to an answer, both with ``values``."""
    x = Tensor("x", Datatype.FP32, (len(values),), memoryview(floats(*values)))
    _, parts = encode_request(InferRequest("m", (x, x.renamed("z")), **fields), binary=True)
    header, *data = parts
    assert b"".join(data) == floats(*values) * 2
    answer = {
        "model_name": "m",
        "model_version": "3",
        "outputs": [entry(4 * len(values), shape=[len(values)])],
    }
    text = json.dumps(answer).encode()
    headers = {"inference-header-content-length": str(len(text))}
    return json.loads(bytes(header)), decode_response(headers, text + floats(*values), {})


@pytest.mark.parametrize("outputs", [None, (RequestedOutput("y"),)])
def test_a_repeated_call_has_its_own_data(outputs: Any) -> None:
    for values in ((1, 2), (3, 4), (5,), (), (1, 2)):
        document, response = exchanged(values, outputs=outputs)
        assert [each["shape"] for each in document["inputs"]] == [[len(values)]] * 2
        sizes = [each["parameters"]["binary_data_size"] for each in document["inputs"]]
        assert sizes == [4 * len(values)] * 2
        if outputs is None:
            assert document["parameters"] == {"binary_data_output": True} and "outputs" not in document
        else:
            assert document["outputs"] == [{"name": "y", "parameters": {"binary_data": True}}]
        (tensor,) = response.outputs
        assert (response.version, bytes(tensor.view)) == ("3", floats(*values))


def test_a_known_answer_with_other_data_is_refused() -> None:
    text = json.dumps({"model_name": "m", "outputs": [entry(8)]}).encode()
    headers = {"inference-header-content-length": str(len(text))}
    decode_response(headers, text + floats(1, 2), {})
    with pytest.raises(InferenceError, match="bytes short"):
        decode_response(headers, text + floats(1), {})
    with pytest.raises(InferenceError, match="belong to no output"):
        decode_response(headers, text + floats(1, 2, 3), {})
