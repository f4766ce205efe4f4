"""Parses the request line and headers of an HTTP/1 request, on llhttp by way of httptools. ``reply_headers``
does the same for answers.

llhttp runs without its leniencies, except for versions, which are checked here, and one on demand: lines end
with CR LF (RFC 9112, 2.2), none is folded (5.2), Content-Length is a single number (6.3). Further rules are
checked here. No I/O, no body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import httptools

MAX_FIELD_BYTES = 1 << 16
"""The longest request target and header: the v1 protocol puts whole requests into one header."""

MAX_HEADERS_BYTES = 1 << 18
"""The longest header section."""

MAX_FIELDS = 256
"""The most headers: each costs more than its few bytes."""

_MOST_KEPT = 64
_KEPT_BYTES = 1 << 12
"""How many header sections a listener keeps, and how long ones."""

END = b"\r\n\r\n"
"""The end of a header section."""

Parser = httptools.HttpRequestParser | httptools.HttpResponseParser

NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""A token (RFC 9110, 5.6.2), such as a method or the name of a field, as a pattern."""

_REQUEST_LINE = re.compile(rf"{NAME} [^\x00-\x20#\x7f]+ HTTP/([0-9])\.([0-9])\r\n".encode())
"""RFC 9112, 3: single spaces, no fragment; llhttp accepts both, and protocols other than HTTP."""

_METHOD = re.compile(rf"{NAME}(?: |\Z)".encode())
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?]*)")
_IP_LITERAL = r"\[(?:[0-9A-Fa-f:.]+(?:%25[0-9A-Za-z._~-]+)?|[vV][0-9A-Fa-f]+\.[0-9A-Za-z._~!$&'()*+,;=:-]+)\]"
_HOST = re.compile(rf"(?:{_IP_LITERAL}|(?:[0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{{2}})*)(?::[0-9]*)?")
"""``uri-host [ ":" port ]`` (RFC 9110, 7.2; RFC 3986, 3.2.2), with the zones of RFC 6874."""

_VALUE = re.compile(rb"[\x20-\x7e]{0,1024}")
"""The value of a header, by far most of them."""
_LENGTH = re.compile(r"[0-9]{1,15}")

_FRAMING = frozenset({"host", "transfer-encoding", "connection", "expect", "upgrade"})
"""What a message begins and ends with depends on these, besides Content-Length."""

VERSIONS = {"1.0": 0, "1.1": 1}


class HeadersError(ValueError):
    """The input is not the header section of a message; the text is for the peer, ``status`` for a client."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class HeaderLines(NamedTuple):
    """The ``lines`` of a header section; ``values`` has what precedes the value, and the name in lower case,
    of those that say nothing about the message or the connection, and None for the others."""

    lines: list[bytes]
    values: list[tuple[bytes, str] | None]


# not frozen: that costs a microsecond
@dataclass(slots=True)
class RequestHeaders:
    """A request up to its body. It depends on its bytes ``raw`` alone, so equal bytes need no parsing.

    ``minor`` is the minor version of HTTP/1. ``headers`` have names in lower case; lines with the same name
    are joined by commas (RFC 9110, 5.3). ``length`` is that of the body, -1 for a chunked one. Plans know it
    by its ``plan_key``; :func:`parse_alike` keeps its lines in ``form``.
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
    plan_key: Any = None
    form: HeaderLines | None = None


class HeaderProbe:
    """Checks a header section that is not complete, so that malformed input is refused at once."""

    def __init__(self, parser: Parser, message: str = "request") -> None:
        self._parser = parser
        self._message = message
        self.seen = 0

    def check(self, data: bytes | bytearray) -> None:
        """Go on with ``data``, everything that has arrived so far. Raises ``HeadersError``."""
        if len(data) > MAX_FIELD_BYTES and data.find(b"\n") < 0:
            raise _target_too_long()
        if len(data) > MAX_HEADERS_BYTES:
            raise _section_too_long(self._message)
        feed(self._parser, bytes(data[self.seen :]), data)
        self.seen = len(data)


class HeaderFields(dict[str, str]):
    """Headers by name in lower case. ``as_sent``: by that, the names that the client wrote differently."""

    __slots__ = ("as_sent",)

    as_sent: dict[str, str]


