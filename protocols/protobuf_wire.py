"""The protobuf wire format for tensors: large fields without a copy, numbers in bulk.

Protobuf's own classes copy every bytes field and return repeated numbers one by one. Here a message is split
into its large fields, as views, and a small rest for those classes; packed varints become arrays and back.
Bytes that are not a message raise protobuf's own ``DecodeError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from interlingua.protocols.wire import Buffer
from interlingua.schemas import ErrorCode, InferenceError

MAX_MESSAGE_BYTES = 2**31 - 1
"""Protobuf's own limit on the size of a message."""
MAX_FIELDS = 65_536
"""The limit of :func:`split`: no inference has more tensors, and millions of two-byte fields would take
seconds."""

_PARTS_BYTES = 1 << 16
"""From this size on, the parts of a message are sent one by one; copying less into one costs less."""

VARINT, LENGTH_DELIMITED = 0, 2
"""The wire types of fields that matter here."""

_START_GROUP, _END_GROUP = 3, 4
_FIXED_SIZES = {1: 8, 5: 4}
_MAX_GROUP_DEPTH = 100
_MAX_TAG = 2**32 - 1
_MAX_VARINT_BYTES = 10
_SHORT_VARINTS = tuple(bytes((value,)) for value in range(128))


def split(message: Buffer, field: int) -> tuple[Buffer, list[memoryview]]:
    """The message without the length-delimited ``field`` at its top level, and the contents of that field in
    order, as views of ``message``. The contents of other fields are not read. Raises ``DecodeError``."""
    view = memoryview(message)
    wanted = field << 3 | LENGTH_DELIMITED
    taken: list[memoryview] = []
    rest: list[memoryview] = []
    kept = position = walked = 0
    end = len(view)
    try:
        while position < end:
            start = position
            # inlined, because most tags and lengths are one byte
            tag = view[position]
            if tag < 0x80:
                position += 1
            else:
                tag, position = _varint_at(view, position)
            if tag & 7 == LENGTH_DELIMITED:
                size = view[position]
                if size < 0x80:
                    position += 1
                else:
                    size, position = _varint_at(view, position)
                position += size
                if tag == wanted:
                    if kept < start:
                        rest.append(view[kept:start])
                    taken.append(view[position - size : position])
                    kept = position
            else:
                position = _skip(view, position, tag)
            walked += 1
            if walked > MAX_FIELDS:
                raise DecodeError(f"more than {MAX_FIELDS} fields")
    except IndexError:
        raise DecodeError(f"the field at byte {start} is cut short") from None
    if position > end:
        raise DecodeError(f"the field at byte {start} ends beyond the message")
    if not taken:
        return message, taken
    if kept < end:
        rest.append(view[kept:])
    return (rest[0] if len(rest) == 1 else b"".join(rest)), taken


def fields(message: Buffer, most: int = MAX_FIELDS) -> Iterator[tuple[int, int, int | memoryview]]:
    """Every field of ``message`` in order: number, wire type, value. The value is an integer for a varint, a
    view of the contents of a length-delimited or fixed field, an empty view for a group.

    Raises ``DecodeError``, also for more than ``most``.
    """
    view = memoryview(message)
    position = walked = 0
    end = len(view)
    value: int | memoryview
    try:
        while position < end:
            start = position
            # inlined, because most tags and lengths are one byte
            tag = view[position]
            if tag < 0x80:
                position += 1
            else:
                tag, position = _varint_at(view, position)
            if not 8 <= tag <= _MAX_TAG:
                raise DecodeError(f"there is no field of tag {tag}, at byte {start}")
            kind = tag & 7
            if kind == VARINT:
                value, position = _varint_at(view, position)
            else:
                if kind == LENGTH_DELIMITED:
                    size = view[position]
                    if size < 0x80:
                        inside = position + 1
                    else:
                        size, inside = _varint_at(view, position)
                    position = inside + size
                else:
                    inside = position
                    position = _skip(view, position, tag)
                value = view[inside : inside if kind == _START_GROUP else position]
            walked += 1
            if position > end or walked > most:
                break
            yield tag >> 3, kind, value
    except IndexError:
        raise DecodeError(f"the field at byte {start} is cut short") from None
    if walked > most:
        raise DecodeError(f"more than {most} fields")
    if position > end:
        raise DecodeError(f"the field at byte {start} ends beyond the message")


def read_fields(message: Buffer) -> dict[int, int | memoryview]:
    """The varints and length-delimited fields of a small ``message`` by number, the last of repeated ones.
    Raises ``DecodeError``."""
    return {number: value for number, kind, value in fields(message) if kind in (VARINT, LENGTH_DELIMITED)}


def join(rest: bytes, field: int, contents: Iterable[Buffer]) -> bytes:
    """The message ``rest`` with ``contents`` as length-delimited fields ``field`` at its end, the inverse of
    :func:`split`. Each content is copied once. Raises TOO_LARGE beyond protobuf's limit of 2 GiB."""
    contents = tuple(contents)
    return b"".join(interleaved(leads(rest, field, map(len, contents)), contents))


