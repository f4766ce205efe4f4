"""Tensor data in JSON: arrays of numbers to tensor data and back.

Reading is strict: an INT32 is an integral JSON number in range, a BOOL is true or false, rows have equal
lengths. Writing is lossless: values that JSON cannot carry (NaN and infinity unless requested, bytes that are
not UTF-8) are refused by name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import prod
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import orjson
from numpy.typing import NDArray

from interlingua.protocols.json_document import LazyArray
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    Tensor,
    invalid_tensor,
    pack_bytes,
    unrepresentable,
)

_NAN, _INFINITY, _MINUS_INFINITY = map(orjson.Fragment, (b"NaN", b"Infinity", b"-Infinity"))

_LONG_BYTES, _LONG_STRINGS = 1 << 18, 1 << 14
"""Numbers, and packed strings, of more bytes take more than about 2 ms to write."""

_EXACT_IN_FLOATS = 2**53
"""Up to here a float is exactly the integer that was written."""

# struct formats: their packing checks the range of every element, floats included
_FORMATS: dict[Datatype, str] = {
    Datatype.BOOL: "?",
    Datatype.UINT8: "B",
    Datatype.UINT16: "H",
    Datatype.UINT32: "I",
    Datatype.UINT64: "Q",
    Datatype.INT8: "b",
    Datatype.INT16: "h",
    Datatype.INT32: "i",
    Datatype.INT64: "q",
    Datatype.FP16: "e",
    Datatype.FP32: "f",
    Datatype.FP64: "d",
}
_FLOATS = frozenset({Datatype.FP16, Datatype.FP32, Datatype.FP64})

_NUMBERS: tuple[frozenset[type], str] = (frozenset({int, float}), "a number")
_WHOLE: tuple[frozenset[type], str] = (frozenset({int}), "an integer")
_EXPECTED: dict[Datatype, tuple[frozenset[type], str]] = {
    **dict.fromkeys(_FORMATS, _WHOLE),
    **dict.fromkeys(_FLOATS, _NUMBERS),
    Datatype.BOOL: (frozenset({bool}), "true or false"),
    Datatype.BYTES: (frozenset({str}), "a string"),
}
"""The JSON elements of each datatype: exact Python types, and words for messages."""

# by NumPy's kind: simdjson's name of the widest type, and the type
_WIDE: dict[str, tuple[str, np.dtype[Any]]] = {
    "f": ("d", np.dtype("<f8")),
    "i": ("i", np.dtype("<i8")),
    "u": ("u", np.dtype("<u8")),
}

_GOT = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", dict: "an object"}


def pack_values(
    name: str,
    datatype: Datatype,
    count: int,
    values: list[Any] | LazyArray,
    of_type: Mapping[str, str] = MappingProxyType({}),
) -> memoryview:
    """The ``count`` elements of a JSON array as tensor data, nested arrays flattened row by row.

    Strings are the UTF-8 text of BYTES elements; 1.0 is an integer. Raises INVALID_TENSOR naming tensor and
    element for a wrong JSON type or a value out of range, for rows that differ in length or depth, and for
    another number of elements; UNREPRESENTABLE for BF16, which has no JSON form. A dialect has words of its
    own for a wrong type in ``of_type``, by the NumPy kind of the datatype; they come first.
    """
    if datatype is Datatype.BF16:
        raise _no_json_form(name, datatype)
    if isinstance(values, LazyArray):
        numbers = _numbers(values, datatype)
        if numbers is not None:
            _check_count(name, count, numbers.size)
            return numbers.view(np.uint8).data.toreadonly()
        values = values.tolist()
    flat, found = _flatten(name, values)
    types, expected = _EXPECTED[datatype]
    if types is _WHOLE[0] and float in found:
        flat = [int(value) if _is_whole(value) else value for value in flat]
        found = set(map(type, flat))
    if not found <= types:
        index, value = next((i, v) for i, v in enumerate(flat) if type(v) not in types)
        wrong = f"element {index} must be {expected}, got {_GOT.get(type(value), 'null')}"
        raise invalid_tensor(f"{of_type.get(datatype.dtype.kind, '')}tensor '{name}': {wrong}")
    _check_count(name, count, len(flat))
    if datatype is Datatype.BYTES:
        return memoryview(pack_bytes(map(str.encode, flat)))
    element = _FORMATS[datatype]
    try:
        return memoryview(struct.pack(f"<{count}{element}", *flat))
    except (struct.error, OverflowError):
        index = next(_misfits(flat, element))
        _refuse(name, f"element {index} ({flat[index]}) is out of range for {datatype.value}")


def json_values(
    tensor: Tensor,
    *,
    tokens: bool = False,
    refusal: ErrorCode = ErrorCode.UNREPRESENTABLE,
    unwrap: bool = False,
    nested: bool = False,
) -> Any:
    """The elements of ``tensor`` as a flat array for ``write_json``; ``unwrap``: a single one without an
    array; ``nested``: in arrays of the tensor's shape. Many are a :class:`LongTensor`.

    ``tokens`` writes NaN and infinity as in JavaScript, which strict readers refuse; otherwise they raise the
    code in ``refusal``. Raises UNREPRESENTABLE naming tensor and element for bytes that are not UTF-8, and
    for BF16.
    """
    if tensor.nbytes > (_LONG_BYTES if tensor.datatype.itemsize else _LONG_STRINGS):
        return LongTensor(tensor, tokens, refusal, unwrap, nested)
    return _written(tensor, tokens, refusal, unwrap, nested)


class LongTensor:
    """A ``LongValue``: the arguments of :func:`json_values`. No dataclass, which orjson would write."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def json_values(self) -> Any:
        return _written(*self._arguments)


