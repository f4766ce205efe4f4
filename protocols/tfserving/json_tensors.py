"""Tensors in JSON: nested arrays, from which a tensor has its shape, and back.

Numbers are as in ``numeric_json``, with the tokens of NaN and infinity. A string is the UTF-8 text of an
element, ``{"b64": …}`` any bytes. The dialect has no datatypes: they are those of the model's signature.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from interlingua.protocols.json_document import LazyArray
from interlingua.protocols.numeric_json import in_shape, json_values, pack_values
from interlingua.protocols.tfserving.codec import DIALECT_NAME
from interlingua.schemas import (
    Datatype,
    InferenceError,
    SharedMemoryRef,
    Tensor,
    TensorSpec,
    element_count,
    invalid_tensor,
    not_carried,
    pack_bytes,
)

BASE64 = "b64"

_BYTES_SUFFIX = "_bytes"
"""The original server writes strings of outputs with such a name in base64."""

_MAX_RANK = 32
"""Arrays of NumPy have no more dimensions in every version, and JSON is read up to a depth of 100."""

_MAX_EMPTY = 1 << 16
"""The limit of empty arrays that a tensor without elements is written as."""

_LONG_STRINGS = 1 << 14
"""Packed strings of more bytes take more than about 2 ms to write."""

_OF_JSON = {bool: Datatype.BOOL, int: Datatype.INT64, float: Datatype.FP64, str: Datatype.BYTES}


# --- reading


def is_base64(value: Any) -> bool:
    """Whether ``value`` is one element in base64, not an object of tensors."""
    return type(value) is dict and len(value) == 1 and type(value.get(BASE64)) is str


def read_value(name: str, spec: TensorSpec, value: Any) -> Tensor:
    """The tensor of ``spec`` in ``value``, an element or nested arrays. Raises INVALID_TENSOR naming the
    tensor, for rows of unequal length, elements of another kind or out of range; UNREPRESENTABLE for BF16."""
    datatype = spec.datatype
    if datatype is Datatype.BF16:
        raise _no_form(name)
    shape = shape_of(value)
    values = value if isinstance(value, (list, LazyArray)) else [value]
    count = element_count(shape, name)
    if datatype is Datatype.BYTES:
        data = memoryview(pack_bytes(_strings(name, count, values)))
    else:
        data = pack_values(name, datatype, count, values)
    if not count:
        shape = _completed(shape, spec.shape)
    return Tensor(name, datatype, shape, data)


def _no_form(name: str) -> InferenceError:
    return not_carried(DIALECT_NAME, f"tensor '{name}' of datatype {Datatype.BF16.value} in JSON")


def inferred(name: str, value: Any) -> TensorSpec:
    """The tensor in ``value`` by its elements, for servers whose models have no known signature. Raises
    INVALID_TENSOR for elements of several kinds, and of none."""
    if isinstance(value, LazyArray):
        value = value.tolist()
    leaves = value if type(value) is list else [value]
    while any(type(leaf) is list for leaf in leaves):
        leaves = list(chain.from_iterable(leaf if type(leaf) is list else [leaf] for leaf in leaves))
    kinds = {str if is_base64(leaf) else type(leaf) for leaf in leaves}
    if kinds == {int, float}:
        kinds = {float}
    datatype = _OF_JSON.get(kinds.pop()) if len(kinds) == 1 else None
    if datatype is None:
        raise invalid_tensor(f"the datatype of tensor '{name}' is not known: declare the model's signature")
    return TensorSpec(name, datatype, shape_of(value))


def shape_of(value: Any) -> tuple[int, ...]:
    """The lengths of the first array at each level, as in the original server."""
    if isinstance(value, LazyArray):
        return value.shape
    sides: list[int] = []
    while type(value) is list:
        sides.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(sides)


def _completed(shape: tuple[int, ...], stated: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with the dimensions inside of an empty array, which only the signature states."""
    rest = stated[len(shape) :]
    return (*shape, *rest) if rest and min(rest) >= 0 else shape


def _strings(name: str, count: int, values: list[Any] | LazyArray) -> Iterable[bytes]:
    leaves = values.tolist() if isinstance(values, LazyArray) else values
    while any(type(leaf) is list for leaf in leaves):
        if not all(type(leaf) is list and len(leaf) == len(leaves[0]) for leaf in leaves):
            raise invalid_tensor(f"tensor '{name}': 'data' is ragged: its rows differ in length or depth")
        leaves = list(chain.from_iterable(leaves))
    if len(leaves) != count:
        raise invalid_tensor(f"tensor '{name}': the shape needs {count} elements, 'data' has {len(leaves)}")
    return [read_string(f"tensor '{name}': element {index}", leaf) for index, leaf in enumerate(leaves)]


