"""The tensor of the IR: a name, a datatype, a full shape, and one contiguous read-only buffer.

The buffer is a view over the received body: receiving copies nothing, and no claim of a client causes an
allocation. BYTES stay packed as in the wire formats (4-byte little-endian length, then the bytes, per
element) and become a list on demand.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import offload
from interlingua.schemas.datatypes import Datatype, datatype_of
from interlingua.schemas.errors import ErrorCode, InferenceError, invalid_tensor

MAX_ELEMENTS = 2**63 - 1

_SHOWN_DIMENSIONS = 16

_JOINED_PARTS = 1 << 14

_FEW_STRINGS = 1 << 12
"""The walk over so many packed elements takes less than about 2 ms."""

_LENGTH = struct.Struct("<I")
_EMPTY = memoryview(b"")


@dataclass(frozen=True, slots=True)
class SharedMemoryRef:
    """The place of a tensor's bytes: ``size`` bytes at ``offset`` of a registered region. With
    ``upper_limit`` the size is that of the largest output, and the region may be smaller if the actual one
    fits; this is a quirk of a dialect, not stated in messages, so it is not compared. Only ``runtime``
    resolves a place."""

    region: str
    offset: int
    size: int
    upper_limit: bool = field(default=False, compare=False)


@dataclass(slots=True)
class Tensor:
    """One named tensor. Treat as immutable.

    ``shape`` is full: the batch dimension, if the model has one, is first. ``data`` is a read-only view of
    exactly ``element_count(shape) * itemsize`` bytes, row-major and little-endian (BYTES: packed elements),
    or a reference into shared memory. ``parameters`` are for clients and servers of the same dialect, None
    without any. The constructor checks nothing; use :meth:`checked` for received data.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: memoryview | SharedMemoryRef
    parameters: Mapping[str, bool | int | float | str] | None = field(default=None, compare=False)

    @classmethod
    def checked(cls, name: str, datatype: Datatype, shape: Iterable[int], data: Any) -> Tensor:
        """A tensor over ``data`` (any buffer) of the size of its shape. Raises INVALID_TENSOR naming the
        tensor: a negative dimension, more than 2^63-1 elements, a wrong byte size, truncated or surplus
        BYTES."""
        shape = tuple(shape)
        view = memoryview(data).toreadonly()
        if view.ndim != 1 or view.itemsize != 1:
            view = view.cast("B")
        count = element_count(shape, name)
        if datatype is Datatype.BYTES:
            _check_packed(name, view, count)
        elif count * datatype.itemsize != len(view):
            raise invalid_tensor(
                f"tensor '{name}' of datatype {datatype.value} and shape {list(shape)} needs "
                f"{count * datatype.itemsize} bytes, got {len(view)}"
            )
        return cls(name, datatype, shape, view)

    @classmethod
    def from_numpy(cls, name: str, array: NDArray[Any], datatype: Datatype | None = None) -> Tensor:
        """A tensor over ``array``, zero-copy if it is C-contiguous and little-endian. BYTES elements may be
        bytes or str (encoded as UTF-8). Raises INVALID_TENSOR for an unknown dtype."""
        datatype = datatype or datatype_of(array.dtype)
        if datatype is None:
            raise invalid_tensor(f"tensor '{name}': no datatype stores NumPy's {array.dtype}")
        if datatype is Datatype.BYTES:
            packed = pack_bytes(_as_bytes(name, element) for element in array.ravel().tolist())
            return cls(name, datatype, array.shape, memoryview(packed))
        plain = np.ascontiguousarray(array, dtype=datatype.dtype)
        if not plain.size:
            return cls(name, datatype, array.shape, _EMPTY)
        if datatype is Datatype.BF16:  # a buffer has no format for it
            plain = plain.view(np.uint16)
        return cls(name, datatype, array.shape, plain.data.cast("B").toreadonly())

    @property
    def count(self) -> int:
        """The number of elements."""
        return element_count(self.shape, self.name)

    @property
    def nbytes(self) -> int:
        """The size of the data in bytes."""
        return self.data.size if isinstance(self.data, SharedMemoryRef) else len(self.data)

    @property
    def view(self) -> memoryview:
        """The data in memory. Raises INTERNAL for an unresolved reference."""
        if isinstance(self.data, SharedMemoryRef):
            raise InferenceError(
                ErrorCode.INTERNAL,
                f"tensor '{self.name}' still refers to shared memory region '{self.data.region}'",
            )
        return self.data

    def numpy(self) -> NDArray[Any]:
        """The tensor as a read-only array, zero-copy; BYTES as an object array of ``bytes``."""
        if self.datatype is Datatype.BYTES:
            elements = np.empty(self.count, dtype=object)
            elements[:] = self.elements()
            return elements.reshape(self.shape)
        return np.frombuffer(self.view, dtype=self.datatype.dtype).reshape(self.shape)

    def elements(self) -> list[bytes]:
        """The elements of a BYTES tensor, row-major."""
        return list(packed_elements(self.view))

    def renamed(self, name: str) -> Tensor:
        """The same data and parameters under another name."""
        return Tensor(name, self.datatype, self.shape, self.data, self.parameters)


