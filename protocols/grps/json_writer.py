"""A ``GrpsMessage`` in JSON, written: in the order, the layout and the forms of the original servers.

A document has the status, the model, then the data, as far as they are not empty. 64-bit integers may be
text, bytes are base64, non-finite numbers are "NaN", "Infinity" or "-Infinity": also in an ndarray, where the
originals write invalid JSON. Floats are the shortest text that reads as the same number; an ndarray has
64-bit floats.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from math import prod
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from interlingua.protocols.grps.json_layout import Layout
from interlingua.protocols.grps.json_quirks import JsonQuirks
from interlingua.protocols.grps.message import (
    DIALECT_NAME,
    DT_STRING,
    DTYPES,
    GMAP_FIELDS,
    MANY,
    OK,
    GenericTensor,
    GrpsMessage,
    Kind,
    Status,
    StatusFlag,
)
from interlingua.schemas import InferenceError, not_carried, offload, unrepresentable

_MAX_RANK = 64
"""The nesting limit of an ndarray, NumPy's."""

_MAX_EMPTY_ARRAYS = 1 << 16

_MANY_NUMBERS = 1 << 15

_FP32 = np.finfo(np.float32)
_LARGEST_FP32 = (b"3.4028235e+38", b"3.4028234663852886e+38")
"""Its shortest text, and the exact one."""

_NAMES = {True: "Infinity", False: "-Infinity"}
_KINDS = {kind: b'"%s"' % kind.value.encode() for kind in Kind}
_FIELDS = {number: b'"%s"' % dtype.field.encode() for number, dtype in DTYPES.items()}
_KNOWN_HEAD, _RANK_COST = 256, 16
"""How long a name is in a cached head of a tensor, and as how much of it a dimension counts."""

_FLAGS = frozenset(StatusFlag)
_INT64_DTYPE = 5
_MAP_DTYPES: Mapping[str, np.dtype[Any]] = {
    "s_i32": np.dtype("<i4"),
    "s_i64": np.dtype("<i8"),
    "s_f": np.dtype("<f4"),
    "s_d": np.dtype("<f8"),
}


def write_message(message: GrpsMessage, quirks: JsonQuirks, indent: int | None = None) -> bytes:
    """The document of any kind; ``indent`` replaces that of ``quirks``. Raises UNREPRESENTABLE for text that
    is not Unicode, and naming the tensor for an ndarray that nests too deep."""
    if message.kind is not Kind.NOTHING and any(map(_is_long, message.tensors)):
        return cast(bytes, offload.call(_write_long, message, quirks, indent))
    return _write(message, quirks, indent)


def _is_long(tensor: GenericTensor) -> bool:
    """Whether writing takes more than about 2 ms."""
    return len(tensor.flat) > (_MANY_NUMBERS if isinstance(tensor.flat, np.ndarray) else MANY)


def _write_long(message: GrpsMessage, quirks: JsonQuirks, indent: int | None) -> memoryview:
    return memoryview(_write(message, quirks, indent))


def _write(message: GrpsMessage, quirks: JsonQuirks, indent: int | None) -> bytes:
    writer = _writer(quirks, quirks.indent if indent is None else indent)
    try:
        text = writer.message(message)
    except (ValueError, TypeError) as error:
        raise not_carried(DIALECT_NAME, f"this: {error}") from error
    # an ndarray has another printer, without a newline
    return text + b"\n" if quirks.newline and message.kind is not Kind.NDARRAY else text


