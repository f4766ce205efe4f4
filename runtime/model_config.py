"""What is known of a model before it is loaded: ``config.pbtxt`` of a model folder, or a config entry.

The text format is the one of Triton and of the TensorRT Inference Server; fields that do not change
an answer (optimization, warm-up, batching hints) are read over, fields that would change it and that
are not supported are refused by name. The last step here, :func:`agreed_signature`, holds what was
declared against what the model file has. Loading anything belongs to ``runtime.repository``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from schemas import Signature, TensorSpec
from schemas.datatypes import DATATYPES, Datatype
from schemas.oip import MESSAGES

CONFIG_FILENAME = "config.pbtxt"

_DATATYPES: dict[str, Datatype] = {
    f"TYPE_{name}": datatype for name, datatype in DATATYPES.items() if datatype is not Datatype.BYTES
} | {"TYPE_STRING": Datatype.BYTES}


class LoadError(Exception):
    """A model that cannot be loaded. The message names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which of the versions in a model folder are served: the ``latest`` so many (0: all of them), or
    the ``specific`` ones."""

    latest: int = 1
    specific: tuple[int, ...] = ()

    def choose(self, available: Iterable[int]) -> tuple[int, ...]:
        """The served versions among ``available``, ascending."""
        if self.specific:
            return tuple(sorted(set(available) & set(self.specific)))
        return tuple(sorted(available)[-self.latest :])


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model as its configuration states it. Whatever is empty is up to the model file or a default.

    ``inputs`` and ``outputs`` have full shapes: with ``max_batch_size`` above 0 the first dimension is
    the batch, -1. ``instances`` is how many runs may go on at once. ``providers`` are ONNX Runtime's
    execution providers with their options, first choice first; they win over ``device`` (``cpu``,
    ``cuda`` or ``cuda:1``).
    """

    name: str = ""
    backend: str = ""
    platform: str = ""
    description: str = ""
    max_batch_size: int = 0
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    version_policy: VersionPolicy = VersionPolicy()
    default_model_filename: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    instances: int = 0
    device: str = ""
    providers: tuple[tuple[str, Mapping[str, str]], ...] = ()

    def with_signature(self, signature: Signature) -> ModelConfig:
        """The same configuration with another declared signature."""
        return replace(
            self,
            inputs=signature.inputs,
            outputs=signature.outputs,
            max_batch_size=signature.max_batch_size,
        )


