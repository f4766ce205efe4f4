"""Writes GraphPipe's FlatBuffers front to back, tensor data last and never copied.

Offsets of a FlatBuffer point forward, so a message can be a head (root, vtables, tables, strings, shapes)
followed by the data of each tensor, after a few bytes of padding and its length. The head depends on names,
datatypes and shapes alone; recent ones are cached. Everything is aligned to its own size, tensor data to 16
bytes, counted from the start of the message. A ``prefixed`` message is FlatBuffers' own size-prefixed form:
it starts with its size in four bytes, and alignment counts from there.

Raises TOO_LARGE for a message that 32-bit offsets cannot span.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from interlingua.protocols.graphpipe.runs import copy_runs
from interlingua.protocols.wire import Buffer
from interlingua.schemas import Datatype, ErrorCode, InferenceError, unrepresentable
from interlingua.schemas.graphpipe import INFER_REQUEST, METADATA_REQUEST, TYPES

MAX_BYTES = 2**31 - 1
"""The size of the largest message: readers treat offsets as signed."""

PREFIX_BYTES = 4
"""The size of the prefix of the size-prefixed form, an unsigned number."""

DATA_ALIGNMENT = 16
"""malloc aligns the buffer of a receiver to 16, so more is useless."""

STRING = TYPES[Datatype.BYTES]

FEW = 64
"""Up to this number of strings :func:`string_block` is faster than :func:`packed_block`."""

MANY = 1 << 12
"""From this number on, packing strings takes more than about 2 ms."""

Form = tuple[int, tuple[int, ...], int, int]
"""A tensor without its data: type, shape, length of its data or string vector, size in bytes after that
length."""

IO = tuple[bytes, bytes, tuple[int, ...], int]
"""An input or output in metadata: name, description, shape, type."""

_KEPT_HEADS = 512
_KEPT_TEXT = 4096
_KEPT_NUMBERS = 4096
"""How many tensors and dimensions together a cached head has."""

_U32 = struct.Struct("<I")
_TENSOR = struct.Struct("<iIIB3x")  # vtable, shape, data or strings, type
_IO = struct.Struct("<iIIIB3x")  # vtable, name, description, shape, type
_ERROR = struct.Struct("<iIq")  # vtable, message, code

# A vtable: its own size, the table's size, and the position of each field in the table (0: absent).
_REQUEST_VTABLE = struct.pack("<4H", 8, 12, 8, 4)
_INFER_VTABLE = struct.pack("<6H", 12, 20, 4, 8, 12, 16)
_EMPTY_VTABLE = struct.pack("<2H", 4, 4)
_RESPONSE_VTABLE = struct.pack("<4H", 8, 12, 4, 8)
_NUMBERS_VTABLE = struct.pack("<5H2x", 10, 16, 12, 4, 8)
_STRINGS_VTABLE = struct.pack("<6H", 12, 16, 12, 4, 0, 8)
_ERROR_VTABLE = struct.pack("<4H", 8, 16, 8, 4)
_METADATA_VTABLE = struct.pack("<8H", 16, 28, 4, 8, 12, 16, 20, 24)
_IO_VTABLE = struct.pack("<6H", 12, 20, 4, 8, 12, 16)

# By the length of a string modulo four: its NUL, and padding for the next length.
_STRING_ENDS = (b"\0\0\0\0", b"\0\0\0", b"\0\0", b"\0")


def infer_request(
    config: bytes,
    input_names: tuple[bytes, ...],
    output_names: tuple[bytes, ...],
    forms: tuple[Form, ...],
    payloads: Sequence[Buffer],
    *,
    prefixed: bool = False,
) -> list[Buffer]:
    """A ``Request`` with an ``InferRequest``, all of whose fields are present."""
    longest = sum(map(len, input_names)) + sum(map(len, output_names))
    # do not cache texts and shapes of any length
    numbers = sum([1 + len(shape) for _, shape, _, _ in forms])
    unkept = config or longest > _KEPT_TEXT or numbers > _KEPT_NUMBERS
    leads = request_leads.__wrapped__ if unkept else request_leads
    return interleaved(leads(prefixed, config, input_names, output_names, forms), payloads)


def infer_response(
    forms: tuple[Form, ...], payloads: Sequence[Buffer], *, prefixed: bool = False
) -> list[Buffer]:
    """An ``InferResponse`` with tensors and no errors."""
    numbers = 0
    for form in forms:  # costs no call, unlike a comprehension
        numbers += 1 + len(form[1])
    leads = _response_leads.__wrapped__ if numbers > _KEPT_NUMBERS else _response_leads
    return interleaved(leads(prefixed, forms), payloads)


def error_response(code: int, message: bytes, *, prefixed: bool = False) -> bytes:
    """An ``InferResponse`` with one error and an empty vector of tensors."""
    head, (response_vtable, error_vtable) = _begin(prefixed, _RESPONSE_VTABLE, _ERROR_VTABLE)
    table = _root_table(head, response_vtable, 2)
    _point(head, table + 4)
    head += _U32.pack(0)
    _point(head, table + 8)
    head += struct.pack("<II", 1, 0)
    slot = len(head) - 4
    _pad(head, 8)
    _point(head, slot)
    error = len(head)
    head += _ERROR.pack(error - error_vtable, 0, code)
    _point(head, error + 4)
    _string(head, message)
    return _finished(prefixed, head)


def metadata_request(*, prefixed: bool = False) -> bytes:
    """A ``Request`` with a ``MetadataRequest``: always the same bytes."""
    head, (request_vtable, empty_vtable) = _begin(prefixed, _REQUEST_VTABLE, _EMPTY_VTABLE)
    _request_table(head, request_vtable, METADATA_REQUEST)
    head += struct.pack("<i", len(head) - empty_vtable)
    return _finished(prefixed, head)


def metadata_response(
    texts: Sequence[bytes], inputs: Sequence[IO], outputs: Sequence[IO], *, prefixed: bool = False
) -> bytes:
    """A ``MetadataResponse``; ``texts`` are name, version, server, description."""
    head, (metadata_vtable, io_vtable) = _begin(prefixed, _METADATA_VTABLE, _IO_VTABLE)
    table = _root_table(head, metadata_vtable, 6)
    for slot, text in enumerate(texts, 1):
        _point(head, table + 4 * slot)
        _string(head, text)
    for slot, described in ((5, inputs), (6, outputs)):
        _point(head, table + 4 * slot)
        elements = _offset_vector(head, len(described))
        for element, (name, description, shape, code) in zip(elements, described, strict=True):
            _point(head, element)
            at = len(head)
            head += _IO.pack(at - io_vtable, 0, 0, 0, code)
            for field, text in ((4, name), (8, description)):
                _point(head, at + field)
                _string(head, text)
            _shape(head, at + 12, shape)
    return _finished(prefixed, head)


def string_block(elements: Sequence[bytes]) -> bytearray:
    """A vector of strings, without the length before it."""
    block = bytearray(4 * len(elements))
    for index, element in enumerate(elements):
        _point(block, 4 * index)
        _string(block, element)
    return block


def packed_block(packed: memoryview, count: int) -> Buffer:
    """The same from ``count`` strings in a row, each after its length. Raises TOO_LARGE."""
    starts = np.fromiter(_lengths_at(packed), np.int64, count)
    sizes = np.diff(starts, append=len(packed))
    rooms = (sizes + 4) & ~3  # a NUL behind each, and padding for the next length
    places = 4 * count + np.cumsum(rooms) - rooms
    total = int(places[-1] + rooms[-1]) if count else 0
    if total > MAX_BYTES:
        raise _too_large()
    block = np.zeros(total, np.uint8)
    block[: 4 * count].view("<u4")[:] = places - np.arange(0, 4 * count, 4)
    copy_runs(np.frombuffer(packed, np.uint8), starts, block, places, sizes)
    return block.data


def _lengths_at(packed: memoryview) -> Iterator[int]:
    """The position of each string's length."""
    position, end, length_at = 0, len(packed), _U32.unpack_from
    while position < end:
        yield position
        position += 4 + length_at(packed, position)[0]


