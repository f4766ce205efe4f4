"""The tensors of a grps message to and from the IR: datatypes, ranges, sizes.

Datatypes are exact, :data:`WIDENED`, or refused with the name of the tensor. Integers of 8 and 16 bits travel
in 32, halves as floats; received integers must be in range, and floats are rounded to halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.protocols.grps.message import DIALECT_NAME, DTYPES, MANY, GenericTensor, PackedTexts
from interlingua.schemas import (
    Datatype,
    InferenceError,
    Tensor,
    TensorSpec,
    element_count,
    invalid_tensor,
    offload,
    pack_bytes,
    unrepresentable,
)

DATATYPES: Mapping[int, Datatype] = dict(
    enumerate(
        (
            Datatype.UINT8,
            Datatype.INT8,
            Datatype.INT16,
            Datatype.INT32,
            Datatype.INT64,
            Datatype.FP16,
            Datatype.FP32,
            Datatype.FP64,
            Datatype.BYTES,
        ),
        start=1,
    )
)
"""The datatype of each ``DataType``."""

WIDENED: Mapping[Datatype, Datatype] = {
    Datatype.BOOL: Datatype.UINT8,
    Datatype.UINT16: Datatype.INT32,
    Datatype.UINT32: Datatype.INT64,
    Datatype.BF16: Datatype.FP32,
}
"""Datatypes that travel in a wider one, equal in value; reversed if the model declares the narrow one."""

_NUMBERS = {datatype: number for number, datatype in DATATYPES.items()}
_MAX_DIMENSION = 2**32 - 1
_EMPTY = memoryview(b"")


def read_tensor(given: GenericTensor, name: str, spec: TensorSpec | None) -> Tensor:
    """``given`` in the IR under ``name``, narrowed if ``spec`` declares the narrow type.

    Raises INVALID_TENSOR, in the words of the original converters if they have any: an unknown datatype, no
    data, a number of elements that contradicts the shape, a value out of range.
    """
    datatype = DATATYPES.get(given.dtype)
    if datatype is None:
        raise invalid_tensor(f"generic tensor error, tensor: {name} has unsupported data type: {given.dtype}")
    expected, actual = element_count(given.shape, name), len(given.flat)
    if expected != actual:
        shape = list(given.shape)
        if not actual:
            raise invalid_tensor(
                f"generic tensor error, tensor: {name} data is empty: {DTYPES[given.dtype].field} has no "
                f"element, shape: {shape}, expected size: {expected}"
            )
        raise invalid_tensor(
            f"generic tensor error, tensor: {name} size not match, shape: {shape}, "
            f"expected size: {expected}, actual size: {actual}"
        )
    if isinstance(given.flat, PackedTexts):
        return Tensor(name, datatype, given.shape, given.flat.data)
    if not isinstance(given.flat, np.ndarray):
        return Tensor(name, datatype, given.shape, memoryview(pack_bytes(map(str.encode, given.flat))))
    flat = narrowed(name, given.flat, datatype)
    if spec is not None and WIDENED.get(spec.datatype) is datatype:
        datatype = spec.datatype
        flat = narrowed(name, flat, datatype)
    return Tensor(name, datatype, given.shape, _bytes_of(flat))


def write_tensor(tensor: Tensor) -> GenericTensor:
    """``tensor`` as grps carries it. Raises UNREPRESENTABLE naming the tensor: a datatype without a form,
    BYTES that are not UTF-8, a dimension beyond 32 bits."""
    datatype = WIDENED.get(tensor.datatype, tensor.datatype)
    number = _NUMBERS.get(datatype)
    if number is None:
        raise _unrepresentable(tensor.name, f"has the datatype {datatype.value}")
    if max(tensor.shape, default=0) > _MAX_DIMENSION:
        raise _unrepresentable(tensor.name, "has a dimension beyond 32 bits")
    if datatype is Datatype.BYTES:
        count = tensor.count
        texts = texts_of(tensor) if count <= MANY else offload.call(_checked_texts, tensor)
        return GenericTensor(tensor.name, number, tensor.shape, texts)
    flat = np.frombuffer(tensor.view, tensor.datatype.dtype)
    return GenericTensor(tensor.name, number, tensor.shape, _widened(flat, tensor.datatype))


def _checked_texts(tensor: Tensor) -> PackedTexts:
    count = len(texts_of(tensor))
    return PackedTexts(count, tensor.view)


def texts_of(tensor: Tensor) -> list[str]:
    texts = []
    for index, element in enumerate(tensor.elements()):
        try:
            texts.append(element.decode())
        except UnicodeDecodeError:
            raise _unrepresentable(tensor.name, f"has an element, {index}, that is not UTF-8 text") from None
    return texts


def narrowed(name: str, flat: NDArray[Any], datatype: Datatype) -> NDArray[Any]:
    """``flat`` in ``datatype``, which has at most as many bits. Raises INVALID_TENSOR for a value out of
    range."""
    target = datatype.dtype
    if flat.dtype == target:
        return flat
    if datatype is Datatype.BF16:
        bits = np.ascontiguousarray(flat, "<f4").view("<u4")
        narrow = (bits >> 16).astype("<u2")
        _check(name, datatype, flat, bits & 0xFFFF == 0)
        return narrow.view(target)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = flat.astype(target)
    if datatype is Datatype.FP16:
        nan = np.isnan(flat)
        if nan.any():
            narrow.view("<u2")[nan] = _half_nans(flat[nan])
        _check(name, datatype, flat, np.isfinite(narrow) | ~np.isfinite(flat))
    else:
        _check(name, datatype, flat, narrow == flat)
    return narrow


def _widened(flat: NDArray[Any], datatype: Datatype) -> NDArray[Any]:
    """``flat`` in the type of the wire, or one that the codings widen."""
    if datatype is Datatype.BF16:
        return (flat.view("<u2").astype("<u4") << 16).view("<f4")
    if datatype is Datatype.FP16:
        with np.errstate(invalid="ignore"):  # some NaNs are signalling
            wide = flat.astype("<f4")
        nan = np.isnan(wide)
        if nan.any():
            bits = flat.view("<u2")[nan].astype("<u4")
            wide.view("<u4")[nan] = (bits & 0x8000) << 16 | 0x7F800000 | (bits & 0x03FF) << 13
        return wide
    return flat.view(np.uint8) if datatype is Datatype.BOOL else flat


def _half_nans(nans: NDArray[Any]) -> NDArray[Any]:
    """NaNs as halves with the upper part of their payload: a conversion by the processor quiets them."""
    bits = np.ascontiguousarray(nans, "<f4").view("<u4")
    payload = bits >> 13 & 0x03FF
    return (bits >> 16 & 0x8000 | 0x7C00 | np.where(payload, payload, 0x0200)).astype("<u2")


def _check(name: str, datatype: Datatype, flat: NDArray[Any], fits: NDArray[Any]) -> None:
    if not fits.all():
        index = int(fits.argmin())
        raise invalid_tensor(
            f"tensor '{name}': element {index} ({flat[index]}) is out of range for {datatype.value}"
        )


def _bytes_of(flat: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(flat).view(np.uint8).data.toreadonly() if flat.size else _EMPTY


def _unrepresentable(name: str, what: str) -> InferenceError:
    return unrepresentable(f"tensor '{name}' {what}, which dialect '{DIALECT_NAME}' cannot carry")
