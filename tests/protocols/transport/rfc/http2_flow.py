"""Flow control, CONTINUATION frames and limits (RFC 9113, 5.2, 6.9, 6.10 and 10.5)."""

from __future__ import annotations

from tests.protocols.transport.h2.peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PRIORITY,
    WINDOW_UPDATE,
    frame,
    message,
    settings,
    window_update,
)
from tests.protocols.transport.rfc.http2 import (
    WAIT,
    Case,
    call,
    data,
    goaway,
    opened,
    reset,
    streams,
)
from tests.protocols.transport.rfc.http2_frames import (
    BLOCK,
    FLOW,
    OK,
    PING_FRAME,
    PROTOCOL,
    SIZE,
    UNKNOWN,
    WAITING,
    WINDOW,
    away,
    rst,
)

WINDOWS = [
    Case("largest window of the connection", "6.9.1", window_update(0, 2**31 - 1 - 65_535) + call(), OK),
    Case("window of the connection above 2^31-1", "6.9.1", window_update(0, 2**31 - 65_535), FLOW),
    Case("window of the connection above 2^31-1 in steps", "6.9.1", window_update(0, 2**30) * 2, FLOW),
    Case("largest window of a stream", "6.9.1", opened() + window_update(1, 2**31 - 1 - 65_535) + data(), OK),
    Case(
        "window of a stream above 2^31-1",
        "6.9.1",
        WAITING + window_update(1, 2**31 - 65_535),
        reset("FLOW_CONTROL_ERROR"),
    ),
    Case(
        "window of a stream above 2^31-1 by SETTINGS",
        "6.9.2",
        WAITING + window_update(1, 2**30) + settings((WINDOW, 2**31 - 1)),
        FLOW,
    ),
    Case("increment of 0 on the connection", "6.9", window_update(0, 0), PROTOCOL),
    Case("increment of 0 on a stream", "6.9", WAITING + window_update(1, 0), reset("PROTOCOL_ERROR")),
    Case("reserved bit of the increment", "6.9", window_update(0, 1 << 31 | 1) + call(), OK),
    Case("WINDOW_UPDATE of an idle stream", "5.1", window_update(1, 1), PROTOCOL),
    Case("WINDOW_UPDATE of a stream of the server", "5.1", call(3) + window_update(2, 1), PROTOCOL),
    Case("WINDOW_UPDATE after END_STREAM", "5.1", opened() + data() + window_update(1, 1), OK),
    Case("WINDOW_UPDATE of a closed stream", "5.1", call(), OK, first={1: "ok"}, later=window_update(1, 1)),
    Case("WINDOW_UPDATE of 3 bytes", "6.9", frame(WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
    Case("WINDOW_UPDATE of 5 bytes", "6.9", frame(WINDOW_UPDATE, 0, 0, bytes(5)), SIZE),
    Case("an answer waits for its window", "6.9.2", settings((WINDOW, 0)) + call(), streams(s1="0 bytes")),
    Case("a part of an answer", "6.9.2", settings((WINDOW, 3)) + call(), streams(s1="3 bytes")),
    Case(
        "an answer goes on with its window",
        "6.9.1",
        settings((WINDOW, 3)) + call(),
        OK,
        first={1: "3 bytes"},
        later=window_update(1, 100),
    ),
    Case(
        "an answer goes on with SETTINGS",
        "6.9.2",
        settings((WINDOW, 3)) + call(),
        OK,
        first={1: "3 bytes"},
        later=settings((WINDOW, 100)),
    ),
    Case(
        "a window below zero",
        "6.9.2",
        settings((WINDOW, 3)) + call(),
        streams(s1="4 bytes"),
        first={1: "3 bytes"},
        later=settings((WINDOW, 0)) + window_update(1, 4),
    ),
    Case(
        "an answer waits for the window of the connection",
        "6.9.1",
        settings((WINDOW, 2**31 - 1))
        + opened()
        + b"".join(
            frame(DATA, END_STREAM if at == 64_000 else 0, 1, message(bytes(79_995))[at : at + 16_000])
            for at in range(0, 80_000, 16_000)
        ),
        streams(s1="65535 bytes"),
    ),
]

CONTINUATIONS = [
    Case(
        "field block in two frames",
        "6.10",
        frame(HEADERS, 0, 1, BLOCK[:9]) + frame(CONTINUATION, 4, 1, BLOCK[9:]) + data(),
        OK,
    ),
    Case(
        "field block in pieces of a byte",
        "6.10",
        frame(HEADERS, 0, 1)
        + b"".join(frame(CONTINUATION, 0, 1, BLOCK[at : at + 1]) for at in range(len(BLOCK)))
        + frame(CONTINUATION, END_HEADERS, 1)
        + data(),
        OK,
    ),
    Case(
        "padding before CONTINUATION",
        "6.10",
        frame(HEADERS, PADDED, 1, b"\3" + BLOCK[:9] + bytes(3))
        + frame(CONTINUATION, 4, 1, BLOCK[9:])
        + data(),
        OK,
    ),
    Case(
        "END_STREAM before CONTINUATION",
        "6.2",
        frame(HEADERS, END_STREAM, 1, BLOCK[:9]) + frame(CONTINUATION, 4, 1, BLOCK[9:]),
        streams(s1="status 12"),
    ),
    Case(
        "END_STREAM of CONTINUATION is undefined",
        "6.10",
        frame(HEADERS, 0, 1, BLOCK[:9]) + frame(CONTINUATION, 5, 1, BLOCK[9:]) + data(),
        OK,
    ),
    *(
        Case(f"{name} inside a field block", "6.10", frame(HEADERS, 0, 1, BLOCK[:9]) + inside, PROTOCOL)
        for name, inside in (
            ("DATA", data()),
            ("HEADERS of the stream", opened()),
            ("HEADERS of another stream", opened(3)),
            ("PRIORITY", frame(PRIORITY, 0, 1, bytes(5))),
            ("RST_STREAM", rst(1)),
            ("SETTINGS", settings()),
            ("PING", PING_FRAME),
            ("GOAWAY", away()),
            ("WINDOW_UPDATE", window_update(0, 1)),
            ("an unknown frame", frame(UNKNOWN, 0, 1)),
            ("CONTINUATION of another stream", frame(CONTINUATION, END_HEADERS, 3, BLOCK[9:])),
            ("CONTINUATION of stream 0", frame(CONTINUATION, END_HEADERS, 0, BLOCK[9:])),
        )
    ),
    Case("CONTINUATION first", "6.10", frame(CONTINUATION, END_HEADERS, 1, BLOCK), PROTOCOL),
    Case("CONTINUATION after END_HEADERS", "6.10", opened() + frame(CONTINUATION, END_HEADERS, 1), PROTOCOL),
    Case(
        "CONTINUATION after DATA",
        "6.10",
        opened() + data(flags=0) + frame(CONTINUATION, END_HEADERS, 1),
        PROTOCOL,
    ),
    Case(
        "endless CONTINUATION",
        "10.5",
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 20_000,
        goaway("ENHANCE_YOUR_CALM"),
        limit=True,
    ),
    Case(
        "a field block of 1 MiB",
        "10.5.1",
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1, bytes(16_000)) * 64,
        goaway("ENHANCE_YOUR_CALM"),
        limit=True,
    ),
]

CONCURRENCY = [
    Case(
        "more streams than SETTINGS_MAX_CONCURRENT_STREAMS",
        "5.1.2",
        b"".join(opened(number, WAIT) for number in range(1, 2051, 2)),
        reset("REFUSED_STREAM", 2049),
        limit=True,
    ),
    Case(
        "resets without end",
        "10.5",
        b"".join(opened(n) + rst(n) for n in range(1, 8001, 2)),
        goaway("ENHANCE_YOUR_CALM"),
        limit=True,
    ),
    Case("PING without end", "10.5", PING_FRAME * 20_000, goaway("ENHANCE_YOUR_CALM"), limit=True),
    Case("SETTINGS without end", "10.5", settings() * 20_000, goaway("ENHANCE_YOUR_CALM"), limit=True),
    Case(
        "empty DATA without end",
        "10.5",
        opened() + frame(DATA, 0, 1) * 20_000,
        goaway("ENHANCE_YOUR_CALM"),
        limit=True,
    ),
]

CASES = [*WINDOWS, *CONTINUATIONS, *CONCURRENCY]
