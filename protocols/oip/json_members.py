"""Checked members of a JSON object.

A missing member, or one of the wrong JSON type, is MALFORMED and named with its path; null counts as absent,
because KServe writes absent members so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interlingua.schemas import Datatype, invalid_tensor, malformed
from interlingua.schemas.datatypes import DATATYPES

_NOTHING: Mapping[str, Any] = {}

UNKNOWN_DATATYPE: Mapping[str, Any] = {"kind": "datatype"}
"""The details of an error about a datatype that does not exist."""


def mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object at ``key``, empty where there is none."""
    value = parent.get(key)
    if value is None:
        return _NOTHING
    if type(value) is not dict:
        raise malformed(f"'{key}' must be an object")
    return value


def members(parent: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    """The array of objects at ``key``, which must be there."""
    value = parent.get(key)
    if type(value) is not list:
        raise malformed(f"'{key}' must be an array" if key in parent else f"'{key}' is missing")
    for index, member in enumerate(value):
        if type(member) is not dict:
            raise malformed(f"'{key}[{index}]' must be an object")
    return value


def text(parent: Mapping[str, Any], key: str) -> str:
    """The string at ``key``, empty where there is none."""
    value = parent.get(key)
    if value is None:
        return ""
    if type(value) is not str:
        raise malformed(f"'{key}' must be a string")
    return value


def name_of(entry: Mapping[str, Any], parent: str, index: int) -> str:
    """The name of ``parent[index]``, which must be there."""
    name = entry.get("name")
    if type(name) is not str:
        raise malformed(f"'{parent}[{index}].name' must be a string")
    return name


def tensor_head(
    entry: Mapping[str, Any], parent: str, index: int, lowest: int = 0
) -> tuple[str, Datatype, tuple[int, ...]]:
    """Name, datatype and shape of ``parent[index]``; ``lowest`` is the lowest dimension allowed. Raises
    INVALID_TENSOR for an unknown datatype."""
    name = name_of(entry, parent, index)
    given = entry.get("datatype")
    if type(given) is not str:
        raise malformed(f"'{parent}[{index}].datatype' must be a string")
    datatype = DATATYPES.get(given)
    if datatype is None:
        text = f"invalid datatype '{given[:32]}' for {parent[:-1]} '{name}'"
        raise invalid_tensor(text, details=UNKNOWN_DATATYPE)
    shape = entry.get("shape")
    if type(shape) is not list:
        raise malformed(f"'{parent}[{index}].shape' must be an array")
    for side in shape:
        if type(side) is not int or side < lowest:
            raise malformed(f"'{parent}[{index}].shape' must hold integers from {lowest} on")
    return name, datatype, tuple(shape)
