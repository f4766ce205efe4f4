"""Runs ONNX models on ONNX Runtime, on the execution providers of the configuration.

Numeric inputs are read in place in the request's body and outputs are views on ONNX Runtime's own arrays.
Strings are text to this engine (a ``bytes`` object becomes the text ``b'...'``), so BYTES elements must be
UTF-8. ONNX Runtime does not know NumPy's bfloat16, so models with BF16 tensors exchange ``OrtValue`` objects,
at about 15 us more per tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from interlingua.runtime.backends.devices import cuda_count
from interlingua.runtime.backends.onnx_file import MAP_ADVICE, is_bounded
from interlingua.runtime.backends.onnx_repeated import RepeatedRuns
from interlingua.runtime.backends.texts import text_array
from interlingua.runtime.cpus import EngineThreads
from interlingua.runtime.model_config.config import UNLIMITED_BATCH_SIZE, LoadError, ModelConfig
from interlingua.schemas import Datatype, Signature, Tensor, TensorSpec, model_failed

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"

_DATATYPES: dict[str, Datatype] = {
    "tensor(bool)": Datatype.BOOL,
    "tensor(uint8)": Datatype.UINT8,
    "tensor(uint16)": Datatype.UINT16,
    "tensor(uint32)": Datatype.UINT32,
    "tensor(uint64)": Datatype.UINT64,
    "tensor(int8)": Datatype.INT8,
    "tensor(int16)": Datatype.INT16,
    "tensor(int32)": Datatype.INT32,
    "tensor(int64)": Datatype.INT64,
    "tensor(float16)": Datatype.FP16,
    "tensor(bfloat16)": Datatype.BF16,
    "tensor(float)": Datatype.FP32,
    "tensor(double)": Datatype.FP64,
    "tensor(string)": Datatype.BYTES,
}

_BFLOAT16 = 16
"""ONNX's number for the element type."""

_SILENT = 4
"""Log only fatal errors: all others are raised."""

_THREAD_COUNTS: dict[str, str] = {
    "intra_op_thread_count": "intra_op_num_threads",
    "inter_op_thread_count": "inter_op_num_threads",
}
"""ONNX Runtime's session options by Triton's names for the model parameters."""


