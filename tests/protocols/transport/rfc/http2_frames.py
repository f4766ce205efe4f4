"""The preface, frames and stream states (RFC 9113, 3 to 6)."""

from __future__ import annotations

import struct

from tests.protocols.transport.h2.peer import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PRIORITY_FIELDS,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    START,
    block,
    fields,
    frame,
    message,
    settings,
    window_update,
)
from tests.protocols.transport.rfc.http2 import (
    CLOSED,
    WAIT,
    Case,
    Outcome,
    answered,
    call,
    data,
    goaway,
    opened,
    request,
    reset,
    streams,
)

OK = answered(1)
PROTOCOL, SIZE, FLOW = goaway("PROTOCOL_ERROR"), goaway("FRAME_SIZE_ERROR"), goaway("FLOW_CONTROL_ERROR")
PREFACE = START[:24]
BLOCK = block(fields())
PING_FRAME = frame(PING, 0, 0, b"12345678")
UNKNOWN = 0x0B
LARGEST_ID = 2**31 - 1
TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, WINDOW, FRAME_SIZE, LIST_SIZE = range(1, 7)
WAITING = opened(1, WAIT) + data(flags=0)
"""A call whose request is not complete, and whose answer does not come."""
WAITING_ENDED = opened(1, WAIT) + data()


