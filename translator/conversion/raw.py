"""Messages as bytes, as they stand in a file: what a transport would send or has received.

An HTTP message is its head and its body, or its body alone; a gRPC message stands alone or behind its five
bytes of length, and where a status stands in its place it is its trailers; bRPC's in a frame or alone; over
tcp with its size or without. What is missing is taken from the request that the dialect itself would send.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from interlingua.protocols.transport.brpc.compression import decompress
from interlingua.protocols.transport.brpc.frame import (
    BrpcFrameReader,
    Frame,
    FrameError,
    write_answer,
    write_error,
    write_request,
)
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    Buffer,
    FramedAnswer,
    FramedReply,
    FramedRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
    parts_of,
)
from interlingua.schemas import ErrorCode, InferenceError

Request = HttpRequest | GrpcRequest | BrpcRequest | FramedRequest
Call = HttpCall | GrpcRequest | BrpcRequest | FramedRequest
Answer = HttpAnswer | GrpcAnswer | BrpcAnswer | FramedAnswer
Reply = HttpReply | GrpcAnswer | BrpcAnswer | FramedReply

_REQUEST_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[^\n]*\n")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")

_STATUS = b"grpc-status:"
"""How trailers begin, and no message does."""

_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""What stands in trailers as it is."""

_LIMIT = 2**31 - 1
"""The largest message that is decompressed."""

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}


def read_request(data: bytes, like: Call, headers: Mapping[str, str], path: str = "") -> Request:
    """The request in ``data``, on the transport of ``like``, which tells what does not stand there itself.
    ``headers`` and ``path`` are of an HTTP body that stands alone. Raises ``InferenceError``."""
    if isinstance(like, HttpCall):
        return _http_request(data, like, headers, path)
    if isinstance(like, GrpcRequest):
        return GrpcRequest(like.method, _unprefixed(data), headers)
    if isinstance(like, FramedRequest):
        return FramedRequest(_unsized(data))
    frame = _frame(data)
    if frame is None:
        return BrpcRequest(like.service, like.method, data)
    if frame.meta.service is None:
        raise InferenceError(ErrorCode.MALFORMED, "the frame is an answer, not a request")
    return BrpcRequest(frame.meta.service, frame.meta.method, _message(frame))


def read_answer(data: bytes, like: Call, headers: Mapping[str, str]) -> Reply:
    """The answer in ``data``, on the transport of ``like``. Raises ``InferenceError``."""
    if isinstance(like, HttpCall):
        found = _STATUS_LINE.match(data)
        if found is None:
            return HttpReply(200, _told(data, headers), data)
        told, body = _head_and_body(data, found.end())
        return HttpReply(int(found[1]), {**told, **headers}, body)
    if isinstance(like, GrpcRequest):
        return _status(data) if data.startswith(_STATUS) else GrpcAnswer(_unprefixed(data))
    if isinstance(like, FramedRequest):
        return FramedReply(_unsized(data))
    frame = _frame(data)
    if frame is None:
        return BrpcAnswer(data)
    return BrpcAnswer(_message(frame), frame.meta.error_code, frame.meta.error_text)


def write(message: Call | Answer) -> bytes:
    """The whole message: of HTTP its head too, of bRPC and over tcp its frame, of gRPC the message alone."""
    match message:
        case HttpCall():
            target = f"{message.path}?{message.query}" if message.query else message.path
            line = f"{message.method} {target} HTTP/1.1"
            return _http(line, list(message.headers.items()), message.parts)
        case HttpAnswer():
            line = f"HTTP/1.1 {message.status} {_REASONS.get(message.status, '')}".rstrip()
            return _http(line, message.headers, parts_of(message))
        case BrpcRequest():
            return _joined(write_request(message.service, message.method, 1, message.message))
        case BrpcAnswer() if message.code:
            return _joined(write_error(1, message.code, message.text))
        case BrpcAnswer():
            return _joined(write_answer(1, message.message))
        case FramedRequest() | FramedAnswer():
            return _joined(message.parts)
        case GrpcAnswer() if message.code:
            details = quote(message.details, safe=_PLAIN)
            return _STATUS + f" {message.code}\r\ngrpc-message: {details}\r\n".encode()
        case _:
            return bytes(message.message)


def body(message: Call | Answer) -> bytes:
    """The message without what a transport puts before it."""
    match message:
        case HttpCall():
            return _joined(message.parts)
        case HttpAnswer():
            return _joined(parts_of(message))
        case FramedRequest() | FramedAnswer():
            return _unsized(_joined(message.parts))
        case _:
            return bytes(message.message)


