"""Messages as bytes in a file: what a transport would send or has received.

An HTTP message has headers, or is a body alone. A gRPC message may have its prefix of five bytes; trailers
replace an answer that is a status. bRPC messages are framed or alone, tcp messages with or without their
size. Missing parts come from the request that the dialect itself would send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from interlingua.protocols.transport.brpc import frame
from interlingua.protocols.transport.brpc.compression import decompress
from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    Buffer,
    FramedAnswer,
    FramedCall,
    FramedReply,
    FramedRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
)
from interlingua.schemas import ErrorCode, InferenceError
from interlingua.translator.conversion import raw_http

Request = HttpRequest | GrpcRequest | BrpcRequest | FramedRequest
Call = HttpCall | GrpcRequest | BrpcRequest | FramedCall
Answer = HttpAnswer | GrpcAnswer | BrpcAnswer | FramedAnswer
Reply = HttpReply | GrpcAnswer | BrpcAnswer | FramedReply

_STATUS = "grpc-status:"
"""The start of trailers, which no message has."""

_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""The characters of ``grpc-message`` without percent-encoding."""

_SIZE_BYTES = 4
_LIMIT = 2**31 - 1
"""The largest message to decompress."""


@dataclass(frozen=True, slots=True)
class RawForm:
    """The messages of a transport as bytes.

    ``read_request(data, like, headers, path)`` completes a request from the call ``like``, and an HTTP body
    alone from ``headers`` and ``path``; ``read_answer(data, headers)`` reads an answer. Both raise
    ``InferenceError``. ``write`` gives a whole call or answer, with HTTP headers or the frame of bRPC and
    tcp; ``body`` only the message. ``with_body`` replaces that of a call.
    """

    read_request: Callable[[bytes, Any, Mapping[str, str], str], Any]
    read_answer: Callable[[bytes, Mapping[str, str]], Any]
    write: Callable[[Any], bytes]
    body: Callable[[Any], bytes]
    with_body: Callable[[Any, bytes], Any]


# --- gRPC


def _unprefixed(data: bytes) -> bytes:
    """A gRPC message without its flag and length; no message begins with the bytes of a flag."""
    if data[:1] in (b"\0", b"\1") and int.from_bytes(data[1:5], "big") == len(data) - 5:
        if data[0]:
            raise InferenceError(ErrorCode.UNSUPPORTED, "the gRPC message is compressed")
        return data[5:]
    return data


def _read_grpc_answer(data: bytes, headers: Mapping[str, str]) -> GrpcAnswer:
    if not data.startswith(_STATUS.encode()):
        return GrpcAnswer(_unprefixed(data))
    trailers = dict(line.partition(":")[::2] for line in data.decode("latin-1").splitlines())
    code = trailers[_STATUS[:-1]].strip()
    if not raw_http.is_number(code):
        raise InferenceError(ErrorCode.MALFORMED, f"'{code[:40]}' is no status of gRPC")
    return GrpcAnswer(code=int(code), details=unquote(trailers.get("grpc-message", "").strip()))


def _write_grpc(message: GrpcRequest | GrpcAnswer) -> bytes:
    if isinstance(message, GrpcRequest) or not message.code:
        return bytes(message.whole)
    details = quote(message.details, safe=_PLAIN)
    return f"{_STATUS} {message.code}\r\ngrpc-message: {details}\r\n".encode()


# --- bRPC


def _read_brpc_request(data: bytes, like: BrpcRequest, headers: object, path: object) -> BrpcRequest:
    found = _frame(data)
    if found is None:
        return BrpcRequest(like.service, like.method, data)
    if found.meta.service is None:
        raise InferenceError(ErrorCode.MALFORMED, "the frame is an answer, not a request")
    return BrpcRequest(found.meta.service, found.meta.method, _message(found))


def _read_brpc_answer(data: bytes, headers: Mapping[str, str]) -> BrpcAnswer:
    found = _frame(data)
    if found is None:
        return BrpcAnswer(data)
    return BrpcAnswer(_message(found), found.meta.error_code, found.meta.error_text)


def _write_brpc(message: BrpcRequest | BrpcAnswer) -> bytes:
    if isinstance(message, BrpcRequest):
        return _joined(frame.write_request(message.service, message.method, 1, message.message))
    if message.code:
        return _joined(frame.write_error(1, message.code, message.text))
    return _joined(frame.write_answer(1, message.message))


def _frame(data: bytes) -> frame.Frame | None:
    if not data.startswith(b"PRPC"):
        return None
    reader = frame.BrpcFrameReader(_LIMIT)
    try:
        reader.feed(data)
        found = reader.next()
    except frame.FrameError as error:
        raise InferenceError(ErrorCode.MALFORMED, str(error)) from error
    if found is None or found.payload is None:
        raise InferenceError(ErrorCode.MALFORMED, "the frame is cut short")
    return found


def _message(found: frame.Frame) -> Buffer:
    payload = found.payload or memoryview(b"")
    end = max(len(payload) - found.meta.attachment_size, 0)
    return decompress(found.meta.compress_type, payload[:end], _LIMIT)


# --- tcp


def _unsized(data: bytes) -> bytes:
    sized = int.from_bytes(data[:_SIZE_BYTES], "little") == len(data) - _SIZE_BYTES
    return data[_SIZE_BYTES:] if sized else data


def _joined(parts: Iterable[Buffer]) -> bytes:
    return b"".join(map(bytes, parts))


FORMS: Mapping[str, RawForm] = {
    "http": RawForm(
        raw_http.read_request,
        raw_http.read_answer,
        raw_http.write,
        lambda message: _joined(message.parts),
        lambda call, content: replace(call, parts=[content] if content else []),
    ),
    "grpc": RawForm(
        lambda data, like, headers, path: GrpcRequest(like.method, _unprefixed(data), headers),
        _read_grpc_answer,
        _write_grpc,
        lambda call: bytes(call.whole),
        lambda call, content: replace(call, message=content, parts=()),
    ),
    "brpc": RawForm(
        _read_brpc_request,
        _read_brpc_answer,
        _write_brpc,
        lambda message: bytes(message.message),
        lambda call, content: replace(call, message=content),
    ),
    "tcp": RawForm(
        lambda data, like, headers, path: FramedRequest(_unsized(data)),
        lambda data, headers: FramedReply(_unsized(data)),
        lambda message: _joined(message.parts),
        lambda message: _unsized(_joined(message.parts)),
        lambda call, content: replace(call, parts=[len(content).to_bytes(_SIZE_BYTES, "little"), content]),
    ),
}
"""By transport."""
