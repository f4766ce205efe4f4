"""Runs models of tables: a row for each example, a column for each feature.

scikit-learn, XGBoost and LightGBM share what is here: how inputs become a table, which outputs a model has,
and of which datatype and shape they are. Files do not state the latter, so a row of zeros or ones runs when
a model is loaded.

The inputs are one tensor ``[rows, features]``, or, if the configuration declares several, one per column. An
undeclared input has a name that we chose, so clients may use any other, and any datatype that FP64
represents; of 64-bit integers only those that it represents exactly. One-dimensional outputs get a second
dimension of 1, as with MLServer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.runtime.backends.texts import text_array
from interlingua.runtime.cpus import EngineThreads, available_cpus
from interlingua.runtime.model_config.config import UNLIMITED_BATCH_SIZE, LoadError, ModelConfig
from interlingua.schemas import (
    NO_LEEWAY,
    Datatype,
    InferenceError,
    Leeway,
    Signature,
    Tensor,
    TensorSpec,
    invalid_tensor,
    model_failed,
)
from interlingua.schemas.datatypes import datatype_of

_INPUT = "input"
"""The name of an input that no configuration declares."""

_NUMBERS: tuple[Datatype, ...] = tuple(set(Datatype) - {Datatype.BYTES})

_PROBES = (0, 1)

_UNIFIED_BYTES = 1 << 16
"""Converting more on the event loop would hold others up."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """A model as its library has loaded it.

    ``engine`` is the library's name in messages. ``functions`` are its outputs, from a table to an array with
    as many rows; the first one is the default of requests. ``features`` is the number of columns, -1 if
    unknown; ``names`` are theirs, if known; ``classes`` the labels of the columns of outputs with one per
    class. ``frames``: it can take a DataFrame of pandas. ``narrow``: FP32 columns give the same answers as
    FP64 columns of the same values. ``bounded`` as in ``Instance``, ``holds_lock`` as in
    ``TableInstance``. ``prepare`` is called before each run, in its thread.
    """

    engine: str
    functions: Mapping[str, Callable[[Any], Any]]
    features: int
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    frames: bool = False
    narrow: bool = False
    bounded: bool = False
    holds_lock: bool = False
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class _Output:
    """An output: the function's result, or its item ``index`` if that is a list, one per target."""

    function: str
    index: int | None
    spec: TensorSpec


Table = Callable[[tuple[Tensor, ...]], Any]
"""From the inputs of a run to what the functions take. Raises INVALID_TENSOR."""