def join_parts(rest: bytes, field: int, contents: Iterable[Buffer]) -> tuple[Buffer, Sequence[Buffer]]:
    """The same in parts, see :func:`in_parts`."""
    contents = tuple(contents)
    return in_parts(interleaved(leads(rest, field, map(len, contents)), contents))


def in_parts(pieces: Sequence[Buffer]) -> tuple[Buffer, Sequence[Buffer]]:
    """A message of ``pieces``: its beginning, and the parts that continue it if it is large."""
    if sum(map(len, pieces)) < _PARTS_BYTES:
        return b"".join(pieces), ()
    return pieces[0], pieces[1:]


def leads(rest: bytes, field: int, sizes: Iterable[int]) -> tuple[bytes, ...]:
    """What precedes each content of :func:`join` of these ``sizes``; ``rest`` precedes the first. Raises
    TOO_LARGE."""
    tag = varint(field << 3 | LENGTH_DELIMITED)
    found: list[bytes] = []
    lead, total = rest, len(rest)
    for size in sizes:
        total += size
        found.append(lead + tag + varint(size))
        lead = b""
    if total > MAX_MESSAGE_BYTES:
        raise InferenceError(
            ErrorCode.TOO_LARGE, f"{total} bytes of tensors do not fit into one protobuf message of 2 GiB"
        )
    return tuple(found) or (rest,)


def interleaved(leads: Sequence[bytes], contents: Sequence[Buffer]) -> list[Buffer]:
    """The pieces of a message: each lead, and the content after it."""
    if not contents:
        return [*leads]
    return [piece for pair in zip(leads, contents, strict=True) for piece in pair]


def varint(value: int) -> bytes:
    """``value``, from 0 to 2^64-1, as a varint."""
    if value < 0x80:
        return _SHORT_VARINTS[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varints(packed: Buffer) -> list[int]:
    """The values of a short packed repeated field. Raises ``DecodeError``."""
    view, position, found = memoryview(packed), 0, []
    try:
        while position < len(view):
            value, position = _varint_at(view, position)
            found.append(value)
    except IndexError:
        raise DecodeError("the last varint is cut short") from None
    return found


def unpack_varints(packed: Buffer) -> NDArray[np.uint64]:
    """The values of a packed repeated field; those of a signed field in two's complement. Raises
    ``DecodeError`` for a truncated varint or one of more than ten bytes."""
    octets = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(octets < 0x80)
    if len(ends) == len(octets):
        return octets.astype(np.uint64)
    if not len(ends) or ends[-1] != len(octets) - 1:
        raise DecodeError("the last varint is cut short")
    place = np.concatenate(([0], ends[:-1] + 1))
    octet = octets[place]
    values = (octet & 0x7F).astype(np.uint64)
    # byte by byte, over the varints that continue
    longer = np.flatnonzero(octet >= 0x80)
    place = place[longer]
    for index in range(1, _MAX_VARINT_BYTES):
        if not len(longer):
            break
        place += 1
        octet = octets[place]
        values[longer] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        more = octet >= 0x80
        longer, place = longer[more], place[more]
    if len(longer):
        raise DecodeError(f"a varint has more than {_MAX_VARINT_BYTES} bytes")
    return values


def pack_varints(values: NDArray[Any]) -> bytes:
    """The contents of a packed repeated field of ``values``: integers of any width and sign, flat."""
    # a negative number of any width is written as its 64-bit two's complement
    rest = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    lengths = np.ones(len(rest), np.int64)
    for index in range(1, _MAX_VARINT_BYTES):
        lengths += rest >= np.uint64(1 << 7 * index)
    ends = np.cumsum(lengths)
    octets = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    place = ends - lengths
    while len(rest):
        more = rest >= 0x80
        octets[place] = (rest & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        rest, place = rest[more] >> np.uint64(7), place[more] + 1
    return octets.tobytes()


def _varint_at(view: memoryview, position: int) -> tuple[int, int]:
    """The varint at ``position``, and the position after it. Raises ``IndexError`` at the end."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        octet = view[position + index]
        value |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            return value, position + index + 1
    raise DecodeError(f"the varint at byte {position} has more than {_MAX_VARINT_BYTES} bytes")


def _skip(view: memoryview, position: int, tag: int, depth: int = 0) -> int:
    """The position after the value of a field with ``tag``, which starts at ``position``."""
    kind = tag & 7
    if kind == VARINT:
        return _varint_at(view, position)[1]
    if kind in _FIXED_SIZES:
        return position + _FIXED_SIZES[kind]
    if kind == LENGTH_DELIMITED:
        size, position = _varint_at(view, position)
        return position + size
    if kind == _START_GROUP and depth < _MAX_GROUP_DEPTH:
        inner, position = _varint_at(view, position)
        while inner & 7 != _END_GROUP:
            position = _skip(view, position, inner, depth + 1)
            inner, position = _varint_at(view, position)
        if inner >> 3 == tag >> 3:
            return position
    raise DecodeError(f"no field of tag {tag} can stand before byte {position}")