def _http_request(data: bytes, like: HttpCall, headers: Mapping[str, str], path: str) -> HttpRequest:
    found = _REQUEST_LINE.match(data)
    if found is None:
        where, _, query = (path or like.path).partition("?")
        return HttpRequest(like.method, where, query or like.query, _told(data, headers), data)
    told, content = _head_and_body(data, found.end())
    where, _, query = found[2].decode("latin-1").partition("?")
    return HttpRequest(found[1].decode(), where, query, {**told, **headers}, content)


def _told(content: bytes, headers: Mapping[str, str]) -> Mapping[str, str]:
    """``headers``, with the content type that a body has by its looks."""
    looks = "application/json" if content.lstrip()[:1] in (b"{", b"[") else "application/octet-stream"
    return {"content-type": looks, **headers}


def _head_and_body(data: bytes, start: int) -> tuple[dict[str, str], bytes]:
    end = _END_OF_HEAD.search(data, start - 1)
    if end is None:
        raise InferenceError(ErrorCode.MALFORMED, "the head of the HTTP message has no end")
    told: dict[str, str] = {}
    for line in data[start : end.start()].decode("latin-1").splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise InferenceError(ErrorCode.MALFORMED, f"'{line[:80]}' is no header")
        told[name.strip().lower()] = value.strip()
    content = data[end.end() :]
    if "chunked" in told.get("transfer-encoding", "").lower():
        del told["transfer-encoding"]
        return told, _dechunked(content)
    length = told.get("content-length", "")
    if length:
        if not _is_number(length):
            raise InferenceError(ErrorCode.MALFORMED, f"'{length[:40]}' is no length of a body")
        if int(length) > len(content):
            raise InferenceError(
                ErrorCode.MALFORMED, f"the body has {len(content)} bytes, its head tells of {int(length)}"
            )
        content = content[: int(length)]
    return told, content


def _is_number(text: str) -> bool:
    """Whether it is a number that somebody may mean: ``isdigit`` alone takes superscripts, and ``int``
    refuses what has thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) < 20


def _dechunked(content: bytes) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while True:
        line, newline, _ = content[at : at + 32].partition(b"\r\n")
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            size = -1
        start = at + len(line) + 2
        if size < 0 or not newline or start + size > len(content):
            raise InferenceError(ErrorCode.MALFORMED, "the chunks of the body are damaged")
        if not size:
            return b"".join(pieces)
        pieces.append(content[start : start + size])
        at = start + size + 2


def _http(line: str, headers: Sequence[tuple[str, str]], parts: Sequence[Buffer]) -> bytes:
    content = _joined(parts)
    told = [(name, value) for name, value in headers if name.lower() != "content-length"]
    lines = [line, *(f"{name}: {value}" for name, value in told), f"content-length: {len(content)}"]
    return "".join(f"{each}\r\n" for each in (*lines, "")).encode("latin-1", "replace") + content


def _unprefixed(data: bytes) -> bytes:
    """A gRPC message without its flag and length; no message begins with the bytes of a flag."""
    if data[:1] in (b"\0", b"\1") and int.from_bytes(data[1:5], "big") == len(data) - 5:
        if data[0]:
            raise InferenceError(ErrorCode.UNSUPPORTED, "the gRPC message is compressed")
        return data[5:]
    return data


def _status(data: bytes) -> GrpcAnswer:
    told = dict(line.partition(":")[::2] for line in data.decode("latin-1").splitlines())
    code = told[_STATUS[:-1].decode()].strip()
    if not _is_number(code):
        raise InferenceError(ErrorCode.MALFORMED, f"'{code[:40]}' is no status of gRPC")
    return GrpcAnswer(code=int(code), details=unquote(told.get("grpc-message", "").strip()))


def _unsized(data: bytes) -> bytes:
    return data[4:] if int.from_bytes(data[:4], "little") == len(data) - 4 else data


def _frame(data: bytes) -> Frame | None:
    if not data.startswith(b"PRPC"):
        return None
    cutter = BrpcFrameReader()
    try:
        cutter.feed(data)
        frame = cutter.next()
    except FrameError as error:
        raise InferenceError(ErrorCode.MALFORMED, str(error)) from error
    if frame is None or frame.payload is None:
        raise InferenceError(ErrorCode.MALFORMED, "the frame is cut short")
    return frame


def _message(frame: Frame) -> Buffer:
    payload = frame.payload or memoryview(b"")
    end = max(len(payload) - frame.meta.attachment_size, 0)
    return decompress(frame.meta.compress_type, payload[:end], _LIMIT)


def _joined(parts: Sequence[Buffer]) -> bytes:
    return b"".join(map(bytes, parts))
