"""GraphPipe's endpoints: which path and method mean what, and how answers and errors look."""

from __future__ import annotations

import json

import numpy as np
import pytest

from interlingua.protocols.content_coding import deflate
from interlingua.protocols.dialect import Opened
from interlingua.protocols.graphpipe import DIALECT, client, codec, metadata, server
from interlingua.protocols.path_table import PathTable
from interlingua.protocols.wire import HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Operation,
    Readiness,
    Tensor,
    TensorSpec,
)
from interlingua.schemas.errors import HTTP_STATUS
from tests.strategies import signature_of

X = Tensor.from_numpy("x", np.arange(4, dtype=np.int32))
Y = X.renamed("y")
Z = Tensor.from_numpy("z", np.ones(3))
SIGNATURE = signature_of([X], [Y])
INFER = b"".join(codec.encode_request(InferRequest("", (X,))))
METADATA = b"".join(client.HTTP_CALLS[Operation.MODEL_METADATA].encode(client.ModelRef(""), None)[0].parts)

ALONE = PathTable(server.HTTP_ENDPOINTS)
SHARED = PathTable(endpoint for endpoint in server.HTTP_ENDPOINTS if endpoint.path != "*")


def opened(method: str, path: str, body: bytes = b"", table: PathTable = ALONE) -> Opened[HttpAnswer]:
    methods, params = table.find(path)
    endpoint = methods.get(method) or methods["*"]
    return endpoint.open(HttpRequest(method, path, body=body, params=params))


def failed(error: InferenceError) -> HttpAnswer:
    return server.fail(HttpRequest("POST", "/"), None, error)


def body_of(answer: HttpAnswer) -> bytes:
    return b"".join(parts_of(answer))


class TestContentCoding:
    """No client of the dialect compresses, but a proxy may; the original servers take the bytes as they are."""

    @staticmethod
    def sent(coding: str, body: bytes, limit: int | None = None) -> Opened[HttpAnswer]:
        endpoint = ALONE.find("/")[0]["*"]
        headers = {"content-encoding": coding}
        return endpoint.open(HttpRequest("POST", "/", headers=headers, body=body, max_body_bytes=limit))

    @pytest.mark.parametrize("coding", ["gzip", "deflate", "identity"])
    def test_what_is_compressed_is_read(self, coding: str) -> None:
        body = INFER if coding == "identity" else b"".join(map(bytes, deflate(coding, [INFER])))
        asked = self.sent(coding, body)
        assert asked.action.decode is not None
        assert asked.action.decode(asked, SIGNATURE)[0].inputs == (X,)

    def test_another_coding_is_named(self) -> None:
        with pytest.raises(InferenceError, match="Content-Encoding may be gzip or deflate, not br") as caught:
            self.sent("br", INFER)
        answer = failed(caught.value)
        assert (answer.status, dict(answer.headers)["accept-encoding"]) == (415, "gzip, deflate")

    def test_what_is_not_compressed_is_named(self) -> None:
        with pytest.raises(InferenceError, match="the body is not gzip data") as caught:
            self.sent("gzip", INFER)
        assert failed(caught.value).status == 400

    def test_the_limit_is_that_of_the_plain_body(self) -> None:
        with pytest.raises(
            InferenceError,
            match="100 bytes that max_request_bytes of this listener",
        ) as caught:
            self.sent("gzip", b"".join(map(bytes, deflate("gzip", [INFER + bytes(1 << 20)]))), 100)
        assert failed(caught.value).status == 413


@pytest.mark.parametrize(
    ("path", "model", "version"),
    [
        ("/", "", ""),
        ("/anything/at/all", "", ""),
        ("/v2/models/x/infer", "", ""),
        ("/graphpipe/digits", "digits", ""),
        ("/graphpipe/digits/3", "digits", "3"),
        ("/graphpipe/a%2Fb%20%C3%A9/1", "a/b é", "1"),
        ("/graphpipe", "", ""),
        ("/graphpipe/m/1/infer", "", ""),
    ],
)
def test_the_path_names_the_model(path: str, model: str, version: str) -> None:
    for method, body in (("POST", INFER), ("POST", METADATA), ("GET", b"")):
        message = opened(method, path, body)
        assert (message.model, message.version) == (model, version)


def test_the_union_says_which_operation() -> None:
    assert opened("POST", "/", INFER).action.operation is Operation.INFER
    assert opened("POST", "/", METADATA).action.operation is Operation.MODEL_METADATA
    assert opened("GET", "/").action.operation is Operation.MODEL_METADATA


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "BREW"])
@pytest.mark.parametrize("path", ["/", "/model"])
def test_every_method_but_get_is_a_message(method: str, path: str) -> None:
    assert opened(method, path, INFER).action.operation is Operation.INFER


@pytest.mark.parametrize("method", ["HEAD", "POST"])
def test_an_empty_body_is_refused(method: str) -> None:
    with pytest.raises(InferenceError, match="the GraphPipe message is empty") as caught:
        opened(method, "/", b"")
    answer = failed(caught.value)
    assert (answer.status, body_of(answer)) == (400, b"the GraphPipe message is empty\n")


def test_a_shared_listener_has_no_path_for_everything() -> None:
    assert SHARED.find("/v2/health/live") == ({}, {})
    assert set(SHARED.find("/graphpipe/m")[0]) == {"POST", "GET"}
    assert DIALECT.bindings["http"].prefixes == ("/graphpipe/",)


def test_a_path_that_is_not_utf8() -> None:
    with pytest.raises(InferenceError, match="path /graphpipe/%FF is not UTF-8") as caught:
        opened("POST", "/graphpipe/%FF", INFER)
    assert caught.value.code is ErrorCode.MALFORMED


