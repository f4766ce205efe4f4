"""Reads the headers of a gRPC call, and writes those of its answer and its trailers.

The rules are gRPC's over HTTP/2 ("PROTOCOL-HTTP2"); refusals have grpcio's texts, which clients match on. No
sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interlingua.protocols.content_coding import WINDOW_BITS
from interlingua.protocols.transport.grpc.status import INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED, cut
from interlingua.protocols.transport.h2.fields import CONNECTION_SPECIFIC, NAME, UNFIT_VALUE, fit_te
from interlingua.protocols.transport.h2.hpack import ENTRY_OVERHEAD, MAX_HEADER_LIST, FieldLines
from interlingua.protocols.transport.h2.hpack_encoder import literal, text
from interlingua.protocols.wire import FORWARDED_FOR, GrpcAnswer

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_CONTENT_TYPE = re.compile(rb"application/grpc(\+proto)?([; ].*)?", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_OWN = frozenset(
    (b"te", b"content-type", b"content-length", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding")
)
_UNPRINTABLE = re.compile(rb"[^ -$&-~]")


@dataclass(slots=True)
class CallHeaders:
    """The headers of a call. ``timeout`` is in seconds, None for no limit; ``coding`` is the compression of
    messages with the compressed flag, empty if there is none; ``length`` is the content-length, None without
    one. ``refusal`` is a field block that is the whole answer. ``metadata`` has neither gRPC's own keys nor
    those that end in -bin: they carry bytes, which no dialect uses. ``plan_key`` is what plans know the call
    by."""

    method: str
    metadata: Mapping[str, str]
    timeout: float | None = None
    coding: str = ""
    length: int | None = None
    streaming: bool = False
    refusal: bytes = b""
    plan_key: Any = None


_STATUS_200 = b"\x88"
_CONTENT_TYPE_FIELD = b"\x0f\x10" + text(b"application/grpc")
ACCEPTED_CODINGS = ", ".join(("identity", *WINDOW_BITS)).encode()
_ACCEPTED = literal(b"grpc-accept-encoding", ACCEPTED_CODINGS)

ANSWER_HEADERS = _STATUS_200 + _CONTENT_TYPE_FIELD
"""The field block before the first message of an answer."""

OK = literal(b"grpc-status", b"0")
"""The trailers of a successful answer."""


def trailers(answer: GrpcAnswer) -> bytes:
    """The trailers of an answer; overlong details are cut."""
    block = literal(b"grpc-status", b"%d" % answer.code) if answer.code else OK
    if answer.details:
        details = cut(answer.details).encode(errors="replace")
        block += literal(b"grpc-message", _UNPRINTABLE.sub(_escaped, details))
    for name, value in answer.trailing:
        block += literal(name.lower().encode(errors="replace"), value.strip().encode(errors="replace"))
    return block


def trailers_only(answer: GrpcAnswer) -> bytes:
    """A Trailers-Only answer."""
    return ANSWER_HEADERS + trailers(answer)


def read_headers(fields: FieldLines, limit: int = MAX_HEADER_LIST) -> CallHeaders | None:
    """The headers of a call, with ``refusal`` if it cannot be served; None for a malformed request (RFC 9113,
    8.1.1, 8.2, 8.3 and 8.5)."""
    own: dict[bytes, bytes] = {}
    metadata: dict[str, str] = {}
    regular = False
    size = 0
    for name, value in fields:
        size += ENTRY_OVERHEAD + len(name) + len(value)
        if UNFIT_VALUE(value):
            if name[:1] != b":" and name not in _OWN and not name.endswith(b"-bin"):
                value = value.strip(b"\t ")  # gRPC permits what RFC 9113 does not (8.2.1)
            if UNFIT_VALUE(value):
                return None
        if name[:1] == b":":
            if regular or name in own or name not in (b":method", b":scheme", b":path", b":authority"):
                return None
            own[name] = value
            continue
        regular = True
        if name in _OWN:
            if name == b"te" and not fit_te(value):
                return None
            if name == b"content-length" and own.get(name, value) != value:
                return None
            own[name] = value
        elif not NAME.fullmatch(name) or name in CONNECTION_SPECIFIC:
            return None
        elif not name.endswith(b"-bin"):
            key, line = name.decode(), _decoded(value)
            repeated = key == FORWARDED_FOR and key in metadata  # a proxy may append a line of its own
            metadata[key] = f"{metadata[key]}, {line}" if repeated else line
    path, method = own.get(b":path", b""), own.get(b":method", b"")
    tunnel = method == b"CONNECT" and b":path" not in own and b":scheme" not in own and b":authority" in own
    if not tunnel and not (method and path and b":scheme" in own):
        return None
    headers = CallHeaders(_decoded(path), metadata)
    if (length := own.get(b"content-length")) is not None:
        if not _LENGTH.fullmatch(length):
            return None
        headers.length = int(length)
    _read_refusal(headers, method, own, size, limit)
    return headers


def _read_refusal(
    headers: CallHeaders, method: bytes, own: dict[bytes, bytes], size: int, limit: int
) -> None:
    if method != b"POST":
        headers.refusal = b"\x08\x03405" + literal(b"allow", b"POST") + literal(b"grpc-status", b"2")
        headers.refusal += literal(b"grpc-message", b"the method is not POST")
        return
    if not _CONTENT_TYPE.fullmatch(own.get(b"content-type", b"")):
        headers.refusal = b"\x08\x03415" + literal(b"grpc-status", b"2")
        headers.refusal += literal(b"grpc-message", b"the content-type is not application/grpc")
        return
    if size > limit:
        details = f"the metadata has {size} bytes, more than the {limit} that are taken"
        headers.refusal = trailers_only(GrpcAnswer(code=RESOURCE_EXHAUSTED, details=details))
        return
    _read_timeout(headers, own.get(b"grpc-timeout"))
    _read_coding(headers, own.get(b"grpc-encoding", b"identity"))


def _read_timeout(headers: CallHeaders, stated: bytes | None) -> None:
    if stated is None:
        return
    matched = _TIMEOUT.fullmatch(stated)
    if matched is None:
        details = "Error parsing 'grpc-timeout' metadata"
        headers.refusal = trailers_only(GrpcAnswer(code=INTERNAL, details=details))
    else:
        headers.timeout = int(matched[1]) * _UNITS[matched[2]]


def _read_coding(headers: CallHeaders, stated: bytes) -> None:
    coding = _decoded(stated)
    if coding in WINDOW_BITS:
        headers.coding = coding
    elif coding != "identity":
        details = f"Compression algorithm '{coding[:100]}' is not known"
        headers.refusal = trailers_only(GrpcAnswer(code=UNIMPLEMENTED, details=details)) + _ACCEPTED


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % found[0][0]