class EstimatorInstance:
    """An ``Instance`` on one estimator, which runs in several threads at once. ``default_outputs`` are those
    of a request that names none; ``leeway`` is what the signature leaves open."""

    def __init__(
        self, estimator: Estimator, table: Table, inputs: tuple[TensorSpec, ...], outputs: Sequence[_Output]
    ) -> None:
        specs = tuple(output.spec for output in outputs)
        self.signature = Signature(inputs, specs, UNLIMITED_BATCH_SIZE)
        self.bounded = estimator.bounded and all(spec.datatype is not Datatype.BYTES for spec in inputs)
        self.holds_lock = estimator.holds_lock
        self.leeway = NO_LEEWAY
        self.default_outputs = tuple(
            output.spec.name for output in outputs if output.function == outputs[0].function
        )
        self._functions = estimator.functions
        self._engine = estimator.engine
        self._prepare = estimator.prepare
        self._table = table
        self._outputs = {output.spec.name: output for output in outputs}

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        """See ``Instance``. Raises INVALID_TENSOR with the library's words for a value that it refuses, such
        as NaN, and MODEL_FAILED for any other error."""
        if self._prepare is not None:
            self._prepare()
        table = self._table(inputs)
        results: dict[str, Any] = {}
        answers = []
        for name in outputs:
            output = self._outputs[name]
            if output.function not in results:
                results[output.function] = self._call(output.function, table, inputs)
            answers.append(_tensor(output, results[output.function]))
        return tuple(answers)

    def unified(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """See ``TableInstance``."""
        (spec,), tensor = self.signature.inputs, inputs[0]
        if tensor.datatype is spec.datatype:
            return inputs if tensor.name == spec.name else (tensor.renamed(spec.name),)
        if tensor.nbytes > _UNIFIED_BYTES:
            return inputs
        wide = _widened(tensor, tensor.numpy(), spec.datatype.dtype)
        return (Tensor.from_numpy(spec.name, wide, spec.datatype),)

    def close(self) -> None:
        """Drop the model; its memory lives as long as the last answer that shows it."""
        self._functions = {}

    def _call(self, function: str, table: Any, inputs: tuple[Tensor, ...]) -> Any:
        try:
            return self._functions[function](table)
        except InferenceError:
            raise
        except ValueError as error:
            named = ", ".join(f"'{tensor.name}'" for tensor in inputs)
            raise invalid_tensor(f"input {named}: {self._engine} refuses it: {_words(error)}") from error
        # a model may contain functions of its own, whose errors have no base below Exception
        except Exception as error:
            raise model_failed(f"{self._engine}: {_words(error)}") from error


def load_table(path: Path, config: ModelConfig, estimator: Estimator) -> EstimatorInstance:
    """The instance of ``estimator``, loaded from ``path``. Raises ``LoadError`` for a GPU, for declared
    inputs that are not its columns, and for a model that cannot run on a row of zeros or ones unless the
    configuration declares its outputs."""
    if config.device.startswith("cuda"):
        raise LoadError(f"{path}: {estimator.engine} runs on the CPU here, not on '{config.device}'")
    inputs, tables = _inputs(path, config, estimator)
    failure: Exception | None = None
    for table in tables:
        for value in _PROBES:
            try:
                outputs = _probed(path, estimator, table(_row(inputs, value)))
            except LoadError:
                raise
            # the model's own words, see EstimatorInstance
            except Exception as error:
                failure = failure or error
            else:
                instance = EstimatorInstance(estimator, table, inputs, outputs)
                return instance if config.inputs and not config.lenient else _lenient(instance)
    if not config.outputs:
        raise LoadError(
            f"{path}: {estimator.engine} cannot run a row of zeros or ones ({_words(failure)}), so a "
            "configuration must declare the inputs and outputs"
        )
    declared = [_declared(path, estimator, spec) for spec in config.outputs]
    return EstimatorInstance(estimator, tables[-1], inputs, declared)


def run_threads(config: ModelConfig) -> int:
    """How many threads one run takes of an engine without a pool of its own: those that the configuration of
    the server states, or a share of the CPUs, since as many runs as there are instances are concurrent."""
    return EngineThreads.count or max(1, available_cpus() // max(1, config.instances))


def _lenient(instance: EstimatorInstance) -> EstimatorInstance:
    specs = instance.signature.inputs
    if len(specs) == 1 and specs[0].datatype is not Datatype.BYTES:
        wide: Datatype = specs[0].datatype
        carried = {each: wide for each in _NUMBERS if np.can_cast(each.dtype, wide.dtype)}
        instance.leeway = Leeway(names=True, carried=carried)
    return instance


# --- inputs


def _inputs(
    path: Path, config: ModelConfig, estimator: Estimator
) -> tuple[tuple[TensorSpec, ...], tuple[Table, ...]]:
    """The specs of the inputs as the model sees them, and the tables to try, the cheapest first."""
    frames = estimator.frames and estimator.names and find_spec("pandas") is not None
    if len(config.inputs) > 1:
        specs, order = _columns(path, config, estimator)
        return specs, (_frame_of_columns(estimator),) if frames else (_columns_joined(estimator, order),)
    parameters = {"feature_names": json.dumps(estimator.names)} if estimator.names else {}
    shape = (-1, estimator.features)
    if config.inputs:
        stated = config.inputs[0]
        spec = TensorSpec(stated.name, stated.datatype, shape, parameters=stated.parameters or parameters)
    else:
        spec = TensorSpec(_INPUT, Datatype.FP64, shape, parameters=parameters)
    table = _array(estimator, spec)
    return (spec,), (table, _frame(estimator, table)) if frames else (table,)


def _columns(
    path: Path, config: ModelConfig, estimator: Estimator
) -> tuple[tuple[TensorSpec, ...], tuple[str, ...]]:
    """The inputs, one for each feature, and the order of the features."""
    declared = [spec.name for spec in config.inputs]
    known = estimator.names
    if (known and set(known) != set(declared)) or estimator.features not in (-1, len(declared)):
        has = ", ".join(known) or f"{estimator.features} features"
        raise LoadError(f"{path}: inputs {declared} are declared, one per column, but the model has {has}")
    specs = []
    for spec in config.inputs:
        inner = config.input_reshapes[spec.name].inner if spec.name in config.input_reshapes else spec.shape
        if inner not in ((-1,), (-1, 1), (-1, -1)):
            raise LoadError(f"{path}: input '{spec.name}' is a column, so its shape is [-1] or [-1,1]")
        shape = (-1, 1) if len(inner) == 2 else (-1,)
        specs.append(TensorSpec(spec.name, spec.datatype, shape, parameters=spec.parameters))
    return tuple(specs), known or tuple(declared)


def _array(estimator: Estimator, spec: TensorSpec) -> Table:
    target = spec.datatype.dtype
    engine = estimator.engine

    def table(inputs: tuple[Tensor, ...]) -> NDArray[Any]:
        tensor = inputs[0]
        if tensor.datatype is Datatype.BYTES:
            return text_array(tensor, engine)
        array = np.frombuffer(tensor.view, tensor.datatype.dtype).reshape(tensor.shape)
        if tensor.datatype is spec.datatype or (estimator.narrow and tensor.datatype is Datatype.FP32):
            # vector instructions may fault on a float that straddles its alignment, as some bodies cut it
            return array if array.flags.aligned else array.copy()
        return _widened(tensor, array, target)

    return table


def _widened(tensor: Tensor, array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    wide = array.astype(dtype)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        # 2^63 and 2^64, to which the largest integers round, have no integers to compare with
        limit = 2.0 ** (63 if array.dtype.kind == "i" else 64)
        exact = bool((wide < limit).all()) and bool((wide.astype(array.dtype) == array).all())
        if not exact:
            raise invalid_tensor(f"input '{tensor.name}': an integer has no exact value in FP64")
    return wide


def _frame(estimator: Estimator, table: Table) -> Table:
    import pandas

    return lambda inputs: pandas.DataFrame(table(inputs), columns=list(estimator.names))


def _frame_of_columns(estimator: Estimator) -> Table:
    import pandas

    def table(inputs: tuple[Tensor, ...]) -> Any:
        columns = {tensor.name: _column(tensor, estimator.engine) for tensor in inputs}
        return pandas.DataFrame({name: columns[name] for name in estimator.names})

    return table


def _columns_joined(estimator: Estimator, order: tuple[str, ...]) -> Table:
    def table(inputs: tuple[Tensor, ...]) -> NDArray[Any]:
        columns = {tensor.name: _column(tensor, estimator.engine) for tensor in inputs}
        return np.column_stack([columns[name] for name in order])

    return table


def _column(tensor: Tensor, engine: str) -> NDArray[Any]:
    texts = tensor.datatype is Datatype.BYTES
    return (text_array(tensor, engine) if texts else tensor.numpy()).reshape(-1)


# --- outputs


def _row(inputs: tuple[TensorSpec, ...], value: int) -> tuple[Tensor, ...]:
    row = []
    for spec in inputs:
        shape = (1, *(max(size, 1) for size in spec.shape[1:]))
        texts = spec.datatype is Datatype.BYTES
        array = np.full(shape, str(value) if texts else value, spec.datatype.dtype)
        row.append(Tensor.from_numpy(spec.name, array, spec.datatype))
    return tuple(row)


def _probed(path: Path, estimator: Estimator, table: Any) -> list[_Output]:
    """The outputs, by their results for ``table``, one row."""
    if estimator.prepare is not None:
        estimator.prepare()
    outputs = []
    for name, function in estimator.functions.items():
        result = function(table)
        if isinstance(result, list):
            for index, each in enumerate(result):
                outputs.append(_Output(name, index, _spec(path, f"{name}_{index}", each, ())))
        else:
            outputs.append(
                _Output(
                    name, None, _spec(path, name, result, estimator.classes if name != "transform" else ())
                )
            )
    return outputs


def _spec(path: Path, name: str, result: Any, classes: tuple[str, ...]) -> TensorSpec:
    array = _plain(result)
    datatype = datatype_of(array.dtype)
    if datatype is None or not array.ndim:
        raise LoadError(f"{path}: output '{name}' is {array.dtype} {list(array.shape)}, which is no tensor")
    labels = classes if array.shape[1:] == (len(classes),) else ()
    return TensorSpec(name, datatype, (-1, *(array.shape[1:] or (1,))), labels=labels)


def _declared(path: Path, estimator: Estimator, spec: TensorSpec) -> _Output:
    if spec.name not in estimator.functions:
        raise LoadError(
            f"{path}: output '{spec.name}' is declared, but the model's outputs are "
            f"{', '.join(estimator.functions)}"
        )
    return _Output(spec.name, None, spec)


def _tensor(output: _Output, result: Any) -> Tensor:
    spec = output.spec
    array = _plain(result if output.index is None else result[output.index])
    if array.dtype != spec.datatype.dtype and datatype_of(array.dtype) is not spec.datatype:
        raise model_failed(f"output '{spec.name}' is {array.dtype}, declared is {spec.datatype.value}")
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.dtype == object:
        # labels of classes may be any objects
        array = np.array([_label(each) for each in array.ravel()], object).reshape(array.shape)
    return Tensor.from_numpy(spec.name, array, spec.datatype)


def _label(value: object) -> object:
    return value if isinstance(value, bytes | str) else str(value)


def _plain(result: Any) -> NDArray[Any]:
    """``result`` as an array: transformers may return sparse matrices and DataFrames."""
    if isinstance(result, np.ndarray):
        return result
    return np.asarray(result.toarray() if hasattr(result, "toarray") else result)


def _words(error: Exception | None) -> str:
    """The first paragraph of a library's message: scikit-learn adds advice from its documentation."""
    return str(error).strip().split("\n\n")[0]