class FieldCollector:
    """llhttp's callbacks for the headers of a ``message``, and what they have collected. ``single``: the
    headers that may not be repeated."""

    message = "answer"
    single = ""

    def __init__(self) -> None:
        self.headers = HeaderFields()
        self.headers.as_sent = {}
        self.complete = False
        self._count = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Raises ``HeadersError`` if it is too long, or one too many."""
        if len(name) + len(value) > MAX_FIELD_BYTES:
            shown = name[:80].decode()
            raise HeadersError(f"the header '{shown}' has more than {MAX_FIELD_BYTES} bytes")
        self._count += 1
        if self._count > MAX_FIELDS:
            raise HeadersError(f"the {self.message} has more than {MAX_FIELDS} headers")
        written = name.decode()
        key = written.lower()
        if key != written:
            self.headers.as_sent[key] = written
        text = value.decode("utf-8", "surrogateescape").strip(" \t")
        earlier = self.headers.get(key)
        if earlier is None:
            self.headers[key] = text
        elif key == self.single:
            raise HeadersError(f"Duplicate '{key.title()}' header in {self.message}.")
        else:
            self.headers[key] = f"{earlier}, {text}"

    def on_headers_complete(self) -> None:
        """The header section has ended."""
        self.complete = True


class _Request(FieldCollector):
    message = "request"
    single = "host"  # RFC 9112, 3.2

    def __init__(self) -> None:
        super().__init__()
        self.target = b""

    def on_url(self, target: bytes) -> None:
        self.target += target


def parse_headers(raw: bytes, accept_te_with_length: bool = False) -> RequestHeaders:
    """Parse ``raw``, exactly one header section. With ``accept_te_with_length`` it may have both
    Transfer-Encoding and Content-Length: the former counts, and the connection ends with the request (RFC
    9112, 6.1 and 6.3). Raises ``HeadersError``."""
    if len(raw) > MAX_HEADERS_BYTES:
        raise _section_too_long("request")
    fields = _Request()
    parser = request_parser(fields, accept_te_with_length)
    feed(parser, raw)
    minor = _minor_version(raw)
    if not fields.complete:
        raise HeadersError("the header section is not complete")
    if len(fields.target) > MAX_FIELD_BYTES:
        raise _target_too_long()
    headers, method = fields.headers, parser.get_method().decode()
    _check_host(headers, minor)
    path, _, query = _origin(fields.target.decode("utf-8", "surrogateescape"), method, headers).partition("?")
    coding = headers.get("transfer-encoding")
    if coding is not None:
        _check_coding(coding.lower())
    both = coding is not None and "content-length" in headers
    if both and not minor:
        raise HeadersError("a request of HTTP/1.0 has a Transfer-Encoding and a Content-Length")
    return RequestHeaders(
        raw,
        method,
        path,
        query,
        minor,
        headers,
        # HTTP/1.0 has no chunked coding: a body that uses it may be framed wrongly (RFC 9112, 6.1)
        keeps_alive(headers.get("connection", ""), minor) and (coding is None or minor > 0) and not both,
        int(headers.get("content-length", 0)) if coding is None else -1,
        minor > 0 and headers.get("expect", "").lower() == "100-continue",
    )


def parse_alike(raw: bytes, before: RequestHeaders) -> RequestHeaders | None:
    """As :func:`parse_headers`, of a section that differs from the one ``before`` in values alone: trace ids
    and lengths, with every request. None for any other."""
    lines, form, fields = raw.split(b"\r\n"), before.form or _form(before), before.headers
    if len(lines) != len(form.lines) or not isinstance(fields, HeaderFields):
        return None
    headers, length = HeaderFields(fields), before.length
    headers.as_sent = fields.as_sent
    for line, usual, value in zip(lines, form.lines, form.values, strict=True):
        if line != usual:
            if value is None:
                return None
            start, name = value
            if not line.startswith(start) or _VALUE.fullmatch(line, len(start)) is None:
                return None
            text = headers[name] = line[len(start) :].decode("ascii").strip(" ")
            if name == "content-length":
                if _LENGTH.fullmatch(text) is None:
                    return None
                length = int(text)
    found = RequestHeaders(
        raw,
        before.method,
        before.path,
        before.query,
        before.minor,
        headers,
        before.keep_alive,
        length,
        before.expects_continue,
    )
    found.form = HeaderLines(lines, form.values)
    return found


def _form(headers: RequestHeaders) -> HeaderLines:
    lines, values = headers.raw.split(b"\r\n"), list[tuple[bytes, str] | None]()
    names = [line.partition(b":")[0].decode("latin-1").lower() for line in lines]
    fixed = _FRAMING if headers.length >= 0 else {*_FRAMING, "content-length"}
    for line, name in zip(lines, names, strict=True):
        plain = name in headers.headers and name not in fixed and names.count(name) == 1
        values.append((line[: len(name) + 1], name) if plain and values else None)
    headers.form = found = HeaderLines(lines, values)
    return found


def request_parser(protocol: object, accept_te_with_length: bool = False) -> httptools.HttpRequestParser:
    """A parser of requests; see :func:`parse_headers`."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_version=True, lenient_chunked_length=accept_te_with_length)
    return parser


