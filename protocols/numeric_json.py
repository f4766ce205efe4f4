"""JSON with numbers in it: documents to Python values, arrays of numbers to tensor data and back.

Contract: reading is strict (an INT32 is a JSON integer that fits, a BOOL is true or false) and
writing never loses anything: what JSON cannot say (NaN, infinity, bytes that are not UTF-8) is
refused by name. Large documents go through simdjson, whose number arrays become buffers without a
Python object per element; small ones, and whatever simdjson will not take, through orjson. Where the
numbers stand in a message belongs to the dialects.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from protocols.wire import Buffer
from schemas import Datatype, ErrorCode, InferenceError, Tensor, pack_bytes

_LAZY_FROM_BYTES = 2048
"""From this size on simdjson is faster than orjson, measured with one array of floats."""

_LAZY_UP_TO_BYTES = 2 * 0xFFFFFF
"""simdjson counts the elements of an array in 24 bits and its lists end there; a document of this size
cannot have more."""

_FEW_KEYS = 32

_LAZY_DEPTH = 8
"""How deep in a document lazy arrays are looked for; deeper parts are read whole."""

_BOM = b"\xef\xbb\xbf"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_MAX_DEPTH = 1024  # orjson's
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_INTEGERS = range(-(2**63), 2**64)

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
"""What a JSON element must be for each datatype: exact Python types, and words for people."""

# by NumPy's kind: what simdjson calls the widest type of that kind, and the type
_WIDE: dict[str, tuple[str, np.dtype[Any]]] = {
    "f": ("d", np.dtype("<f8")),
    "i": ("i", np.dtype("<i8")),
    "u": ("u", np.dtype("<u8")),
}

_GOT = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", dict: "an object"}


class LazyArray:
    """A JSON array of a large document, not yet turned into Python objects."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def tolist(self) -> list[Any]:
        """The array as Python values, nesting kept."""
        values: list[Any] = self._array.as_list()
        return values

    def numbers(self, datatype: Datatype) -> NDArray[Any] | None:
        """The elements as numbers of a fixed-size datatype, any nesting flattened; None where they
        are not all numbers, or one does not fit."""
        code, wide = _WIDE[datatype.dtype.kind]
        try:
            return _narrow(np.frombuffer(self._array.as_buffer(of_type=code), wide), datatype.dtype)
        except (TypeError, ValueError):
            return None


def parse_json(text: Buffer, lazy: Collection[str] = ()) -> Any:
    """The value of a JSON document in UTF-8, a byte order mark allowed.

    Arrays that stand under a key in ``lazy`` may come back as :class:`LazyArray`. The literals NaN,
    Infinity and -Infinity are numbers; a key that comes twice has its last value. Raises MALFORMED
    with the place of the fault.
    """
    if text[:3] == _BOM:
        text = text[3:]
    if lazy and _LAZY_FROM_BYTES <= len(text) <= _LAZY_UP_TO_BYTES:
        # orjson has the last word: it takes more, and says where a fault is
        with suppress(ValueError, RuntimeError):
            # one parser per document: a parser cannot be used again while one of its arrays lives
            return _settle(simdjson.Parser().parse(text), lazy, _LAZY_DEPTH)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as fault:
        return _parse_literals(bytes(text), str(fault))


def write_json(document: Any) -> bytes:
    """``document`` as JSON; NumPy arrays are written as arrays of numbers.

    Arrays must come from :func:`json_values`, plain floats must be finite. Raises UNREPRESENTABLE for
    text that is not Unicode.
    """
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as fault:
        raise InferenceError(ErrorCode.UNREPRESENTABLE, f"JSON cannot carry this: {fault}") from None


def pack_values(name: str, datatype: Datatype, count: int, values: list[Any] | LazyArray) -> memoryview:
    """The ``count`` elements of a JSON array as tensor data, nested arrays flattened row by row.

    Strings are the UTF-8 text of BYTES elements. Raises INVALID_TENSOR naming tensor and element for
    one of the wrong JSON type or out of range, and for another number of elements; UNREPRESENTABLE
    for BF16, which has no JSON form.
    """
    if datatype is Datatype.BF16:
        raise _no_json_form(name, datatype)
    if isinstance(values, LazyArray):
        numbers = values.numbers(datatype) if datatype.dtype.kind in _WIDE else None
        if numbers is not None:
            _check_count(name, count, numbers.size)
            return numbers.view(np.uint8).data.toreadonly()
        values = values.tolist()
    flat, found = _flatten(values)
    types, expected = _EXPECTED[datatype]
    if not found <= types:
        index, value = next((i, v) for i, v in enumerate(flat) if type(v) not in types)
        _refuse(name, f"element {index} must be {expected}, got {_GOT.get(type(value), 'null')}")
    _check_count(name, count, len(flat))
    if datatype is Datatype.BYTES:
        return memoryview(pack_bytes(map(str.encode, flat)))
    element = _FORMATS[datatype]
    try:
        return memoryview(struct.pack(f"<{count}{element}", *flat))
    except (struct.error, OverflowError):
        index = next(_misfits(flat, element))
        _refuse(name, f"element {index} ({flat[index]}) is out of range for {datatype.value}")


