"""The entries of a gmap as tensors of one element, and back.

``gmap.s_i32.count`` is the canonical name of the entry ``count`` of the map ``s_i32``. It is unique, because
a map's name has no dot; the rest is the key. A model may declare the key alone, ``count``: then the only
entry with that key is its tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from interlingua.protocols.grps.message import DIALECT_NAME, GMAP_FIELDS, Gmap
from interlingua.protocols.grps.tensors import WIDENED, narrowed, texts_of, write_tensor
from interlingua.schemas import Datatype, Tensor, TensorSpec, invalid_tensor, not_carried, pack_bytes

ENTRIES: Mapping[str, Datatype] = {
    "s_s": Datatype.BYTES,
    "s_b": Datatype.BYTES,
    "s_i32": Datatype.INT32,
    "s_i64": Datatype.INT64,
    "s_f": Datatype.FP32,
    "s_d": Datatype.FP64,
}
"""The datatype of each map's entries."""

_WIDENED: Mapping[Datatype, Datatype] = {
    **WIDENED,
    Datatype.BOOL: Datatype.INT32,
    Datatype.UINT8: Datatype.INT32,
    Datatype.INT8: Datatype.INT32,
    Datatype.INT16: Datatype.INT32,
    Datatype.FP16: Datatype.FP32,
}
"""Datatypes without a map as those with one; reversed if the model declares the narrow one."""

_TEXTS, _BYTES = "s_s", "s_b"
_MAPS = {datatype: field for field, datatype in ENTRIES.items() if datatype is not Datatype.BYTES}
_PREFIX = "gmap."


def entry_name(field: str, key: str) -> str:
    """The canonical name of an entry."""
    return f"{_PREFIX}{field}.{key}"


def entry_of(name: str) -> tuple[str, str] | None:
    """The map and the key of the entry with a canonical name; None for another name."""
    if not name.startswith(_PREFIX):
        return None
    field, dot, key = name.removeprefix(_PREFIX).partition(".")
    return (field, key) if dot and field in ENTRIES else None


# --- reading


def read_gmap(gmap: Gmap, specs: Sequence[TensorSpec]) -> tuple[tuple[Tensor, ...], Mapping[str, str]]:
    """The entries as tensors, and the canonical names of those that ``specs`` declare by the key alone.
    Raises INVALID_TENSOR for several entries of one declared tensor, and for a value out of range."""
    declared = {spec.name: spec for spec in specs}
    found: dict[str, Tensor] = {}
    whole_names: dict[str, str] = {}
    for field in GMAP_FIELDS:
        for key, value in gmap.get(field, {}).items():
            name = whole = entry_name(field, key)
            # a key that looks like a canonical name is not that entry
            if name not in declared and key in declared and entry_of(key) is None:
                if key in whole_names:
                    raise invalid_tensor(
                        f"gmap has the key '{key}' twice, and the model has one tensor of that name; "
                        f"a model that takes both declares '{whole_names[key]}' and '{whole}'"
                    )
                name, whole_names[key] = key, whole
            found[name] = _tensor(name, ENTRIES[field], value, declared.get(name))
    return tuple(found.values()), whole_names


def _tensor(name: str, datatype: Datatype, value: Any, spec: TensorSpec | None) -> Tensor:
    """One element, of the rank in ``spec``."""
    shape = () if spec is None else (1,) * len(spec.shape)
    if datatype is Datatype.BYTES:
        element = value.encode() if isinstance(value, str) else value
        return Tensor(name, datatype, shape, memoryview(pack_bytes((element,))))
    flat = np.array([value], datatype.dtype)
    if spec is not None and _WIDENED.get(spec.datatype) is datatype:
        datatype = spec.datatype
        flat = narrowed(name, flat, datatype)
    return Tensor(name, datatype, shape, memoryview(flat.tobytes()))


# --- writing


def fits_gmap(tensors: Iterable[Tensor]) -> bool:
    """Whether every tensor is one element of a datatype that a map holds."""
    return all(tensor.count == 1 and tensor.datatype is not Datatype.UINT64 for tensor in tensors)


def write_gmap(tensors: Iterable[Tensor], whole_names: Mapping[str, str]) -> Gmap:
    """The map of ``tensors``, which passed :func:`fits_gmap`. A canonical name is the entry. So is the name
    in ``whole_names``, the canonical names of other tensors, if its map has the datatype. Any other name is a
    key, and the datatype selects the map; for BYTES ``s_b`` if those of ``whole_names`` are all from there,
    else ``s_s``, or ``s_b`` if the bytes are not UTF-8.

    Raises UNREPRESENTABLE for a canonical name that contradicts the datatype, bytes in ``s_s`` that are not
    UTF-8, and two tensors for one entry.
    """
    found: dict[str, dict[str, Any]] = {}
    maps = {entry[0] for name in whole_names.values() if (entry := entry_of(name)) is not None}
    strings = _BYTES if _BYTES in maps and _TEXTS not in maps else _TEXTS
    for tensor in tensors:
        field, key = entry_of(tensor.name) or _chosen(tensor, whole_names, strings)
        if ENTRIES[field] is not _WIDENED.get(tensor.datatype, tensor.datatype):
            _refuse(tensor, f"it is {tensor.datatype.value}, and {field} holds {ENTRIES[field].value}")
        entries = found.setdefault(field, {})
        if key in entries:
            _refuse(tensor, f"another tensor is the entry '{key}' of {field}")
        entries[key] = _value(tensor, field)
    return {field: found[field] for field in GMAP_FIELDS if field in found}


def _chosen(tensor: Tensor, whole_names: Mapping[str, str], strings: str) -> tuple[str, str]:
    """The entry of a tensor without a canonical name; ``strings`` is the default map of BYTES."""
    datatype = _WIDENED.get(tensor.datatype, tensor.datatype)
    field, key = entry_of(whole_names.get(tensor.name, "")) or ("", tensor.name)
    if ENTRIES.get(field) is not datatype:
        field = strings if datatype is Datatype.BYTES else _MAPS[datatype]
    return (_BYTES if field == _TEXTS and not _is_text(tensor) else field), key


def _value(tensor: Tensor, field: str) -> Any:
    if field == _TEXTS:
        return texts_of(tensor)[0]
    if field == _BYTES:
        return tensor.elements()[0]
    flat = write_tensor(tensor).flat
    assert isinstance(flat, np.ndarray)  # noqa: S101 - it is no text
    return flat[0].item()


def _is_text(tensor: Tensor) -> bool:
    try:
        tensor.elements()[0].decode()
    except UnicodeDecodeError:
        return False
    return True


def _refuse(tensor: Tensor, what: str) -> NoReturn:
    raise not_carried(DIALECT_NAME, f"tensor '{tensor.name}' in a gmap: {what}")
