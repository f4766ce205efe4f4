"""Runs TorchScript (``model.pt``) and ``torch.export`` (``model.pt2``) models on PyTorch, CPU or CUDA.

On the CPU, inputs are read in place in the request's body and outputs are views on PyTorch's own memory; an
input that the model may write to is copied first, because the body is shared. On CUDA each tensor is copied
once each way. PyTorch has no strings, so BYTES are refused when the model is loaded.

A TorchScript file declares neither datatypes nor shapes: its configuration must, and the names there are
bound to the arguments of ``forward`` as Triton binds them. An exported program declares them itself.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interlingua.runtime.backends.torch_file import UNDECLARED, examine_file
from interlingua.runtime.cpus import EngineThreads
from interlingua.runtime.model_config.config import UNLIMITED_BATCH_SIZE, LoadError, ModelConfig
from interlingua.schemas import Datatype, Signature, Tensor, TensorSpec, model_failed

_DTYPES: dict[Datatype, torch.dtype] = {
    # PyTorch's names are NumPy's
    datatype: getattr(torch, datatype.dtype.name)
    for datatype in Datatype
    if datatype is not Datatype.BYTES
}
_DATATYPES = {dtype: datatype for datatype, dtype in _DTYPES.items()}

_INDEXED = re.compile(r".*__([0-9]+)")
"""A name with the number of an argument or result, such as ``INPUT__0``."""

_THREADS = "INTRA_OP_THREAD_COUNT"
"""Triton's name for the model parameter; PyTorch has one pool of threads for the whole process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Program:
    """A loaded model: its function, the names of its arguments, which of them it may write to, and for an
    exported program the specs of its inputs and outputs (outputs under names only if it returns a
    mapping)."""

    call: Callable[..., Any]
    arguments: tuple[str, ...]
    written: frozenset[str]
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


class TorchInstance:
    """An ``Instance`` on one module, which runs in several threads at once. Never ``bounded``: TorchScript
    compiles again for new shapes, and OpenMP would make each loop a master of threads of its own."""

    bounded = False

    def __init__(
        self,
        program: _Program,
        positions: Mapping[str, int],
        outputs: tuple[TensorSpec, ...],
        device: torch.device,
        signature: Signature | None,
    ) -> None:
        self.signature = signature
        self._call = program.call
        self._device = device
        self._order = sorted(positions, key=positions.__getitem__)
        self._copied = {
            name for name, place in positions.items() if program.arguments[place] in program.written
        }
        self._outputs = {spec.name: (place, spec.datatype) for place, spec in _placed(outputs)}

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """See ``Instance``. Raises MODEL_FAILED with PyTorch's words, and for an output that is missing or
        has another datatype."""
        by_name = {tensor.name: tensor for tensor in inputs}
        with torch.inference_mode():
            arguments = [self._argument(by_name[name]) for name in self._order if name in by_name]
            try:
                results = _results(self._call(*arguments))
            # what a model raises has no base below Exception
            except Exception as error:
                raise model_failed(str(error).strip()) from error
            return tuple(self._output(name, results) for name in outputs)

    def close(self) -> None:
        """Drop the module; its memory lives as long as the last answer that shows it."""
        del self._call

    def _argument(self, tensor: Tensor) -> torch.Tensor:
        array = _writable(tensor, copied=tensor.name in self._copied)
        if tensor.datatype is Datatype.BF16:
            found = torch.from_numpy(array).view(torch.bfloat16)
        else:
            found = torch.from_numpy(array)
        return found.reshape(tensor.shape).to(self._device)

    def _output(self, name: str, results: Mapping[int | str, Any]) -> Tensor:
        place, datatype = self._outputs[name]
        found = results.get(name, results.get(place))
        if not isinstance(found, torch.Tensor):
            what = "is missing" if found is None else f"is a {type(found).__name__}, not a tensor"
            raise model_failed(f"output '{name}' {what}")
        if found.dtype != _DTYPES[datatype]:
            has = _DATATYPES.get(found.dtype)
            raise model_failed(
                f"output '{name}' is {has.value if has else found.dtype}, declared is {datatype.value}"
            )
        plain = found.detach().cpu().contiguous()
        if datatype is Datatype.BF16:
            array = plain.view(torch.uint16).numpy().view(Datatype.BF16.dtype)
        else:
            array = plain.numpy()
        return Tensor.from_numpy(name, array, datatype)


