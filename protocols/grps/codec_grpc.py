"""A ``GrpsMessage`` in protobuf: what gRPC and bRPC carry, and a bRPC port over HTTP.

It reads and writes what protobuf's own classes do, at the speed of arrays. The usual form of a tensor, each
list packed in one piece, becomes views or arrays; any other form goes through protobuf's classes, which
convert it to the usual one. ``tensors`` checks numbers against the datatype.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from interlingua.protocols.grps import float_messages
from interlingua.protocols.grps.message import (
    DIALECT_NAME,
    DT_STRING,
    DTYPES,
    GMAP_FIELDS,
    OK,
    GenericTensor,
    Gmap,
    GrpsMessage,
    Kind,
    PackedTexts,
    Status,
)
from interlingua.protocols.protobuf_wire import (
    LENGTH_DELIMITED,
    MAX_MESSAGE_BYTES,
    VARINT,
    fields,
    pack_varints,
    unpack_varints,
    varint,
    varints,
)
from interlingua.protocols.wire import Buffer
from interlingua.schemas import ErrorCode, InferenceError, malformed, not_carried, offload, packed_elements
from interlingua.schemas.grps import MESSAGES

_STATUS: Any = MESSAGES["grps.protos.v1.Status"]
_TENSOR: Any = MESSAGES["grps.protos.v1.GenericTensor"]
_GMAP: Any = MESSAGES["grps.protos.v1.GenericMapData"]

_STATUS_FIELD, _MODEL_FIELD = 1, 2
_KINDS: dict[int, Kind] = {
    3: Kind.BIN_DATA,
    4: Kind.STR_DATA,
    5: Kind.GTENSORS,
    6: Kind.NDARRAY,
    7: Kind.GMAP,
}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_TENSORS_FIELD = 1

_NAME, _DTYPE, _SHAPE, _STRINGS = 1, 2, 3, 12
_USUAL = {_NAME: LENGTH_DELIMITED, _DTYPE: VARINT, _SHAPE: LENGTH_DELIMITED} | {
    dtype.field_number: LENGTH_DELIMITED for dtype in DTYPES.values() if dtype.number != DT_STRING
}
"""The wire types of a tensor's fields in the usual form, without text."""
_LISTS = {dtype.field_number: dtype.wire for dtype in DTYPES.values() if dtype.wire is not None}

_FEW_TENSORS = 1 << 8
_FEW_TEXTS_BYTES, _LONG_BYTES = 1 << 14, 1 << 18
"""Up to these numbers of tensors, bytes of text or of a map, and bytes of integers, a message takes less than
about 2 ms."""

_FEW_BYTES = 32
"""Up to this size a list is read faster without arrays."""

_UINT32 = np.dtype("<u4")
_NONE: NDArray[Any] = np.empty(0, _UINT32)


# --- reading


def read_message(data: Buffer) -> GrpsMessage:
    """The message in ``data``, its numbers as views if possible. Raises MALFORMED."""
    view = memoryview(data).toreadonly()
    known = float_messages.read(view)
    if known is not None:
        return known
    try:
        message = _message(view)
        float_messages.remember(message, view)
        return message
    except (DecodeError, UnicodeDecodeError) as error:
        raise malformed(f"the message is not a GrpsMessage: {error}") from error


def _message(view: memoryview) -> GrpsMessage:
    message = GrpsMessage()
    statuses: list[memoryview] = []
    data: list[memoryview] = []
    for number, wire_type, value in fields(view):
        if wire_type != LENGTH_DELIMITED:
            continue
        assert isinstance(value, memoryview)  # noqa: S101 - by its wire type
        if number == _STATUS_FIELD:
            statuses.append(value)
        elif number == _MODEL_FIELD:
            message.model = str(value, "utf-8")
        elif (kind := _KINDS.get(number)) is not None:
            # protobuf joins repeated messages; another member replaces the first
            if kind is not message.kind:
                # the replaced one must be well-formed
                _READERS[message.kind](GrpsMessage(), data)
                message.kind, data = kind, []
            data.append(value)
    if statuses:
        written = b"".join(statuses)
        if written == _OK:
            message.status = OK
        else:
            status = _STATUS.FromString(written)
            message.status = Status(status.code, status.msg, status.status)
    _READERS[message.kind](message, data)
    return message


def _read_nothing(message: GrpsMessage, data: list[memoryview]) -> None:
    """There is nothing to read."""


def _read_bin_data(message: GrpsMessage, data: list[memoryview]) -> None:
    message.bin_data = data[-1]


