"""Frames of baidu_std, bRPC's own protocol: cut out of a stream of bytes, and written.

A frame is a header of 12 bytes (``PRPC``, the size of all that follows, the size of the meta; both
big-endian), the meta, the message and an attachment. Sans-IO; methods and error numbers are not interpreted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from interlingua.protocols.protobuf_message import count_fields
from interlingua.protocols.protobuf_wire import varint
from interlingua.protocols.transport.brpc.trace import NO_HEADERS, headers_in, trace_fields, user_fields
from interlingua.protocols.transport.memory import Allocate, unfilled
from interlingua.protocols.transport.received import ReceiveBuffer
from interlingua.protocols.wire import Buffer, Headers
from interlingua.schemas.brpc import MESSAGES

MAGIC = b"PRPC"
MAX_BODY_BYTES = 2**32 - 1
"""The largest body that the header can declare."""

_HEADER = struct.Struct(">4sII")
_META = MESSAGES["brpc.policy.RpcMeta"]

_JOINED_BYTES = 1 << 12
"""Up to this size the part of a frame that is here is joined with what arrives. A larger frame gets a buffer
of its own."""

_DIRECT_BYTES = 1 << 16
"""The least that a large frame must lack to be worth a system call of its own."""

_NOTHING = memoryview(b"")

_MAX_META = 1 << 16
"""The largest meta of a request, which has what a head of HTTP has. An answer may have a longer error."""

_MAX_META_FIELDS = 1 << 10
"""The most fields of a longer one: they become objects on the event loop."""

_MAX_PASSED_OVER = 1024
"""How many frames in a row are passed over."""

_MAX_CREDENTIAL = 8192
"""How much of a credential is kept, in characters: more is none that a server has issued."""

_UINT64 = 2**64 - 1
_TIMEOUT_TAG, _COMPRESSION_TAG, _CORRELATION_TAG = b"\x40", b"\x18", b"\x20"
_SUCCESS = b"\x12\x02\x08\x00\x18\x00\x20"
"""The meta of an answer without an error, up to the correlation id: ``response {error_code: 0}`` and
``compress_type: 0``, both written although they are zero, as the original writes them."""


class FrameError(Exception):
    """The bytes are not baidu_std, or are more than is taken: the connection cannot go on."""


@dataclass(slots=True)
class Frame:
    """One frame. ``payload`` is the message and the attachment behind it; None where the frame was above
    the limit and its body is not kept. ``size`` is that of the body, in bytes."""

    meta: Meta
    payload: memoryview | None
    size: int

    @property
    def length(self) -> int:
        """How many bytes it has with its header."""
        return _HEADER.size + self.size


@dataclass(slots=True)
class Meta:
    """What precedes a message. ``service`` is None where it is no request; ``correlation_id`` is opaque
    and is echoed as it came; ``timeout_ms`` 0 is none. ``attachment_size`` is as claimed, unchecked.
    ``headers`` are the user fields of a request, by name in lower case, with its trace and its request id.
    ``credential`` is the authentication data of a client's ``Authenticator``; ``content_type`` is 0 for
    protobuf."""

    service: str | None
    method: str
    timeout_ms: int
    error_code: int
    error_text: str
    compress_type: int
    correlation_id: int
    attachment_size: int
    headers: Mapping[str, str]
    credential: str = ""
    content_type: int = 0


class BrpcFrameReader:
    """Reads frames out of the bytes that arrive. Memory grows with them, not with what a header claims.

    A body above ``max_body_bytes`` is a ``FrameError``; with ``skims`` it becomes a frame without a payload
    instead, and its bytes are thrown away as they come. The rest of a large frame is received into the
    frame's own buffer, from ``allocate``: see :attr:`space`.

    Clients with an ``Authenticator`` send their credential in the first frame of a connection alone: it is
    the header ``authorization`` of all requests that have none.
    """

    def __init__(
        self, max_body_bytes: int = MAX_BODY_BYTES, allocate: Allocate = unfilled, *, skims: bool = False
    ) -> None:
        self._limit = max_body_bytes
        self._allocate = allocate
        self._skims = skims
        self._held = _NOTHING
        self._large: ReceiveBuffer | None = None
        self._skip = self._skipped = 0  # bytes of a frame that are and were thrown away
        self._credential = ""
        self.fed = 0
        """How many bytes have arrived."""

    @property
    def partial(self) -> bool:
        """Whether part of a frame is held, or to be thrown away."""
        return bool(self._held or self._large or self._skip)

    @property
    def filled(self) -> int:
        """How many bytes of a large frame are here."""
        return 0 if self._large is None else self._large.filled

    @property
    def arriving(self) -> bool:
        """Whether part of a large frame is here, or thrown away."""
        return self._large is not None or self._skip > 0

    @property
    def arrived(self) -> int:
        """How many bytes of the next frame, or frames, have arrived."""
        if self._skip:
            return self._skipped
        return len(self._held) if self._large is None else self._large.filled

    @property
    def space(self) -> memoryview | None:
        """Where the next bytes belong, None if they are for :meth:`feed`."""
        large = self._large
        return large.space() if large is not None and large.missing >= _DIRECT_BYTES else None

    def received(self, count: int) -> None:
        """``count`` bytes have been written into the space."""
        assert self._large is not None, "there was space"  # noqa: S101
        self._large.filled += count
        self.fed += count

    def feed(self, data: Buffer) -> None:
        """Take what arrived. ``data`` must not change afterwards, unless :meth:`keep` is called first."""
        piece = memoryview(data)
        self.fed += len(piece)
        if self._skip:
            skipped = min(self._skip, len(piece))
            self._skip -= skipped
            self._skipped += skipped
            piece = piece[skipped:]
        elif self._large is not None:
            piece = piece[self._large.take(piece) :]
        self._held = memoryview(b"".join((self._held, piece))) if self._held else piece

    def keep(self) -> None:
        """Copy what is held of data that will change."""
        if not self._held.readonly:
            self._held = memoryview(bytes(self._held))

    def skip(self) -> Frame | None:
        """Throw away the large frame that is arriving, and the rest of it as it comes. Returns the frame,
        without a payload; None if its meta has not arrived, so that nothing is thrown away, or is larger
        than its body. Raises ``FrameError``."""
        large = self._large
        if large is None:
            return None
        here = large.here()
        _, size, meta_size = _HEADER.unpack_from(here)
        if meta_size <= size and large.filled < _HEADER.size + meta_size:
            return None
        self._large, self._skip, self._skipped = None, large.missing, large.filled
        if meta_size > size:
            return None
        meta = bytes(here[_HEADER.size : _HEADER.size + meta_size])
        return Frame(self._read_meta(meta), None, size)

    def discard(self) -> None:
        """Forget what is held."""
        self._held, self._large = _NOTHING, None

    def next(self) -> Frame | None:
        """The next frame that is complete, None where more bytes are needed first.

        Frames whose meta claims to be larger than its body are passed over, as the original does. Raises
        ``FrameError``.
        """
        for _ in range(_MAX_PASSED_OVER):
            if self._large is None:
                held = self._held
                if len(held) < _HEADER.size:
                    if not MAGIC.startswith(held[: len(MAGIC)]):
                        raise _not_a_frame(held)
                    return None
                magic, size, meta_size = _HEADER.unpack_from(held)
                if magic != MAGIC:
                    raise _not_a_frame(held)
                if size > self._limit:
                    return self._skim(size, meta_size)
                if _MAX_META < meta_size <= size and not self._skims:
                    raise FrameError(f"a frame has a meta of {meta_size} bytes, more than {_MAX_META}")
                if len(held) < _HEADER.size + size:
                    if size > _JOINED_BYTES:
                        self._large = ReceiveBuffer(_HEADER.size + size, held, self._allocate)
                        self._held = _NOTHING
                    return None
                body = self._take(_HEADER.size + size)[_HEADER.size :]
            elif self._large.missing:
                return None
            else:
                whole, self._large = self._large.whole(), None
                _, size, meta_size = _HEADER.unpack_from(whole)
                body = whole[_HEADER.size :]
            if meta_size <= size:
                return Frame(self._read_meta(body[:meta_size]), body[meta_size:], size)
        raise FrameError("frame after frame has a meta larger than its body")

    def _read_meta(self, data: Buffer) -> Meta:
        """Read a meta; a request gets the credential of the connection. Raises ``FrameError``."""
        meta = read_meta(data)
        if meta.credential or self._credential:
            self._credential = meta.credential[:_MAX_CREDENTIAL] or self._credential
            if "authorization" not in meta.headers:
                bearer = "" if self._credential[:7].lower() == "bearer " else "Bearer "
                meta.headers = {**meta.headers, "authorization": f"{bearer}{self._credential}"}
        return meta

    def _skim(self, size: int, meta_size: int) -> Frame | None:
        """The frame of a body that is too large, as far as it is read."""
        if not self._skims or meta_size > min(size, _MAX_META):
            raise FrameError(f"a frame has a body of {size} bytes, more than the {self._limit} allowed")
        if len(self._held) < _HEADER.size + meta_size:
            return None
        meta = self._read_meta(self._take(_HEADER.size + meta_size)[_HEADER.size :])
        rest = size - meta_size
        held = min(rest, len(self._held))
        self._held = self._held[held:]
        self._skip, self._skipped = rest - held, held
        return Frame(meta, None, size)

    def _take(self, size: int) -> memoryview:
        """The first ``size`` of the bytes that are held, copied if those will change."""
        held = self._held
        self._held = held[size:] if len(held) > size else _NOTHING
        return held[:size] if held.readonly else memoryview(bytes(held[:size]))


def _not_a_frame(held: memoryview) -> FrameError:
    return FrameError(f"a frame begins with {bytes(held[:4])!r}")


def read_meta(data: Buffer) -> Meta:
    """Read the meta of a frame. Raises ``FrameError``.

    By protobuf's own classes: they take one microsecond for it, and nothing in Python is faster.
    """
    try:
        if len(data) > _MAX_META and count_fields(_META, data, _MAX_META_FIELDS, 1) > _MAX_META_FIELDS:
            raise FrameError(f"the meta of a frame has more than {_MAX_META_FIELDS} fields")
        meta: Any = _META.FromString(data)  # type: ignore[arg-type]
    except DecodeError as fault:
        raise FrameError("the meta of a frame is not protobuf") from fault
    if not meta.IsInitialized():
        raise FrameError("the meta of a frame lacks the name of a service or a method")
    has_request, has_response = meta.HasField("request"), meta.HasField("response")
    request, response = meta.request, meta.response
    return Meta(
        _text(request.service_name) if has_request else None,
        _text(request.method_name) if has_request else "",
        request.timeout_ms if has_request else 0,
        response.error_code if has_response else 0,
        _text(response.error_text) if has_response else "",
        meta.compress_type,
        meta.correlation_id,
        meta.attachment_size,
        headers_in(meta) if has_request else NO_HEADERS,
        _text(meta.authentication_data) if has_request else "",
        meta.content_type,
    )


def write_request(
    service: str,
    method: str,
    correlation_id: int,
    message: Buffer,
    timeout_ms: int = 0,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Sequence[Buffer]:
    """The parts of a request's frame; ``message`` is the last one, uncopied. ``headers`` become user fields,
    the trace and the request id fields of the request too."""
    request = _names(service, method)
    if headers:
        request += trace_fields(headers)
    if timeout_ms:
        request += _TIMEOUT_TAG + varint(timeout_ms)
    meta = b"".join(
        (
            *(b"\x0a", varint(len(request)), request),
            *(_COMPRESSION_TAG, b"\x00", _CORRELATION_TAG, varint(correlation_id & _UINT64)),
            *([user_fields(headers.items())] if headers else ()),
        )
    )
    return _frame(meta, message)


def write_answer(correlation_id: int, message: Buffer, headers: Headers = ()) -> Sequence[Buffer]:
    """The parts of a successful answer's frame; ``message`` is the last one, uncopied."""
    meta = _SUCCESS + varint(correlation_id & _UINT64)
    return _frame(meta + user_fields(headers) if headers else meta, message)


def write_error(correlation_id: int, code: int, text: str, headers: Headers = ()) -> Sequence[Buffer]:
    """The parts of an error frame; it has no message."""
    meta: Any = _META(compress_type=0, correlation_id=correlation_id)
    meta.response.error_code = code
    # a lone surrogate, which no text on a wire can hold, becomes a question mark
    meta.response.error_text = text.encode(errors="replace").decode()
    return _frame(meta.SerializeToString() + user_fields(headers), b"")


@lru_cache(maxsize=256)
def _names(service: str, method: str) -> bytes:
    request: Any = MESSAGES["brpc.policy.RpcRequestMeta"](service_name=service, method_name=method)
    names: bytes = request.SerializeToString()
    return names


def _frame(meta: bytes, message: Buffer) -> Sequence[Buffer]:
    size = len(message)
    head = _HEADER.pack(MAGIC, len(meta) + size, len(meta)) + meta
    return (head, message) if size else (head,)


def _text(value: str | bytes) -> str:
    """A text as protobuf hands it out: as bytes where it is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")
