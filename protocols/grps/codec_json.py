"""Reads a ``GrpsMessage`` from JSON as each of the original servers does.

Members have the names of the protobuf; unknown ones are ignored, as by protobuf's parsers. Of a tensor's
lists only that of its ``dtype`` is read. Errors are MALFORMED and name the member or the tensor.
``json_numbers`` reads lists of numbers, ``ndarray`` nested ones.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from interlingua.protocols.grps.json_numbers import read_number, read_numbers
from interlingua.protocols.grps.json_quirks import JsonQuirks
from interlingua.protocols.grps.message import (
    DTYPES,
    GMAP_FIELDS,
    MANY,
    GenericTensor,
    Gmap,
    GrpsMessage,
    Kind,
    PackedTexts,
    Status,
    StatusFlag,
)
from interlingua.protocols.grps.ndarray import read_ndarray
from interlingua.protocols.json_document import LONG_BYTES, check_elements, is_long, parse_json
from interlingua.protocols.wire import Buffer
from interlingua.schemas import InferenceError, invalid_tensor, malformed, offload


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


_FLAT = [dtype.field for dtype in DTYPES.values() if dtype.wire is not None]
_CAMEL = {name: _camel(name) for name in (*(dtype.field for dtype in DTYPES.values()), *GMAP_FIELDS)}
_LISTS_OF = {False: frozenset(_CAMEL), True: frozenset((*_CAMEL, *_CAMEL.values()))}
"""Names of members, by whether camelCase is allowed."""
_LAZY = frozenset((*_FLAT, *map(_camel, _FLAT), Kind.NDARRAY.value))

_BOM = b"\xef\xbb\xbf"
_BY_NUMBER = tuple(
    (kind, kind.value) for kind in (Kind.GMAP, Kind.NDARRAY, Kind.GTENSORS, Kind.STR_DATA, Kind.BIN_DATA)
)
"""The data of a message and their names, by descending field number."""
_IN_PROTOBUF = frozenset({Kind.GMAP, Kind.GTENSORS, Kind.STR_DATA})
"""Data that protobuf's parser reads."""

_DTYPE_NUMBERS = {"DT_INVALID": 0, **{dtype.name: dtype.number for dtype in DTYPES.values()}}
_FLAGS = {flag.name: flag.value for flag in StatusFlag}
_INT32 = np.dtype("<i4")
_UINT32 = np.dtype("<u4")
_NONE = np.empty(0, _UINT32)
_INTEGER = re.compile(r"-?[0-9]{1,10}\Z", re.ASCII)
_MINUS_ZERO_OR_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![eE0-9])-0(?=[,\s])', re.DOTALL)
"""A negative zero as one of the servers writes it, or a string that may contain it."""
_URL_SAFE = str.maketrans("-_", "+/", "=")


def parse_document(body: Buffer, quirks: JsonQuirks) -> Any:
    """The JSON value in ``body``, for :func:`read_document`; long lists may be lazy. Raises MALFORMED. A long
    body is for :func:`read_body`."""
    if not quirks.byte_order_mark and body[:3] == _BOM:
        raise malformed(f"{quirks.no_json}the body begins with a byte order mark")
    if quirks.minus_zero:
        body = bytes(body)
        if b"-0," in body or b"-0\n" in body:
            body = _MINUS_ZERO_OR_TEXT.sub(_with_fraction, body)
    try:
        return parse_json(body, _LAZY, last_key_wins=quirks.last_key_wins)
    except InferenceError as error:
        raise malformed(f"{quirks.no_json}{error.message}") from error


def _with_fraction(found: re.Match[bytes]) -> bytes:
    return b"-0.0" if found[0] == b"-0" else found[0]


def read_body(body: Buffer, quirks: JsonQuirks) -> tuple[Any, GrpsMessage | InferenceError]:
    """The document in ``body``, of a long one the flags, and the message in it, or what :func:`read_document`
    raises. Raises as :func:`parse_document`, and TOO_LARGE."""
    if len(body) > LONG_BYTES and is_long(body):
        return offload.call(_read_long, body, quirks)
    document = parse_document(body, quirks)
    return document, _read(document, quirks)


def _read_long(body: Buffer, quirks: JsonQuirks) -> tuple[Any, GrpsMessage | InferenceError]:
    check_elements(body)
    document = parse_document(body, quirks)
    message = _read(document, quirks)
    if isinstance(message, GrpsMessage):
        for tensor in message.tensors:
            if not isinstance(tensor.flat, np.ndarray) and len(tensor.flat) > MANY:
                tensor.flat = PackedTexts.of(tensor.flat)
    flags = (
        {key: value for key, value in document.items() if value is True} if type(document) is dict else None
    )
    return flags, message


