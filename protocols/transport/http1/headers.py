"""Reads the head of an HTTP/1 request: bytes to a ``Head``, on llhttp by way of httptools.

llhttp decides what a head is, without its leniencies (but one on demand): lines end with CR LF, none is
folded, a Content-Length is one number that stands alone. What RFC 9112 wants beside that is checked here. No
I/O, no body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import httptools

MAX_FIELD_BYTES = 1 << 16
"""Longest request target and longest header: the v1 protocol carries whole requests in one header."""

MAX_HEAD_BYTES = 1 << 18
"""Longest head: how much of one is kept that does not end."""

MAX_FIELDS = 256
"""Most headers: every one costs more than the few bytes that it may have."""

END = b"\r\n\r\n"
"""How a head ends."""

_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")
_VERSIONS = {"1.0": 0, "1.1": 1}


class HeadError(ValueError):
    """Why something is not the head of a request, in words for whoever sent it."""


@dataclass(frozen=True, slots=True)
class Head:
    """A request up to its body. It depends on nothing but ``raw``, its bytes, so that one may stand for all
    that are sent alike.

    ``minor`` is the version of HTTP/1, ``headers`` have names in lower case, those of one name joined by
    commas. ``length`` is that of the body, -1 where it comes in chunks.
    """

    raw: bytes
    method: str
    path: str
    query: str
    minor: int
    headers: Mapping[str, str]
    keep_alive: bool
    length: int
    expects_continue: bool


class HeadScout:
    """Looks at a head that has not arrived whole, so that what can be none is refused at once."""

    def __init__(self, accept_te_with_length: bool = False) -> None:
        self._parser = _parser(self, accept_te_with_length)
        self.seen = 0

    def look(self, data: bytes | bytearray) -> None:
        """Go on with ``data``, all that has arrived so far. Raises ``HeadError``."""
        if len(data) > MAX_HEAD_BYTES:
            raise HeadError(f"the head of the request has more than {MAX_HEAD_BYTES} bytes")
        _feed(self._parser, bytes(data[self.seen :]))
        self.seen = len(data)


class Fields(dict[str, str]):
    """Headers by name in lower case. ``as_sent`` has the names that the client wrote otherwise, by those."""

    __slots__ = ("as_sent",)

    def __init__(self) -> None:
        super().__init__()
        self.as_sent: dict[str, str] = {}


class _Found:
    """What llhttp finds, as it finds it."""

    def __init__(self) -> None:
        self.target = b""
        self.headers = Fields()
        self.complete = False
        self._count = 0

    def on_url(self, target: bytes) -> None:
        self.target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) + len(value) > MAX_FIELD_BYTES:
            shown = name[:80].decode()
            raise HeadError(f"the header '{shown}' has more than {MAX_FIELD_BYTES} bytes")
        self._count += 1
        if self._count > MAX_FIELDS:
            raise HeadError(f"the request has more than {MAX_FIELDS} headers")
        written = name.decode()
        key = written.lower()
        if key != written:
            self.headers.as_sent[key] = written
        text = value.decode("utf-8", "surrogateescape").strip(" \t")
        told = self.headers.get(key)
        if told is None:
            self.headers[key] = text
        elif key == "host":
            raise HeadError("Duplicate 'Host' header in request.")
        else:
            self.headers[key] = f"{told}, {text}"

    def on_headers_complete(self) -> None:
        self.complete = True


def parse_head(raw: bytes, accept_te_with_length: bool = False) -> Head:
    """The head in ``raw``, which ends where the head does. With ``accept_te_with_length`` it may have a
    Transfer-Encoding and a Content-Length: the first counts, and the connection ends with the request
    (RFC 9112, 6.3). Raises ``HeadError``."""
    fields = _Found()
    parser = _parser(fields, accept_te_with_length)
    _feed(parser, raw)
    minor = _VERSIONS.get(parser.get_http_version())
    if minor is None or not fields.complete:
        raise HeadError("the request is not of HTTP/1.0 or HTTP/1.1")
    headers = fields.headers
    if minor and "host" not in headers:
        raise HeadError("Missing 'Host' header in request.")
    if len(fields.target) > MAX_FIELD_BYTES:
        raise HeadError(f"the request target has more than {MAX_FIELD_BYTES} bytes")
    path, _, query = _origin(fields.target.decode("utf-8", "surrogateescape")).partition("?")
    coding = headers.get("transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        raise HeadError("the only transfer coding here is 'chunked'")
    both = coding is not None and "content-length" in headers
    if both and not minor:
        raise HeadError("a request of HTTP/1.0 has a Transfer-Encoding and a Content-Length")
    return Head(
        raw,
        parser.get_method().decode(),
        path,
        query,
        minor,
        headers,
        # HTTP/1.0 knows no chunks: who sends them is not to be trusted about where the request ends
        _keeps_alive(headers.get("connection", ""), minor) and (coding is None or minor > 0) and not both,
        int(headers.get("content-length", 0)) if coding is None else -1,
        minor > 0 and headers.get("expect", "").lower() == "100-continue",
    )


def _parser(protocol: object, accept_te_with_length: bool) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(protocol)
    if accept_te_with_length:
        parser.set_dangerous_leniencies(lenient_chunked_length=True)
    return parser


def _feed(parser: httptools.HttpRequestParser, data: bytes) -> None:
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # to go on with HTTP/1.1 is to decline the offer
    except httptools.HttpParserError as error:
        if isinstance(error.__context__, HeadError):
            raise error.__context__ from None
        raise HeadError(f"not HTTP: {error}") from error


def _keeps_alive(connection: str, minor: int) -> bool:
    """Whether the client wants the connection to go on."""
    if not connection:
        return minor > 0
    wishes = [wish.strip() for wish in connection.lower().split(",")]
    return "close" not in wishes and (minor > 0 or "keep-alive" in wishes)


def _origin(target: str) -> str:
    """The path and the query of a target in absolute form, as sent to a proxy; others as they are."""
    if target[:1] == "/":
        return target
    authority = _AUTHORITY.match(target)
    if authority is None:
        return target
    rest = target[authority.end() :]
    return rest if rest[:1] == "/" else f"/{rest}"
