"""The client's reading side of an HTTP/1 connection, without a socket: bytes in, one answer at a time out.

``REPLY_TRANSITIONS`` is the whole protocol. Input that the state does not expect is kept from every later
answer: the connection is not used again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from interlingua.protocols.transport.http1.arriving import STREAMED_BYTES, ArrivingBody
from interlingua.protocols.transport.http1.body import (
    ChunkedBody,
    SizedBody,
    UnchunkedBody,
    body_in,
)
from interlingua.protocols.transport.http1.headers import HeaderProbe, HeadersError
from interlingua.protocols.transport.http1.reply_headers import (
    CHANGING,
    CHUNKED,
    END,
    SWITCHING_PROTOCOLS,
    UNTIL_CLOSE,
    RepeatedReply,
    ReplyHeaders,
    changing,
    parse_reply_headers,
    reply_parser,
)
from interlingua.protocols.wire import Buffer, HttpReply

_WHOLE_BYTES = 1 << 14
"""Up to this size, answers that come at once are read in one step."""

_KNOWN_BYTES = 1 << 12
"""The longest header section that is kept to recognise the next one."""

_MAX_INTERIM = 32
"""The most interim answers to one request."""

_NONE = ReplyHeaders(b"", 0, {}, False, 0)

Arriving = Callable[[ReplyHeaders], ArrivingBody | None]
"""Where to receive a large body; None for the default."""


class ReplyState(enum.Enum):
    """Where a connection is."""

    IDLE = enum.auto()
    """No request is out."""
    HEADERS = enum.auto()
    """A request is out; part of the answer's header section may be here."""
    BODY = enum.auto()
    """The headers are read, the body is arriving."""
    SPOILED = enum.auto()
    """Input arrived that answers no request, or none can follow: the connection must close."""

    __hash__ = object.__hash__  # in C, unlike that of Enum


class ReplyEvent(enum.Enum):
    """What changes the state."""

    REQUEST = enum.auto()
    BODY_BEGINS = enum.auto()
    COMPLETE = enum.auto()
    LAST = enum.auto()
    """Complete, and the connection does not persist (RFC 9112, 9.3)."""
    FAULT = enum.auto()

    __hash__ = object.__hash__


IDLE, HEADERS, BODY, SPOILED = ReplyState
REQUEST, BODY_BEGINS, COMPLETE, LAST, FAULT = ReplyEvent

REPLY_TRANSITIONS: dict[ReplyState, dict[ReplyEvent, ReplyState]] = {
    IDLE: {REQUEST: HEADERS, FAULT: SPOILED},
    HEADERS: {BODY_BEGINS: BODY, COMPLETE: IDLE, LAST: SPOILED, FAULT: SPOILED},
    BODY: {COMPLETE: IDLE, LAST: SPOILED, FAULT: SPOILED},
    SPOILED: {FAULT: SPOILED},
}

_ENDS = REPLY_TRANSITIONS[HEADERS]


