"""Tensors from the command line, and tensors as a person or a script reads them.

Inputs are converted to the model's datatype only without loss; decimal fractions round to the nearest float.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from interlingua.schemas import Datatype, InferResponse, Signature, Tensor
from interlingua.schemas.datatypes import datatype_of
from interlingua.translator.cli.arguments import RefusedError

_NPY_HEADERS: dict[tuple[int, int], Callable[[BinaryIO], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""By version of the format. Version 3.0 differs in the names of fields, which no datatype has."""

_SHOWN = 40
"""The maximum number of characters of a quoted value."""


def from_array(name: str, array: NDArray[Any], datatype: Datatype | None) -> Tensor:
    """The tensor of ``array``, in the model's ``datatype`` if that is known. Raises ``RefusedError``."""
    return Tensor.from_numpy(name, array if datatype is None else _cast(name, array, datatype), datatype)


def from_json(name: str, value: Any, datatype: Datatype | None) -> Tensor:
    """The tensor of a value of JSON, nested as the shape. ``datatype`` is the model's, if known; otherwise
    text becomes BYTES. Raises ``RefusedError``."""
    shape = _shape(value)
    flat = _flat(name, value, shape)
    if datatype is None:
        if not flat or not all(isinstance(item, str) for item in flat):
            raise RefusedError(f"input '{name}': the server does not report its datatype: use @file.npy")
        datatype = Datatype.BYTES
    array = _numbers(name, flat, datatype) if datatype is not Datatype.BYTES else _strings(name, flat)
    return Tensor.from_numpy(name, array.reshape(shape), datatype)


def signature_in(path: str | None) -> Signature | None:
    """The signature in the file at ``path``, None for none. Raises ``RefusedError``."""
    from interlingua.translator.config.signature import read_signature

    try:
        return None if path is None else read_signature(path)
    except ValueError as error:
        raise RefusedError(str(error)) from error


def as_text(response: InferResponse) -> str:
    """The outputs one after the other, long ones abbreviated."""
    blocks = [
        f"{tensor.name or '(unnamed)'}  {tensor.datatype.value} {list(tensor.shape)}\n{_print(tensor)}\n"
        for tensor in response.outputs
    ]
    return "\n".join(blocks)


def as_json(response: InferResponse) -> str:
    """The whole answer as one JSON object; data is as nested as the shape. Raises ``RefusedError`` for values
    that JSON lacks: NaN, infinities, bytes that are not UTF-8."""
    outputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype.value,
            "shape": tensor.shape,
            "data": _jsonable(tensor),
        }
        for tensor in response.outputs
    ]
    answer = {"model_name": response.model, "model_version": response.version, "outputs": outputs}
    return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE).decode()


