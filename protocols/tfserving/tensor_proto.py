"""``TensorProto`` to the IR's tensors and back.

A message has all elements as bytes (``tensor_content``), or as typed values: the last one repeats for the
missing ones, and without any value, every element is zero or empty. Clients send the bytes, which are views
here. The original server answers with typed values, and clients read them; packed floats are the bytes of the
IR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from interlingua.protocols.protobuf_message import parse
from interlingua.protocols.protobuf_wire import (
    LENGTH_DELIMITED,
    fields,
    pack_varints,
    read_fields,
    unpack_varints,
    varint,
)
from interlingua.protocols.tfserving.codec import DATATYPE_OF, DIALECT_NAME, NUMBER_OF, datatype_of
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Datatype,
    InferenceError,
    SharedMemoryRef,
    Tensor,
    element_count,
    invalid_tensor,
    malformed,
    not_carried,
    offload,
    pack_bytes,
)
from interlingua.schemas.offload import MIN_ELEMENTS
from interlingua.schemas.tensor import packed_elements
from interlingua.schemas.tfserving import MESSAGES

TENSOR: Any = MESSAGES["tensorflow.TensorProto"]
_SHAPE: Any = MESSAGES["tensorflow.TensorShapeProto"]

LONG_BYTES = 1 << 14
"""Typed values of more bytes take more than about 2 ms to read or to write."""

_MAX_RANK = 254
"""TensorFlow's own limit."""

_FEW_FIELDS = 64
"""A message in the usual form has fewer: one packed field of values."""

_DTYPE, _TENSOR_SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
_DIM, _UNKNOWN_RANK, _SIZE = 2, 3, 1

_NUMBERS: Mapping[str, int] = {field.name: field.number for field in TENSOR.DESCRIPTOR.fields}
_VALUES_NAMED: Mapping[Datatype, str] = {
    Datatype.FP32: "float_val",
    Datatype.FP64: "double_val",
    Datatype.BOOL: "bool_val",
    Datatype.BYTES: "string_val",
    Datatype.INT64: "int64_val",
    Datatype.UINT32: "uint32_val",
    Datatype.UINT64: "uint64_val",
    Datatype.FP16: "half_val",
    Datatype.BF16: "half_val",
    **dict.fromkeys(
        (Datatype.INT32, Datatype.INT16, Datatype.INT8, Datatype.UINT16, Datatype.UINT8), "int_val"
    ),
}
VALUES: Mapping[Datatype, int] = {datatype: _NUMBERS[name] for datatype, name in _VALUES_NAMED.items()}
"""The field of the typed values of each datatype."""

_NAMES = {number: name for name, number in _NUMBERS.items()}
_TYPED = frozenset(number for name, number in _NUMBERS.items() if name.endswith("_val"))

AS_THEY_ARE = frozenset({Datatype.FP32, Datatype.FP64, Datatype.BOOL})
"""Datatypes whose packed values have the bytes of the IR."""


# --- reading


class _Scanned(NamedTuple):
    """A message in the usual form: its parts, unread."""

    dtype: int
    shape: Buffer
    content: Buffer
    values: Mapping[int, memoryview]


def read_tensor(name: str, message: memoryview) -> Tensor:
    """The tensor in ``message``; its bytes, or packed floats, are a view. Raises MALFORMED; INVALID_TENSOR
    naming the tensor for an unsupported datatype, an unknown rank, values of another datatype, out of range
    or too many; TOO_LARGE."""
    found = _scan(message)
    if found is not None and (found.content or len(message) <= LONG_BYTES or _is_viewed(found)):
        return _read(name, found)
    if len(message) <= LONG_BYTES:
        return _read_unusual(name, message)
    tensor: Tensor = offload.call(_read_long, name, message)
    return tensor


class Viewed(NamedTuple):
    """The elements of a tensor as they are in memory, a view; ``typed`` if they are not in
    ``tensor_content``."""

    datatype: Datatype
    shape: tuple[int, ...]
    data: Buffer
    typed: bool


def viewed(name: str, message: memoryview) -> Viewed | None:
    """The tensor in ``message``; None if it is invalid, or needs decoding: it has strings, both kinds of
    contents, values that are varints, or fewer than elements."""
    found = _scan(message)
    datatype = None if found is None else DATATYPE_OF.get(found.dtype)
    if found is None or datatype is None or datatype is Datatype.BYTES:
        return None
    typed = not found.content
    if found.values and (not typed or datatype not in AS_THEY_ARE or set(found.values) != {VALUES[datatype]}):
        return None
    try:
        shape = _dimensions(name, found.shape)
        size = element_count(shape, name) * datatype.itemsize
    except InferenceError:
        return None
    data = found.values.get(VALUES[datatype], b"") if typed else found.content
    return Viewed(datatype, shape, data, typed) if len(data) == size else None


