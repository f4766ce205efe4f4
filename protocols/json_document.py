"""JSON documents to Python values and back.

simdjson parses large documents: its number arrays become buffers without a Python object per element. orjson
parses small ones and those that simdjson refuses, the standard library those with NaN or repeated keys. The
result does not depend on the parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Protocol, cast

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from interlingua.protocols.wire import Buffer
from interlingua.schemas import InferenceError, malformed, offload, unrepresentable

MAX_DEPTH = 100
"""The nesting limit of arrays and objects."""

MOST_DEPTH = 1000
"""The limit where a dialect ignores what it does not know; the parsers have 1024."""

_LAZY_FROM_BYTES = 2048
"""From this size on simdjson is faster than orjson, measured with one array of floats."""

_LAZY_UP_TO_BYTES = 2 * 0xFFFFFF
"""simdjson truncates arrays at 24 bits of elements; a document up to this size cannot have more."""

LONG_BYTES = 1 << 14
"""A document up to this size is parsed on the event loop, whatever it has."""

_LONGEST_HERE = 1 << 18
_MARKS_HERE = 1 << 11
"""The size, and the number of quotes and brackets, up to which a document takes less than about 2 ms."""

_BLOCK = 1 << 20

_FEW_KEYS = 32

_LAZY_DEPTH = 8
"""The maximum depth of lazy arrays in a document."""

_BOM = b"\xef\xbb\xbf"
# possessive, and content without a closing quote: linear for any text
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_INTEGERS = range(-(2**63), 2**64)


class LazyArray:
    """A JSON array of a large document, not yet converted to Python objects."""

    __slots__ = ("_array", "inner")

    def __init__(self, array: Any) -> None:
        self._array = array
        # the number of arrays within it; None if unknown
        self.inner: int | None = None

    def tolist(self) -> list[Any]:
        """The array as Python values, nesting kept."""
        values: list[Any] = self._array.as_list()
        return values

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the array and of the first array at each level; of a regular one, its shape."""
        sides = [len(self._array)]
        row = self._array
        while sides[-1] and isinstance(row := row[0], simdjson.Array):
            sides.append(len(row))
        return tuple(sides)

    def numbers(self, code: str, wide: np.dtype[Any]) -> NDArray[Any] | None:
        """The elements as numbers in row-major order; ``code`` is simdjson's name of ``wide``. None if one is
        of another kind, or rows may differ in length."""
        if self.inner is None or (self.inner and not _is_regular(self._array, self.inner)):
            return None
        try:
            return np.frombuffer(self._array.as_buffer(of_type=code), wide)
        except (TypeError, ValueError):
            return None


