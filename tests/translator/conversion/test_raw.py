"""Bytes in a file as messages of a transport."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.protocols.transport.brpc.frame import write_answer, write_error
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    FramedCall,
    FramedReply,
    GrpcAnswer,
    GrpcRequest,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
)
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.translator.conversion.raw import FORMS
from tests.standins.brpc_frames import request_frame

HTTP = HttpCall("POST", "/v2/models/m/infer")
GRPC = GrpcRequest("/a.B/C", b"")
BRPC = BrpcRequest("a.B", "C", b"")
TCP = FramedCall()


def test_an_http_message_with_its_head() -> None:
    data = b"PUT /a%20b?c=d HTTP/1.1\r\nX-Y:  z \r\nContent-Length: 3\r\n\r\nabcd"
    found = FORMS["http"].read_request(data, HTTP, {"more": "1"}, "")
    assert found == HttpRequest(
        "PUT",
        "/a%20b",
        "c=d",
        {"x-y": "z", "content-length": "3", "more": "1"},
        b"abc",
        context=found.context,
    )


def test_chunks() -> None:
    head = b"POST / HTTP/1.1\ntransfer-encoding: chunked\n\n"
    found = FORMS["http"].read_request(head + b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", HTTP, {}, "")
    assert isinstance(found, HttpRequest)
    assert (found.body, found.headers) == (b"abc0123456789", {})
    for broken in (b"3\r\nab", b"x\r\n", b"-3\r\n", b""):
        with pytest.raises(InferenceError, match="chunks"):
            FORMS["http"].read_request(head + broken, HTTP, {}, "")


def test_a_bare_body() -> None:
    found = FORMS["http"].read_request(b' {"inputs": []}', HTTP, {"a": "b"}, "")
    assert isinstance(found, HttpRequest)
    assert (found.path, found.headers) == (HTTP.path, {"content-type": "application/json", "a": "b"})
    found = FORMS["http"].read_request(b"\x00\x01", HTTP, {}, "/elsewhere?x=1")
    assert isinstance(found, HttpRequest)
    assert (found.path, found.query, found.headers["content-type"]) == (
        "/elsewhere",
        "x=1",
        "application/octet-stream",
    )
    assert FORMS["http"].read_answer(b"{}", {}) == HttpReply(200, {"content-type": "application/json"}, b"{}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"POST / HTTP/1.1\r\na: b\r\n", "has no end"),
        (b"POST / HTTP/1.1\r\nab\r\n\r\n", "'ab' is no header"),
        (b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nabc", "has 3 bytes, its headers state 5"),
    ],
)
def test_damaged_http(data: bytes, message: str) -> None:
    with pytest.raises(InferenceError, match=message) as caught:
        FORMS["http"].read_request(data, HTTP, {}, "")
    assert caught.value.code is ErrorCode.MALFORMED


def test_http_comes_back() -> None:
    sent = HttpCall("POST", "/a", "b=c", {"X": "y"}, parts=[b"ab", memoryview(b"cd")])
    assert FORMS["http"].write(sent) == b"POST /a?b=c HTTP/1.1\r\nX: y\r\ncontent-length: 4\r\n\r\nabcd"
    assert FORMS["http"].body(sent) == b"abcd"
    answer = HttpAnswer(200, (("a", "b"),), [b"{}"])
    assert FORMS["http"].write(answer) == b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 2\r\n\r\n{}"
    assert FORMS["http"].read_answer(FORMS["http"].write(answer), {}) == HttpReply(
        200, {"a": "b", "content-length": "2"}, b"{}"
    )
    assert FORMS["http"].write(HttpAnswer(599)) == b"HTTP/1.1 599\r\ncontent-length: 0\r\n\r\n"


def test_a_grpc_message_with_its_prefix_and_without() -> None:
    message = b"\x0a\x01m"
    for data in (message, b"\0\0\0\0\x03" + message):
        found = FORMS["grpc"].read_request(data, GRPC, {}, "")
        assert isinstance(found, GrpcRequest)
        assert (found.method, found.message) == ("/a.B/C", message)
        assert FORMS["grpc"].read_answer(data, {}) == GrpcAnswer(message)
    with pytest.raises(InferenceError, match="compressed"):
        FORMS["grpc"].read_request(b"\1\0\0\0\x03" + message, GRPC, {}, "")


def test_a_status_of_grpc_in_place_of_a_message() -> None:
    answer = GrpcAnswer(code=5, details="no 'ä' at 100%")
    assert (
        FORMS["grpc"].write(answer).startswith(b"grpc-status: 5\r\ngrpc-message: no '%C3%A4' at 100%25\r\n")
    )
    assert FORMS["grpc"].read_answer(FORMS["grpc"].write(answer), {}) == answer
    with pytest.raises(InferenceError, match="no status of gRPC"):
        FORMS["grpc"].read_answer(b"grpc-status: x", {})


def test_frames_of_baidu_std() -> None:
    found = FORMS["brpc"].read_request(FORMS["brpc"].write(BrpcRequest("x.Y", "Z", b"abc")), BRPC, {}, "")
    assert isinstance(found, BrpcRequest)
    assert (found.service, found.method, bytes(found.message)) == ("x.Y", "Z", b"abc")
    found = FORMS["brpc"].read_request(b"\x0a\x01m", BRPC, {}, "")
    assert isinstance(found, BrpcRequest)
    assert (found.service, found.message) == ("a.B", b"\x0a\x01m")
    assert FORMS["brpc"].read_answer(FORMS["brpc"].write(BrpcAnswer(b"abc")), {}) == BrpcAnswer(b"abc")
    assert FORMS["brpc"].read_answer(b"".join(map(bytes, write_error(1, 2001, "no"))), {}) == BrpcAnswer(
        b"", 2001, "no"
    )
    with pytest.raises(InferenceError, match="an answer, not a request"):
        FORMS["brpc"].read_request(b"".join(map(bytes, write_answer(1, b"abc"))), BRPC, {}, "")


def test_a_compressed_frame() -> None:
    frame = request_frame("Z", gzip.compress(b"abc"), compress_type=2, attachment=b"more")
    found = FORMS["brpc"].read_request(frame, BRPC, {}, "")
    assert bytes(found.message) == b"abc"


@given(st.binary(max_size=60))
def test_damaged_frames_are_refused(rest: bytes) -> None:
    with pytest.raises(InferenceError) as caught:
        FORMS["brpc"].read_request(b"PRPC" + rest, BRPC, {}, "")
    assert caught.value.code is ErrorCode.MALFORMED


def test_messages_over_tcp_with_their_size_and_without() -> None:
    for data in (b"abc", b"\3\0\0\0abc"):
        assert FORMS["tcp"].read_request(data, TCP, {}, "").message == b"abc"
        assert FORMS["tcp"].read_answer(data, {}) == FramedReply(b"abc")
    sent = FramedCall(parts=[b"\3\0\0\0", b"abc"])
    assert (FORMS["tcp"].write(sent), FORMS["tcp"].body(sent)) == (b"\3\0\0\0abc", b"abc")
