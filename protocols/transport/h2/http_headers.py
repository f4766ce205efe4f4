"""Reads the headers of an HTTP request in HTTP/2, and writes those of its answer (RFC 9113, 8.2 and 8.3).

A request gets the headers that the same request has in HTTP/1. No sockets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from interlingua.protocols.transport.h2.fields import CONNECTION_SPECIFIC, NAME, UNFIT_VALUE, fit_te
from interlingua.protocols.transport.h2.hpack import ENTRY_OVERHEAD, MAX_HEADER_LIST, FieldLines
from interlingua.protocols.transport.h2.hpack_encoder import literal
from interlingua.protocols.transport.http1.answer import CONTROL, text_answer
from interlingua.protocols.transport.http1.headers import HeaderFields, is_host
from interlingua.protocols.wire import HttpAnswer

_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A token (RFC 9110, 9.1)."""

_TARGET = re.compile(rb"/[^\x00-\x20#\x7f]*|\*")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_JOINED = {"cookie": "; "}
"""What joins lines of one name (RFC 9113, 8.2.3), a comma for all others (RFC 9110, 5.3)."""

_INDEXED_STATUS = {200: 8, 204: 9, 206: 10, 304: 11, 400: 12, 404: 13, 500: 14}
"""RFC 7541, appendix A."""

CONTINUE = b"\x08\x03100"
"""The field block of 100 (RFC 9110, 15.2.1)."""


@dataclass(slots=True)
class HttpHeaders:
    """The headers of a request. ``length`` is the content-length, None without one; ``refusal`` is the answer
    if it is not served."""

    method: str
    path: str
    query: str
    fields: HeaderFields
    length: int | None = None
    expects_continue: bool = False
    refusal: HttpAnswer | None = None


def is_grpc(fields: FieldLines) -> bool:
    """Whether a request with these ``fields`` is a gRPC call, of whatever format."""
    for name, value in fields:
        if name == b"content-type":
            return value[:16].lower() == b"application/grpc"
    return False


def read_request(fields: FieldLines, limit: int = MAX_HEADER_LIST) -> HttpHeaders | None:
    """The headers of a request, with ``refusal`` if they have more than ``limit`` bytes; None for a malformed
    one (RFC 9113, 8.1.1)."""
    own: dict[bytes, bytes] = {}
    headers = HeaderFields()
    headers.as_sent = {}
    size = 0
    for name, value in fields:
        size += ENTRY_OVERHEAD + len(name) + len(value)
        if UNFIT_VALUE(value):
            return None
        if name[:1] == b":":
            if headers or name in own or name not in _PSEUDO:
                return None
            own[name] = value
        elif not NAME.fullmatch(name) or name in CONNECTION_SPECIFIC or (name == b"te" and not fit_te(value)):
            return None
        else:
            key, text = name.decode(), value.decode("utf-8", "surrogateescape")
            earlier = headers.get(key)
            if earlier is not None and key != "content-length":
                text = f"{earlier}{_JOINED.get(key, ', ')}{text}"
            elif earlier not in (None, text):
                return None
            headers[key] = text
    return _request(own, headers, None if size <= limit else _too_large(size, limit))


def _request(
    own: dict[bytes, bytes], headers: HeaderFields, refusal: HttpAnswer | None
) -> HttpHeaders | None:
    """The request with the pseudo-header fields ``own``; None if they are malformed (8.3.1 and 8.5)."""
    method, target, authority = own.get(b":method", b""), own.get(b":path", b""), own.get(b":authority")
    if not _METHOD.fullmatch(method) or not _has_host(headers, authority):
        return None
    if method == b"CONNECT":
        if authority is None or b":path" in own or b":scheme" in own:
            return None
        target = authority
    elif (
        not own.get(b":scheme") or not _TARGET.fullmatch(target) or (target == b"*" and method != b"OPTIONS")
    ):
        return None
    length = headers.get("content-length")
    if length is not None and not _LENGTH.fullmatch(length.encode(errors="replace")):
        return None
    path, _, query = target.decode("utf-8", "surrogateescape").partition("?")
    return HttpHeaders(
        method.decode(),
        path,
        query,
        headers,
        None if length is None else int(length),
        headers.get("expect", "").lower() == "100-continue",
        refusal,
    )


def _has_host(headers: HeaderFields, authority: bytes | None) -> bool:
    """Whether the request states one valid host or none, which ``headers`` have as ``host`` then."""
    if authority is not None:
        text = authority.decode("latin-1")
        if headers.setdefault("host", text) != text:
            return False
    return is_host(headers.get("host", ""))


def _too_large(size: int, limit: int) -> HttpAnswer:
    """RFC 6585, 5."""
    return text_answer(431, f"the headers have {size} bytes, more than the {limit} that are taken")


def answer_block(answer: HttpAnswer, length: int | None = None) -> bytes:
    """The field block of ``answer``, whose body has ``length`` bytes, None if that is not stated."""
    status = answer.status
    index = _INDEXED_STATUS.get(status)
    block = b"\x08\x03%d" % status if index is None else bytes((0x80 | index,))
    for name, value in answer.headers:
        key = name.lower().encode(errors="replace")
        if key not in CONNECTION_SPECIFIC:  # 8.2.2
            block += literal(key, CONTROL.sub(" ", value).strip(" \t").encode(errors="replace"))
    return block if length is None else block + literal(b"content-length", b"%d" % length)
