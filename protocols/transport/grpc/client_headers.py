"""Writes the headers of a gRPC request, and reads those of its answer and its trailers.

The rules are gRPC's over HTTP/2 ("PROTOCOL-HTTP2"). Requests differ only in deadline and metadata, so the
block of the other headers is encoded once per method. No sockets.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from interlingua.protocols.content_coding import WINDOW_BITS
from interlingua.protocols.transport.grpc.headers import ACCEPTED_CODINGS
from interlingua.protocols.transport.grpc.status import (
    CANCELLED,
    INTERNAL,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
)
from interlingua.protocols.transport.h2.fields import CONNECTION_SPECIFIC
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.h2.hpack import FieldLines
from interlingua.protocols.transport.h2.hpack_encoder import HpackEncoder, literal
from interlingua.protocols.wire import GrpcAnswer

_KEY = re.compile(r"[0-9a-z_.-]+")
_VALUE = re.compile(r"[ -~]*")
_OWN = frozenset(name.decode() for name in CONNECTION_SPECIFIC) | {
    "te",
    "content-type",
    "host",
    "grpc-timeout",
    "grpc-encoding",
    "grpc-accept-encoding",
}

_LONGEST_SECS = 99_900_000
"""``grpc-timeout`` has at most eight digits."""

_OF_HTTP = {
    400: INTERNAL,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: UNIMPLEMENTED,
    429: UNAVAILABLE,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: UNAVAILABLE,
}
"""The status of an answer without one, by its HTTP status; UNKNOWN for others ("HTTP to gRPC Status Code
Mapping")."""

_OF_RESET: Mapping[int, int] = {
    Code.REFUSED_STREAM: UNAVAILABLE,
    Code.CANCEL: CANCELLED,
    Code.ENHANCE_YOUR_CALM: RESOURCE_EXHAUSTED,
    Code.INADEQUATE_SECURITY: PERMISSION_DENIED,
}
"""The status of a stream that was reset, by its code; INTERNAL for others ("PROTOCOL-HTTP2", Errors)."""


class UnsendableError(Exception):
    """The metadata has a key or a value that HTTP/2 or gRPC lacks."""


class CallBlocks:
    """The field blocks of the requests of one connection, in order."""

    def __init__(self, encoder: HpackEncoder, authority: str, scheme: bytes = b"http") -> None:
        self._encoder = encoder
        self._scheme = scheme
        self._authority = authority.encode()
        self._generation = encoder.generation
        self._blocks: dict[str, bytes] = {}
        self._timed: dict[str, tuple[bytes, float, float]] = {}
        """The last block of each method with a timeout, and the timeouts that have the same, in seconds."""

    def block(self, method: str, timeout: float | None, metadata: Mapping[str, str]) -> bytes:
        """The field block of the next request; ``timeout`` is in seconds. Raises ``UnsendableError``."""
        own = _metadata(metadata) if metadata else b""
        current = self._generation == self._encoder.generation
        if current and timeout is not None and (known := self._timed.get(method)) is not None:
            timed, least, most = known
            if least < timeout <= most:
                return timed + own if own else timed
        block = (self._blocks.get(method) if current else None) or self._encoded(method)
        if timeout is not None:
            text, least, most = timeout_text(timeout)
            block += literal(b"grpc-timeout", text)
            if method in self._blocks:
                self._timed[method] = block, least, most
        return block + own

    def _encoded(self, method: str) -> bytes:
        if self._generation != self._encoder.generation:
            self._generation = self._encoder.generation
            self._blocks.clear()
            self._timed.clear()
        block = self._encoder.indexed(
            (b":method", b"POST"),
            (b":scheme", self._scheme),
            (b":path", method.encode()),
            (b":authority", self._authority),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"grpc-accept-encoding", ACCEPTED_CODINGS),
            (b"user-agent", b"interlingua"),
        )
        if self._generation == self._encoder.generation:  # else the block changed the table
            self._blocks[method] = block
        return block


def timeout_text(seconds: float) -> tuple[bytes, float, float]:
    """``grpc-timeout``, rounded up to three digits as by grpc-core, so that equal limits are equal bytes;
    and which timeouts have the same text: more than the first, at most the second."""
    left = max(1, math.ceil(min(seconds, _LONGEST_SECS) * 1000))
    scale = 1
    while left > 1000 * scale:
        scale *= 10
    left = -(-left // scale) * scale
    text = b"%dS" % (left // 1000) if left % 1000 == 0 else b"%dm" % left
    return text, (left - scale) / 1000, left / 1000


def _metadata(metadata: Mapping[str, str]) -> bytes:
    written = []
    for key, value in metadata.items():
        if not _KEY.fullmatch(key) or key in _OWN:
            raise UnsendableError
        if key.endswith("-bin"):
            sent = base64.b64encode(value.encode()).rstrip(b"=")
        elif _VALUE.fullmatch(value):
            sent = value.strip(" ").encode()  # RFC 9113, 8.2.1
        else:
            raise UnsendableError
        written.append(literal(key.encode(), sent))
    return b"".join(written)


@dataclass(slots=True)
class AnswerHeaders:
    """The headers of an answer, or its trailers. ``http`` is the HTTP status, 0 in trailers; ``status`` the
    gRPC status, None if there is none; ``malformed`` says which rule of HTTP/2 they break. ``usual``: they
    are those of an answer with messages that can be read."""

    http: int = 0
    content_type: bytes = b""
    coding: str = ""
    status: int | None = None
    details: str = ""
    malformed: str = ""
    usual: bool = False

    @property
    def interim(self) -> bool:
        """Whether it is an interim answer (RFC 9110, 15.2)."""
        return 100 <= self.http < 200

    def refusal(self) -> GrpcAnswer | None:
        """The status of an answer that is not gRPC's; None for one that is."""
        if self.http != 200:
            code = _OF_HTTP.get(self.http, UNKNOWN)
            return GrpcAnswer(code=code, details=f"Received http2 header with status: {self.http}")
        if not self.content_type.lower().startswith(b"application/grpc"):
            shown = self.content_type[:100].decode(errors="replace")
            return GrpcAnswer(code=UNKNOWN, details=f"Received content-type '{shown}', which is not gRPC")
        if self.coding not in WINDOW_BITS and self.coding not in ("", "identity"):
            details = f"Compression algorithm '{self.coding[:100]}' is not known"
            return GrpcAnswer(code=INTERNAL, details=details)
        return None


def read_headers(fields: FieldLines) -> AnswerHeaders:
    """The headers of an answer, or its trailers."""
    headers = AnswerHeaders()
    for name, value in fields:
        if name == b":status":
            if not (len(value) == 3 and value.isdigit()):
                headers.malformed = "a :status that is no number"
            headers.http = int(value) if not headers.malformed else 0
        elif name == b"grpc-status":
            headers.status = int(value) if value.isdigit() and len(value) <= 3 else UNKNOWN
        elif name == b"grpc-message":
            headers.details = unquote_to_bytes(value).decode(errors="replace")
        elif name == b"content-type":
            headers.content_type = value
        elif name == b"grpc-encoding":
            headers.coding = value.decode(errors="replace")
        elif name[:1] == b":" or name in CONNECTION_SPECIFIC or not name or name != name.lower():
            headers.malformed = "a field that an answer must not have"
    headers.usual = not headers.malformed and headers.refusal() is None
    return headers


def of_reset(code: int) -> GrpcAnswer:
    """The status of a stream that the server reset."""
    status = _OF_RESET.get(code, INTERNAL)
    return GrpcAnswer(code=status, details=f"Received RST_STREAM with error code {code}")