def read_config(folder: Path) -> ModelConfig:
    """The configuration in model folder ``folder``, empty where it has no ``config.pbtxt``.

    Raises ``LoadError`` naming the file and the field: text that does not parse, a tensor without a
    datatype, a label file that is not there, an option that is not supported.
    """
    path = folder / CONFIG_FILENAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ModelConfig()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{path}: {error}") from error
    message: Any = MESSAGES["inference.ModelConfig"]()
    try:
        text_format.Parse(text, message, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise LoadError(f"{path}: {error}") from error
    _refuse_unsupported(path, message)
    batched = message.max_batch_size > 0
    device, instances = _instance_groups(path, message.instance_group)
    return ModelConfig(
        name=message.name,
        backend=message.backend,
        platform=message.platform,
        max_batch_size=message.max_batch_size,
        inputs=_specs(path, "input", message.input, batched),
        outputs=_specs(path, "output", message.output, batched),
        version_policy=_version_policy(message.version_policy),
        default_model_filename=message.default_model_filename,
        parameters={key: value.string_value for key, value in message.parameters.items()},
        instances=instances,
        device=device,
    )


def agreed_signature(path: Path, config: ModelConfig, found: Signature | None) -> Signature:
    """The signature to serve, from what ``config`` declares and what the model at ``path`` has.

    A side that the configuration leaves out is taken from the model; of a dimension that is free on
    one side the other's value counts. Raises ``LoadError`` where the two contradict each other, saying
    what the model has: a name, a datatype, a shape, a batch dimension that is not free.
    """
    if found is None:
        return Signature(config.inputs, config.outputs, config.max_batch_size)
    inputs = _agreed(path, "input", config.inputs, found.inputs)
    outputs = _agreed(path, "output", config.outputs, found.outputs)
    for spec in found.inputs:
        if not spec.optional and config.inputs and all(spec.name != declared.name for declared in inputs):
            raise LoadError(f"{path}: the model also needs input {_described(spec)}, which is not declared")
    if config.max_batch_size > 0:
        for role, specs in (("input", inputs), ("output", outputs)):
            for spec in specs:
                if spec.shape[:1] != (-1,):
                    raise LoadError(
                        f"{path}: max_batch_size is {config.max_batch_size}, but the model has no free first "
                        f"dimension in {role} {_described(spec)}"
                    )
    return Signature(inputs, outputs, config.max_batch_size)


def _refuse_unsupported(path: Path, message: Any) -> None:
    scheduling = message.WhichOneof("scheduling_choice")
    # dynamic batching changes when a request runs, not what it answers
    if scheduling not in (None, "dynamic_batching"):
        raise LoadError(f"{path}: {scheduling} is not supported")
    if message.model_transaction_policy.decoupled:
        raise LoadError(f"{path}: model_transaction_policy decoupled is not supported")
    if message.max_batch_size < 0:
        raise LoadError(f"{path}: max_batch_size is {message.max_batch_size}, must be 0 or more")


def _specs(path: Path, role: str, messages: Sequence[Any], batched: bool) -> tuple[TensorSpec, ...]:
    specs: dict[str, TensorSpec] = {}
    for index, message in enumerate(messages):
        name = message.name
        if not name:
            raise LoadError(f"{path}: {role} {index} has no name")
        if name in specs:
            raise LoadError(f"{path}: {role} '{name}' is declared twice")
        # an enumeration takes numbers that it has no name for
        value = message.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number.get(
            message.data_type
        )
        datatype = _DATATYPES.get(value.name) if value else None
        if datatype is None:
            raise LoadError(f"{path}: {role} '{name}' has no data_type")
        stated = {given.name for given, _ in message.ListFields()}
        for option in ("reshape", "is_shape_tensor"):
            if option in stated:
                raise LoadError(f"{path}: {role} '{name}': {option} is not supported")
        if any(dimension < -1 for dimension in message.dims):
            raise LoadError(f"{path}: {role} '{name}' has dims {list(message.dims)}; -1 marks a free one")
        specs[name] = TensorSpec(
            name,
            datatype,
            (-1, *message.dims) if batched else tuple(message.dims),
            optional=role == "input" and message.optional,
            labels=_labels(path, message.label_filename) if role == "output" else (),
        )
    return tuple(specs.values())


def _labels(path: Path, filename: str) -> tuple[str, ...]:
    if not filename:
        return ()
    file = path.parent / filename
    try:
        return tuple(file.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{path}: label file {file}: {error}") from error


def _version_policy(message: Any) -> VersionPolicy:
    choice = message.WhichOneof("policy_choice")
    if choice == "all":
        return VersionPolicy(latest=0)
    if choice == "specific":
        return VersionPolicy(specific=tuple(message.specific.versions))
    return VersionPolicy(latest=message.latest.num_versions or 1)


def _instance_groups(path: Path, groups: Sequence[Any]) -> tuple[str, int]:
    """The device and the number of instances; "" and 0 where nothing is stated."""
    devices: set[str] = set()
    for group in groups:
        if group.kind == group.KIND_GPU:
            devices.update(f"cuda:{gpu}" for gpu in group.gpus or [0])
        elif group.kind == group.KIND_CPU:
            devices.add("cpu")
    if len(devices) > 1:
        raise LoadError(f"{path}: instances on several devices are not supported: {sorted(devices)}")
    return "".join(devices), sum(max(group.count, 1) for group in groups)


def _agreed(
    path: Path, role: str, declared: tuple[TensorSpec, ...], found: tuple[TensorSpec, ...]
) -> tuple[TensorSpec, ...]:
    if not declared:
        return found
    by_name = {spec.name: spec for spec in found}
    agreed: list[TensorSpec] = []
    for spec in declared:
        other = by_name.get(spec.name)
        if other is None:
            names = ", ".join(_described(spec) for spec in found)
            raise LoadError(f"{path}: {role} '{spec.name}' is declared, but the model's {role}s are {names}")
        shape = _agreed_shape(spec.shape, other.shape)
        if spec.datatype is not other.datatype or shape is None:
            raise LoadError(
                f"{path}: {role} {_described(spec)} is declared, but the model has {_described(other)}"
            )
        agreed.append(replace(spec, shape=shape))
    return tuple(agreed)


def _agreed_shape(declared: tuple[int, ...], found: tuple[int, ...]) -> tuple[int, ...] | None:
    # ONNX Runtime reports an unknown rank as it reports a scalar, so the declared rank counts there
    if not found:
        return declared
    if len(declared) != len(found):
        return None
    merged = tuple(there if here == -1 else here for here, there in zip(declared, found, strict=True))
    matches = all(there in (-1, here) for here, there in zip(merged, found, strict=True))
    return merged if matches else None


def _described(spec: TensorSpec) -> str:
    return f"'{spec.name}' ({spec.datatype.value} {list(spec.shape)})"
