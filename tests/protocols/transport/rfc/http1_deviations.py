"""Where aiohttp's server differs from the RFCs. A deviation that disappears fails its test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.protocols.transport.rfc import http1_bodies, http1_connections, http1_heads
from tests.protocols.transport.rfc.http1 import Outcome, refused, served, served_last


@dataclass(frozen=True)
class Deviation:
    """What the library engine does instead, and why."""

    outcome: Outcome
    reason: str


CASES = {case.name: case for case in (*http1_heads.CASES, *http1_bodies.CASES, *http1_connections.CASES)}

REFUSED_WITH_400: Mapping[str, Sequence[str]] = {
    "llhttp checks methods and versions, and aiohttp answers each of its errors with 400": (
        *(
            "method in lower case",
            "unknown method",
            "HTTP/1.2 is read as HTTP/1.1",
            "HTTP/1.9 is read as HTTP/1.1",
        ),
        *("HTTP/0.9", "HTTP/2.0", "HTTP/3.0", "HTTP/7.7", "preface of HTTP/2"),
    ),
    "aiohttp answers a line that is too long with 400": ("target of 70000 bytes", "target of 300000 bytes"),
    "aiohttp takes 128 headers": ("200 fields",),
    "aiohttp requires Host in HTTP/1.0 too": ("Host absent in HTTP/1.0",),
    "aiohttp refuses codings in two lines": ("unknown coding in another line",),
    "llhttp takes no blank before an extension": ("blanks around an extension",),
    "aiohttp checks trailers as headers": ("trailers that frame are ignored",),
    "aiohttp parses ahead: bytes behind a request that ends its connection are an error, as is a later request": (
        *("HTTP/1.0", "length in HTTP/1.0", "no length in HTTP/1.0", "chunked in HTTP/1.0", "close", "Close"),
        *("close among other options", "close in a second line", "close and keep-alive", "close with a body"),
        *("another option in HTTP/1.0", "upgrade of HTTP/1.0", "close in the first of two"),
        *("100-continue of HTTP/1.0", "early answer before chunks", "an error after a request"),
        "an error after a body",
    ),
}

NOT_PERSISTENT: Mapping[str, Sequence[str]] = {
    "aiohttp may take trailers for headers of the next request: bytes behind chunks end the connection": (
        *(
            "chunked",
            "chunked in upper case",
            "chunked with blanks around",
            "chunked GET",
            "no chunk",
            "two chunks",
        ),
        *(
            "size in lower case",
            "size in upper case",
            "size with zeros in front",
            "size with 30 zeros in front",
        ),
        *("last chunk of many zeros", "line ends in a chunk", "extension", "extension without a value"),
        *(
            "quoted extension",
            "two extensions",
            "extension of the last chunk",
            "chunks up to the limit",
            "trailer",
        ),
        *("two trailers", "trailers do not become headers", "trailer behind its announcement"),
        "chunked 100-continue",
    ),
    "aiohttp stops to parse behind a request to upgrade": ("upgrade to h2c", "upgrade with a body"),
}

OTHERS: Mapping[str, Mapping[str, Outcome]] = {
    "aiohttp does not check Host": {
        name: served(f"GET / {name.replace('Host ', 'host=').replace(chr(39), '')}")
        for name, case in CASES.items()
        if name.startswith("Host '") and case in http1_heads.HOST and case.outcome == refused()
    }
    | {"Host 'é'": served("GET / host=?")},
    "aiohttp does not check the host of a target": {"absolute form with a user": served("GET /")},
    "aiohttp keeps Host": {"absolute form replaces Host": served("GET /a")},
    "aiohttp's target is a URL": {
        "method CONNECT": served("CONNECT"),
        "absolute form without a path": served("GET"),
        "absolute form, query alone": served("GET ?b"),
    },
    "llhttp takes several spaces": {
        "two spaces before the target": served("GET /"),
        "two spaces before the version": served("GET /"),
    },
    "llhttp takes a fragment": {"fragment": served("GET /a#b")},
    "llhttp skips LF": {"bare LF first": served("GET /")},
    "aiohttp limits a header, not their sum": {"header section of 300000 bytes": served("GET /")},
    "a mapping of aiohttp returns the first value": {"repeated field": served("GET / x-case=b")},
    "aiohttp reads chunks whatever precedes them": {
        "unknown coding before chunked": served_last("POST /"),
        "transfer coding ',chunked'": served_last("POST /"),
    },
    "aiohttp limits an extension by the length of a header": {
        f"size line {b'3;' + b'a' * 5000!r}": served_last("POST / abc")
    },
    "aiohttp counts the bytes of chunks as they arrive, and its parser skips one that overflows": {
        f"size line {b'f' * 16!r}": Outcome(()),
        "size above the limit, without the data": Outcome(()),
        "size of 2^60 - 1": Outcome(()),
        "sizes above the limit together": Outcome(()),
    },
    "aiohttp reads keep-alive first": {"close and keep-alive in HTTP/1.0": served("GET /")},
    "aiohttp may take trailers for headers: chunks end the pipeline": {
        "all framings": served_last("POST / abc", "POST / def")
    },
}

DEVIATIONS: Mapping[str, Deviation] = {
    **{name: Deviation(refused(400), reason) for reason, names in REFUSED_WITH_400.items() for name in names},
    **{
        name: Deviation(replace(CASES[name].outcome, persists=False), reason)
        for reason, names in NOT_PERSISTENT.items()
        for name in names
    },
    **{
        name: Deviation(outcome, reason)
        for reason, found in OTHERS.items()
        for name, outcome in found.items()
    },
}
