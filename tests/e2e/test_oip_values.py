"""The values that JSON can and cannot bring: each row in a small document, in a large one and compressed."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from interlingua.protocols.content_coding import inflate
from interlingua.protocols.oip import DIALECT
from interlingua.protocols.wire import HttpRequest, parts_of
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.schemas import Datatype, ServerMetadata, Signature, TensorSpec
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.loopback import echoing

LIMIT = 1 << 20
MODELS = echoing(
    {
        datatype.value: Signature((TensorSpec("x", datatype, (-1,)),), (TensorSpec("x", datatype, (-1,)),))
        for datatype in Datatype
    }
)
PADDING = pytest.mark.parametrize("padding", [0, 5000], ids=["small", "large"])


def ask(body: bytes, model: str, *, token: bool = False, **headers: str) -> tuple[int, dict[str, str], bytes]:
    service = Service(Router(ModelCatalog(MODELS)), ServerMetadata("interlingua", "0"))
    assert DIALECT.configure is not None
    dialect = DIALECT.configure(None, SimpleNamespace(nonfinite_json="token" if token else "error"))
    server = Pipeline(service, "test", [*dialect.bindings.values()], max_request_bytes=LIMIT).handlers["http"]
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = HttpRequest("POST", f"/v2/models/{model}/infer", headers=sent, body=body)
    answer = server.head(request) or asyncio.run(server.serve(request))
    return answer.status, dict(answer.headers), b"".join(parts_of(answer))


def document(data: str, datatype: str, count: int, padding: int = 0, extra: str = "") -> bytes:
    text = (
        f'{{{extra}"inputs":[{{"name":"x","datatype":"{datatype}","shape":[{count}],"data":{data}}}]'
        f"{' ' * padding}}}"
    )
    return text.encode()


@PADDING
@pytest.mark.parametrize(
    ("data", "datatype", "count", "answer"),
    [
        ("[9007199254740993, -9223372036854775808]", "INT64", 2, "[9007199254740993,-9223372036854775808]"),
        ("[18446744073709551615]", "UINT64", 1, "[18446744073709551615]"),
        ("[1.0, 2]", "INT32", 2, "[1,2]"),
        ("[[1, 2], [3, 4]]", "INT8", 4, "[1,2,3,4]"),
        ("[true, false]", "BOOL", 2, "[true,false]"),
        ("[1, 2.5]", "FP32", 2, "[1.0,2.5]"),
    ],
)
def test_right_answers(data: str, datatype: str, count: int, answer: str, padding: int) -> None:
    for bom in (b"", b"\xef\xbb\xbf"):
        status, headers, body = ask(bom + document(data, datatype, count, padding), datatype)
        assert (status, f'"data":{answer}' in body.decode()) == (200, True), body
        assert "exec;dur=" in headers["Server-Timing"]


@PADDING
def test_one_byte_order_mark_is_enough(padding: int) -> None:
    sent = b"\xef\xbb\xbf" * 2 + document("[1]", "FP32", 1, padding)
    status, _, body = ask(sent, "FP32")
    assert (status, "is not JSON" in json.loads(body)["error"]) == (400, True)


@PADDING
@pytest.mark.parametrize(
    ("data", "datatype", "count", "words"),
    [
        ("[1, 1.5]", "INT32", 2, "tensor 'x': element 1"),
        ("[256]", "UINT8", 1, "tensor 'x': element 0"),
        ("[true]", "FP32", 1, "tensor 'x': element 0"),
        ("[true]", "INT64", 1, "tensor 'x': element 0"),
        ("[1]", "BOOL", 1, "tensor 'x': element 0"),
        ("[null]", "FP32", 1, "tensor 'x': element 0"),
        ("null", "FP32", 1, "for input 'x'"),
        ("[NaN]", "INT32", 1, "tensor 'x': element 0"),
        ("[[1, 2], [3]]", "FP32", 3, "tensor 'x': 'data' is ragged"),
        ("[1, 2, 3]", "FP32", 2, "tensor 'x': the shape needs 2 elements"),
        ("[" * 101 + "1" + "]" * 101, "FP32", 1, "nests deeper than 100 levels"),
    ],
)
def test_mistakes(data: str, datatype: str, count: int, words: str, padding: int) -> None:
    status, _, body = ask(document(data, datatype, count, padding), datatype)
    assert (status, words in json.loads(body)["error"]) == (400, True), body


@PADDING
def test_what_is_not_finite(padding: int) -> None:
    sent = document("[1, NaN, Infinity, -Infinity]", "FP32", 4, padding)
    status, _, body = ask(sent, "FP32")
    assert (status, "tensor 'x': element 1 is nan" in json.loads(body)["error"]) == (400, True)
    status, _, body = ask(sent, "FP32", token=True)
    assert (status, b'"data":[1.0,NaN,Infinity,-Infinity]' in body) == (200, True)


def test_a_remembered_header_serves_listeners_with_and_without_tokens() -> None:
    entry = {"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}
    header = json.dumps({"inputs": [entry]}).encode()
    nan = header + b"\0\0\xc0\x7f"
    for token, expected in ((False, 400), (True, 200), (False, 400), (True, 200)):
        status, _, body = ask(nan, "FP32", token=token, inference_header_content_length=str(len(header)))
        assert (status, b"NaN" in body) == (expected, token), body


@PADDING
def test_the_first_of_two_equal_keys(padding: int) -> None:
    sent = document("[1]", "FP32", 1, padding, extra='"id":"first","id":"second",')
    assert json.loads(ask(sent, "FP32")[2])["id"] == "first"


@PADDING
@pytest.mark.parametrize(("length", "status"), [(65536, 200), (65537, 400)])
def test_the_length_of_an_id(length: int, status: int, padding: int) -> None:
    for letter in ("i", "é"):
        identity = letter * (length // len(letter.encode())) + "i" * (length % len(letter.encode()))
        found, _, body = ask(document("[1]", "FP32", 1, padding, extra=f'"id":"{identity}",'), "FP32")
        assert found == status, body


def test_a_compressed_bomb() -> None:
    # one block of zeros, over and over: 64 MiB in 64 KiB
    deflater = zlib.compressobj(9, wbits=31)
    bomb = deflater.compress(bytes(LIMIT)) + deflater.flush(zlib.Z_FULL_FLUSH)
    bomb += (deflater.compress(bytes(LIMIT)) + deflater.flush(zlib.Z_FULL_FLUSH)) * 63
    status, _, body = ask(bomb, "FP32", content_encoding="gzip")
    assert (status, "1048576 bytes that max_request_bytes" in json.loads(body)["error"]) == (413, True)


@pytest.mark.parametrize(
    ("wanted", "coding"), [("gzip", "gzip"), ("gzip;q=0.5, deflate", "deflate"), ("br", "")]
)
def test_both_ways_compressed(wanted: str, coding: str) -> None:
    sent = zlib.compress(document("[1, 2]", "FP32", 2))
    status, headers, body = ask(sent, "FP32", content_encoding="deflate", accept_encoding=wanted)
    assert (status, headers.get("Content-Encoding", "")) == (200, coding)
    assert b'"data":[1.0,2.0]' in (inflate(coding, body, LIMIT) if coding else body)


def test_errors_are_not_compressed() -> None:
    status, headers, body = ask(b"{", "FP32", accept_encoding="gzip")
    assert (status, "Content-Encoding" in headers) == (400, False)
    assert json.loads(body)["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "stage"),
    [
        ("GET", "/v2", b"", 200, "exec"),
        ("GET", "/v2/models/nobody", b"", 404, "decode"),
        ("POST", "/v2/models/nobody/infer", b"{}", 404, "decode"),
        ("POST", "/v2/models/FP32/infer", b"{", 400, "decode"),
        ("POST", "/v2/models/FP32/generate_stream", b"{", 400, "decode"),
    ],
)
def test_answers_of_no_model_are_timed_too(
    method: str, path: str, body: bytes, status: int, stage: str
) -> None:
    service = Service(Router(ModelCatalog(MODELS)), ServerMetadata("interlingua", "0"))
    server: Any = Pipeline(service, "test", [*DIALECT.bindings.values()]).handlers["http"]
    request = HttpRequest(method, path, headers={}, body=body)
    assert server.head(request) is None
    answer = asyncio.run(server.serve(request))
    assert answer.status == status
    assert re.fullmatch(rf"{stage};dur=\d+\.\d{{3}}", dict(answer.headers)["Server-Timing"])
