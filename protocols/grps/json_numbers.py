"""Lists of numbers in grps's JSON, as arrays of the type that protobuf has for them.

They have protobuf's JSON format (64-bit integers and non-finite numbers in strings), extended by the quirks
of a server: the C++ reader ignores the case of "NaN" and "Infinity". Other values, or those beyond the type,
are MALFORMED with the name of their list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.protocols.grps.json_quirks import JsonQuirks
from interlingua.protocols.json_document import LazyArray
from interlingua.protocols.numeric_json import pack_values
from interlingua.schemas import Datatype, InferenceError, malformed

NONFINITE: Mapping[str, float] = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
"""The numbers that JSON lacks."""

_ANY_CASE: Mapping[str, float] = {name.lower(): value for name, value in NONFINITE.items()}

_DATATYPES: Mapping[np.dtype[Any], Datatype] = {
    datatype.dtype: datatype
    for datatype in (Datatype.UINT32, Datatype.INT32, Datatype.INT64, Datatype.FP32, Datatype.FP64)
}
_WIDE: Mapping[str, tuple[str, np.dtype[Any]]] = {
    "f": ("d", np.dtype("<f8")),
    "i": ("i", np.dtype("<i8")),
    "u": ("u", np.dtype("<u8")),
}
"""By NumPy's kind: simdjson's name of the widest type, and the type."""

_INT64 = np.dtype("<i8")
_INTEGER = re.compile(r"-?[0-9]{1,20}\Z", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,4})?\Z", re.ASCII)


def read_numbers(values: Any, wire: np.dtype[Any], owner: str, quirks: JsonQuirks) -> NDArray[Any]:
    """The JSON list ``values``, or null, as an array of ``wire``; ``owner`` names it in errors. Raises
    MALFORMED."""
    if values is None:
        return np.empty(0, wire)
    if isinstance(values, LazyArray):
        fast = _bulk(values, wire)
        if fast is not None:
            return fast
        values = values.tolist()
    if type(values) is not list:
        raise malformed(f"{owner} must be a list")
    types = set(map(type, values))
    if list in types:
        raise malformed(f"{owner} must be a list of numbers, not of lists")
    if float in types:
        if wire.kind == "f":
            floats = values if len(types) == 1 else [value for value in values if type(value) is float]
            if not all(map(isfinite, floats)):
                raise malformed(f'{owner} has a bare NaN or Infinity: it must be quoted, as "NaN"')
        elif not quirks.numeric_text:
            raise malformed(f"{owner} must have integers, got a float")
    if str in types:
        values = [_unquoted(value, wire, owner, quirks) if type(value) is str else value for value in values]
    try:
        packed = pack_values(owner, _DATATYPES[wire], len(values), values)
    except InferenceError as error:
        fault = error.message.removeprefix(f"tensor '{owner}': ")
        raise malformed(f"{owner}: {fault}") from error
    return np.frombuffer(packed, wire)


def read_number(value: Any, wire: np.dtype[Any], owner: str, quirks: JsonQuirks) -> Any:
    """One number, as :func:`read_numbers` reads it."""
    return read_numbers([value], wire, owner, quirks)[0].item()


def _bulk(values: LazyArray, wire: np.dtype[Any]) -> NDArray[Any] | None:
    """All of them at once; None if one is not such a number."""
    wide = values.numbers(*_WIDE[wire.kind]) if values.inner == 0 else None
    if wide is None or wide.dtype == wire:
        return wide
    with np.errstate(over="ignore"):
        narrow = wide.astype(wire)
    fits = np.isfinite(narrow) if wire.kind == "f" else narrow == wide
    return narrow if fits.all() else None


def _unquoted(text: str, wire: np.dtype[Any], owner: str, quirks: JsonQuirks) -> int | float:
    if wire.kind == "f":
        named = _ANY_CASE.get(text.lower()) if quirks.nonfinite_any_case else NONFINITE.get(text)
        if named is not None:
            return named
        if quirks.numeric_text and _NUMBER.match(text) and isfinite(number := float(text)):
            return number
    elif (quirks.numeric_text or wire == _INT64) and _INTEGER.match(text):
        return int(text)
    raise malformed(f"{owner} must have numbers, got the string {text[:40]!r}")