class _Memory:
    """A tensor's bytes under NumPy's array interface, as a writable array: PyTorch has no read-only tensors
    and warns of such arrays. The array made from it keeps it, and it the bytes."""

    def __init__(self, tensor: Tensor, array: np.ndarray[Any, Any]) -> None:
        self._keeps = tensor.view
        self.__array_interface__ = {
            "version": 3,
            "typestr": array.dtype.str,
            "shape": array.shape,
            "data": (array.ctypes.data, False),
        }


def load(path: Path, config: ModelConfig) -> TorchInstance:
    """Load the TorchScript file or the exported program at ``path``. Raises ``LoadError`` with PyTorch's
    words, for a missing device, for a TorchScript model whose configuration does not state inputs and
    outputs, for names that cannot be bound to arguments, and for datatypes that PyTorch does not have."""
    examine_file(path)
    device = _device(path, config)
    _set_threads(path, config)
    try:
        program = _exported(path, device) if path.suffix == ".pt2" else _scripted(path, device)
    except LoadError:
        raise
    # PyTorch raises whatever the file's reader raised
    except Exception as error:
        raise LoadError(f"{path}: {str(error).strip()}") from error
    if not (config.outputs or program.outputs):
        raise LoadError(f"{path}: {UNDECLARED}")
    for spec in (*config.inputs, *config.outputs):
        if spec.datatype not in _DTYPES:
            raise LoadError(f"{path}: '{spec.name}' is {spec.datatype.value}, which PyTorch does not have")
    positions = _bound(path, config.inputs or program.inputs, program.arguments)
    outputs = config.outputs or program.outputs
    signature = None
    if program.outputs:
        signature = _signature(path, program, positions, outputs)
    return TorchInstance(program, positions, outputs, device, signature)


def _scripted(path: Path, device: torch.device) -> _Program:
    with warnings.catch_warnings():
        # the format is deprecated for those who write it; it has to be read as long as it is there
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(str(path), map_location=device).eval()
    graph = module.inlined_graph
    arguments = tuple(argument.name for argument in module.forward.schema.arguments[1:])
    aliases = graph.alias_db()
    values = list(graph.inputs())[1:]
    written = {name for name, value in zip(arguments, values, strict=True) if aliases.has_writers(value)}
    return _Program(module, arguments, frozenset(written))


def _exported(path: Path, device: torch.device) -> _Program:
    program = torch.export.load(str(path))
    names = program.graph_signature.user_inputs
    nodes = list(program.graph.nodes)
    fakes = {node.name: node.meta.get("val") for node in nodes}
    positional, keywords = program.call_spec.in_spec.children()
    if len(names) != positional.num_leaves or keywords.num_leaves or len(names) != positional.num_children:
        raise LoadError(f"{path}: a served program takes tensors as positional arguments and nothing else")
    results = program.call_spec.out_spec
    keys = list(results.context) if results.type is dict else []
    found = program.graph_signature.user_outputs
    outputs = tuple(
        _spec(path, "output", keys[place] if keys else f"OUTPUT__{place}", fakes.get(str(name)))
        for place, name in enumerate(found)
    )
    inputs = tuple(_spec(path, "input", str(name), fakes[str(name)]) for name in names)
    module = program.module().to(device)
    arguments = tuple(str(name) for name in names)
    # an operation in place may reach an input through a view
    writes = any(getattr(node.target, "_schema", None) and node.target._schema.is_mutable for node in nodes)
    return _Program(module, arguments, frozenset(arguments if writes else ()), inputs, outputs)


def _spec(path: Path, role: str, name: str, fake: Any) -> TensorSpec:
    if not isinstance(fake, torch.Tensor) or fake.dtype not in _DATATYPES:
        what = fake.dtype if isinstance(fake, torch.Tensor) else type(fake).__name__
        raise LoadError(f"{path}: {role} '{name}' is a {what}, which cannot be served")
    # a free dimension is symbolic
    shape = tuple(size if isinstance(size, int) else -1 for size in fake.shape)
    return TensorSpec(name, _DATATYPES[fake.dtype], shape)


