"""The headers of a bRPC call: the user fields of its frame, and the trace and request id that bRPC has fields
for.

bRPC's own ``request_id`` is the header ``x-request-id``. It numbers a trace with 64 bits, W3C Trace Context
with 128: ``trace_id`` carries the low 64 of them, ``parent_span_id`` the caller's span, and the user fields
the whole context, for peers that know them. A caller that sends only numbers gets a ``traceparent`` whose
high bits are zero, which is how the recommendation has shorter ids. bRPC sends numbers for sampled traces
alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from interlingua.protocols.protobuf_wire import varint
from interlingua.protocols.wire import REQUEST_ID

NO_HEADERS: Mapping[str, str] = {}

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{16}([0-9a-f]{16})-([0-9a-f]{16})-[0-9a-f]{2}.*")
_UINT64 = 2**64 - 1

_TRACE_ID, _PARENT_SPAN_ID, _REQUEST_ID = b"\x20", b"\x30", b"\x3a"
"""Tags of ``RpcRequestMeta``."""

_USER_FIELD, _KEY, _VALUE = b"\x4a", b"\x0a", b"\x12"
"""The tag of an entry of ``user_fields`` in ``RpcMeta``, and those within it."""


def headers_in(meta: Any) -> Mapping[str, str]:
    """The headers of the request with ``meta``, by name in lower case."""
    given, request = meta.user_fields, meta.request
    identity, trace = request.request_id, request.trace_id
    if not (given or identity or trace):
        return NO_HEADERS
    try:
        headers = {name.lower(): value for name, value in given.items() if isinstance(value, str)}
    except (
        UnicodeDecodeError
    ):  # protobuf hands out values that are not UTF-8 as bytes, and fails at such names
        headers = {}
    if identity and isinstance(identity, str):  # bytes, where it is not UTF-8
        headers.setdefault(REQUEST_ID, identity)
    span = request.span_id or request.parent_span_id
    if trace and span:
        numbers = f"{trace & _UINT64:032x}-{span & _UINT64:016x}"
        headers.setdefault("traceparent", f"00-{numbers}-01")
    return headers


def trace_fields(headers: Mapping[str, str]) -> bytes:
    """The fields of a request's meta that correspond to ``headers``."""
    fields = b""
    trace = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if trace is not None:
        fields += _TRACE_ID + varint(int(trace[1], 16)) + _PARENT_SPAN_ID + varint(int(trace[2], 16))
    identity = headers.get(REQUEST_ID)
    if identity is not None:
        fields += _text(_REQUEST_ID, identity)
    return fields


def user_fields(headers: Iterable[tuple[str, str]]) -> bytes:
    """``headers`` as user fields."""
    entries = [_text(_KEY, name) + _text(_VALUE, value) for name, value in headers]
    return b"".join([_USER_FIELD + varint(len(entry)) + entry for entry in entries])


def _text(tag: bytes, text: str) -> bytes:
    data = text.encode(errors="replace")
    return tag + varint(len(data)) + data
