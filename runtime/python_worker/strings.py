"""BYTES as they are sent, each element after its length in four bytes, and as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack_strings(array: NDArray[Any]) -> bytes:
    """The elements of ``array`` in C order. Objects other than ``bytes`` and ``str`` are converted to
    text."""
    parts: list[bytes] = []
    for element in array.ravel().tolist():
        text = element if isinstance(element, bytes) else str(element).encode()
        parts += (len(text).to_bytes(4, "little"), text)
    return b"".join(parts)


def unpack_strings(view: memoryview) -> NDArray[Any]:
    """The elements as ``bytes`` objects, in one dimension."""
    found: list[bytes] = []
    position = 0
    while position < len(view):
        start = position + 4
        position = start + int.from_bytes(view[position:start], "little")
        found.append(bytes(view[start:position]))
    array = np.empty(len(found), np.object_)
    array[:] = found
    return array