def _read_str_data(message: GrpsMessage, data: list[memoryview]) -> None:
    message.str_data = str(data[-1], "utf-8")


def _read_gtensors(message: GrpsMessage, data: list[memoryview]) -> None:
    message.tensors = tuple([tensor for contents in data for tensor in _tensors(contents)])


def _read_ndarray(message: GrpsMessage, data: list[memoryview]) -> None:
    """It has no contents in protobuf, but must be well-formed."""
    for contents in data:
        list(fields(contents))


def _read_gmap(message: GrpsMessage, data: list[memoryview]) -> None:
    written = b"".join(data)
    message.gmap = (
        _gmap(written) if len(written) <= _FEW_TEXTS_BYTES else offload.call(_counted_gmap, written)
    )


def _counted_gmap(written: Buffer) -> Gmap:
    """A map of many entries: each counts as a key."""
    entries = _GMAP.FromString(bytes(written))
    count = sum(len(getattr(entries, name)) for name in GMAP_FIELDS)
    offload.limits().check_elements(count * offload.KEY_WEIGHT, "the map")
    return _gmap(written)


def _gmap(written: Buffer) -> Gmap:
    entries = _GMAP.FromString(bytes(written))
    return {name: dict(found) for name in GMAP_FIELDS if (found := getattr(entries, name))}


_READERS = {
    Kind.NOTHING: _read_nothing,
    Kind.BIN_DATA: _read_bin_data,
    Kind.STR_DATA: _read_str_data,
    Kind.GTENSORS: _read_gtensors,
    Kind.NDARRAY: _read_ndarray,
    Kind.GMAP: _read_gmap,
}


def _tensors(contents: memoryview) -> Iterator[GenericTensor]:
    for index, (number, wire_type, value) in enumerate(fields(contents)):
        if index == _FEW_TENSORS:
            offload.require()
        if number == _TENSORS_FIELD and wire_type == LENGTH_DELIMITED:
            assert isinstance(value, memoryview)  # noqa: S101 - by its wire type
            usual = _usual_tensor(value)
            if usual is None:
                short = len(value) <= _FEW_TEXTS_BYTES
                usual = _any_tensor(value) if short else offload.call(_long_tensor, value)
            yield usual


def _usual_tensor(contents: memoryview) -> GenericTensor | None:
    """A tensor of numbers; None if it is not in the usual form."""
    found: dict[int, Any] = {}
    for number, wire_type, value in fields(contents):
        if number in found or _USUAL.get(number) != wire_type:
            return None
        found[number] = value
    lists = {number: _numbers(found[number], wire) for number, wire in _LISTS.items() if number in found}
    dtype = _signed(found.get(_DTYPE, 0))
    shape = _shape(found.get(_SHAPE, b""))
    # field numbers of lists follow from those of datatypes
    flat = lists.get(dtype + _SHAPE, _NONE)
    return GenericTensor(str(found.get(_NAME, b""), "utf-8"), dtype, shape, flat)


def _any_tensor(contents: memoryview) -> GenericTensor:
    """A tensor in any form: text, lists in pieces or number by number, unknown fields."""
    tensor = _TENSOR.FromString(bytes(contents))
    if tensor.dtype == DT_STRING:
        return GenericTensor(tensor.name, DT_STRING, tuple(tensor.shape), list(tensor.flat_string))
    tensor.DiscardUnknownFields()
    tensor.ClearField("flat_string")
    usual = _usual_tensor(memoryview(tensor.SerializeToString()))
    assert usual is not None, "protobuf writes the usual form"  # noqa: S101
    return usual


def _long_tensor(contents: memoryview) -> GenericTensor:
    tensor = _TENSOR.FromString(bytes(contents))
    offload.limits().check_elements(sum(len(values) for values in _lists(tensor)), "a tensor")
    found = _any_tensor(contents)
    if not isinstance(found.flat, np.ndarray):
        found.flat = PackedTexts.of(found.flat)
    return found


def _lists(tensor: Any) -> Iterator[Any]:
    for dtype in DTYPES.values():
        yield getattr(tensor, dtype.field)
    yield tensor.shape


def _shape(packed: Buffer) -> tuple[int, ...]:
    if len(packed) > _FEW_BYTES:
        return tuple(_integers(packed, _UINT32).tolist())
    # protobuf truncates to 32 bits
    return tuple([value & 0xFFFFFFFF for value in varints(packed)])


def _numbers(packed: memoryview, wire: np.dtype[Any]) -> NDArray[Any]:
    if wire.kind != "f":
        return _integers(packed, wire)
    if len(packed) % wire.itemsize:
        raise DecodeError("the last number of a list is cut short")
    return np.frombuffer(packed, wire)


