"""The configuration of a model before it is loaded, and its agreement with the model.

A :class:`ModelConfig` comes from ``config.pbtxt``, from an entry of the program's configuration, or from
both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from interlingua.runtime.models.ensemble import Step
from interlingua.runtime.models.reshape import Reshape
from interlingua.runtime.models.shapes import fits
from interlingua.runtime.models.warmup import Warmup
from interlingua.runtime.scheduling.policy import DEFAULT_LIMITS, DynamicBatching, Limits
from interlingua.runtime.scheduling.sequence_policy import SequenceBatching
from interlingua.schemas import Signature, TensorSpec, VersionPolicy
from interlingua.schemas.bounded_text import MESSAGE_CHARS, shortened
from interlingua.schemas.datatypes import DATATYPES, Datatype

DATATYPE_OF_TYPE: dict[str, Datatype] = {
    "TYPE_STRING" if datatype is Datatype.BYTES else f"TYPE_{name}": datatype
    for name, datatype in DATATYPES.items()
}
"""The datatypes by their names in configurations."""

TYPE_OF_DATATYPE = {datatype: name for name, datatype in DATATYPE_OF_TYPE.items()}


def datatype_of(message: Any) -> Datatype | None:
    """The ``data_type`` of a message, an enumeration that also takes numbers without a name."""
    value = message.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number.get(message.data_type)
    return DATATYPE_OF_TYPE.get(value.name) if value else None


UNLIMITED_BATCH_SIZE = 65536
"""The ``max_batch_size`` of a model whose own file shows that it batches, if no limit is stated."""

_LATEST = VersionPolicy()


class LoadError(Exception):
    """A model that cannot be loaded. The message names the file at fault; ``versions`` are the reasons by
    version, ``config`` the stated ``inference.ModelConfig``, serialized, if it was readable."""

    def __init__(self, message: str, versions: Mapping[int, str] | None = None, config: bytes = b"") -> None:
        super().__init__(shortened(message, MESSAGE_CHARS))
        self.versions: Mapping[int, str] = versions or {}
        self.config = config


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model as its configuration states it. Empty fields are up to the model file or a default.

    ``inputs`` and ``outputs`` have the full shapes that clients see: with ``max_batch_size`` above 0 the
    first dimension is the batch, -1. ``input_reshapes`` and ``output_reshapes`` have those that the model
    sees. ``instances`` is the number of concurrent runs, all of them on ``device`` (``cpu``, ``cuda`` or
    ``cuda:1``), or each on its own of ``devices``; ``groups`` are the names of their groups, each with its
    number of instances. ``providers`` are ONNX Runtime's execution providers with their options, first choice
    first; they override ``device``. A ``decoupled`` model answers any number of times. ``dynamic_batching``
    joins requests, unless inputs are ``ragged``. ``response_cache``: requests may be answered from the cache.
    ``allow_pickle``: model files may be pickles, which execute code. ``default_outputs`` are those of a
    request that names none, empty for those of the backend. ``lenient``: a request may give the only input
    another name, and any datatype that its own represents. ``folder_version`` is the version of a folder
    without version folders, 0 if none is stated; ``version_names`` are other names of versions. ``stated`` is
    the configuration file as a serialized ``inference.ModelConfig``.
    """

    name: str = ""
    backend: str = ""
    platform: str = ""
    description: str = ""
    max_batch_size: int = 0
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    input_reshapes: Mapping[str, Reshape] = field(default_factory=dict)
    output_reshapes: Mapping[str, Reshape] = field(default_factory=dict)
    version_policy: VersionPolicy = _LATEST
    default_model_filename: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    instances: int = 0
    groups: tuple[tuple[str, int], ...] = ()
    device: str = ""
    devices: tuple[str, ...] = ()
    providers: tuple[tuple[str, Mapping[str, str]], ...] = ()
    decoupled: bool = False
    sequence_batching: SequenceBatching | None = None
    ensemble: tuple[Step, ...] = ()
    response_cache: bool = False
    dynamic_batching: DynamicBatching | None = None
    ragged: bool = False
    limits: Limits = DEFAULT_LIMITS
    warmup: tuple[Warmup, ...] = ()
    allow_pickle: bool = False
    default_outputs: tuple[str, ...] = ()
    lenient: bool = False
    folder_version: int = 0
    version_names: Mapping[str, int] = field(default_factory=dict)
    stated: bytes = b""

    @property
    def needs(self) -> tuple[str, ...]:
        """The models of an ensemble's steps, each once."""
        return tuple(dict.fromkeys(step.model for step in self.ensemble))

    def with_signature(self, signature: Signature) -> ModelConfig:
        """The same configuration with another declared signature."""
        return replace(
            self,
            inputs=signature.inputs,
            outputs=signature.outputs,
            input_reshapes={},
            output_reshapes={},
            max_batch_size=signature.max_batch_size,
        )