def read_string(owner: str, value: Any) -> bytes:
    """A string, or bytes in base64. Raises INVALID_TENSOR, naming the ``owner``."""
    if type(value) is str:
        return value.encode()
    if is_base64(value):
        try:
            return b64decode(value[BASE64], validate=True)
        except (Base64Error, ValueError):
            raise invalid_tensor(f"{owner}: Unable to base64 decode") from None
    raise invalid_tensor(f"{owner} must be a string or an object with '{BASE64}', got another JSON value")


# --- writing


def write_value(tensor: Tensor) -> Any:
    """The elements of ``tensor`` in nested arrays, for ``write_json``. Raises UNREPRESENTABLE naming the
    tensor for BF16, shared memory, and a shape that arrays cannot have."""
    shape, data, datatype = tensor.shape, tensor.data, tensor.datatype
    if isinstance(data, SharedMemoryRef):
        raise not_carried(DIALECT_NAME, f"the shared memory of tensor '{tensor.name}'")
    if datatype is Datatype.BF16:
        raise _no_form(tensor.name)
    if len(shape) > _MAX_RANK:
        raise not_carried(DIALECT_NAME, f"the {len(shape)} dimensions of tensor '{tensor.name}' in JSON")
    if 0 in shape and prod(shape[: shape.index(0)]) > _MAX_EMPTY:
        raise not_carried(DIALECT_NAME, f"the empty rows of tensor '{tensor.name}' in JSON")
    if datatype is not Datatype.BYTES:
        if len(data) != prod(shape) * datatype.itemsize:
            raise _of_another_size(tensor)
        return json_values(tensor, tokens=True, nested=True)
    return LongStrings(tensor) if len(data) > _LONG_STRINGS else _written(tensor)


def rows(tensors: Sequence[Tensor], count: int, *, named: bool = False) -> Any:
    """``tensors`` by their first dimension, which is ``count`` for each: an array of the rows of a single
    one, of objects by name for several, or if they are ``named``. Raises as :func:`write_value`."""
    values = {tensor.name: write_value(tensor) for tensor in tensors}
    if len(tensors) == 1 and not named:
        return values[tensors[0].name]
    found = LongRows(values, count)
    return found if any(hasattr(value, "json_values") for value in values.values()) else found.json_values()


class LongStrings:
    """A ``LongValue``: the arrays of many strings. No dataclass, which orjson would write."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def json_values(self) -> Any:
        return _written(self._tensor)


class LongRows:
    """A ``LongValue``: an object for each row of tensors, of which some are long."""

    def __init__(self, values: Mapping[str, Any], count: int) -> None:
        self._values, self._count = values, count

    def json_values(self) -> Any:
        columns = {
            name: value.json_values() if hasattr(value, "json_values") else value
            for name, value in self._values.items()
        }
        return [{name: column[row] for name, column in columns.items()} for row in range(self._count)]


def _of_another_size(tensor: Tensor) -> InferenceError:
    return not_carried(DIALECT_NAME, f"data of another size than that of the shape of tensor '{tensor.name}'")


def _written(tensor: Tensor) -> Any:
    elements = tensor.elements()
    if len(elements) != tensor.count:
        raise _of_another_size(tensor)
    texts = None if tensor.name.endswith(_BYTES_SUFFIX) else _texts(elements)
    if texts is None:
        # exact, where the original server would write invalid JSON
        return in_shape([{BASE64: b64encode(each).decode()} for each in elements], tensor.shape)
    return in_shape(texts, tensor.shape)


def _texts(elements: list[bytes]) -> list[Any] | None:
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError:
        return None


def scalars(values: Sequence[float]) -> list[Any]:
    """Floats for ``write_json``, with the tokens of those that are not finite. Those of 32 bits have few
    digits."""
    return [_scalar(value) for value in values]


def _scalar(value: float) -> Any:
    with np.errstate(over="ignore"):
        narrow = np.float32(value)
    datatype = np.float32 if narrow == value or value != value else np.float64
    tensor = Tensor.from_numpy("", np.array(value, datatype))
    return json_values(tensor, tokens=True, nested=True)
