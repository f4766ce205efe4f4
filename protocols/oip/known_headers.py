"""A cache of parsed JSON headers, by their bytes.

Clients with binary data repeat the JSON before it, and so do servers. An entry depends on the bytes of the
header alone, not on the model and the data; number and size are bounded. A header with an id, parameters or
data is not cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlingua.protocols.wire import Buffer
from interlingua.schemas import Datatype, InferRequest, InferResponse, SharedMemoryRef, Tensor

LONGEST = 4096
"""The size in bytes of the longest cached header."""

_MOST = 256

Key = tuple[bytes, str]
"""A header's bytes, and the coding of the answer to a request."""


@dataclass(frozen=True, slots=True)
class Known:
    """A parsed header. ``tensors`` are names, datatypes, shapes and sizes in bytes, ``size`` is their sum;
    ``rest`` is the codec's own."""

    tensors: tuple[tuple[str, Datatype, tuple[int, ...], int], ...]
    size: int
    rest: Any

    def cut(self, body: Buffer, start: int) -> tuple[Tensor, ...]:
        """The tensors as views over ``body``, which has ``size`` bytes from ``start`` on. Raises
        INVALID_TENSOR for BYTES that contradict their shape."""
        view = memoryview(body).toreadonly()
        tensors = []
        for name, datatype, shape, size in self.tensors:
            data = view[start : (start := start + size)]
            # all other sizes were checked before the header was cached
            make = Tensor.checked if datatype is Datatype.BYTES else Tensor
            tensors.append(make(name, datatype, shape, data))
        return tuple(tensors)


class KnownHeaders:
    """The recent headers. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}

    def find(self, key: Key, size: int) -> Known | None:
        """The header at ``key`` if it is for ``size`` bytes of data."""
        known = self._known.get(key)
        return known if known is not None and known.size == size else None

    def remember(self, key: Key, size: int, message: InferRequest | InferResponse, rest: Any) -> None:
        """Cache the header at ``key``, unless it is unique; ``message`` was read with it and ``size`` bytes
        of data."""
        if message.id or message.parameters or message.wire_form:
            return
        given = message.inputs if isinstance(message, InferRequest) else message.outputs
        tensors = []
        for tensor in given:
            # an empty tensor may be JSON, whose meaning depends on more than the header
            if isinstance(tensor.data, SharedMemoryRef) or not tensor.nbytes or tensor.parameters:
                return
            tensors.append((tensor.name, tensor.datatype, tensor.shape, tensor.nbytes))
        # the others are JSON
        if sum(each[-1] for each in tensors) != size:
            return
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[key] = Known(tuple(tensors), size, rest)