def _read(document: Any, quirks: JsonQuirks) -> GrpsMessage | InferenceError:
    try:
        return read_document(document, quirks)
    except InferenceError as error:
        return error


def read_document(document: Any, quirks: JsonQuirks) -> GrpsMessage:
    """The message in ``document``. Raises MALFORMED in the words of the original servers."""
    if type(document) is not dict:
        raise malformed(quirks.no_data)
    kind = _kind(document, quirks)
    message = GrpsMessage(Kind.NOTHING if kind is None else kind, _text(document.get("model"), "model"))
    if quirks.any_member and type(document.get("status")) is dict:
        message.status = _status(document["status"], quirks)
    if kind is not None and document[kind.value] is not None:
        _READERS[kind](message, document[kind.value], quirks)
    elif kind is not None:
        message.kind = Kind.NOTHING
    return message


def _kind(document: Mapping[str, Any], quirks: JsonQuirks) -> Kind | None:
    """The data that counts; None for none."""
    given = [
        kind
        for kind, name in _BY_NUMBER
        if name in document and (quirks.null_is_nothing or document[name] is not None)
    ]
    if not given:
        if quirks.any_member:
            return None
        raise malformed(quirks.no_data)
    if len(given) == 1:
        (kind,) = given
        if kind is Kind.BIN_DATA and not quirks.bin_data:
            raise malformed("bin_data should use application/octet-stream format.")
        return kind
    names = " and ".join(kind.value for kind in reversed(given))
    if Kind.NDARRAY in given and (not _IN_PROTOBUF.isdisjoint(given) or quirks.any_member):
        raise malformed(f"The input is not a json object [NDArrayData]: there are {names}")
    if not quirks.last_data_wins:
        raise malformed(f"a message has data of one kind, not {names}")
    return given[0]


# --- the data


def _read_str_data(message: GrpsMessage, value: Any, quirks: JsonQuirks) -> None:
    message.str_data = _text(value, "str_data")


def _read_bin_data(message: GrpsMessage, value: Any, quirks: JsonQuirks) -> None:
    message.bin_data = _base64(value, "bin_data", quirks)


def _read_gtensors(message: GrpsMessage, value: Any, quirks: JsonQuirks) -> None:
    tensors = _object(value, "gtensors").get("tensors")
    if tensors is not None and type(tensors) is not list:
        raise malformed("gtensors.tensors must be a list")
    message.tensors = tuple([_tensor(item, index, quirks) for index, item in enumerate(tensors or ())])


def _read_ndarray(message: GrpsMessage, value: Any, quirks: JsonQuirks) -> None:
    # a model's own ndarray comes back as an empty message
    if not (quirks.any_member and value == {}):
        message.tensors = (read_ndarray(value, quirks),)


def _read_gmap(message: GrpsMessage, value: Any, quirks: JsonQuirks) -> None:
    message.gmap = _gmap(_object(value, "gmap"), quirks)


_READERS: Mapping[Kind, Callable[[GrpsMessage, Any, JsonQuirks], None]] = {
    Kind.STR_DATA: _read_str_data,
    Kind.BIN_DATA: _read_bin_data,
    Kind.GTENSORS: _read_gtensors,
    Kind.NDARRAY: _read_ndarray,
    Kind.GMAP: _read_gmap,
}


# --- gtensors


def _tensor(given: Any, index: int, quirks: JsonQuirks) -> GenericTensor:
    members = _object(given, f"gtensors.tensors[{index}]")
    name = _text(members.get("name"), f"name of gtensors.tensors[{index}]")
    owner = f"tensor '{name}'" if name else f"tensor {index}"
    number = _enum(members.get("dtype"), _DTYPE_NUMBERS, f"dtype of {owner}", quirks)
    shape = read_numbers(members.get("shape"), _UINT32, f"shape of {owner}", quirks)
    dtype = DTYPES.get(number)
    flat: Any = _NONE
    if dtype is not None:
        values = _member(members, dtype.field, owner, quirks)
        if not values:
            _check_no_other_list(members, dtype.field, name or str(index), quirks)
        where = f"{dtype.field} of {owner}"
        flat = (
            _strings(values, where) if dtype.wire is None else read_numbers(values, dtype.wire, where, quirks)
        )
    return GenericTensor(name, number, tuple(shape.tolist()), flat)


