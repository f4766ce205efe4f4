"""The frames of HTTP/2 (RFC 9113, 4 and 6): their numbers, how each is written, and error codes.

Bytes only, no state: ``h2.connection`` handles them.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The client's connection preface (RFC 9113, 3.4)."""

HEADER_BYTES = 9
HEADER = struct.Struct(">HBBBL")
"""A frame's header (RFC 9113, 4.1): length (its upper 16 bits, its lower 8), type, flags, stream."""

DEFAULT_WINDOW = 65_535
MAX_WINDOW = 2**31 - 1
MAX_STREAM_ID = 2**31 - 1
DEFAULT_FRAME_BYTES, MAX_FRAME_BYTES = 16_384, 2**24 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
"""Frame types."""

END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY_FIELDS = 0x4, 0x8, 0x20
"""Frame flags."""

_SETTING = struct.Struct(">HL")
_WORD = struct.Struct(">L")


class Code(enum.IntEnum):
    """An error code of RST_STREAM and GOAWAY (RFC 9113, 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def name_of(code: int) -> str:
    """The name of an error code, the number of an unknown one."""
    try:
        return Code(code).name
    except ValueError:
        return str(code)


class Setting(enum.IntEnum):
    """A setting (RFC 9113, 6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class H2Error(Exception):
    """A connection error (RFC 9113, 5.4.1)."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    size = len(payload)
    return HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def data_header(size: int, stream: int, flags: int = 0) -> bytes:
    """The header of a DATA frame of ``size`` bytes."""
    return HEADER.pack(size >> 8, size & 0xFF, DATA, flags, stream)


def header_frames(block: bytes, stream: int, *, ended: bool, largest: int) -> bytes:
    """A field block as a HEADERS frame, and CONTINUATION frames if it is longer than ``largest``."""
    flags = END_STREAM if ended else 0
    size = len(block)
    if size <= largest:
        return HEADER.pack(size >> 8, size & 0xFF, HEADERS, flags | END_HEADERS, stream) + block
    cuts = [block[start : start + largest] for start in range(0, size, largest)]
    written = [frame(HEADERS, flags, stream, cuts[0])]
    written += [frame(CONTINUATION, 0, stream, cut) for cut in cuts[1:-1]]
    written.append(frame(CONTINUATION, END_HEADERS, stream, cuts[-1]))
    return b"".join(written)


def settings(values: Iterable[tuple[Setting, int]]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in values))


def settings_in(payload: bytes) -> Iterator[tuple[int, int]]:
    """The number and value of each setting in a payload, whose size is a multiple of six bytes."""
    return _SETTING.iter_unpack(payload)


def window_update(stream: int, size: int) -> bytes:
    """A WINDOW_UPDATE frame; ``stream`` 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, _WORD.pack(size))


def rst_stream(stream: int, code: Code) -> bytes:
    """An RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, _WORD.pack(code))


def goaway(last: int, code: Code, text: str = "") -> bytes:
    """A GOAWAY frame: streams after ``last`` are ignored."""
    return frame(GOAWAY, 0, 0, _WORD.pack(last) + _WORD.pack(code) + text.encode())


SETTINGS_ACK = frame(SETTINGS, ACK, 0)