def utf8(text: str, what: str) -> bytes:
    """``text`` in UTF-8; ``what`` names it in the error. Raises UNREPRESENTABLE for half a surrogate pair,
    which JSON can contain."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise unrepresentable(f"{what} is not UTF-8: {text!r}") from error


@lru_cache(maxsize=_KEPT_HEADS)
def request_leads(
    prefixed: bool,
    config: bytes,
    input_names: tuple[bytes, ...],
    output_names: tuple[bytes, ...],
    forms: tuple[Form, ...],
) -> tuple[bytes, ...]:
    """What precedes the data of each tensor of :func:`infer_request`."""
    head, (request_vtable, infer_vtable, numbers, strings) = _begin(
        prefixed, _REQUEST_VTABLE, _INFER_VTABLE, _NUMBERS_VTABLE, _STRINGS_VTABLE
    )
    _request_table(head, request_vtable, INFER_REQUEST)
    table = len(head)
    head += struct.pack("<i16x", table - infer_vtable)
    _point(head, table + 4)
    _string(head, config)
    for slot, names in ((8, input_names), (16, output_names)):
        _point(head, table + slot)
        head += _U32.pack(len(names)) + string_block(names)
    return _tensors(prefixed, head, table + 12, forms, numbers, strings)


@lru_cache(maxsize=_KEPT_HEADS)
def _response_leads(prefixed: bool, forms: tuple[Form, ...]) -> tuple[bytes, ...]:
    head, (response_vtable, numbers, strings) = _begin(
        prefixed, _RESPONSE_VTABLE, _NUMBERS_VTABLE, _STRINGS_VTABLE
    )
    table = _root_table(head, response_vtable, 2)
    _point(head, table + 8)
    head += _U32.pack(0)
    return _tensors(prefixed, head, table + 4, forms, numbers, strings)


def _tensors(
    prefixed: bool, head: bytearray, at: int, forms: tuple[Form, ...], numbers: int, strings: int
) -> tuple[bytes, ...]:
    """End ``head`` with a vector of tensors. Returns what precedes the data of each tensor; the first is the
    whole head."""
    _point(head, at)
    tables = []
    for element, form in zip(_offset_vector(head, len(forms)), forms, strict=True):
        _point(head, element)
        tables.append(len(head))
        head += _TENSOR.pack(len(head) - (strings if form[0] == STRING else numbers), 0, 0, form[0])
    for table, (_, shape, _, _) in zip(tables, forms, strict=True):
        _shape(head, table + 4, shape)
    leads, position, lead = [], len(head), head
    for table, (_, _, length, size) in zip(tables, forms, strict=True):
        padding = -(position + 4) % DATA_ALIGNMENT
        if position + padding + 4 + size > MAX_BYTES:
            raise _too_large()
        _U32.pack_into(head, table + 8, position + padding - table - 8)
        lead += bytes(padding) + _U32.pack(length)
        leads.append(lead)
        position += padding + 4 + size
        lead = bytearray()
    if prefixed:
        _U32.pack_into(head, 0, position - PREFIX_BYTES)
    return tuple(bytes(lead) for lead in leads or (head,))


def interleaved(leads: tuple[bytes, ...], payloads: Sequence[Buffer]) -> list[Buffer]:
    """A message: each lead, and the data after it."""
    parts: list[Buffer] = [leads[0]]
    for index, payload in enumerate(payloads):
        if index:
            parts.append(leads[index])
        if len(payload):
            parts.append(payload)
    return parts


def _begin(prefixed: bool, *vtables: bytes) -> tuple[bytearray, list[int]]:
    """A message with its root offset (to be set) and ``vtables``, that of the root first; their positions."""
    head, positions = bytearray(4 + PREFIX_BYTES if prefixed else 4), []
    for vtable in vtables:
        positions.append(len(head))
        head += vtable
    return head, positions


def _finished(prefixed: bool, head: bytearray) -> bytes:
    """The message in ``head``."""
    if prefixed:
        _U32.pack_into(head, 0, len(head) - PREFIX_BYTES)
    return bytes(head)


def _root_table(head: bytearray, vtable: int, fields: int) -> int:
    """A root table of ``fields`` offsets to be set; its position."""
    _point(head, vtable - 4)
    table = len(head)
    head += struct.pack("<i", table - vtable) + bytes(4 * fields)
    return table


def _request_table(head: bytearray, vtable: int, tag: int) -> None:
    """The root ``Request``, whose union is the table that follows."""
    _point(head, vtable - 4)
    head += struct.pack("<iIB3x", len(head) - vtable, 8, tag)


def _point(head: bytearray, at: int) -> None:
    """Set the offset at ``at`` to the end, where the next object begins."""
    _U32.pack_into(head, at, len(head) - at)


def _pad(head: bytearray, alignment: int, ahead: int = 0) -> None:
    head += bytes(-(len(head) + ahead) % alignment)


def _string(head: bytearray, value: bytes) -> None:
    head += _U32.pack(len(value))
    head += value
    head += _STRING_ENDS[len(value) & 3]


def _offset_vector(head: bytearray, count: int) -> range:
    """A vector of ``count`` offsets to be set; their positions."""
    head += _U32.pack(count)
    start = len(head)
    head += bytes(4 * count)
    return range(start, start + 4 * count, 4)


def _shape(head: bytearray, at: int, shape: tuple[int, ...]) -> None:
    _pad(head, 8, ahead=4)
    _point(head, at)
    head += struct.pack(f"<I{len(shape)}q", len(shape), *shape)


def _too_large() -> InferenceError:
    return InferenceError(
        ErrorCode.TOO_LARGE, f"the tensors make a GraphPipe message of more than {MAX_BYTES} bytes"
    )