def element_count(shape: Sequence[int], name: str = "") -> int:
    """The product of ``shape``; 1 for a scalar's empty shape. Raises INVALID_TENSOR for a negative dimension
    and for a product above 2^63-1, even if another dimension is zero: signed 64-bit readers cannot multiply
    it."""
    count = 1
    largest = 1
    for dimension in shape:
        if dimension < 0:
            raise invalid_tensor(
                f"tensor '{name}' has a negative dimension in shape {list(shape[:_SHOWN_DIMENSIONS])}"
            )
        count *= dimension
        largest *= dimension or 1
        # in the loop, because products of hostile shapes are unbounded
        if largest > MAX_ELEMENTS:
            raise invalid_tensor(
                f"tensor '{name}' of shape {list(shape[:_SHOWN_DIMENSIONS])} has more elements "
                "than 64 bits can count"
            )
    return count


def packed_elements(view: memoryview) -> Iterator[bytes]:
    """The BYTES elements that :func:`pack_bytes` packs."""
    position, end = 0, len(view)
    while position < end:
        start = position + 4
        position = start + _LENGTH.unpack_from(view, position)[0]
        yield bytes(view[start:position])


def pack_bytes(elements: Iterable[bytes]) -> bytes:
    """BYTES elements packed for the wire: 4-byte little-endian length and the bytes, each."""
    blocks: list[bytes] = []
    parts: list[bytes] = []
    for element in elements:
        parts.append(_LENGTH.pack(len(element)))
        parts.append(element)
        if len(parts) > _JOINED_PARTS:
            # a list of millions of parts would take many times their size
            blocks.append(b"".join(parts))
            parts.clear()
    return b"".join((*blocks, *parts)) if blocks else b"".join(parts)


def _check_packed(name: str, view: memoryview, count: int) -> None:
    # every element has at least four bytes, so a false claim fails before the walk
    if count * 4 <= len(view):
        if count <= _FEW_STRINGS:
            fits = _holds(view, count)
        else:
            offload.require()
            offload.limits().check_elements(count, f"tensor '{name}'")
            fits = offload.call(_holds, view, count)
        if fits:
            return
    raise invalid_tensor(
        f"tensor '{name}' of datatype BYTES needs {count} length-prefixed elements; "
        f"its {len(view)} bytes do not hold exactly that"
    )


def _holds(view: memoryview, count: int) -> bool:
    """Whether ``view`` is exactly ``count`` packed elements."""
    position, end, found = 0, len(view), 0
    # the walk ends at the first surplus element
    while position + 4 <= end and found <= count:
        position += 4 + _LENGTH.unpack_from(view, position)[0]
        found += 1
    return position == end and found == count


def _as_bytes(name: str, element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise invalid_tensor(f"tensor '{name}': a BYTES element is {type(element).__name__}, not bytes")