def agreed_signature(path: Path, config: ModelConfig, found: Signature | None) -> Signature:
    """The signature to serve, from what ``config`` declares and what the model at ``path`` has.

    The model determines a side that is not declared, and a dimension that is free on one side takes the
    other's size. Without any declared tensor or limit, the model's own batch limit counts too. Raises
    ``LoadError`` for a contradiction, stating what the model has: a name, a datatype, a shape, a batch
    dimension that is not free.
    """
    if found is None:
        return Signature(config.inputs, config.outputs, config.max_batch_size)
    if not (config.inputs or config.outputs or config.max_batch_size):
        return found
    try:
        return _merged(config, found)
    except ValueError as error:
        raise LoadError(f"{path}: {error}") from error


def _merged(config: ModelConfig, found: Signature) -> Signature:
    inputs = _agreed("input", config.inputs, found.inputs, config.input_reshapes)
    outputs = _agreed("output", config.outputs, found.outputs, config.output_reshapes)
    for spec in found.inputs:
        if not spec.optional and config.inputs and all(spec.name != declared.name for declared in inputs):
            raise ValueError(f"the model also needs input {_described(spec)}, which is not declared")
    if config.max_batch_size > 0:
        for role, specs in (("input", inputs), ("output", outputs)):
            for spec in specs:
                if spec.shape[:1] != (-1,):
                    raise ValueError(
                        f"max_batch_size is {config.max_batch_size}, but the model has no free first "
                        f"dimension in {role} {_described(spec)}"
                    )
    return Signature(inputs, outputs, config.max_batch_size)


def _agreed(
    role: str,
    declared: tuple[TensorSpec, ...],
    found: tuple[TensorSpec, ...],
    reshapes: Mapping[str, Reshape],
) -> tuple[TensorSpec, ...]:
    if not declared:
        return found
    by_name = {spec.name: spec for spec in found}
    agreed: list[TensorSpec] = []
    for spec in declared:
        other = by_name.get(spec.name)
        if other is None:
            names = ", ".join(_described(spec) for spec in found)
            raise ValueError(f"{role} '{spec.name}' is declared, but the model's {role}s are {names}")
        reshape = reshapes.get(spec.name)
        inner = spec if reshape is None else replace(spec, shape=reshape.inner)
        shape = _agreed_shape(inner.shape, other.shape)
        if spec.datatype is not other.datatype or shape is None:
            raise ValueError(f"{role} {_described(inner)} is declared, but the model has {_described(other)}")
        agreed.append(spec if reshape is not None else replace(spec, shape=shape))
    return tuple(agreed)


def _agreed_shape(declared: tuple[int, ...], found: tuple[int, ...]) -> tuple[int, ...] | None:
    # ONNX Runtime reports an unknown rank as it reports a scalar, so the declared rank counts there
    if not found:
        return declared
    if len(declared) != len(found):
        return None
    merged = tuple(there if here == -1 else here for here, there in zip(declared, found, strict=True))
    return merged if fits(merged, found) else None


def _described(spec: TensorSpec) -> str:
    return f"'{spec.name}' ({spec.datatype.value} {list(spec.shape)})"