class _Writer:
    """The parts of a message, by depth."""

    def __init__(self, quirks: JsonQuirks, layout: Layout) -> None:
        self._quirks = quirks
        self._layout = layout
        self._ok = self._status(OK)
        # models repeat their tensors
        self._known_head = lru_cache(256)(self._head)

    def message(self, message: GrpsMessage) -> bytes:
        return self._layout.members(self._message(message), 0)

    def _message(self, message: GrpsMessage) -> Iterator[tuple[bytes, bytes]]:
        if message.status is not None:
            status = message.status
            yield b'"status"', self._ok if status is OK else self._status(status)
        if message.model or (message.kind is Kind.NDARRAY and message.tensors and self._quirks.empty_model):
            yield b'"model"', self._text(message.model)
        if message.kind is not Kind.NOTHING:
            yield _KINDS[message.kind], self._data(message)

    def _status(self, status: Status) -> bytes:
        members = []
        if status.code:
            members.append((b'"code"', b"%d" % status.code))
        if status.msg:
            members.append((b'"msg"', self._text(status.msg)))
        if status.flag:
            known = status.flag in _FLAGS
            members.append(
                (
                    b'"status"',
                    b'"%s"' % StatusFlag(status.flag).name.encode() if known else b"%d" % status.flag,
                )
            )
        return self._layout.members(members, 1)

    def _data(self, message: GrpsMessage) -> bytes:
        if message.kind is Kind.STR_DATA:
            return self._text(message.str_data)
        if message.kind is Kind.BIN_DATA:
            return _base64(message.bin_data)
        if message.kind is Kind.GMAP:
            return self._layout.members(self._maps(message.gmap), 1)
        if message.kind is Kind.NDARRAY:
            return self._ndarray(message.tensors[0]) if message.tensors else b"{}"
        if not message.tensors:
            return b"{}"
        tensors = [self._tensor(tensor) for tensor in message.tensors]
        return self._layout.members([(b'"tensors"', self._layout.items(tensors, 2))], 1)

    # --- gtensors

    def _tensor(self, tensor: GenericTensor) -> bytes:
        name, shape = tensor.name, tensor.shape
        short = len(name) + _RANK_COST * len(shape) <= _KNOWN_HEAD
        head = (self._known_head if short else self._head)(name, tensor.dtype, shape)
        dtype = DTYPES.get(tensor.dtype)
        if dtype is not None and len(tensor.flat):
            head = *head, (_FIELDS[tensor.dtype], self._flat(tensor))
        return self._layout.members(head, 3)

    def _head(self, name: str, dtype: int, shape: tuple[int, ...]) -> tuple[tuple[bytes, bytes], ...]:
        """The members of a tensor without its elements."""
        members = []
        if name:
            members.append((b'"name"', self._text(name)))
        known = DTYPES.get(dtype)
        if dtype:
            members.append((b'"dtype"', b'"%s"' % known.name.encode() if known else b"%d" % dtype))
        if shape:
            members.append((b'"shape"', self._layout.numbers(orjson.dumps(shape), 4)))
        return tuple(members)

    def _flat(self, tensor: GenericTensor) -> bytes:
        flat = tensor.flat
        if tensor.dtype == DT_STRING or not isinstance(flat, np.ndarray):
            return self._layout.items([self._text(text) for text in flat], 4)
        quoted = self._quirks.int64_text and tensor.dtype == _INT64_DTYPE
        return self._layout.numbers(self._numbers(flat), 4, quote=b'"' if quoted else b"")

    def _numbers(self, flat: NDArray[Any]) -> bytes:
        """A compact array of them."""
        if flat.dtype.kind != "f":
            return orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
        finite = np.isfinite(flat)
        if finite.all():
            return self._floats(flat, flat)
        with np.errstate(invalid="ignore"):  # for signalling NaNs
            return self._floats(flat, _named(list(flat), flat, finite))

    def _floats(self, flat: NDArray[Any], values: Any) -> bytes:
        """``values``, which are ``flat`` with names where it is not finite."""
        text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
        # the shortest text of the largest FP32 is above it, so protobuf refuses it
        if flat.dtype == _FP32.dtype and (np.abs(flat) == _FP32.max).any():
            text = text.replace(*_LARGEST_FP32)
        # looking for whole numbers is ten times as fast as looking for their text
        if self._quirks.whole_floats and (np.trunc(flat) == flat).any():
            return text.replace(b".0,", b",").replace(b".0]", b"]")
        return text

    # --- gmap

    def _maps(self, gmap: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[bytes, bytes]]:
        for field in GMAP_FIELDS:
            if entries := gmap.get(field):
                members = [(self._text(key), self._entry(field, value)) for key, value in entries.items()]
                yield b'"%s"' % field.encode(), self._layout.members(members, 2)

    def _entry(self, field: str, value: Any) -> bytes:
        if field == "s_s":
            return self._text(value)
        if field == "s_b":
            return _base64(value)
        text = self._numbers(np.array([value], _MAP_DTYPES[field]))[1:-1]
        return b'"%s"' % text if field == "s_i64" and self._quirks.int64_text else text

    # --- ndarray

    def _ndarray(self, tensor: GenericTensor) -> bytes:
        assert isinstance(tensor.flat, np.ndarray)  # noqa: S101 - an ndarray is FP32
        shape = tensor.shape
        if len(shape) > _MAX_RANK:
            raise _refused(
                tensor, f"has {len(shape)} dimensions, of which an ndarray has at most {_MAX_RANK}"
            )
        if not len(tensor.flat):
            return self._empty(tensor, 1)
        with np.errstate(invalid="ignore"):  # for signalling NaNs
            wide = tensor.flat.astype(np.float64)
        finite = np.isfinite(wide)
        values: Any = wide if finite.all() else _objects(_named(wide.tolist(), wide, finite))
        if not shape:
            return orjson.dumps(values[0].item() if values is wide else values[0])
        if len(shape) > 1:
            values = values.reshape(-1, shape[-1])
        text = orjson.dumps(
            values if values.dtype == wide.dtype else values.tolist(), option=orjson.OPT_SERIALIZE_NUMPY
        )
        return self._layout.numbers(text, 1) if len(shape) == 1 else self._layout.nested(text, 1, shape)

    def _empty(self, tensor: GenericTensor, depth: int) -> bytes:
        """An ndarray without elements: arrays down to the first dimension of 0."""
        outer = tensor.shape[: tensor.shape.index(0)]
        if prod(outer) > _MAX_EMPTY_ARRAYS:
            raise _refused(
                tensor, f"of shape {list(tensor.shape)} has no elements and too many arrays for an ndarray"
            )
        text = b"[]"
        for level in range(len(outer), 0, -1):
            text = self._layout.items([text] * outer[level - 1], depth + level - 1)
        return text

    # --- text

    def _text(self, text: str) -> bytes:
        if self._quirks.ascii:
            text.encode()  # refuses half of a surrogate pair
            return json.dumps(text).encode()
        return orjson.dumps(text).replace(b"<", b"\\u003c").replace(b">", b"\\u003e")


@cache
def _writer(quirks: JsonQuirks, indent: int | None) -> _Writer:
    return _Writer(quirks, Layout(indent))


def _named(values: list[Any], flat: NDArray[Any], finite: NDArray[Any]) -> list[Any]:
    """``values`` with the names of those that are not finite."""
    for index in np.flatnonzero(~finite).tolist():
        value = flat[index]
        values[index] = "NaN" if value != value else _NAMES[bool(value > 0)]
    return values


def _objects(values: list[Any]) -> NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _base64(data: Any) -> bytes:
    return b'"%s"' % b2a_base64(data, newline=False)


def _refused(tensor: GenericTensor, what: str) -> InferenceError:
    return unrepresentable(f"output '{tensor.name}' {what}")