def rst(stream: int, code: int = 8) -> bytes:
    """An RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, struct.pack(">L", code))


def away(last: int = 0, code: int = 0, text: bytes = b"", stream: int = 0) -> bytes:
    """A GOAWAY frame."""
    return frame(GOAWAY, 0, stream, struct.pack(">LL", last, code) + text)


def length(size: int, kind: int, flags: int = 0, stream: int = 0) -> bytes:
    """The header of a frame of ``size`` bytes, which do not follow."""
    return size.to_bytes(3, "big") + frame(kind, flags, stream)[3:]


BEGINNING = [
    Case("preface and SETTINGS", "3.4", call(), OK),
    Case(
        "preface cut off", "3.4", b"", Outcome(CLOSED), preface=b"PRI * HTTP/2.0\r\n\r\nSM\r\r\n" + b"\0" * 9
    ),
    Case("preface in lower case", "3.4", b"", Outcome(CLOSED), preface=START.lower()),
    Case("request of HTTP/1", "3.4", b"", Outcome(CLOSED), preface=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    Case("PING first", "3.4", PING_FRAME, PROTOCOL, preface=PREFACE),
    Case("HEADERS first", "3.4", call(), PROTOCOL, preface=PREFACE),
    Case("unknown frame first", "3.4", frame(UNKNOWN, 0, 0) + call(), PROTOCOL, preface=PREFACE),
    Case("acknowledgement first", "3.4", frame(SETTINGS, ACK, 0) + call(), PROTOCOL, preface=PREFACE),
    Case("SETTINGS are acknowledged", "6.5.3", b"", streams(s0="1 settings, 0 pings")),
]

FORMAT = [
    Case("unknown frame", "5.5", frame(UNKNOWN, 0, 0, b"abc") + call(), OK),
    Case("unknown frame with flags on an idle stream", "5.5", frame(0xFF, 0xFF, 7, b"abc") + call(), OK),
    Case("unknown frame inside a request", "5.5", opened() + frame(UNKNOWN, 0, 1, b"abc") + data(), OK),
    Case("unknown frame of 16384 bytes", "4.2", frame(UNKNOWN, 0, 0, bytes(16_384)) + call(), OK),
    Case("reserved bit of the stream", "4.1", opened(1 | 1 << 31) + data(stream=1 | 1 << 31), OK),
    Case("undefined flags of HEADERS", "4.1", opened(flags=END_HEADERS | 0xD2) + data(), OK),
    Case("undefined flags of DATA", "4.1", opened() + data(flags=END_STREAM | 0xF6), OK),
    Case("undefined flags of SETTINGS", "4.1", frame(SETTINGS, 0xFE, 0) + call(), OK),
    Case("undefined flags of PING", "4.1", frame(PING, 0xFE, 0, bytes(8)), streams(s0="1 settings, 1 pings")),
    *(
        Case(f"{name} of 2^24-1 bytes", "4.2", before + length(2**24 - 1, kind, 0, stream) + bytes(100), SIZE)
        for name, kind, stream, before in (
            ("DATA", DATA, 1, opened()),
            ("HEADERS", HEADERS, 1, b""),
            ("SETTINGS", SETTINGS, 0, b""),
            ("unknown frame", UNKNOWN, 0, b""),
        )
    ),
]

DATA_FRAMES = [
    Case("DATA on stream 0", "6.1", frame(DATA, 0, 0, b"x"), PROTOCOL),
    Case("DATA on an idle stream", "5.1", data(), PROTOCOL),
    Case("DATA on a later idle stream", "5.1", call() + data(stream=3), PROTOCOL),
    Case("DATA on a stream of the server", "5.1", call(3) + data(stream=2), PROTOCOL),
    Case(
        "message in two frames",
        "6.1",
        opened() + frame(DATA, 0, 1, message(b"x")[:3]) + frame(DATA, 1, 1, message(b"x")[3:]),
        OK,
    ),
    Case(
        "empty frames",
        "6.1",
        opened() + frame(DATA, 0, 1) * 3 + data(flags=0) + frame(DATA, END_STREAM, 1),
        OK,
    ),
    Case(
        "padding", "6.1", opened() + frame(DATA, PADDED | END_STREAM, 1, b"\5" + message(b"x") + bytes(5)), OK
    ),
    Case(
        "padding of 0 bytes", "6.1", opened() + frame(DATA, PADDED | END_STREAM, 1, b"\0" + message(b"x")), OK
    ),
    Case("padding alone", "6.1", opened() + frame(DATA, PADDED, 1, b"\5" + bytes(5)) + data(), OK),
    Case(
        "padding of 255 bytes",
        "6.1",
        opened() + frame(DATA, PADDED | 1, 1, b"\xff" + message(b"x") + bytes(255)),
        OK,
    ),
    Case(
        "padding as long as the frame", "6.1", opened() + frame(DATA, PADDED, 1, b"\5" + bytes(4)), PROTOCOL
    ),
    Case(
        "padding longer than the frame",
        "6.1",
        opened() + frame(DATA, PADDED, 1, b"\xff" + bytes(4)),
        PROTOCOL,
    ),
    Case("padded frame without a length", "4.2", opened() + frame(DATA, PADDED, 1), SIZE),
    Case("DATA after END_STREAM", "5.1", WAITING_ENDED + data(), reset("STREAM_CLOSED")),
    Case(
        "DATA after an RST_STREAM of the server",
        "5.1",
        request(1, fields("/test.Echo/Call", ("connection", "x")), content=None) + data(flags=0) * 3,
        reset("PROTOCOL_ERROR"),
    ),
]

HEADERS_FRAMES = [
    Case("HEADERS on stream 0", "6.2", request(0, BLOCK), PROTOCOL),
    Case("HEADERS on an even stream", "5.1.1", request(2, BLOCK), PROTOCOL),
    Case("streams in order", "5.1.1", call(1) + call(3) + call(5), answered(1, 3, 5)),
    Case("streams are skipped", "5.1.1", call(1) + call(9), answered(1, 9)),
    Case("the last stream", "5.1.1", call(LARGEST_ID), answered(LARGEST_ID)),
    Case("stream that was skipped", "5.1.1", call(5) + call(3), PROTOCOL),
    Case("stream that was skipped, its first call open", "5.1.1", opened(5) + call(3), PROTOCOL),
    Case("stream that is closed", "5.1", call(), PROTOCOL, first={1: "ok"}, later=call()),
    Case("stream that the client has reset", "5.1", opened() + rst(1) + call(), PROTOCOL),
    Case(
        "HEADERS after END_STREAM",
        "5.1",
        WAITING_ENDED + opened(flags=END_HEADERS | END_STREAM),
        reset("STREAM_CLOSED"),
    ),
    Case(
        "trailers of a stream that the server has reset",
        "5.1",
        request(1, fields("/test.Echo/Call", ("connection", "x")), content=None)
        + request(1, block([("a", "b")]), 5, None)
        + call(3),
        streams(s1="reset PROTOCOL_ERROR", s3="ok"),
    ),
    Case(
        "trailers of a call that is answered early",
        "8.1",
        opened(1, "/test.Echo/None") + request(1, block([("a", "b")]), 5, None) + call(3),
        streams(s1="status 12", s3="ok"),
    ),
    Case(
        "padding of HEADERS",
        "6.2",
        frame(HEADERS, PADDED | END_HEADERS, 1, b"\5" + BLOCK + bytes(5)) + data(),
        OK,
    ),
    Case("priority fields", "6.2", frame(HEADERS, PRIORITY_FIELDS | 4, 1, bytes(5) + BLOCK) + data(), OK),
    Case("priority fields on itself", "5.3.2", frame(HEADERS, 0x24, 1, b"\0\0\0\1\0" + BLOCK) + data(), OK),
    Case(
        "padding and priority fields",
        "6.2",
        frame(HEADERS, PADDED | PRIORITY_FIELDS | 4, 1, b"\5" + bytes(5) + BLOCK + bytes(5)) + data(),
        OK,
    ),
    Case(
        "padding of HEADERS as long as the frame",
        "6.2",
        frame(HEADERS, PADDED | 4, 1, b"\5" + bytes(4)),
        PROTOCOL,
    ),
    Case(
        "padding that reaches into priority fields",
        "6.2",
        frame(HEADERS, 0x2C, 1, b"\5" + bytes(9)),
        PROTOCOL,
    ),
    Case("padded HEADERS without a length", "4.2", frame(HEADERS, PADDED | 4, 1), SIZE),
    Case("priority fields cut off", "4.2", frame(HEADERS, PRIORITY_FIELDS | 4, 1, bytes(4)), SIZE),
]

LATE = rst(3) + window_update(3, 1) + frame(PRIORITY, 0, 3, bytes(5)) + data(stream=3)
REFUSED = streams(s1="ok", s3="reset STREAM_CLOSED", s5="ok")

PRIORITIES = [
    Case("PRIORITY of an idle stream", "6.3", frame(PRIORITY, 0, 1, bytes(5)) + call(), OK),
    Case("PRIORITY inside a request", "6.3", opened() + frame(PRIORITY, 0, 1, bytes(5)) + data(), OK),
    Case("PRIORITY of a closed stream", "6.3", call(3) + frame(PRIORITY, 0, 1, bytes(5)), answered(3)),
    Case("PRIORITY on stream 0", "6.3", frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
    Case("PRIORITY of 4 bytes", "6.3", frame(PRIORITY, 0, 1, bytes(4)), SIZE),
    Case("PRIORITY of 6 bytes", "6.3", frame(PRIORITY, 0, 1, bytes(6)), SIZE),
]

RESETS = [
    Case("RST_STREAM cancels a call", "6.4", WAITING + rst(1) + call(3), answered(3)),
    Case("RST_STREAM with an unknown code", "7", WAITING + rst(1, 99) + call(3), answered(3)),
    Case("RST_STREAM of a closed stream", "5.1", call(), OK, first={1: "ok"}, later=rst(1)),
    Case("RST_STREAM twice", "5.1", WAITING + rst(1) * 2 + call(3), answered(3)),
    Case("RST_STREAM on stream 0", "6.4", rst(0), PROTOCOL),
    # the RFC ends the connection, but clients of gRPC cancel calls that they have not sent, and send earlier ones later
    Case("RST_STREAM of an idle stream", "6.4", rst(1) + call(3), answered(3)),
    Case("RST_STREAM of idle streams", "6.4", rst(5) + rst(3) * 2 + call(1) + call(7), answered(1, 7)),
    Case(
        "after RST_STREAM of an idle stream", "5.1", rst(3) + LATE + call(1) + LATE + call(5), answered(1, 5)
    ),
    Case("HEADERS after RST_STREAM of an idle stream", "5.1", rst(3) + call(3) + call(1) + call(5), REFUSED),
    Case(
        "HEADERS long after RST_STREAM of an idle stream",
        "5.1",
        rst(3) + call(1) + call(5) + call(3),
        REFUSED,
    ),
    Case("RST_STREAM of a stream of the server", "6.4", call(3) + rst(2), PROTOCOL),
    Case("RST_STREAM of 3 bytes", "6.4", opened() + frame(RST_STREAM, 0, 1, bytes(3)), SIZE),
    Case("RST_STREAM of 5 bytes", "6.4", opened() + frame(RST_STREAM, 0, 1, bytes(5)), SIZE),
]

SETTINGS_FRAMES = [
    *(
        Case(f"setting {setting} of {value}", "6.5.2", settings((setting, value)) + call(), OK)
        for setting, value in (
            *((TABLE_SIZE, 0), (TABLE_SIZE, 2**32 - 1), (ENABLE_PUSH, 0), (ENABLE_PUSH, 1), (MAX_STREAMS, 0)),
            *(
                (WINDOW, 2**31 - 1),
                (FRAME_SIZE, 16_384),
                (FRAME_SIZE, 2**24 - 1),
                (LIST_SIZE, 2**32 - 1),
                (8, 1),
            ),
            *((0x99, 2**32 - 1), (0, 0)),
        )
    ),
    Case("setting ENABLE_PUSH of 2", "6.5.2", settings((ENABLE_PUSH, 2)), PROTOCOL),
    Case("setting MAX_FRAME_SIZE of 16383", "6.5.2", settings((FRAME_SIZE, 16_383)), PROTOCOL),
    Case("setting MAX_FRAME_SIZE of 2^24", "6.5.2", settings((FRAME_SIZE, 2**24)), PROTOCOL),
    Case("setting INITIAL_WINDOW_SIZE of 2^31", "6.5.2", settings((WINDOW, 2**31)), FLOW),
    Case("invalid value before a valid one", "6.5.3", settings((ENABLE_PUSH, 2), (ENABLE_PUSH, 0)), PROTOCOL),
    Case("the last value holds", "6.5.3", settings((WINDOW, 0), (WINDOW, 100)) + call(), OK),
    Case("SETTINGS on a stream", "6.5", frame(SETTINGS, 0, 1), PROTOCOL),
    Case("SETTINGS of 5 bytes", "6.5", frame(SETTINGS, 0, 0, bytes(5)), SIZE),
    Case("SETTINGS of 7 bytes", "6.5", frame(SETTINGS, 0, 0, bytes(7)), SIZE),
    Case("acknowledgement with a setting", "6.5", frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
    Case("acknowledgement without SETTINGS", "6.5", frame(SETTINGS, ACK, 0) * 2 + call(), OK),
    Case("each SETTINGS frame is acknowledged", "6.5.3", settings() * 3, streams(s0="4 settings, 0 pings")),
]

OTHER_FRAMES = [
    Case(
        "PUSH_PROMISE", "8.4", opened() + frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + BLOCK), PROTOCOL
    ),
    Case("PING", "6.7", PING_FRAME * 2, streams(s0="1 settings, 2 pings")),
    Case(
        "acknowledgement without PING",
        "6.7",
        frame(PING, ACK, 0, bytes(8)),
        streams(s0="1 settings, 0 pings"),
    ),
    Case("PING on a stream", "6.7", opened() + frame(PING, 0, 1, bytes(8)), PROTOCOL),
    Case("PING of 7 bytes", "6.7", frame(PING, 0, 0, bytes(7)), SIZE),
    Case("PING of 9 bytes", "6.7", frame(PING, 0, 0, bytes(9)), SIZE),
    Case("GOAWAY leaves calls", "6.8", opened() + away() + data(), OK),
    Case("GOAWAY with text", "6.8", opened() + away(0, 2, b"text") + data(), OK),
    Case("GOAWAY with an unknown code", "7", opened() + away(0, 99) + data(), OK),
    Case("GOAWAY on a stream", "6.8", opened() + away(stream=1), PROTOCOL),
    Case("GOAWAY of 7 bytes", "6.8", frame(GOAWAY, 0, 0, bytes(7)), SIZE),
]

CASES = [
    *BEGINNING,
    *FORMAT,
    *DATA_FRAMES,
    *HEADERS_FRAMES,
    *PRIORITIES,
    *RESETS,
    *SETTINGS_FRAMES,
    *OTHER_FRAMES,
]
