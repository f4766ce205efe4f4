"""A cache of parsed JSON headers, by their bytes.

Clients with binary data repeat the JSON before it. An entry depends on the bytes of the header alone, not on
the model and the data; number and size are bounded. A header with an id, parameters or data is not cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlingua.protocols.oip.codec import RequestFields
from interlingua.protocols.wire import Buffer
from interlingua.schemas import Datatype, InferRequest, RequestedOutput, SharedMemoryRef, Tensor

LONGEST = 4096
"""The size in bytes of the longest cached header."""

_MOST = 256

Key = tuple[bytes, str]
"""A header's bytes, and the coding of the answer."""


@dataclass(frozen=True, slots=True)
class Known:
    """A parsed header. ``inputs`` are names, datatypes, shapes and sizes in bytes, ``size`` is their sum;
    ``form`` is the codec's own."""

    fields: RequestFields
    outputs: tuple[RequestedOutput, ...] | None
    inputs: tuple[tuple[str, Datatype, tuple[int, ...], int], ...]
    size: int
    form: Any

    def cut(self, body: Buffer, start: int) -> tuple[Tensor, ...]:
        """The inputs as views over ``body``, which has ``size`` bytes from ``start`` on. Raises
        INVALID_TENSOR for BYTES that contradict their shape."""
        view = memoryview(body).toreadonly()
        tensors = []
        for name, datatype, shape, size in self.inputs:
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

    def remember(self, key: Key, size: int, fields: RequestFields, request: InferRequest, form: Any) -> None:
        """Cache the header at ``key``, unless it is unique; ``request`` is its request with ``size`` bytes of
        data."""
        if request.id or request.parameters or form.classes:
            return
        inputs = []
        for tensor in request.inputs:
            if isinstance(tensor.data, SharedMemoryRef):
                return
            inputs.append((tensor.name, tensor.datatype, tensor.shape, tensor.nbytes))
        # the others are JSON
        if sum(each[-1] for each in inputs) != size:
            return
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[key] = Known(fields, request.outputs, tuple(inputs), size, form)