def feed(parser: Parser, data: bytes, section: bytes | bytearray | memoryview = b"") -> None:
    """Parse ``data``, the next piece of ``section``, if that is stated. Raises ``HeadersError``."""
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # continuing with HTTP/1.1 declines the upgrade (RFC 9110, 7.8)
    except httptools.HttpParserError as error:
        if isinstance(error.__context__, HeadersError):
            raise error.__context__ from None
        # RFC 9110, 9.1, for an unknown method; it is a token, unlike the first bytes of other protocols
        unknown = isinstance(error, httptools.HttpParserInvalidMethodError) and _METHOD.match(section or data)
        raise HeadersError(f"not HTTP: {error}", 501 if unknown else 400) from error


def keeps_alive(connection: str, minor: int) -> bool:
    """Whether the connection persists (RFC 9112, 9.3)."""
    if not connection:
        return minor > 0
    options = [option.strip() for option in connection.lower().split(",")]
    return "close" not in options and (minor > 0 or "keep-alive" in options)


def _target_too_long() -> HeadersError:
    """RFC 9112, 3."""
    return HeadersError(f"the request target has more than {MAX_FIELD_BYTES} bytes", 414)


def _section_too_long(message: str) -> HeadersError:
    return HeadersError(f"the head of the {message} has more than {MAX_HEADERS_BYTES} bytes")


def _minor_version(raw: bytes) -> int:
    """The minor version of the request, 1 for later ones (RFC 9110, 2.5). Raises ``HeadersError``."""
    line = _REQUEST_LINE.match(raw)
    if line is None:
        raise HeadersError("the request line is not one of HTTP/1.0 or HTTP/1.1")
    if line[1] != b"1":  # RFC 9110, 15.6.6
        raise HeadersError("the request is not of HTTP/1.0 or HTTP/1.1", 505)
    return 0 if line[2] == b"0" else 1


def _check_host(headers: Mapping[str, str], minor: int) -> None:
    """RFC 9112, 3.2."""
    host = headers.get("host")
    if host is None:
        if minor:
            raise HeadersError("Missing 'Host' header in request.")
    elif not is_host(host):
        raise HeadersError("Invalid 'Host' header in request.")


def is_host(text: str) -> bool:
    """Whether a Host header may have this value (RFC 9110, 7.2)."""
    return _HOST.fullmatch(text) is not None


def _check_coding(coding: str) -> None:
    """RFC 9112, 6.1 and 6.3: a request that does not end with ``chunked`` has no known end."""
    if coding == "chunked":
        return
    *others, last = (each.strip(" \t") for each in coding.split(","))
    unknown = last == "chunked" and "chunked" not in others and all(others)
    raise HeadersError("the only transfer coding here is 'chunked'", 501 if unknown else 400)


def _origin(target: str, method: str, headers: dict[str, str]) -> str:
    """The path and query of a target (RFC 9112, 3.2). In absolute form it replaces the Host header (3.2.2); a
    target in asterisk or authority form is returned as it is. Raises ``HeadersError``."""
    if target[:1] == "/":
        return target
    absolute = _ABSOLUTE.match(target)
    if absolute is not None:
        authority = absolute[1]
        if authority[:1] in ("", ":") or not _HOST.fullmatch(authority):  # RFC 9110, 4.2.1 and 4.2.4
            raise HeadersError("the request target has an invalid host")
        headers["host"] = authority
        rest = target[absolute.end() :]
        return rest if rest[:1] == "/" else f"/{rest}"
    if method != ("OPTIONS" if target == "*" else "CONNECT"):  # RFC 9112, 3.2.3 and 3.2.4
        raise HeadersError(f"a {method} request has no target of this form")
    return target


class KnownHeads:
    """The first header sections of a listener's connections, parsed: a client may open a connection for each
    request. The oldest one leaves."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, RequestHeaders] = {}

    def find(self, raw: bytes) -> RequestHeaders | None:
        """What was parsed of ``raw``, if that is known."""
        return self._known.get(raw)

    def add(self, headers: RequestHeaders) -> None:
        """Keep ``headers``, unless they are long."""
        if len(headers.raw) <= _KEPT_BYTES:
            if len(self._known) >= _MOST_KEPT:
                del self._known[next(iter(self._known))]
            self._known[headers.raw] = headers
