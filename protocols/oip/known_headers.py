"""JSON headers that come again: what one of them said, remembered by its bytes.

A client that sends its tensors as binary data repeats the JSON before them word for word. Contract: what is
remembered follows from those bytes alone, whatever the model and the data behind them, and is bounded in
number and size. A header with an id, parameters or data of its own comes once, and is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlingua.protocols.oip.codec import RequestFields
from interlingua.protocols.wire import Buffer
from interlingua.schemas import Datatype, InferRequest, RequestedOutput, SharedMemoryRef, Tensor

LONGEST = 4096
"""A header above this size, in bytes, is not remembered."""

_MOST = 256

Key = tuple[bytes, str]
"""A header's bytes, and the coding of the answer."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a header said. ``inputs`` are names, datatypes, shapes and sizes in bytes, ``size`` is all of them
    together; ``form`` is the codec's own."""

    fields: RequestFields
    outputs: tuple[RequestedOutput, ...] | None
    inputs: tuple[tuple[str, Datatype, tuple[int, ...], int], ...]
    size: int
    form: Any

    def cut(self, body: Buffer, start: int) -> tuple[Tensor, ...]:
        """The inputs as views over ``body`` from ``start`` on, which has ``size`` bytes there. Raises
        INVALID_TENSOR for BYTES that are not the elements of their shape."""
        view = memoryview(body).toreadonly()
        tensors = []
        for name, datatype, shape, size in self.inputs:
            data = view[start : (start := start + size)]
            # the sizes of all others were found to match their shapes before they were remembered
            make = Tensor.checked if datatype is Datatype.BYTES else Tensor
            tensors.append(make(name, datatype, shape, data))
        return tuple(tensors)


class KnownHeaders:
    """The headers that came last. Not for several threads."""

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}

    def find(self, key: Key, size: int) -> Known | None:
        """What the header at ``key`` said, where ``size`` bytes of data are what it claims."""
        known = self._known.get(key)
        return known if known is not None and known.size == size else None

    def remember(self, key: Key, size: int, fields: RequestFields, request: InferRequest, form: Any) -> None:
        """Keep what the header at ``key`` said, unless it is one that comes once; ``request`` was read
        from it and the ``size`` bytes of data behind it."""
        if request.id or request.parameters or form.classes:
            return
        inputs = []
        for tensor in request.inputs:
            if isinstance(tensor.data, SharedMemoryRef):
                return
            inputs.append((tensor.name, tensor.datatype, tensor.shape, tensor.nbytes))
        # more than that came as JSON
        if sum(each[-1] for each in inputs) != size:
            return
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[key] = Known(fields, request.outputs, tuple(inputs), size, form)
