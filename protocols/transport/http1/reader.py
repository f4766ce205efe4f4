"""The server's reading side of an HTTP/1 connection, without a socket: bytes in, one request at a time out.

A request is read as headers, then its body; the next one is not touched before :meth:`RequestReader.answered`
(RFC 9112, 9.3.2). ``TRANSITIONS`` is the whole protocol: an event that a state does not list is a bug of the
caller.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from interlingua.protocols.transport.allowance import Allowance
from interlingua.protocols.transport.http1.arriving import ArrivingBody
from interlingua.protocols.transport.http1.body import COPIED_BYTES, ChunkedBody, SizedBody, small_chunks
from interlingua.protocols.transport.http1.headers import (
    END,
    HeaderProbe,
    RequestHeaders,
    parse_alike,
    parse_headers,
    request_parser,
)
from interlingua.protocols.transport.memory import Allocate, unfilled
from interlingua.protocols.wire import Buffer

_KNOWN_BYTES = 1 << 12
"""The longest header section that is kept to recognise the next one."""

_WHOLE_BYTES = 1 << 14
"""Up to this size, requests that come at once are read in one step."""

_NONE = RequestHeaders(b"", "", "", "", 1, {}, False, 0, False)


class ReadState(enum.Enum):
    """Where a connection is."""

    IDLE = enum.auto()
    """Between requests; part of a header section may be here."""
    BODY = enum.auto()
    """The headers are read, the body is arriving."""
    ANSWERING = enum.auto()
    """The request is complete and not answered."""
    UNREAD = enum.auto()
    """The request is not answered, and what follows its headers must not be read. The connection ends with
    the answer (RFC 9112, 9.6)."""
    CLOSED = enum.auto()
    """No request is read any more."""

    __hash__ = object.__hash__  # in C, unlike that of Enum


class ReadEvent(enum.Enum):
    """What changes the state."""

    HEADERS = enum.auto()
    REQUEST = enum.auto()
    """Headers and a complete body at once."""
    BODY_END = enum.auto()
    REFUSED = enum.auto()
    ANSWERED = enum.auto()
    CLOSE = enum.auto()

    __hash__ = object.__hash__


# members by themselves: looking one up on its class costs 0.2 µs in Python 3.11
IDLE, BODY, ANSWERING, UNREAD, CLOSED = ReadState
HEADERS, REQUEST, BODY_END, REFUSED, ANSWERED, CLOSE = ReadEvent

TRANSITIONS: dict[ReadState, dict[ReadEvent, ReadState]] = {
    IDLE: {
        HEADERS: BODY,
        REQUEST: ANSWERING,
        REFUSED: UNREAD,
        CLOSE: CLOSED,
    },
    BODY: {
        BODY_END: ANSWERING,
        REFUSED: UNREAD,
        CLOSE: CLOSED,
    },
    ANSWERING: {
        ANSWERED: IDLE,
        REFUSED: UNREAD,
        CLOSE: CLOSED,
    },
    UNREAD: {REFUSED: UNREAD, CLOSE: CLOSED},
    CLOSED: {CLOSE: CLOSED},
}


class RequestReader:
    """``headers`` are those of the current request, ``body`` its body in state ANSWERING. Memory for large
    bodies is from ``allocate``. ``known`` returns what was parsed of a header section before, if that is
    kept."""

    __slots__ = (
        "_accept_te_with_length",
        "_allocate",
        "_allowance",
        "_at",
        "_body",
        "_data",
        "_known",
        "_probe",
        "_whole",
        "body",
        "headers",
        "state",
    )

    def __init__(
        self,
        accept_te_with_length: bool = False,
        allocate: Allocate = unfilled,
        known: Callable[[bytes], RequestHeaders | None] | None = None,
    ) -> None:
        self._allocate = allocate
        self._known = known
        self._whole = -1  # the size of a request with the same headers, if that is small
        self.state = IDLE
        self.headers = _NONE
        self.body: Buffer = b""
        self._accept_te_with_length = accept_te_with_length
        self._probe: HeaderProbe | None = None
        self._body: SizedBody | ChunkedBody | ArrivingBody | None = None
        self._allowance: Allowance | None = None
        # the input that is not read yet is _data[_at:]
        self._data: bytes | bytearray = b""
        self._at = 0

    @property
    def pending(self) -> bool:
        """Whether input has arrived that is not read yet."""
        return self._at < len(self._data)

    @property
    def first_bytes(self) -> bytes:
        """The first bytes of a connection on which no request has been read; empty after one."""
        return b"" if self.headers.raw else bytes(self._data[self._at :])

    def receive(self, data: bytes) -> None:
        """Keep ``data`` to be read later."""
        if self._at == len(self._data):
            self._data, self._at = data, 0
            return
        if self._at or not isinstance(self._data, bytearray):
            self._data, self._at = bytearray(self._data[self._at :]), 0
        self._data += data

    def read_whole(self, data: bytes) -> bytes | None:
        """In state IDLE, the body of the request in ``data``, if that is all of a small one whose headers are
        those of the one before. Else nothing is read."""
        if len(data) != self._whole or self._data or not data.startswith(self.headers.raw):
            return None
        self.body = body = data[len(self.headers.raw) :]
        self.state = TRANSITIONS[self.state][REQUEST]
        return body

    def read_headers(self, data: bytes = b"") -> RequestHeaders | None:
        """In state IDLE, go on with ``data``: the headers of the next request once they are complete. The
        state is then ANSWERING if the body is complete too, else BODY. Raises ``HeadersError``."""
        held, at, headers = self._data, self._at, self.headers
        if at == len(held):
            held, at = data, 0
        elif data:
            self.receive(data)
            held, at = self._data, self._at
        if not headers.raw or not held.startswith(headers.raw, at):  # clients repeat themselves
            self._data, self._at = held, at
            found = self._find_headers()
            if found is None:
                return None
            self.headers = headers = found
            size = len(found.raw) + found.length
            self._whole = size if found.length >= 0 and size <= _WHOLE_BYTES else -1
            at = self._at
        self._probe = None
        at += len(headers.raw)
        length = headers.length
        if 0 <= length <= len(held) - at:
            end = at + length  # body_in, inlined
            if type(held) is not bytes:
                self.body = bytes(held[at:end])
            elif length > COPIED_BYTES:
                self.body = memoryview(held)[at:end]
            else:
                self.body = held[at:end]
            at = end
            self.state = TRANSITIONS[self.state][REQUEST]
        else:
            self._body = self._chunked_body() if length < 0 else SizedBody(length, self._allocate)
            self.state = TRANSITIONS[self.state][HEADERS]
        if at == len(held):
            self._data, self._at = b"", 0
        else:
            self._data, self._at = held, at
        return headers

    def read_body(self, data: bytes = b"") -> int:
        """In state BODY, go on with ``data``: the size of the body, as far as it is known. The state is
        ANSWERING once it is complete; until then, ``pending`` input is for the next turn. Raises
        ``BodyError``."""
        body = self._body
        assert body is not None, "in state BODY there is one"  # noqa: S101
        if data:  # to receive nothing would copy what is here
            self.receive(data)
        self._at = body.feed(self._data, self._at)
        if self._at == len(self._data):
            self._data, self._at = b"", 0
        if body.complete:
            self._end_body(body)
        return body.least_size

    @property
    def arrived(self) -> int:
        """How many bytes of the body are here."""
        return len(self.body) if self._body is None else self._body.size

    @property
    def missing(self) -> int:
        """In state BODY, how many bytes of a body with a length are still to come; 0 for a chunked one."""
        return self._body.missing if self._body is not None else 0

    def read_while_arriving(self, body: ArrivingBody) -> None:
        """In state BODY, before the first byte: receive into ``body``, which its owner reads."""
        self._body = body

    def body_buffer(self) -> memoryview:
        """Space for bytes that are missing."""
        assert isinstance(self._body, SizedBody | ArrivingBody), "its length is known"  # noqa: S101
        return self._body.buffer()

    def body_filled(self, count: int) -> None:
        """Like :meth:`read_body`, for ``count`` bytes that have arrived in :meth:`body_buffer`."""
        body = self._body
        assert isinstance(body, SizedBody | ArrivingBody), "its length is known"  # noqa: S101
        body.fill(count)
        if body.complete:
            self._end_body(body)

    def refuse(self) -> None:
        """Read no more of the current request, whose answer ends the connection."""
        self.state = TRANSITIONS[self.state][REFUSED]
        self._body, self._data, self._at = None, b"", 0

    def answered(self) -> bool:
        """The answer is written: whether input for the next request is here already."""
        self.state = TRANSITIONS[self.state][ANSWERED]
        self.body = b""
        if len(self.headers.raw) > _KNOWN_BYTES:
            self.headers, self._whole = _NONE, -1
        return self._at < len(self._data)

    def close(self) -> None:
        """Read no more requests, and drop what has arrived."""
        self.state = TRANSITIONS[self.state][CLOSE]
        self.body, self._body, self._data, self._at = b"", None, b"", 0

    def _chunked_body(self) -> ChunkedBody:
        if self._allowance is None:  # of all bodies of the connection
            self._allowance = small_chunks()
        return ChunkedBody(self._allowance)

    def _end_body(self, body: SizedBody | ChunkedBody | ArrivingBody) -> None:
        self.body = b"" if isinstance(body, ArrivingBody) else body.whole()
        self._body = None
        self.state = TRANSITIONS[self.state][BODY_END]

    def _find_headers(self) -> RequestHeaders | None:
        """The header section at ``_at``, if it is complete. Empty lines before it are skipped (RFC 9112,
        2.2)."""
        data, at, probe = self._data, self._at, self._probe
        while data.startswith(b"\r\n", at):
            at += 2
        end = data.find(END, at if probe is None else max(at, probe.seen - len(END)))
        if end >= 0:
            self._at = at
            raw = bytes(data[at : end + len(END)])
            known = None if self._known is None else self._known(raw)
            if known is None and self.headers.raw and len(raw) <= _KNOWN_BYTES:
                known = parse_alike(raw, self.headers)
            return known or parse_headers(raw, self._accept_te_with_length)
        if probe is None:
            self._data, self._at = data[at:], 0
            if not self._data:
                return None
            self._probe = probe = HeaderProbe(request_parser(None, self._accept_te_with_length))
        probe.check(self._data)
        return None