class OnnxInstance:
    """An ``Instance`` on one ONNX Runtime session, which runs in several threads at once."""

    def __init__(self, session: ort.InferenceSession, signature: Signature, bounded: bool = False) -> None:
        self.signature = signature
        self.bounded = bounded
        self._session = session
        self._datatypes = {spec.name: spec.datatype for spec in signature.outputs}
        self._bfloat16_in = {spec.name for spec in signature.inputs if spec.datatype is Datatype.BF16}
        self._bfloat16_out = _has(signature.outputs, Datatype.BF16)
        self._run = self._run_values if self._bfloat16_in or self._bfloat16_out else self._run_arrays
        self._repeated = RepeatedRuns(session, signature) if bounded else None

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """See ``Instance``. Raises INVALID_TENSOR for a BYTES element that is not UTF-8, naming input and
        element, and MODEL_FAILED with ONNX Runtime's words."""
        repeated = self._repeated
        if repeated is None:
            return self._run_once(inputs, outputs)
        found = repeated.run(inputs, outputs)
        if found is None:
            found = self._run_once(inputs, outputs)
            repeated.learn(inputs, outputs, found)
        return found

    def _run_once(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        arrays = {tensor.name: _array(tensor) for tensor in inputs}
        datatypes = self._datatypes
        # for ONNX Runtime, no output names mean all of them; unrequested ones are dropped below
        names = list(outputs or datatypes)
        try:
            results = self._run(names, arrays)
        # its errors have no base of their own below Exception
        except Exception as error:
            raise model_failed(str(error)) from error
        named = zip(outputs, results, strict=False)
        return tuple([Tensor.from_numpy(name, result, datatypes[name]) for name, result in named])

    def close(self) -> None:
        """Drop the session; its memory lives as long as the last answer that shows it."""
        del self._repeated, self._session

    def _run_arrays(self, names: list[str], arrays: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        results: Sequence[NDArray[Any]] = self._session.run(names, arrays)
        return results

    def _run_values(self, names: list[str], arrays: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        values = {name: self._value(name, array) for name, array in arrays.items()}
        if not self._bfloat16_out:
            # the one way in for strings, which is no way out for bfloat16
            return self._run_arrays(names, values)
        return [_array_of_value(value) for value in self._session.run_with_ort_values(names, values)]

    def _value(self, name: str, array: NDArray[Any]) -> Any:
        if name in self._bfloat16_in:
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _BFLOAT16)
        return array if array.dtype.hasobject else ort.OrtValue.ortvalue_from_numpy(array)


class _Memory:
    """A bfloat16 tensor of ONNX Runtime under NumPy's array interface. The array made from it keeps it,
    and it keeps the tensor."""

    def __init__(self, value: ort.OrtValue) -> None:
        self._value = value
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<u2",
            "shape": tuple(value.shape()),
            "data": (value.data_ptr(), True),
        }


def load(path: Path, config: ModelConfig) -> OnnxInstance:
    """Load the ONNX file at ``path``. Raises ``LoadError`` with ONNX Runtime's words, for an execution
    provider that is missing or does not start, and for an input or output that is not a tensor of a datatype
    of the IR."""
    providers = _providers(path, config)
    try:
        session = ort.InferenceSession(
            str(path),
            _session_options(path, config),
            providers=[(name, dict(options)) for name, options in providers],
            enable_fallback=0,
        )
    # its errors have no base of their own below Exception
    except Exception as error:
        raise LoadError(f"{path}: {error}") from error
    started = session.get_providers()
    for name, _ in providers:
        if name not in started:
            raise LoadError(f"{path}: execution provider {name} did not start; running are {started}")
    inputs, outputs = session.get_inputs(), session.get_outputs()
    signature = Signature(
        tuple(_spec(path, "input", node) for node in inputs),
        tuple(_spec(path, "output", node) for node in outputs),
        UNLIMITED_BATCH_SIZE if inputs and _batches([node.shape for node in (*inputs, *outputs)]) else 0,
    )
    if _has(signature.inputs, Datatype.BYTES) and _has(signature.outputs, Datatype.BF16):
        raise LoadError(
            f"{path}: string inputs beside bfloat16 outputs: ONNX Runtime's Python API has no way"
        )
    # strings take as long as their texts, whatever the shape
    bounded = started == [CPU] and not _has(signature.inputs, Datatype.BYTES) and is_bounded(path)
    return OnnxInstance(session, signature, bounded)


def _has(specs: tuple[TensorSpec, ...], datatype: Datatype) -> bool:
    return any(spec.datatype is datatype for spec in specs)


def _batches(shapes: list[list[int | str | None]]) -> bool:
    """Whether the first dimension of every tensor is the batch: free, not the only one, and with one name."""
    if any(len(shape) < 2 or isinstance(shape[0], int) for shape in shapes):
        return False
    return len({shape[0] for shape in shapes} - {None}) <= 1


def _array(tensor: Tensor) -> NDArray[Any]:
    if tensor.datatype is Datatype.BYTES:
        return text_array(tensor, "ONNX Runtime")
    dtype = np.dtype("<u2") if tensor.datatype is Datatype.BF16 else tensor.datatype.dtype
    array = np.frombuffer(tensor.view, dtype).reshape(tensor.shape)
    # vector instructions may fault on a float that straddles its alignment, as some bodies cut it
    return array if array.flags.aligned else array.copy()


def _array_of_value(value: ort.OrtValue) -> NDArray[Any]:
    if value.data_type() != "tensor(bfloat16)":
        array: NDArray[Any] = value.numpy()
        return array
    if 0 in value.shape():
        return np.empty(value.shape(), Datatype.BF16.dtype)
    return np.asarray(_Memory(value)).view(Datatype.BF16.dtype)


def _providers(path: Path, config: ModelConfig) -> tuple[tuple[str, Mapping[str, str]], ...]:
    providers = config.providers
    if not providers:
        kind, _, index = config.device.partition(":")
        if not kind and CUDA in ort.get_available_providers() and cuda_count():
            kind = "cuda"
        if kind in ("", "cpu"):
            providers = ((CPU, {}),)
        elif kind == "cuda" and (index or "0").isdecimal():
            # whatever CUDA has no kernel for runs on the CPU
            providers = ((CUDA, {"device_id": index or "0"}), (CPU, {}))
        else:
            raise LoadError(f"{path}: device '{config.device}' is not one of cpu, cuda, cuda:<number>")
    available = ort.get_available_providers()
    for name, _ in providers:
        if name not in available:
            raise LoadError(
                f"{path}: this ONNX Runtime has no execution provider {name}; it has {', '.join(available)}"
            )
    return providers


def _session_options(path: Path, config: ModelConfig) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    if EngineThreads.count:
        options.intra_op_num_threads = EngineThreads.count
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    for key, value in config.parameters.items():
        if key in _THREAD_COUNTS:
            if not value.isdecimal():
                raise LoadError(f"{path}: parameter {key} is '{value}', not a number of threads")
            setattr(options, _THREAD_COUNTS[key], int(value))
        elif key.startswith("session."):
            options.add_session_config_entry(key, value)
    return options


def _spec(path: Path, role: str, node: ort.NodeArg) -> TensorSpec:
    datatype = _DATATYPES.get(node.type)
    if datatype is None:
        advice = f"; {MAP_ADVICE}" if "map(" in node.type else ""
        raise LoadError(f"{path}: {role} '{node.name}' is a {node.type}, which cannot be served{advice}")
    # a free dimension is a name or None
    return TensorSpec(node.name, datatype, tuple(d if isinstance(d, int) else -1 for d in node.shape))