def _bound(path: Path, inputs: Sequence[TensorSpec], arguments: tuple[str, ...]) -> dict[str, int]:
    """The argument of each input: by the argument's name, by a number at the end of its own, or by its place
    if neither convention holds for all."""
    names = [spec.name for spec in inputs]
    if len(names) > len(arguments):
        raise LoadError(f"{path}: {len(names)} inputs are declared, but the model takes {list(arguments)}")
    if set(names) <= set(arguments):
        positions = {name: arguments.index(name) for name in names}
    elif all(_INDEXED.fullmatch(name) for name in names):
        positions = {name: int(_INDEXED.sub(r"\1", name)) for name in names}
    else:
        positions = {name: place for place, name in enumerate(names)}
    if sorted(positions.values()) != list(range(len(names))):
        raise LoadError(f"{path}: inputs {names} leave out an argument of {list(arguments)} before the last")
    return positions


def _placed(outputs: Sequence[TensorSpec]) -> list[tuple[int, TensorSpec]]:
    """The result of each output, if results have no names."""
    if all(_INDEXED.fullmatch(spec.name) for spec in outputs):
        return [(int(_INDEXED.sub(r"\1", spec.name)), spec) for spec in outputs]
    return list(enumerate(outputs))


def _signature(
    path: Path, program: _Program, positions: Mapping[str, int], outputs: Sequence[TensorSpec]
) -> Signature:
    """The signature of the exported program, under the declared names."""
    inputs = [
        TensorSpec(name, program.inputs[place].datatype, program.inputs[place].shape)
        for name, place in positions.items()
    ]
    by_name = {spec.name: spec for spec in program.outputs}
    found = []
    for place, spec in _placed(outputs):
        has = by_name.get(spec.name)
        if has is None and place < len(program.outputs):
            has = program.outputs[place]
        if has is None:
            raise LoadError(f"{path}: output '{spec.name}' is declared, but the model gives {list(by_name)}")
        found.append(TensorSpec(spec.name, has.datatype, has.shape))
    batches = bool(inputs) and all(len(s.shape) > 1 and s.shape[0] == -1 for s in (*inputs, *found))
    return Signature(tuple(inputs), tuple(found), UNLIMITED_BATCH_SIZE if batches else 0)


def _results(result: Any) -> dict[int | str, Any]:
    """The results of a model, by place and by name: a tensor, several of them, or a mapping."""
    if isinstance(result, Mapping):
        return {**dict(enumerate(result.values())), **result}
    return dict(enumerate(result if isinstance(result, tuple | list) else (result,)))


def _writable(tensor: Tensor, copied: bool) -> np.ndarray[Any, Any]:
    dtype = np.dtype("<u2") if tensor.datatype is Datatype.BF16 else tensor.datatype.dtype
    array = np.frombuffer(tensor.view, dtype)
    # vector instructions may fault on a float that straddles its alignment, as some bodies cut it
    if copied or not array.flags.aligned or not array.size:
        return array.copy()
    return np.asarray(_Memory(tensor, array))


def _device(path: Path, config: ModelConfig) -> torch.device:
    kind, _, index = (config.device or ("cuda" if torch.cuda.is_available() else "cpu")).partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    there = torch.cuda.device_count()
    if kind != "cuda" or int(index or 0) >= there:
        has = ", ".join(["cpu", *(f"cuda:{number}" for number in range(there))])
        raise LoadError(f"{path}: there is no device '{config.device}' for PyTorch here, only {has}")
    return torch.device("cuda", int(index or 0))


_stated_threads: set[int] = set()
"""What the configurations of models state: PyTorch has one pool for all."""


def _set_threads(path: Path, config: ModelConfig) -> None:
    count = config.parameters.get(_THREADS, "")
    if not count:
        if EngineThreads.count and not _stated_threads:
            torch.set_num_threads(EngineThreads.count)
        return
    if not count.isdecimal() or not int(count):
        raise LoadError(f"{path}: parameter {_THREADS} is '{count}', not a number of threads")
    if torch.get_num_threads() != int(count):
        _log.info(
            "PyTorch threads set for every model", extra={"facts": {"model": path.name, "threads": count}}
        )
        torch.set_num_threads(int(count))
    _stated_threads.add(int(count))
