"""Frames of baidu_std as both stand-ins write and read them: by hand, from the description of the wire."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

SERVICE = "grps.protos.v1.GrpsBrpcService"


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    octets = []
    while True:
        octets.append(value & 127 | (128 if value > 127 else 0))
        value >>= 7
        if not value:
            return bytes(octets)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def frame(meta: bytes, payload: bytes = b"") -> bytes:
    sizes = (len(meta) + len(payload)).to_bytes(4, "big") + len(meta).to_bytes(4, "big")
    return b"PRPC" + sizes + meta + payload


def request_frame(
    method: str,
    payload: bytes = b"",
    correlation_id: int | None = 0x100000002,
    *,
    service: str = SERVICE,
    compress_type: int = 0,
    attachment: bytes = b"",
    attachment_size: int | None = None,
    timeout_ms: int | None = None,
    extra: bytes = b"",
    trace: bytes = b"",
    user_fields: dict[str, str] | None = None,
) -> bytes:
    """A request as the real client writes it; ``extra`` are more bytes of its meta, ``trace`` of what is asked."""
    asked = text(1, service) + text(2, method) + trace
    for key, value in (user_fields or {}).items():
        extra += text(9, text(1, key) + text(2, value))
    if timeout_ms is not None:
        asked += number(8, timeout_ms)
    meta = text(1, asked) + number(3, compress_type)
    if correlation_id is not None:
        meta += number(4, correlation_id)
    if attachment_size is None and attachment:
        attachment_size = len(attachment)
    if attachment_size is not None:
        meta += number(5, attachment_size)
    return frame(meta + extra, payload + attachment)


def fields(message: bytes) -> dict[int, list[int | bytes]]:
    """The varints and texts of a message, by their number."""
    found: dict[int, list[int | bytes]] = {}
    place = 0

    def take() -> int:
        nonlocal place
        value = shift = 0
        while True:
            octet = message[place]
            place += 1
            value |= (octet & 127) << shift
            shift += 7
            if octet < 128:
                return value

    while place < len(message):
        tag = take()
        value: int | bytes = take()
        if tag & 7 == 2:
            assert isinstance(value, int)
            place += value
            value = message[place - value : place]
        else:
            assert tag & 7 == 0, "baidu_std has no other kinds"
        found.setdefault(tag >> 3, []).append(value)
    return found


def signed(value: int | bytes) -> int:
    assert isinstance(value, int)
    return value - 2**64 if value >= 2**63 else value


@dataclass
class Received:
    """A frame as it came, its meta read."""

    meta: dict[int, list[int | bytes]]
    payload: bytes

    @property
    def correlation_id(self) -> int:
        return signed(self.meta.get(4, [0])[-1])

    @property
    def compress_type(self) -> int:
        return signed(self.meta.get(3, [0])[-1])

    @property
    def asked(self) -> tuple[str, str]:
        """Service and method of a request."""
        (inner,) = self.meta[1]
        assert isinstance(inner, bytes)
        read = fields(inner)
        return tuple(value[0].decode() for value in (read[1], read[2]))  # type: ignore[union-attr, return-value]

    @property
    def timeout_ms(self) -> int | None:
        (inner,) = self.meta[1]
        assert isinstance(inner, bytes)
        return fields(inner).get(8, [None])[0]  # type: ignore[list-item, return-value]

    @property
    def trace(self) -> dict[int, int | bytes]:
        """The trace, span, parent and request id of a request, by the number of their fields."""
        (inner,) = self.meta[1]
        assert isinstance(inner, bytes)
        return {key: value[0] for key, value in fields(inner).items() if key in (4, 5, 6, 7)}

    @property
    def user_fields(self) -> dict[str, str]:
        """The user fields of a frame."""
        entries = [fields(entry) for entry in self.meta.get(9, []) if isinstance(entry, bytes)]
        return {entry[1][0].decode(): entry[2][0].decode() for entry in entries}  # type: ignore[union-attr]

    @property
    def error(self) -> tuple[int, str]:
        """Code and text of an answer; code 0 where there is none."""
        (inner,) = self.meta.get(2, [b""])
        assert isinstance(inner, bytes)
        read = fields(inner)
        words = read.get(2, [b""])[0]
        assert isinstance(words, bytes)
        return signed(read.get(1, [0])[0]), words.decode()


async def read_frame(reader: asyncio.StreamReader) -> Received:
    """The next frame. Raises ``IncompleteReadError`` where the connection ends instead."""
    head = await reader.readexactly(12)
    assert head[:4] == b"PRPC", head
    body = await reader.readexactly(int.from_bytes(head[4:8], "big"))
    cut = int.from_bytes(head[8:], "big")
    return Received(fields(body[:cut]), body[cut:])
