"""Small runs of ONNX Runtime that repeat the shapes of others, in buffers that are kept.

A run of a tiny model takes a few microseconds, and ONNX Runtime's Python API several times that: it validates
the inputs, converts them, and makes arrays of the outputs. A binding does all of that once. It is used by one
run at a time; others meanwhile take the usual way, and so does every run that a binding fails.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from interlingua.schemas import Datatype, Signature, Tensor

_REPETITIONS = 16
"""After so many runs of equal shapes there is a binding."""

_MOST_BYTES = 1 << 14
"""The most bytes of inputs and outputs together. Of larger ones the copies would cost more than the rest."""

_MOST_BINDINGS, _MOST_SHAPES = 64, 1024
"""Beyond these all are forgotten, so that clients cannot grow the tables without end."""

_REFUSED = -(1 << 16)
"""The count of shapes whose binding did not compute what the usual run did."""

_GARBAGE = 0xA5, 0x5A
"""What outputs hold before the runs that verify a binding: a byte that is not written differs in one."""

_UNBOUND = frozenset((Datatype.BYTES, Datatype.BF16))
"""Datatypes without a NumPy dtype that ONNX Runtime knows, or without a size."""


class _Output(NamedTuple):
    """``make`` makes the tensor of a copy of ``buffer``."""

    make: Callable[[memoryview], Tensor]
    buffer: memoryview


class _Binding(NamedTuple):
    """``bound`` refers to the memory of ``inputs`` and ``outputs``, which are views of it as bytes."""

    bound: Any
    inputs: tuple[memoryview, ...]
    outputs: tuple[_Output, ...]


class RepeatedRuns:
    """The bindings of one ``session`` on the CPU, for a model of ``signature``. Several threads may call at
    once: a count that they lose only delays a binding."""

    def __init__(self, session: ort.InferenceSession, signature: Signature) -> None:
        # freed before the session that they belong to
        self._free: dict[Hashable, _Binding] = {}
        self._session = session
        # what the public methods call in the end: their checks of a binding cost more than the run
        self._run = getattr(getattr(session, "_sess", None), "run_with_iobinding", None)
        self._options = ort.RunOptions()
        self._possible = self._run is not None and not any(
            spec.datatype in _UNBOUND for spec in (*signature.inputs, *signature.outputs)
        )
        self._counts: dict[Hashable, int] = {}

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...] | None:
        """The ``outputs`` of a run in a binding; None without one, and if that fails."""
        shapes = _shapes_of(inputs, outputs)
        binding = self._free.pop(shapes, None)
        if binding is None:
            return None
        try:
            found = self._run_in(binding, inputs)
        except Exception:
            return None  # the usual run raises it again
        self._free[shapes] = binding
        return found

    def learn(
        self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...], results: tuple[Tensor, ...]
    ) -> None:
        """Count a usual run, which had these ``results``; after many of equal shapes make a binding."""
        if not self._possible:
            return
        size = 0
        for tensor in (*inputs, *results):
            size += tensor.nbytes
            if not tensor.nbytes or size > _MOST_BYTES:
                return
        shapes, counts = _shapes_of(inputs, outputs), self._counts
        if len(counts) >= _MOST_SHAPES:
            counts.clear()
        counts[shapes] = count = counts.get(shapes, 0) + 1
        if count < _REPETITIONS:
            return
        counts[shapes] = 0
        try:
            binding = self._bind(inputs, results)
            same = all(self._computes(binding, inputs, results, garbage) for garbage in _GARBAGE)
        except Exception:
            same = False
        if not same:
            counts[shapes] = _REFUSED
            return
        if len(self._free) >= _MOST_BINDINGS:
            self._free.clear()
        self._free[shapes] = binding

    def _computes(
        self, binding: _Binding, inputs: tuple[Tensor, ...], results: tuple[Tensor, ...], garbage: int
    ) -> bool:
        """Whether ``binding`` computes ``results``. Outputs that are inputs, for example, stay as they are,
        which is ``garbage``."""
        for output in binding.outputs:
            output.buffer[:] = bytes([garbage]) * len(output.buffer)
        return self._run_in(binding, inputs) == results

    def _run_in(self, binding: _Binding, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        bound, received, made = binding
        for place, tensor in enumerate(inputs):
            # a reference to shared memory raises here as it does in the usual run
            received[place][:] = tensor.data  # type: ignore[assignment]
        self._run(bound, self._options)  # type: ignore[misc]
        return tuple([make(memoryview(buffer.tobytes())) for make, buffer in made])

    def _bind(self, inputs: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> _Binding:
        binding = self._session.io_binding()
        received, made = [], []
        for tensor in inputs:
            array = _buffer(tensor)
            dtype = tensor.datatype.dtype
            binding.bind_input(tensor.name, "cpu", 0, dtype, tensor.shape, array.ctypes.data)
            received.append(array.data)
        for tensor in results:
            array = _buffer(tensor)
            dtype = tensor.datatype.dtype
            binding.bind_output(tensor.name, "cpu", 0, dtype, tensor.shape, array.ctypes.data)
            make = partial(Tensor, tensor.name, tensor.datatype, tensor.shape)
            made.append(_Output(make, array.data))
        return _Binding(binding._iobinding, tuple(received), tuple(made))


def _shapes_of(inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> Hashable:
    if len(inputs) == 1:
        tensor = inputs[0]
        return outputs, tensor.name, tensor.shape
    return outputs, *[(tensor.name, tensor.shape) for tensor in inputs]


def _buffer(tensor: Tensor) -> Any:
    """Memory of the size of ``tensor``."""
    return np.empty(tensor.nbytes, np.uint8)