def _written(tensor: Tensor, tokens: bool, refusal: ErrorCode, unwrap: bool, nested: bool) -> Any:
    values = _values(tensor, tokens, refusal)
    if nested:
        return in_shape(values, tensor.shape)
    return values[0] if unwrap and len(values) == 1 else values


def in_shape(values: Any, shape: tuple[int, ...]) -> Any:
    """The flat ``values``, a list or an array, in arrays of ``shape``; the only one for a scalar's shape."""
    if not shape:
        return values[0]
    if not isinstance(values, list):
        return values.reshape(shape)
    for place in range(len(shape) - 1, 0, -1):
        side = shape[place]
        values = [values[start * side : (start + 1) * side] for start in range(prod(shape[:place]))]
    return values


def _values(tensor: Tensor, tokens: bool, refusal: ErrorCode) -> Any:
    if tensor.datatype is Datatype.BYTES:
        return list(_texts(tensor))
    if tensor.datatype is Datatype.BF16:
        raise _no_json_form(tensor.name, tensor.datatype)
    if tensor.datatype is Datatype.BOOL:
        truth: NDArray[Any] = np.frombuffer(tensor.view, np.uint8) != 0
        return truth
    flat = np.frombuffer(tensor.view, tensor.datatype.dtype)
    if flat.dtype.kind == "f":
        finite = np.isfinite(flat)
        # faster than all() for small arrays
        if np.count_nonzero(finite) != flat.size:
            if tokens:
                return _with_tokens(flat, finite)
            index = int(finite.argmin())
            raise InferenceError(
                refusal,
                f"tensor '{tensor.name}': element {index} is {flat[index]}, which JSON cannot carry; "
                "use binary data",
            )
    return flat


def _with_tokens(flat: NDArray[Any], finite: NDArray[Any]) -> list[Any]:
    """``flat`` with a JSON token for each element that is not finite."""
    values = list(flat)
    for index in np.flatnonzero(~finite):
        value = flat[index]
        values[index] = _NAN if value != value else _INFINITY if value > 0 else _MINUS_INFINITY
    return values


def _numbers(values: LazyArray, datatype: Datatype) -> NDArray[Any] | None:
    """The elements in the datatype; None if one is of another kind or out of range, or rows may differ."""
    known = _WIDE.get(datatype.dtype.kind) if datatype is not Datatype.BYTES else None
    numbers = values.numbers(*known) if known else None
    return None if numbers is None else _narrow(numbers, datatype.dtype)


def _is_whole(value: Any) -> bool:
    return type(value) is float and value.is_integer() and abs(value) <= _EXACT_IN_FLOATS


def _narrow(numbers: NDArray[Any], target: np.dtype[Any]) -> NDArray[Any] | None:
    """``numbers`` in a type of the same kind and no wider; None if one is out of range."""
    if numbers.dtype == target:
        return numbers
    if target.kind == "f":
        with np.errstate(over="ignore"):
            narrow = numbers.astype(target)
        return narrow if np.isfinite(narrow).all() else None
    limits = np.iinfo(target)
    if numbers.size and (numbers.min() < limits.min or numbers.max() > limits.max):
        return None
    return numbers.astype(target)


def _flatten(name: str, values: list[Any]) -> tuple[list[Any], set[type]]:
    """The leaves of ``values`` in order, and their types."""
    while list in (found := set(map(type, values))):
        if len(found) > 1 or len(set(map(len, values))) > 1:
            _refuse(name, "'data' is ragged: its rows differ in length or depth")
        values = list(chain.from_iterable(values))
    return values, found


def _misfits(flat: Iterable[Any], element: str) -> Iterator[int]:
    for index, value in enumerate(flat):
        try:
            struct.pack(f"<{element}", value)
        except (struct.error, OverflowError):
            yield index


def _texts(tensor: Tensor) -> Iterator[str]:
    for index, element in enumerate(tensor.elements()):
        try:
            yield element.decode()
        except UnicodeDecodeError:
            raise unrepresentable(
                f"tensor '{tensor.name}': element {index} is not UTF-8 text, which JSON cannot carry; "
                "use binary data"
            ) from None


def _no_json_form(name: str, datatype: Datatype) -> InferenceError:
    return unrepresentable(f"tensor '{name}': {datatype.value} has no JSON form; use binary data")


def _check_count(name: str, expected: int, found: int) -> None:
    if found != expected:
        _refuse(name, f"the shape needs {expected} elements, 'data' has {found}")


def _refuse(name: str, message: str) -> NoReturn:
    raise invalid_tensor(f"tensor '{name}': {message}")