def _is_viewed(found: _Scanned) -> bool:
    return found.values.keys() <= {VALUES[datatype] for datatype in AS_THEY_ARE}


def _read_long(name: str, message: memoryview) -> Tensor:
    found = _scan(message)
    return _read_unusual(name, message) if found is None else _read(name, found)


def _scan(message: memoryview) -> _Scanned | None:
    """The parts of ``message``; None if it has strings, values that are not packed, or a field twice."""
    dtype = 0
    shape: Buffer = b""
    content: Buffer = b""
    values: dict[int, memoryview] = {}
    try:
        for count, (number, kind, value) in enumerate(fields(message)):
            if isinstance(value, int):
                if number == _DTYPE:
                    dtype = value
                elif number in _TYPED:
                    return None
            elif number == _TENSOR_SHAPE and kind == LENGTH_DELIMITED and not shape:
                shape = value
            elif number == _CONTENT and kind == LENGTH_DELIMITED:
                content = value
            elif number in _TYPED and kind == LENGTH_DELIMITED and number not in values:
                values[number] = value
            elif number in (_DTYPE, _TENSOR_SHAPE, _CONTENT) or number in _TYPED:
                return None
            if count > _FEW_FIELDS or number == _STRINGS:
                return None
    except DecodeError:
        return None
    return _Scanned(dtype, shape, content, values)


def _read_unusual(name: str, message: memoryview) -> Tensor:
    """A message in any form, by protobuf's own class. Raises as :func:`read_tensor`."""
    parsed = parse(TENSOR, message)
    datatype = datatype_of(name, parsed.dtype)
    if datatype is Datatype.BYTES and not parsed.tensor_content:
        shape = _dimensions(name, parsed.tensor_shape.SerializeToString())
        _refuse_others(name, datatype, {field.number for field, _ in parsed.ListFields()})
        return _of_strings(name, shape, list(parsed.string_val))
    parsed.ClearField("string_val")
    parsed.DiscardUnknownFields()
    # serialized again, the values are one packed field
    found = _scan(memoryview(parsed.SerializeToString()))
    if found is None:
        raise malformed(f"tensor '{name}' has a form that is not readable")
    return _read(name, found)