def _integers(packed: Buffer, wire: np.dtype[Any]) -> NDArray[Any]:
    if len(packed) > _LONG_BYTES:
        return offload.call(_integers_here, packed, wire)
    return _integers_here(packed, wire)


def _integers_here(packed: Buffer, wire: np.dtype[Any]) -> NDArray[Any]:
    # protobuf truncates to 32 bits
    unsigned = unpack_varints(packed)
    return unsigned.view(wire) if wire.itemsize == unsigned.itemsize else unsigned.astype(_UINT32).view(wire)


def _signed(number: int) -> int:
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


# --- writing


def write_message(message: GrpsMessage) -> bytes:
    """``message`` on the wire, where an ndarray has no contents. Raises UNREPRESENTABLE for text that is not
    Unicode, TOO_LARGE beyond 2 GiB."""
    parts: list[Buffer] = []
    try:
        floats = float_messages.write(message)
        if floats is not None:
            return floats
        if message.status is not None:
            parts += _delimited(_STATUS_FIELD, _status(message.status))
        if message.model:
            parts += _delimited(_MODEL_FIELD, message.model.encode())
        if message.kind is not Kind.NOTHING:
            parts += _delimited(_NUMBERS[message.kind], *_data(message))
    except ValueError as error:
        raise not_carried(DIALECT_NAME, f"this: {error}") from error
    size = sum(map(len, parts))
    if size > MAX_MESSAGE_BYTES:
        raise InferenceError(
            ErrorCode.TOO_LARGE, f"{size} bytes do not fit into one protobuf message of 2 GiB"
        )
    return b"".join(parts)


def _data(message: GrpsMessage) -> list[Buffer]:
    if message.kind is Kind.BIN_DATA:
        return [message.bin_data]
    if message.kind is Kind.STR_DATA:
        return [message.str_data.encode()]
    if message.kind is Kind.GMAP:
        return [_write_gmap(message.gmap)]
    if message.kind is Kind.NDARRAY:
        return []
    parts: list[Buffer] = []
    for tensor in message.tensors:
        parts += _delimited(_TENSORS_FIELD, *_write_tensor(tensor))
    return parts


def _write_tensor(tensor: GenericTensor) -> list[Buffer]:
    parts: list[Buffer] = []
    if tensor.name:
        parts += _delimited(_NAME, tensor.name.encode())
    if tensor.dtype:
        parts += (varint(_DTYPE << 3), varint(tensor.dtype))
    if tensor.shape:
        parts += _delimited(_SHAPE, *map(varint, tensor.shape))
    if isinstance(tensor.flat, PackedTexts):
        parts.append(offload.call(_texts, tensor.flat.data))
    elif not isinstance(tensor.flat, np.ndarray):
        for text in tensor.flat:
            parts += _delimited(_STRINGS, text.encode())
    elif tensor.flat.size:
        dtype = DTYPES[tensor.dtype]
        parts += _delimited(dtype.field_number, _pack(tensor.flat, dtype.wire))
    return parts


def _texts(data: memoryview) -> memoryview:
    """The field of many strings."""
    parts: list[Buffer] = []
    for element in packed_elements(data):
        parts += _delimited(_STRINGS, element)
    return memoryview(b"".join(parts))


def _pack(flat: NDArray[Any], wire: np.dtype[Any] | None) -> Buffer:
    if flat.dtype.kind != "f":
        return pack_varints(flat) if flat.nbytes <= _LONG_BYTES else offload.call(_varints, flat)
    return np.ascontiguousarray(flat, wire).view(np.uint8).data


def _varints(flat: NDArray[Any]) -> memoryview:
    return memoryview(pack_varints(flat))


def _write_gmap(gmap: Gmap) -> bytes:
    message = _GMAP()
    for name, entries in gmap.items():
        getattr(message, name).update(entries)
    written: bytes = message.SerializeToString(deterministic=True)
    return written


def _status(status: Status) -> bytes:
    if status is OK:
        return _OK
    written: bytes = _STATUS(code=status.code, msg=status.msg, status=status.flag).SerializeToString()
    return written


_OK: bytes = _STATUS(code=OK.code, msg=OK.msg, status=OK.flag).SerializeToString()


def _delimited(number: int, *contents: Buffer) -> list[Buffer]:
    size = sum(map(len, contents))
    return [varint(number << 3 | LENGTH_DELIMITED), varint(size), *contents]