class ReplyReader:
    """``headers`` are those of the current answer, ``body`` its body once it is ``complete``. A ``streamed``
    body is taken in pieces instead, and so is a large one for which ``arriving`` returns where it is
    received."""

    __slots__ = (
        "_arriving",
        "_bodiless",
        "_body",
        "_changing",
        "_data",
        "_interim",
        "_known",
        "_probe",
        "_repeated",
        "_streamed",
        "_taken",
        "body",
        "complete",
        "headers",
        "pending",
        "state",
    )

    def __init__(self) -> None:
        self.state = IDLE
        self.headers = self._known = _NONE
        self.body: Buffer = b""
        self.complete = False
        self._body: SizedBody | ChunkedBody | UnchunkedBody | ArrivingBody | None = None
        self._arriving: Arriving | None = None
        self._data = bytearray()  # an incomplete header section
        self.pending = b""
        """The part of a body that has arrived for the next :meth:`receive`, which may bring no data."""
        self._probe: HeaderProbe | None = None
        self._repeated: RepeatedReply | None = None
        self._changing = CHANGING
        self._interim = self._taken = 0
        self._bodiless = self._streamed = False

    def begin(self, bodiless: bool = False, streamed: bool = False, arriving: Arriving | None = None) -> None:
        """A request goes out; ``bodiless``: its answer has no body, as to HEAD (RFC 9112, 6.3)."""
        self.state = REPLY_TRANSITIONS[self.state][REQUEST]
        self._arriving = arriving
        self.body, self._body, self.complete = b"", None, False
        self._bodiless, self._streamed, self._interim, self._taken = bodiless, streamed, 0, 0

    def read_whole(self, data: bytes) -> HttpReply | None:
        """The answer to the request that is out, if ``data`` is all of a small one whose headers are those of
        the one before, and another request may follow. Else nothing is read. The next step is :meth:`begin`:
        ``headers``, ``body`` and ``complete`` are not those of this answer."""
        if self.state is not HEADERS or self._data or self._streamed or len(data) > _WHOLE_BYTES:
            return None
        headers, repeated = self._known, self._repeated
        if repeated is not None:
            at, headers = repeated.read(data), repeated.reply
        else:
            at = len(headers.raw) if data.startswith(headers.raw) else 0
        if not at or at + headers.length != len(data) or self._bodiless or not headers.keep_alive:
            return None
        self.state = _ENDS[COMPLETE]
        return HttpReply(headers.status, headers.headers, data[at:])

    def receive(self, data: bytes) -> None:
        """Go on with ``data``. Raises ``HeadersError`` and ``BodyError``."""
        surplus = True
        if self.state is HEADERS:
            repeats = self._known.raw and not self._data  # servers repeat themselves
            surplus = self._read_repeated(data) if repeats else self._read_headers(data)
        elif self.state is BODY:
            if self.pending:
                data, self.pending = self.pending + data, b""
            surplus = self._feed(data, 0)
        if surplus:  # an answer to no request
            self.state = REPLY_TRANSITIONS[self.state][FAULT]

    def end(self) -> bool:
        """The server has closed its side. Returns whether that completes an answer."""
        ended = self.state is BODY and self.headers.length == UNTIL_CLOSE
        if ended:
            self._complete()
        self.state = REPLY_TRANSITIONS[self.state][FAULT]
        return ended

    @property
    def size(self) -> int:
        """The size of the body, as far as it is known."""
        return len(self.body) if self._body is None else self._body.least_size

    @property
    def missing(self) -> int:
        """How many bytes are still to come of a body that can be received in place, else 0."""
        return self._body.missing if self._body is not None else 0

    def body_buffer(self) -> memoryview:
        """Space for bytes that are missing."""
        assert isinstance(self._body, SizedBody | ArrivingBody), "its length is known"  # noqa: S101
        return self._body.buffer()

    def body_filled(self, count: int) -> None:
        """``count`` bytes have arrived in :meth:`body_buffer`."""
        assert isinstance(self._body, SizedBody | ArrivingBody), "its length is known"  # noqa: S101
        self._body.fill(count)
        if self._body.complete:
            self._complete()

    def take(self) -> bytes:
        """The bytes of a streamed body that have arrived since the last time."""
        body = self._body
        if body is None or not self._streamed:
            return b""
        assert not isinstance(body, SizedBody | ArrivingBody), "it is streamed"  # noqa: S101
        self._taken = body.size
        return body.take()

    @property
    def untaken(self) -> int:
        """How many bytes :meth:`take` would return."""
        return 0 if self._body is None else self._body.size - self._taken

    def _read_repeated(self, data: bytes) -> bool:
        """As :meth:`_read_headers`, of an answer whose headers may be those of the one before."""
        headers, repeated, at = self._known, self._repeated, 0
        if repeated is None:
            if data.startswith(headers.raw):
                at = len(headers.raw)
            else:
                self._repeated = repeated = RepeatedReply(headers, self._changing)
        if repeated is not None:
            at, headers = repeated.read(data), repeated.reply
        if not at:
            return self._read_headers(data)
        return self._begin_body(headers, data, at)

    def _read_headers(self, data: bytes | bytearray) -> bool:
        """Read the final answer's headers, and what is here of its body. Returns whether input is left
        over."""
        known, kept = self._known, len(self._data)
        if kept:
            self._data += data
            data = self._data
        at = 0
        while end := END.search(data, max(at, kept - len(b"\n\r"))):
            headers = parse_reply_headers(bytes(data[at : end.end()]))
            at = end.end()
            if headers.status >= 200 or headers.status == SWITCHING_PROTOCOLS:
                if len(headers.raw) <= _KNOWN_BYTES:
                    self._changing = changing(known, headers, self._changing)
                    self._known, self._repeated = headers, None
                self._data, self._probe = bytearray(), None
                return self._begin_body(headers, data, at)
            self._probe = None
            self._interim += 1
            if self._interim > _MAX_INTERIM:
                raise HeadersError(f"more than {_MAX_INTERIM} interim answers")
        if at or not kept:
            self._data = bytearray(data[at:])
        if self._data:
            if self._probe is None:
                self._probe = HeaderProbe(reply_parser(None), "answer")
            self._probe.check(self._data)
        return False

    def _begin_body(self, headers: ReplyHeaders, data: bytes | bytearray, at: int) -> bool:
        self.headers = headers
        length = 0 if self._bodiless else headers.length
        if not self._streamed and 0 <= length <= len(data) - at:
            self.body, self.complete = body_in(data, at, length), True
            self.state = REPLY_TRANSITIONS[self.state][COMPLETE if headers.keep_alive else LAST]
            return at + length < len(data)
        if length == CHUNKED:
            self._body = ChunkedBody()
        elif length == UNTIL_CLOSE or self._streamed:
            self._body = UnchunkedBody(None if length == UNTIL_CLOSE else length)
        else:
            arriving = self._arriving if length > STREAMED_BYTES else None
            self._body = (None if arriving is None else arriving(headers)) or SizedBody(length)
        self.state = REPLY_TRANSITIONS[self.state][BODY_BEGINS]
        return self._feed(data, at)

    def _feed(self, data: bytes | bytearray, at: int) -> bool:
        body = self._body
        assert body is not None, "in state BODY there is one"  # noqa: S101
        at = body.feed(data, at)
        if body.complete:
            self._complete()
            return at < len(data)
        if at < len(data):
            self.pending = bytes(data[at:])
        return False

    def _complete(self) -> None:
        body = self._body
        assert body is not None, "in state BODY there is one"  # noqa: S101
        if isinstance(body, ArrivingBody):
            self._body = None
        elif not self._streamed:
            self.body, self._body = body.whole(), None
        self.complete = True
        self.state = REPLY_TRANSITIONS[self.state][COMPLETE if self.headers.keep_alive else LAST]