def test_inference() -> None:
    message = opened("POST", "/graphpipe/m/2", INFER)
    assert message.action.decode is not None
    request, form = message.action.decode(message, SIGNATURE)
    assert request == InferRequest("m", (X,), version="2")
    answer = message.action.encode(form, InferResponse("m", (Y,), version="2", id="7"))
    assert answer.status == 200
    assert dict(answer.headers) == {"content-type": "application/octet-stream"}
    assert codec.decode_response(body_of(answer), None, SIGNATURE) == (Y,)


def test_without_names_an_answer_has_all_outputs_in_their_places() -> None:
    message = opened("POST", "/", INFER)
    assert message.action.decode is not None
    request, form = message.action.decode(message, signature_of([X], [Y, Z]))
    assert request.outputs is None
    swapped = message.action.encode(form, InferResponse("m", (Z, X, Y)))
    assert codec.decode_response(body_of(swapped), ("y", "z"), None) == (Y, Z)
    with pytest.raises(InferenceError, match="the model answered without output 'y'"):
        message.action.encode(form, InferResponse("m", (Z,)))


def test_a_model_that_does_not_tell_its_outputs_is_answered_with_what_comes() -> None:
    message = opened("POST", "/", INFER)
    assert message.action.decode is not None
    _, form = message.action.decode(message, signature_of([X], []))
    answer = message.action.encode(form, InferResponse("m", (Z, Y)))
    assert codec.decode_response(body_of(answer), ("z", "y"), None) == (Z, Y)


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
@pytest.mark.parametrize(("word", "operation"), [("is_alive", Operation.LIVE), ("is_ready", Operation.READY)])
def test_probes_as_the_original_servers_have_them(word: str, operation: Operation, method: str) -> None:
    message = opened(method, f"/control/{word}")
    assert message.action.operation is operation
    answer = message.action.encode(message, Readiness(True))
    assert (answer.status, body_of(answer)) == (200, b"ok\n")
    assert dict(answer.headers)["content-type"] == "text/plain; charset=utf-8"
    answer = message.action.encode(message, Readiness(False, "the server is shutting down"))
    assert (answer.status, body_of(answer)) == (503, b"the server is shutting down\n")


@pytest.mark.parametrize("word", ["shutdown", "client_count"])
def test_controls_that_are_not_offered(word: str) -> None:
    with pytest.raises(InferenceError, match=f"/control/{word} is not offered") as caught:
        opened("GET", f"/control/{word}")
    assert caught.value.code is ErrorCode.UNSUPPORTED


@pytest.mark.parametrize(("path", "version"), [("/graphpipe/m", "2"), ("/graphpipe/m/1", "1")])
def test_metadata_in_both_forms(path: str, version: str) -> None:
    told = ModelMetadata("m", SIGNATURE, ("1", "2"))
    described = metadata.describe(told, version)
    message = opened("POST", path, METADATA)
    answer = message.action.encode(message, told)
    assert (answer.status, dict(answer.headers)["content-type"]) == (200, "application/octet-stream")
    assert metadata.decode_metadata(body_of(answer)) == described
    message = opened("GET", path)
    answer = message.action.encode(message, told)
    assert (answer.status, dict(answer.headers)["content-type"]) == (200, "application/json")
    document = json.loads(body_of(answer))
    assert document["Description"].endswith(f"version {version}")
    assert (document["Version"], document["Inputs"][0]["Type"]) == ("", 6)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.MALFORMED, 400),
        (ErrorCode.INVALID_TENSOR, 400),
        (ErrorCode.NOT_FOUND, 404),
        (ErrorCode.UNREPRESENTABLE, 422),
        (ErrorCode.TOO_LARGE, 413),
        (ErrorCode.OVERLOADED, 429),
        (ErrorCode.UNAVAILABLE, 503),
        (ErrorCode.DEADLINE_EXCEEDED, 504),
        (ErrorCode.MODEL_FAILED, 500),
        (ErrorCode.BAD_UPSTREAM, 502),
    ],
)
def test_an_error_is_a_status_and_a_line_of_text(code: ErrorCode, status: int) -> None:
    answer = failed(InferenceError(code, "what é happened \ud800"))
    assert answer.status == status
    assert body_of(answer) == "what é happened \\ud800\n".encode()
    headers = dict(answer.headers)
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert headers.get("retry-after") == ("1" if code is ErrorCode.OVERLOADED else None)


def test_every_error_has_a_status() -> None:
    assert set(HTTP_STATUS) == set(ErrorCode)
    assert all(status >= 400 for status in HTTP_STATUS.values())


def test_unknown_paths_and_methods() -> None:
    answer = server.unmatched(HttpRequest("GET", "/nowhere"), ())
    assert (answer.status, body_of(answer)) == (404, b"404 page not found\n")
    answer = server.unmatched(HttpRequest("PUT", "/graphpipe/m"), ("POST", "GET"))
    assert (answer.status, dict(answer.headers)["allow"]) == (405, "POST, GET")
    assert body_of(answer) == b"method PUT is not allowed here\n"


def test_a_bool_comes_back_as_the_model_declares_it() -> None:
    truth = Tensor.from_numpy("x", np.array([True, False]))
    body = b"".join(codec.encode_request(InferRequest("", (truth,))))
    message = opened("POST", "/", body)
    assert message.action.decode is not None
    request, _ = message.action.decode(message, signature_of([truth]))
    assert request.inputs == (truth,)
    assert TensorSpec("x", truth.datatype, (2,)) in signature_of([truth]).inputs