class Repeating(dict[str, Any]):
    """An object in which keys come again, with their first values; ``written`` has the keys as they came."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        super().__init__()
        for key, value in members:
            self.setdefault(key, value)
        self.written = [key for key, _ in members]


def parse_json(
    text: Buffer,
    lazy: Collection[str] = (),
    *,
    last_key_wins: bool = False,
    repeating: bool = False,
    max_depth: int = MAX_DEPTH,
) -> Any:
    """The value of a JSON document in UTF-8, with or without a byte order mark. A long one (:func:`is_long`)
    belongs into a process.

    Arrays of a key in ``lazy`` may be a :class:`LazyArray`. NaN, Infinity and -Infinity are numbers; a
    repeated key has its first value, or its last with ``last_key_wins``. With ``repeating``, which excludes
    ``last_key_wins`` and ``lazy``, objects may be :class:`Repeating`. Raises MALFORMED with the position, and
    for nesting deeper than ``max_depth``, which is at most :data:`MOST_DEPTH`.
    """
    if text[:3] == _BOM:
        text = text[3:]
    plain = text if isinstance(text, bytes) else bytes(text)
    if plain.count(b"[") + plain.count(b"{") > max_depth and _depth(plain) > max_depth:
        raise malformed(f"the JSON body nests deeper than {max_depth} levels")
    # simdjson would skip a second byte order mark
    if lazy and _LAZY_FROM_BYTES <= len(plain) <= _LAZY_UP_TO_BYTES and plain[:3] != _BOM:
        # orjson accepts more, and reports positions
        with suppress(ValueError, RuntimeError):
            return _parse_lazily(plain, lazy)
    try:
        document = orjson.loads(plain)
    except orjson.JSONDecodeError as fault:
        if b"NaN" not in plain and b"Infinity" not in plain:
            raise _malformed(str(fault)) from None
        return _parse_slowly(plain, str(fault), last_key_wins, repeating)
    if last_key_wins:
        return document
    if _may_repeat_a_key(plain, document):
        return _parse_slowly(plain, "a key comes twice", last_key_wins, repeating)
    return document


def is_long(text: Buffer) -> bool:
    """Whether a document of more than ``LONG_BYTES`` may take more than about 2 ms to parse, so that
    ``offload.call`` must do it, after :func:`check_elements`."""
    if len(text) > _LONGEST_HERE:
        return True
    plain = bytes(text)
    return plain.count(b'"') + plain.count(b"[") > _MARKS_HERE


def check_elements(text: Buffer, weight: int = 1) -> None:
    """Count what is in a long document before it is parsed; ``weight`` is that of its elements. Raises
    TOO_LARGE."""
    limits = offload.limits()
    plain = bytes(text)
    if _weighed(plain, weight) > limits.max_elements:
        # commas and colons in strings do not count
        limits.check_elements(_weighed(_without_strings(plain), weight), "the JSON body")


def _weighed(plain: bytes, weight: int) -> int:
    keys = plain.count(b":")
    elements = plain.count(b",") + plain.count(b"[") + plain.count(b"{")
    return offload.KEY_WEIGHT * keys + weight * elements


def parse_plain(text: Buffer) -> Any:
    """The value of a document without tensors. Raises as :func:`parse_json`, and TOO_LARGE."""
    if len(text) > LONG_BYTES and is_long(text):
        return offload.call(_parse_counted, text)
    return parse_json(text)


def _parse_counted(text: Buffer) -> Any:
    check_elements(text, offload.KEY_WEIGHT)
    return parse_json(text)


def parse_unambiguous(text: bytes) -> Any:
    """The value of a document that every reader understands alike: strict JSON without a byte order mark and
    without a repeated key. None for any other text, and for a long one."""
    if len(text) > LONG_BYTES and is_long(text):
        return None
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return None if _may_repeat_a_key(text, document) else document


def write_json(document: Any) -> bytes:
    """``document`` as JSON, NumPy arrays as arrays of numbers. Arrays must come from ``json_values``, plain
    floats must be finite. With a :class:`LongValue` the document is written by ``offload.call``. Raises
    UNREPRESENTABLE for text that is not Unicode."""
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY, default=_refuse_long)
    except TypeError as fault:
        if isinstance(fault.__cause__, _LongValueError):
            # a view of shared memory is as good as bytes for what is sent
            return cast(bytes, offload.call(_write_long, document))
        raise unrepresentable(f"JSON cannot carry this: {fault}") from None


class LongValue(Protocol):
    """A value of a document that takes long to write."""

    def json_values(self) -> Any:
        """The value for ``write_json``. Raises ``InferenceError``."""


class _LongValueError(Exception):
    """A document has a long value."""


def _refuse_long(value: LongValue) -> Any:
    raise _LongValueError


def _write_long(document: Any) -> memoryview:
    try:
        written = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY, default=_values_of)
    except TypeError as fault:
        if isinstance(fault.__cause__, InferenceError):
            raise fault.__cause__ from None
        raise unrepresentable(f"JSON cannot carry this: {fault}") from None
    return memoryview(written)


def _values_of(value: LongValue) -> Any:
    return value.json_values()


def _parse_lazily(text: bytes, lazy: Collection[str]) -> Any:
    """By simdjson, with lazy arrays. Raises ``ValueError`` for documents of another parser."""
    found: list[LazyArray] = []
    # a parser cannot be reused while one of its arrays lives
    document = _settle(simdjson.Parser().parse(text), lazy, _LAZY_DEPTH, found)
    others = text.count(b"[") - _count_arrays(document) - len(found)
    if len(found) == 1 or not others:
        for array in found:
            array.inner = others
    return document


def _settle(value: Any, lazy: Collection[str], depth: int, found: list[LazyArray]) -> Any:
    """simdjson's proxies as Python values. Raises ``ValueError`` for a repeated key, which a look-up would
    hide; for a NUL in a key, where a look-up would end; and for too many keys or levels."""
    if isinstance(value, simdjson.Object):
        keys = list(value.keys())
        # a look-up by key is a linear search
        if not depth or len(keys) > _FEW_KEYS or len(set(keys)) < len(keys):
            raise ValueError("too deep, too many keys, or one that comes twice")
        if any("\0" in key for key in keys):
            raise ValueError("a key has a NUL in it")
        return {key: _settle_member(key, value[key], lazy, depth, found) for key in keys}
    if isinstance(value, simdjson.Array):
        if not depth:
            raise ValueError("too deep")
        return [_settle(item, lazy, depth - 1, found) for item in value]
    return value


def _settle_member(key: str, value: Any, lazy: Collection[str], depth: int, found: list[LazyArray]) -> Any:
    if key in lazy and isinstance(value, simdjson.Array):
        array = LazyArray(value)
        found.append(array)
        return array
    return _settle(value, lazy, depth - 1, found)


def _is_regular(array: Any, inner: int) -> bool:
    """Whether all rows of ``array`` have equal lengths at every level; it contains ``inner`` arrays. Elements
    of the last level are not checked: an array among them would increase ``inner``."""
    rows = [array]
    seen = 0
    while rows and len(rows[0]) and isinstance(rows[0][0], simdjson.Array):
        if len({len(row) for row in rows}) > 1:
            return False
        rows = [item for row in rows for item in row]
        if not all(type(row) is simdjson.Array for row in rows):
            return False
        seen += len(rows)
    return seen == inner and len({len(row) for row in rows}) <= 1


def _may_repeat_a_key(text: bytes, document: Any) -> bool:
    """Whether ``text`` has more members than its ``document``. Each has one colon outside of strings."""
    members = _count_members(document)
    return text.count(b":") > members and _without_strings(text).count(b":") > members


def _count_members(document: Any) -> int:
    """The minimum number of members in ``document``. Arrays that do not begin with an object are not
    searched, which would be slower than parsing."""
    total = 0
    objects = [document]
    for found in objects:
        if type(found) is dict:
            total += len(found)
            for value in found.values():
                if type(value) is dict:
                    objects.append(value)
                elif type(value) is list and value and type(value[0]) is dict:
                    objects += value
    return total


def _count_arrays(document: Any) -> int:
    """The number of arrays in ``document``, without lazy ones and their contents."""
    if type(document) is dict:
        return sum(map(_count_arrays, document.values()))
    if type(document) is list:
        return 1 + sum(map(_count_arrays, document))
    return 0


def _parse_slowly(text: bytes, fault: str, last_key_wins: bool, repeating: bool) -> Any:
    """By the standard library, the only one with NaN and repeated members. ``fault`` is the message if it
    refuses the document too."""
    first_of_equal_keys = Repeating if repeating else lambda members: dict(Repeating(members))
    try:
        decoded = text.decode()
        document = json.loads(  # noqa: TID251 - NaN and equal keys are what it is here for
            decoded,
            parse_int=_integer,
            parse_float=_real,
            object_pairs_hook=None if last_key_wins else first_of_equal_keys,
        )
        if _SURROGATE.search(decoded):
            orjson.dumps(document)  # refuses half a surrogate pair, unlike json
    except (ValueError, TypeError, RecursionError):
        raise _malformed(fault) from None
    return document


def _depth(text: bytes) -> int:
    """The nesting depth of arrays and objects; undefined for invalid JSON."""
    # brackets and braces differ in one bit
    marks = np.frombuffer(_without_strings(text), np.uint8) | 0x20
    opened = marks == ord("{")
    marks = marks[opened | (marks == ord("}"))]
    return int(np.cumsum(np.where(marks == ord("{"), 1, -1)).max(initial=0))


def _without_strings(text: bytes) -> bytes:
    """``text`` without what is inside of strings."""
    if len(text) <= LONG_BYTES:
        return _STRING.sub(b"", text)
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    parts: list[bytes] = []
    inside = 0
    for start in range(0, len(text), _BLOCK):
        octets = np.frombuffer(text, np.uint8, min(_BLOCK, len(text) - start), start)
        quotes = np.cumsum(octets == ord('"'), dtype=np.uint32) + np.uint32(inside)
        parts.append(octets[quotes & 1 == 0].tobytes())
        inside = int(quotes[-1]) & 1
    return b"".join(parts)


def _integer(digits: str) -> int | float:
    # as in orjson, a float beyond 64 bits
    value = int(digits)
    return value if value in _INTEGERS else _real(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if value - value != 0:
        raise ValueError("number is infinity when parsed as double")
    return value


def _malformed(fault: str) -> InferenceError:
    return malformed(f"the body is not JSON: {fault}")