def json_values(tensor: Tensor) -> NDArray[Any] | list[str]:
    """The elements of ``tensor`` as a flat array that :func:`write_json` takes.

    Raises UNREPRESENTABLE naming tensor and element for NaN, infinity and bytes that are not UTF-8,
    and for BF16.
    """
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
        if not finite.all():
            index = int(finite.argmin())
            raise InferenceError(
                ErrorCode.UNREPRESENTABLE,
                f"tensor '{tensor.name}': element {index} is {flat[index]}, which JSON cannot carry; "
                "use binary data",
            )
    return flat


def _narrow(numbers: NDArray[Any], target: np.dtype[Any]) -> NDArray[Any] | None:
    """``numbers`` in a type of the same kind and no wider; None where one does not fit."""
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


def _settle(value: Any, lazy: Collection[str], depth: int) -> Any:
    """simdjson's proxies as Python values, the lazy arrays left as they are.

    Raises ``ValueError`` for a key that comes twice, of which simdjson would take the first, and for
    one with a NUL in it, where a look-up would end.
    """
    if isinstance(value, simdjson.Object):
        keys = list(value.keys())
        # every look-up by key is a search from the first one on
        if not depth or len(keys) > _FEW_KEYS:
            return value.as_dict()
        if len(set(keys)) < len(keys):
            raise ValueError("a key comes twice")
        if any("\0" in key for key in keys):
            raise ValueError("a key has a NUL in it")
        return {key: _settle_member(key, value[key], lazy, depth) for key in keys}
    if isinstance(value, simdjson.Array):
        return [_settle(item, lazy, depth - 1) for item in value] if depth else value.as_list()
    return value


def _settle_member(key: str, value: Any, lazy: Collection[str], depth: int) -> Any:
    if key in lazy and isinstance(value, simdjson.Array):
        return LazyArray(value)
    return _settle(value, lazy, depth - 1)


def _parse_literals(text: bytes, fault: str) -> Any:
    """Another try for documents with NaN or Infinity in them, by the standard library: slower, and the
    only one that knows these literals. ``fault`` is what orjson said."""
    malformed = InferenceError(ErrorCode.MALFORMED, f"the body is not JSON: {fault}")
    if b"NaN" not in text and b"Infinity" not in text:
        raise malformed
    # how deep json goes depends on the version of Python
    if _depth(text) > _MAX_DEPTH:
        raise malformed
    try:
        decoded = text.decode()
        document = json.loads(  # noqa: TID251 - NaN is what it is here for
            decoded, parse_int=_integer, parse_float=_real
        )
        if _SURROGATE.search(decoded):
            orjson.dumps(document)  # refuses half of a surrogate pair, which json lets pass
    except (ValueError, TypeError, RecursionError):
        raise malformed from None
    return document


def _depth(text: bytes) -> int:
    """How deep arrays and objects nest; anything for what is no JSON."""
    marks = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    opened = ((marks == ord("[")) | (marks == ord("{"))).astype(np.int64)
    closed = (marks == ord("]")) | (marks == ord("}"))
    return int(np.cumsum(opened - closed).max(initial=0))


def _integer(digits: str) -> int | float:
    # as orjson: beyond 64 bits it is a float
    value = int(digits)
    return value if value in _INTEGERS else _real(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if value - value != 0:
        raise ValueError("number is infinity when parsed as double")
    return value


def _flatten(values: list[Any]) -> tuple[list[Any], set[type]]:
    """The leaves of ``values`` in order, and their types."""
    while list in (found := set(map(type, values))):
        if len(found) > 1:
            values = list(_leaves(values))
            return values, set(map(type, values))
        values = list(chain.from_iterable(values))
    return values, found


def _leaves(values: list[Any]) -> Iterator[Any]:
    """The leaves of an array of uneven depth, in order and in linear time."""
    stack: list[Iterator[Any]] = [iter(values)]
    while stack:
        for item in stack[-1]:
            if type(item) is list:
                stack.append(iter(item))
                break
            yield item
        else:
            stack.pop()


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
            raise InferenceError(
                ErrorCode.UNREPRESENTABLE,
                f"tensor '{tensor.name}': element {index} is not UTF-8 text, which JSON cannot carry; "
                "use binary data",
            ) from None


def _no_json_form(name: str, datatype: Datatype) -> InferenceError:
    return InferenceError(
        ErrorCode.UNREPRESENTABLE, f"tensor '{name}': {datatype.value} has no JSON form; use binary data"
    )


def _check_count(name: str, expected: int, found: int) -> None:
    if found != expected:
        _refuse(name, f"the shape needs {expected} elements, 'data' has {found}")


def _refuse(name: str, message: str) -> NoReturn:
    raise InferenceError(ErrorCode.INVALID_TENSOR, f"tensor '{name}': {message}")
