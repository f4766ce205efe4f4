"""Requests and replies of each transport as fuzz inputs: a line that selects the decoder, then the message.

An HTTP message has its own first line and headers, but no framing: the body is all the rest, so that a mutated
length does not hide the body from its decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from interlingua.protocols.transport.http1.headers import END, HeadersError, parse_headers
from interlingua.protocols.transport.http1.reply_headers import parse_reply_headers
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    FramedReply,
    FramedRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpReply,
    HttpRequest,
)


class NoMessageError(Exception):
    """The input selects no decoder, or is refused before it reaches one."""


@dataclass(frozen=True)
class Form:
    """Both directions of a transport. The readers raise ``NoMessageError``."""

    read_request: Callable[[bytes], Any]
    write_request: Callable[[Any], bytes]
    read_reply: Callable[[bytes], Any]
    write_reply: Callable[[Any], bytes]


def _line(data: bytes) -> tuple[str, bytes]:
    line, newline, rest = data.partition(b"\n")
    if not newline:
        raise NoMessageError
    return line.decode("latin-1"), rest


def _head_and_body(data: bytes) -> tuple[bytes, bytes]:
    head, end, body = data.partition(END)
    if not end:
        raise NoMessageError
    return head + end, body


def _read_http_request(data: bytes) -> HttpRequest:
    head, body = _head_and_body(data)
    try:
        headers = parse_headers(head)
    except HeadersError as error:
        raise NoMessageError from error
    return HttpRequest(
        headers.method, headers.path, headers.query, headers.headers, body, max_body_bytes=1 << 20
    )


def _read_http_reply(data: bytes) -> HttpReply:
    head, body = _head_and_body(data)
    try:
        headers = parse_reply_headers(head)
    except HeadersError as error:
        raise NoMessageError from error
    return HttpReply(headers.status, headers.headers, body)


def _http(first_line: str, headers: Mapping[str, str], body: bytes) -> bytes:
    framing = ("content-length", "transfer-encoding", "content-encoding", "connection")
    lines = [first_line, *(f"{name}: {value}" for name, value in headers.items() if name not in framing)]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


def _write_http_request(request: HttpRequest) -> bytes:
    target = f"{request.path}?{request.query}" if request.query else request.path
    headers = {"host": "x", **request.headers}
    return _http(f"{request.method} {target} HTTP/1.1", headers, bytes(request.body))


def _write_http_reply(reply: HttpReply) -> bytes:
    return _http(f"HTTP/1.1 {reply.status} OK", reply.headers, bytes(reply.body))


def _read_grpc_request(data: bytes) -> GrpcRequest:
    return GrpcRequest(*_line(data))


def _read_brpc_request(data: bytes) -> BrpcRequest:
    name, message = _line(data)
    service, _, method = name.partition("/")
    return BrpcRequest(service, method, message, size=len(message))


def _read_grpc_reply(data: bytes) -> GrpcAnswer:
    code, message = _line(data)
    if not (code.isascii() and code.isdigit() and len(code) < 4):
        raise NoMessageError
    if int(code):
        return GrpcAnswer(code=int(code), details=message.decode(errors="replace"))
    return GrpcAnswer(message)


def _write_grpc_reply(reply: GrpcAnswer) -> bytes:
    return b"%d\n" % reply.code + (reply.details.encode() if reply.code else bytes(reply.message))


FORMS: Mapping[str, Form] = {
    "http": Form(_read_http_request, _write_http_request, _read_http_reply, _write_http_reply),
    "grpc": Form(
        _read_grpc_request,
        lambda request: request.method.encode() + b"\n" + bytes(request.whole),
        _read_grpc_reply,
        _write_grpc_reply,
    ),
    "brpc": Form(
        _read_brpc_request,
        lambda request: f"{request.service}/{request.method}\n".encode() + bytes(request.message),
        BrpcAnswer,
        lambda reply: bytes(reply.message),
    ),
    "tcp": Form(
        lambda data: FramedRequest(data),
        lambda request: bytes(request.message),
        lambda data: FramedReply(data),
        lambda reply: bytes(reply.message),
    ),
}
"""By transport."""