def write_npz(path: str, response: InferResponse) -> None:
    """Write each output as ``<name>.npy`` of an .npz file (BF16 as two-byte void, BYTES as ``S``). Raises
    ``OSError``, and ``RefusedError`` for BYTES that end in NUL, which ``S`` would drop."""
    arrays = {tensor.name or str(index): storable(tensor) for index, tensor in enumerate(response.outputs)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def read_npy(name: str, path: str, content: bytes) -> NDArray[Any]:
    """The array in the file ``path`` with ``content``. Raises ``RefusedError``."""
    try:
        _check_npy(content)
        array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    # the header is a literal of Python: its parser and NumPy's types raise whatever they meet
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise RefusedError(f"input '{name}': '{path}' cannot be read as .npy: {reason}") from error
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and not array.dtype.names:
        # NumPy's file format stores bfloat16 as two-byte void
        return array.view(Datatype.BF16.dtype)
    if datatype_of(array.dtype) is None:
        raise RefusedError(f"input '{name}': no datatype stores the {array.dtype} of '{path}'")
    return array


def _check_npy(content: bytes) -> None:
    """Raises before NumPy allocates what the header states."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in _NPY_HEADERS:
        major, minor = version
        raise ValueError(f"it has version {major}.{minor} of the format, which no array of a datatype has")
    shape, _, dtype = _NPY_HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects; save an array of numbers or of text")
    # elements without bytes would be as many as the header states
    stated, present = math.prod(shape) * max(dtype.itemsize, 1), len(content) - file.tell()
    if stated > present or min(shape, default=0) < 0:
        raise ValueError(f"its header states {stated} bytes of data, and {present} are there")


def _cast(name: str, array: NDArray[Any], datatype: Datatype) -> NDArray[Any]:
    """``array`` as ``datatype``, equal in every value."""
    have = datatype_of(array.dtype)
    if have is datatype:
        return array
    if Datatype.BYTES not in (have, datatype):
        with np.errstate(all="ignore"):
            cast = array.astype(datatype.dtype)
            back = cast.astype(array.dtype)
        if np.array_equal(back, array, equal_nan=array.dtype.kind == "f"):
            return cast
    raise RefusedError(
        f"input '{name}': the file's {array.dtype} values do not fit the model's {datatype.value}"
    )


def _shape(value: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _flat(name: str, value: Any, shape: tuple[int, ...]) -> list[Any]:
    level = [value]
    for size in shape:
        if not all(isinstance(row, list) and len(row) == size for row in level):
            raise RefusedError(f"input '{name}': lists on one level differ in length")
        level = [item for row in level for item in row]
    if any(isinstance(item, list) for item in level):
        raise RefusedError(f"input '{name}': lists on one level differ in depth")
    return level


def _strings(name: str, flat: list[Any]) -> NDArray[Any]:
    _all_are(name, flat, (str,), "text")
    array = np.empty(len(flat), dtype=object)
    array[:] = [item.encode() for item in flat]
    return array


def _numbers(name: str, flat: list[Any], datatype: Datatype) -> NDArray[Any]:
    dtype = datatype.dtype
    if datatype is Datatype.BOOL:
        _all_are(name, flat, (bool,), "true or false")
        return np.array(flat, dtype)
    if dtype.kind in "iu":
        _all_are(name, flat, (int,), f"a whole number, as {datatype.value} needs")
        limits = np.iinfo(dtype)
        _none_of(name, (item for item in flat if not limits.min <= item <= limits.max), datatype)
        return np.array(flat, dtype)
    _all_are(name, flat, (int, float), f"a number, as {datatype.value} needs")
    with np.errstate(over="ignore"):
        array = np.array(flat, np.float64).astype(dtype)
    infinite = np.isinf(array.astype(np.float64))
    _none_of(name, (flat[index] for index in np.flatnonzero(infinite)), datatype)
    return array


def _all_are(name: str, flat: list[Any], kinds: tuple[type, ...], expected: str) -> None:
    for item in flat:
        if type(item) not in kinds:
            text = orjson.dumps(item).decode()
            shown = f"{text[:_SHOWN]}..." if len(text) > _SHOWN else text
            raise RefusedError(f"input '{name}': {shown} is not {expected}")


def _none_of(name: str, outside: Iterable[Any], datatype: Datatype) -> None:
    for item in outside:
        raise RefusedError(f"input '{name}': {item} is out of the range of {datatype.value}")


def _print(tensor: Tensor) -> str:
    array = tensor.numpy()
    if tensor.datatype is Datatype.BYTES:
        shown = np.empty(array.shape, dtype=object)
        shown.flat[:] = [_decoded(element) for element in tensor.elements()]
        array = shown
    return np.array2string(array, max_line_width=100)


def _decoded(element: bytes) -> str | bytes:
    try:
        return element.decode()
    except UnicodeDecodeError:
        return element


def _jsonable(tensor: Tensor) -> Any:
    array = tensor.numpy()
    if tensor.datatype is Datatype.BYTES:
        elements = [_decoded(element) for element in tensor.elements()]
        for element in elements:
            if isinstance(element, bytes):
                raise RefusedError(f"output '{tensor.name}': {element[:40]!r} is not UTF-8; use --npz")
        array.flat[:] = elements
    elif tensor.datatype.dtype.kind in "fV":
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise RefusedError(f"output '{tensor.name}' has NaN or infinities, unknown to JSON; use --npz")
    return array.tolist()


def storable(tensor: Tensor) -> NDArray[Any]:
    """``tensor`` as NumPy's file format stores it. Raises ``RefusedError`` for BYTES that it would change."""
    array = tensor.numpy()
    if tensor.datatype is Datatype.BF16:
        return array.view("V2")
    if tensor.datatype is not Datatype.BYTES:
        return array
    elements = tensor.elements()
    for element in elements:
        if element.endswith(b"\0"):
            raise RefusedError(f"output '{tensor.name}': {element[:40]!r} ends in NUL, which .npz loses")
    return np.array(elements, dtype="S").reshape(tensor.shape)