def _read(name: str, found: _Scanned) -> Tensor:
    datatype, shape = datatype_of(name, found.dtype), _dimensions(name, found.shape)
    content: Any = found.content
    if content:
        if datatype is Datatype.BYTES:
            content = pack_bytes(_listed(name, content, element_count(shape, name)))
        return Tensor.checked(name, datatype, shape, content)
    _refuse_others(name, datatype, found.values.keys())
    if datatype is Datatype.BYTES:
        return _of_strings(name, shape, [])
    data: Buffer = found.values.get(VALUES[datatype], b"")
    if datatype not in AS_THEY_ARE:
        data = _integers(name, datatype, data)
    size = datatype.itemsize
    if len(data) % size:
        raise malformed(f"the values of tensor '{name}' are cut short")
    missing = _missing(name, shape, len(data) // size)
    if missing:
        data = bytes(data)
        data += (data[-size:] or bytes(size)) * missing
    return Tensor.checked(name, datatype, shape, data)


def _of_strings(name: str, shape: tuple[int, ...], strings: list[bytes]) -> Tensor:
    offload.limits().check_elements(len(strings), f"tensor '{name}'")
    last = strings[-1] if strings else b""
    strings += [last] * _missing(name, shape, len(strings))
    return Tensor(name, Datatype.BYTES, shape, memoryview(pack_bytes(strings)))


def _dimensions(name: str, message: Buffer) -> tuple[int, ...]:
    shape: list[int] = []
    try:
        for number, _, value in fields(message):
            if number == _UNKNOWN_RANK and value:
                raise invalid_tensor(f"tensor '{name}' has a shape of unknown rank")
            if number == _DIM and not isinstance(value, int):
                size = read_fields(value).get(_SIZE, 0)
                if not isinstance(size, int) or size >= 1 << 63:
                    raise invalid_tensor(f"tensor '{name}' has a negative dimension in its shape")
                shape.append(size)
                if len(shape) > _MAX_RANK:
                    raise invalid_tensor(f"tensor '{name}' has more than {_MAX_RANK} dimensions")
    except DecodeError as error:
        raise malformed(f"unable to parse the shape of tensor '{name}': {error}") from error
    return tuple(shape)


def _missing(name: str, shape: tuple[int, ...], present: int) -> int:
    """How many values repeat the last one. Raises INVALID_TENSOR for too many values, TOO_LARGE for a
    claim beyond the limit."""
    count = element_count(shape, name)
    if present > count:
        raise invalid_tensor(f"tensor '{name}' of shape {list(shape)} needs {count} values, got {present}")
    if present < count and count > MIN_ELEMENTS:
        offload.require()
        offload.limits().check_elements(count, f"tensor '{name}'")
    return count - present


def _refuse_others(name: str, datatype: Datatype, present: Any) -> None:
    """Raise INVALID_TENSOR for values of another datatype, which TensorFlow ignores."""
    others = sorted(_NAMES[number] for number in present & _TYPED if number != VALUES[datatype])
    if others:
        raise invalid_tensor(
            f"tensor '{name}' of datatype {datatype.value} has {' and '.join(others)}, "
            f"expected {_VALUES_NAMED[datatype]}"
        )


def _integers(name: str, datatype: Datatype, packed: Buffer) -> Buffer:
    """Packed varints as the data of a tensor. The bits of a half float are an integer."""
    try:
        unsigned = unpack_varints(packed)
    except DecodeError as error:
        raise malformed(f"unable to parse the values of tensor '{name}': {error}") from error
    wide = unsigned.view(np.int64) if datatype.dtype.kind == "i" else unsigned
    narrow = wide.astype(np.uint16 if datatype.dtype.kind in "fV" else datatype.dtype)
    wrong = np.flatnonzero(narrow != wide)
    if len(wrong):
        raise invalid_tensor(
            f"tensor '{name}': element {wrong[0]} is {wide[wrong[0]]}, outside of {datatype.value}"
        )
    return narrow.view(np.uint8).data


def _listed(name: str, content: Buffer, count: int) -> Iterator[bytes]:
    """The strings in a ``tensor_content``: the varints of ``count`` lengths, then the bytes."""
    view = memoryview(content)
    if count > len(view):
        raise invalid_tensor(f"tensor '{name}' has fewer than {count} strings in its content")
    if count > LONG_BYTES >> 2:
        offload.require()
        offload.limits().check_elements(count, f"tensor '{name}'")
    octets = np.frombuffer(view, np.uint8)
    ends = np.flatnonzero(octets < 0x80)[:count]
    if len(ends) < count:
        raise invalid_tensor(f"tensor '{name}' has fewer than {count} strings in its content")
    position = int(ends[-1]) + 1 if count else 0
    try:
        lengths = unpack_varints(view[:position]).tolist()
    except DecodeError as error:
        raise malformed(f"unable to parse the content of tensor '{name}': {error}") from error
    if position + sum(lengths) != len(view):
        raise invalid_tensor(f"the content of tensor '{name}' does not hold exactly {count} strings")
    for length in lengths:
        yield bytes(view[position : position + length])
        position += length


# --- writing


def described(datatype: Datatype, shape: tuple[int, ...]) -> bytes:
    """The beginning of a message: datatype and shape."""
    tensor = TENSOR(dtype=NUMBER_OF[datatype])
    tensor.tensor_shape.SetInParent()
    for side in shape:
        tensor.tensor_shape.dim.add(size=side)
    return bytes(tensor.SerializeToString())


def typed_values(tensor: Tensor) -> tuple[int, Buffer]:
    """The values of ``tensor`` as the original server writes them: a field and its contents, or 0 and
    the strings as whole fields. Raises UNREPRESENTABLE for a tensor in shared memory."""
    data, datatype = in_memory(tensor), tensor.datatype
    if datatype in AS_THEY_ARE:
        return VALUES[datatype], data
    packed = offload.call(_packed, data, datatype) if len(data) > LONG_BYTES else _packed(data, datatype)
    return (0 if datatype is Datatype.BYTES else VALUES[datatype]), packed


def content(tensor: Tensor) -> tuple[int, Buffer]:
    """The same for a client: the bytes of all elements, strings as values."""
    if tensor.datatype is Datatype.BYTES:
        return typed_values(tensor)
    return _CONTENT, in_memory(tensor)


def in_memory(tensor: Tensor) -> memoryview:
    """The data of ``tensor``. Raises UNREPRESENTABLE for a tensor in shared memory."""
    if isinstance(tensor.data, SharedMemoryRef):
        raise not_carried(DIALECT_NAME, f"the shared memory of tensor '{tensor.name}'")
    return tensor.data


def _packed(data: memoryview, datatype: Datatype) -> Buffer:
    if datatype is Datatype.BYTES:
        tag = varint(_STRINGS << 3 | LENGTH_DELIMITED)
        parts: list[bytes] = []
        for element in packed_elements(memoryview(data)):
            parts += (tag, varint(len(element)), element)
        return b"".join(parts)
    bits = np.uint16 if datatype.dtype.kind in "fV" else datatype.dtype
    return pack_varints(np.frombuffer(data, bits))
