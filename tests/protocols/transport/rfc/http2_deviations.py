"""Where grpcio's server differs from the RFCs. A deviation that disappears fails its test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.protocols.transport.rfc import http2_flow, http2_frames, http2_hpack, http2_messages
from tests.protocols.transport.rfc.http2 import CLOSED, OPEN, Outcome, answered, reset, streams


@dataclass(frozen=True)
class Deviation:
    """What the library engine does instead, and why."""

    outcome: Outcome
    reason: str


CASES = {
    case.name: case
    for case in (*http2_frames.CASES, *http2_flow.CASES, *http2_hpack.CASES, *http2_messages.CASES)
}


def _named(*beginnings: str) -> tuple[str, ...]:
    """The cases whose names begin so."""
    return tuple(name for name in CASES if name.startswith(beginnings))


def _ends(state: str) -> Outcome:
    """The connection ends after an answer."""
    return Outcome(CLOSED, {1: state})


OK = answered(1)
NOTHING = Outcome(OPEN)

FOUND: Mapping[str, Sequence[tuple[Outcome, Sequence[str]]]] = {
    "grpcio closes a connection without GOAWAY (RFC 9113, 5.4.1: SHOULD)": (
        (
            Outcome(CLOSED),
            (
                *_named(
                    "PING first", "HEADERS first", "unknown frame first", "RST_STREAM of 3", "RST_STREAM of 5"
                ),
                *(name for name in CASES if name.endswith((" of 2^24-1 bytes", " inside a field block"))),
                *(
                    "padding that reaches into priority fields",
                    "priority fields cut off",
                    "SETTINGS on a stream",
                ),
                *(
                    "SETTINGS of 5 bytes",
                    "SETTINGS of 7 bytes",
                    "acknowledgement with a setting",
                    "PING of 7 bytes",
                ),
                *("PING of 9 bytes", "GOAWAY of 7 bytes", "increment of 0 on the connection"),
                *_named(
                    "WINDOW_UPDATE of 3", "WINDOW_UPDATE of 5", "CONTINUATION first", "CONTINUATION after"
                ),
                *("index 0", "index behind the static table", "index far behind the tables"),
                *(
                    "name behind the static table",
                    "never-indexed literals do not enter the table",
                    "evicted entry",
                ),
                *("entry larger than the table", "size update above the limit", "size update inside a block"),
                *_named(
                    "integer of ten",
                    "index of ten",
                    "size update of ten",
                    "integer cut off",
                    "length cut off",
                ),
                *_named(
                    "string longer", "name longer", "name without", "Huffman padding of z", "Huffman code cut"
                ),
            ),
        ),
    ),
    "grpcio ignores frames that belong to no stream it knows": (
        (
            NOTHING,
            (
                *_named(
                    "DATA on ", "HEADERS on ", "stream that was skipped", "stream that the client has reset"
                ),
                *_named("RST_STREAM on stream 0", "RST_STREAM of a stream of the server"),
                *_named(
                    "WINDOW_UPDATE of an idle",
                    "WINDOW_UPDATE of a stream",
                    "PRIORITY on",
                    "GOAWAY on",
                    "PING on",
                ),
            ),
        ),
        (OK, ("stream that is closed",)),
        (streams(s1="nothing", s3="ok", s5="ok"), ("HEADERS after RST_STREAM of an idle stream",)),
        (streams(s1="ok", s3="nothing", s5="ok"), ("HEADERS long after RST_STREAM of an idle stream",)),
        (streams(s1="nothing"), ("DATA after END_STREAM", "HEADERS after END_STREAM", "DATA after trailers")),
    ),
    "grpcio ignores PRIORITY, unread": ((NOTHING, ("PRIORITY of 4 bytes", "PRIORITY of 6 bytes")),),
    "grpcio ignores PUSH_PROMISE": ((NOTHING, ("PUSH_PROMISE",)),),
    "grpcio takes an acknowledgement for SETTINGS, and a second one for an error": (
        (NOTHING, ("acknowledgement first",)),
        (_ends("nothing"), ("acknowledgement without SETTINGS",)),
    ),
    "grpcio refuses undefined flags": (
        (reset("PROTOCOL_ERROR"), ("undefined flags of DATA",)),
        (_ends("nothing"), ("undefined flags of SETTINGS",)),
        (Outcome(CLOSED, {0: "1 settings, 0 pings"}), ("undefined flags of PING",)),
    ),
    "grpcio does not know padding": (
        (
            reset("PROTOCOL_ERROR"),
            (
                *("padding", "padding of 0 bytes", "padding alone", "padding of 255 bytes"),
                *(
                    "padding as long as the frame",
                    "padding longer than the frame",
                    "padded frame without a length",
                ),
                "content-length does not count padding",
            ),
        ),
        (_ends("status 13"), ("padding of HEADERS", "padding and priority fields")),
        (_ends("nothing"), ("padding before CONTINUATION",)),
        (NOTHING, ("padding of HEADERS as long as the frame", "padded HEADERS without a length")),
    ),
    "grpcio's windows have 64 bits": (
        (
            NOTHING,
            (
                *_named("window of the connection above"),
                "window of a stream above 2^31-1 by SETTINGS",
            ),
        ),
        (streams(s1="nothing"), ("window of a stream above 2^31-1",)),
    ),
    "grpcio refuses a window of the connection as an error of a stream": (
        (reset("PROTOCOL_ERROR"), ("an answer waits for the window of the connection",)),
    ),
    "grpcio ends the connection instead of the stream": (
        (_ends("status 14"), ("increment of 0 on a stream", "trailers without END_STREAM")),
    ),
    "grpcio's Huffman decoder checks the last bits alone": (
        (NOTHING, (*_named("Huffman padding of 8", "Huffman padding of 24", "Huffman code with EOS"),)),
    ),
    "grpcio takes a size update wherever it is": ((NOTHING, ("size update at the end",)),),
    "grpcio's limit of a header list ends the connection, or does not count references": (
        (_ends("nothing"), ("header list above the limit",)),
        (OK, ("header list above the limit by references",)),
    ),
    "grpcio waits for a message": (
        (
            streams(s1="nothing"),
            (
                "END_STREAM before CONTINUATION",
                "content-length without DATA",
                "content-length too long before trailers",
            ),
        ),
    ),
    "grpcio does not check fields": (
        (
            OK,
            (
                *(":method twice", ":scheme twice", ":path twice", "pseudo-header field after a field"),
                *(":status in a request", "content-type of another protocol", ":path in trailers"),
                *(":status in trailers", "line break in trailers", "blank first in trailers"),
                *_named("value b'", "connection-specific field", "DATA after an RST_STREAM"),
            ),
        ),
        (
            streams(s1="nothing", s3="ok"),
            ("trailers of a stream that the server has reset", "blocks of trailers count"),
        ),
        (streams(s1="status 12"), ("empty :path", "NUL in :path")),
    ),
    "grpcio does not read content-length": (
        (
            OK,
            (
                *("content-length too short", "content-length too long", "content-length of 2^64"),
                *("two different content-lengths", *_named("content-length '")),
            ),
        ),
    ),
    "grpcio answers fields it cannot read with INTERNAL, or resets with INTERNAL_ERROR": (
        (
            streams(s1="status 13"),
            (
                *(
                    ":authority twice",
                    "unknown pseudo-header field",
                    ":protocol without its setting",
                    ":METHOD",
                ),
                *("method CONNECT", "a field", ":other in trailers", "upper case in trailers", "te twice"),
                *_named("name b'", "te '", "blanks of binary metadata"),
            ),
        ),
        (
            reset("INTERNAL_ERROR"),
            (
                "empty field block",
                "no :authority",
                "no :method",
                "no :scheme",
                "no :path",
                "method GET",
                "no te",
            ),
        ),
        (streams(s1="reset INTERNAL_ERROR", s3="ok"), ("blocks of refused requests count",)),
    ),
}

DEVIATIONS: Mapping[str, Deviation] = {
    name: Deviation(outcome, reason)
    for reason, found in FOUND.items()
    for outcome, names in found
    for name in names
}