def _check_no_other_list(members: Mapping[str, Any], field: str, tensor: str, quirks: JsonQuirks) -> None:
    """Raise INVALID_TENSOR for values in an unknown list, which the original servers ignore: their model gets
    a tensor without values."""
    for name, values in members.items():
        if name.startswith("flat") and name not in _LISTS_OF[quirks.camel_case] and values:
            raise invalid_tensor(
                f"generic tensor error, tensor: {tensor} data is empty: {name} is no field, "
                f"did you mean {field}?"
            )


def _strings(values: Any, owner: str) -> list[str]:
    if values is None:
        return []
    if type(values) is not list or not set(map(type, values)) <= {str}:
        raise malformed(f"{owner} must be a list of strings")
    texts: list[str] = values
    return texts


def _enum(value: Any, numbers: Mapping[str, int], owner: str, quirks: JsonQuirks) -> int:
    if value is None:
        return 0
    if type(value) is str:
        if value in numbers:
            return numbers[value]
        if quirks.numeric_text and _INTEGER.match(value):
            value = int(value)
    if type(value) is int and (quirks.numeric_text or value in numbers.values()):
        return int(read_number(value, _INT32, owner, quirks))
    raise malformed(f"Invalid value `{str(value)[:40]}' for {owner}, which SHOULD be enum")


# --- gmap


def _gmap(given: Mapping[str, Any], quirks: JsonQuirks) -> Gmap:
    found: dict[str, dict[str, Any]] = {}
    for field in GMAP_FIELDS:
        entries = _member(given, field, "gmap", quirks)
        if entries is not None:
            found[field] = {
                key: _ENTRIES[field](value, f"gmap.{field}[{key[:40]!r}]", quirks)
                for key, value in _pairs(entries, field, quirks)
            }
    return {field: entries for field, entries in found.items() if entries}


def _pairs(entries: Any, field: str, quirks: JsonQuirks) -> Iterator[tuple[str, Any]]:
    if type(entries) is dict:
        yield from entries.items()
        return
    if type(entries) is not list or not quirks.maps_as_lists:
        raise malformed(f"gmap.{field} must be an object")
    for index, entry in enumerate(entries):
        members = _object(entry, f"gmap.{field}[{index}]")
        yield _text(members.get("key"), f"key of gmap.{field}[{index}]"), members.get("value")


def _number_of(dtype: str) -> Callable[[Any, str, JsonQuirks], Any]:
    wire = np.dtype(dtype)
    return lambda value, owner, quirks: read_number(value, wire, owner, quirks)


_ENTRIES: Mapping[str, Callable[[Any, str, JsonQuirks], Any]] = {
    "s_s": lambda value, owner, quirks: _text(value, owner),
    "s_b": lambda value, owner, quirks: _base64(value, owner, quirks),
    "s_i32": _number_of("<i4"),
    "s_i64": _number_of("<i8"),
    "s_f": _number_of("<f4"),
    "s_d": _number_of("<f8"),
}
"""The reader of an entry of each map."""


# --- members


def _status(given: Mapping[str, Any], quirks: JsonQuirks) -> Status:
    code = given.get("code")
    return Status(
        0 if code is None else read_number(code, _INT32, "status.code", quirks),
        _text(given.get("msg"), "status.msg"),
        _enum(given.get("status"), _FLAGS, "status.status", quirks),
    )


def _member(members: Mapping[str, Any], name: str, owner: str, quirks: JsonQuirks) -> Any:
    """The value of ``name``, or of its camelCase if allowed; None for none."""
    if quirks.camel_case and (camel := _CAMEL[name]) in members:
        if name in members:
            raise malformed(f"{owner} has {name} twice, as {name} and as {camel}")
        return members[camel]
    return members.get(name)


def _object(value: Any, owner: str) -> Mapping[str, Any]:
    if type(value) is not dict:
        raise malformed(f"{owner} must be an object")
    members: dict[str, Any] = value
    return members


def _text(value: Any, owner: str) -> str:
    if value is None:
        return ""
    if type(value) is not str:
        raise malformed(f"{owner} must be a string")
    return value


def _base64(value: Any, owner: str, quirks: JsonQuirks) -> bytes:
    text = _text(value, owner)
    if quirks.lenient_base64:
        text = text.translate(_URL_SAFE)
        text += "=" * (-len(text) % 4)
    try:
        return a2b_base64(text, strict_mode=True)
    except ValueError:
        raise malformed(f"Fail to decode base64 string={value[:40]} of {owner}") from None
