"""Reads ``config.pbtxt``, the configuration in a model folder.

The text format is that of Triton and the TensorRT Inference Server. Fields that do not change an answer
(optimization) are ignored, unsupported ones that would change it are refused by name, and unknown fields are
logged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from interlingua.runtime.backends import BACKENDS
from interlingua.runtime.backends.devices import cuda_count
from interlingua.runtime.model_config.config import (
    TYPE_OF_DATATYPE,
    UNLIMITED_BATCH_SIZE,
    LoadError,
    ModelConfig,
    datatype_of,
)
from interlingua.runtime.model_config.mlserver_settings import SETTINGS_FILENAME, ModelSettings, read_settings
from interlingua.runtime.model_config.sequence_batching import read_sequence_batching
from interlingua.runtime.models.ensemble import Step
from interlingua.runtime.models.reshape import Reshape
from interlingua.runtime.models.warmup import Warmup, WarmupInput
from interlingua.runtime.repository.overrides import is_inside
from interlingua.runtime.scheduling.policy import MOST_PRIORITY_LEVELS, DynamicBatching, QueuePolicy
from interlingua.schemas import TensorSpec, VersionPolicy
from interlingua.schemas.datatypes import DATATYPES
from interlingua.schemas.model_config import MODEL_CONFIG

CONFIG_FILENAME = "config.pbtxt"

_Reshapes = dict[str, Reshape]

_GENERATIVE = re.compile(r"\bgenerative_sequence\s*:\s*true")
"""An older name of ``iterative_sequence``, which no longer has a field number."""

_log = logging.getLogger(__name__)


def read_config(folder: Path) -> ModelConfig:
    """The configuration in model folder ``folder``: ``config.pbtxt``, else MLServer's settings, else an empty
    one. Raises ``LoadError`` naming the file and the field: text that does not parse, a tensor without a
    datatype, a missing label file, an unsupported option."""
    path = folder / CONFIG_FILENAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        settings = read_settings(folder)
        return ModelConfig() if settings is None else _mlserver_config(folder, settings)
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{path}: {error}") from error
    return _config(path, _parsed(path, text))


def override_config(folder: Path, message: bytes) -> ModelConfig:
    """The configuration in ``message``, a serialized ``inference.ModelConfig``, instead of the file in
    ``folder``, which has the label files. Raises as :func:`read_config`."""
    try:
        parsed = MODEL_CONFIG.FromString(message)
    except DecodeError as error:
        raise LoadError(f"{folder}: the configuration that was given is none: {error}") from error
    # a client's configuration must not read files outside of the model's folder
    for name in (parsed.default_model_filename, *(output.label_filename for output in parsed.output)):
        if name and not is_inside(name):
            raise LoadError(f"{folder}: file '{name}' is not in the model's folder")
    return _config(folder / CONFIG_FILENAME, parsed)


def _mlserver_config(folder: Path, settings: ModelSettings) -> ModelConfig:
    """The configuration that has the effect of ``settings``, found in ``folder``."""
    file = settings.file
    if file and (folder / file).is_dir():
        known = (f"{file}/{name}" for name in BACKENDS[settings.backend].filenames)
        file = next((name for name in known if (folder / name).is_file()), file)
    message = MODEL_CONFIG(name=settings.name, backend=settings.backend, default_model_filename=file)
    if settings.inputs or settings.batch_requests:
        message.max_batch_size = UNLIMITED_BATCH_SIZE
    columns = len(settings.inputs) > 1
    for tensor in settings.inputs:
        datatype = DATATYPES.get(tensor.datatype)
        stated = message.input.add(name=tensor.name, dims=tensor.dims if columns else (-1,))
        if datatype is not None:
            stated.data_type = TYPE_OF_DATATYPE[datatype]
    if settings.batch_requests:
        message.dynamic_batching.preferred_batch_size[:] = [settings.batch_requests]
        message.dynamic_batching.max_queue_delay_microseconds = round(settings.batch_secs * 1e6)
    outputs = (settings.default_output,) if settings.default_output else ()
    return replace(
        _config(folder / SETTINGS_FILENAME, message),
        lenient=True,
        folder_version=settings.version,
        version_names={settings.version_name: settings.version or 1} if settings.version_name else {},
        default_outputs=outputs,
    )


def _config(path: Path, message: Any) -> ModelConfig:
    try:
        return _read(path, message)
    except ValueError as error:
        raise LoadError(f"{path}: {error}") from error


def _read(path: Path, message: Any) -> ModelConfig:
    _refuse_unsupported(message)
    batched = message.max_batch_size > 0
    groups = _instance_groups(message.instance_group)
    devices = tuple(device for group in groups for device in group)
    alike = len(set(devices)) == 1
    inputs, input_reshapes = _tensors(path, "input", message.input, batched)
    outputs, output_reshapes = _tensors(path, "output", message.output, batched)
    return ModelConfig(
        name=message.name,
        backend=message.backend,
        platform=message.platform,
        max_batch_size=message.max_batch_size,
        inputs=inputs,
        outputs=outputs,
        input_reshapes=input_reshapes,
        output_reshapes=output_reshapes,
        version_policy=_version_policy(message.version_policy),
        default_model_filename=message.default_model_filename,
        parameters={key: value.string_value for key, value in message.parameters.items()},
        instances=len(devices),
        groups=tuple(
            (group.name, len(each)) for group, each in zip(message.instance_group, groups, strict=True)
        ),
        device=devices[0] if alike else "",
        devices=() if alike else devices,
        sequence_batching=read_sequence_batching(path, message),
        dynamic_batching=_dynamic_batching(message),
        ragged=any(tensor.allow_ragged_batch for tensor in message.input),
        ensemble=_steps(message.ensemble_scheduling.step),
        response_cache=message.response_cache.enable,
        decoupled=message.model_transaction_policy.decoupled,
        warmup=tuple(_warmup(sample) for sample in message.model_warmup),
        stated=message.SerializeToString(),
    )


def _parsed(path: Path, text: str) -> Any:
    message = MODEL_CONFIG()
    try:
        text_format.Parse(text, message, allow_unknown_field=True)
    # the latter for a number out of the range of an enumeration
    except (text_format.ParseError, ValueError) as error:
        raise LoadError(f"{path}: {error}") from error
    try:
        text_format.Parse(text, MODEL_CONFIG())
    except text_format.ParseError as error:
        if _GENERATIVE.search(text):
            raise LoadError(f"{path}: generative_sequence is not supported") from error
        # it parses except for unknown fields; a strict parser stops at the first such field
        facts = {"file": str(path), "first": str(error)}
        _log.warning("unknown fields in model configuration", extra={"facts": facts})
    return message


def _refuse_unsupported(message: Any) -> None:
    scheduling = message.WhichOneof("scheduling_choice")
    if (scheduling == "ensemble_scheduling") != ("ensemble" in (message.platform, message.backend)):
        raise ValueError("platform 'ensemble' and ensemble_scheduling go together")
    for field in ("batch_input", "batch_output"):
        if getattr(message, field):
            raise ValueError(f"{field} is not supported")
    if message.max_batch_size < 0:
        raise ValueError(f"max_batch_size is {message.max_batch_size}, must be 0 or more")


def _tensors(
    path: Path, role: str, messages: Sequence[Any], batched: bool
) -> tuple[tuple[TensorSpec, ...], _Reshapes]:
    """The inputs or outputs, and the shapes that the model sees, for those with another."""
    specs: dict[str, TensorSpec] = {}
    reshapes: _Reshapes = {}
    batch = (-1,) if batched else ()
    for index, message in enumerate(messages):
        name = message.name
        if not name:
            raise ValueError(f"{role} {index} has no name")
        if name in specs:
            raise ValueError(f"{role} '{name}' is declared twice")
        datatype = datatype_of(message)
        if datatype is None:
            raise ValueError(f"{role} '{name}' has no data_type")
        if message.is_shape_tensor:
            raise ValueError(f"{role} '{name}': is_shape_tensor is not supported")
        if any(dimension < -1 for dimension in (*message.dims, *message.reshape.shape)):
            raise ValueError(f"{role} '{name}' has dims {list(message.dims)}; -1 marks a free one")
        shape = (*batch, *message.dims)
        if message.HasField("reshape"):
            try:
                reshapes[name] = Reshape(shape, (*batch, *message.reshape.shape))
            except ValueError as error:
                raise ValueError(
                    f"{role} '{name}' has dims {list(message.dims)} and reshape "
                    f"{list(message.reshape.shape)}: {error}"
                ) from error
        specs[name] = TensorSpec(
            name,
            datatype,
            shape,
            optional=role == "input" and message.optional,
            labels=_labels(path, message.label_filename) if role == "output" else (),
        )
    return tuple(specs.values()), reshapes


def _dynamic_batching(message: Any) -> DynamicBatching | None:
    if not message.HasField("dynamic_batching"):
        return None
    batching = message.dynamic_batching
    levels, default = batching.priority_levels, batching.default_priority_level
    # the model itself supplies what the file omits
    open_ended = not (message.max_batch_size or message.input or message.output)
    for size in batching.preferred_batch_size:
        if size < 1 or (size > max(message.max_batch_size, 1) and not open_ended):
            raise ValueError(f"dynamic_batching: preferred_batch_size {size} is not from 1 to max_batch_size")
    if levels > MOST_PRIORITY_LEVELS:
        raise ValueError(f"dynamic_batching: priority_levels is {levels}, at most {MOST_PRIORITY_LEVELS}")
    if levels and not 0 < default <= levels:
        raise ValueError(f"dynamic_batching: default_priority_level is {default}, not from 1 to {levels}")
    for level in batching.priority_queue_policy:
        if not 0 < level <= levels:
            raise ValueError(
                f"dynamic_batching: priority_queue_policy of level {level}, not from 1 to {levels}"
            )
    return DynamicBatching(
        tuple(batching.preferred_batch_size),
        batching.max_queue_delay_microseconds,
        batching.preserve_ordering,
        levels,
        default if levels else 0,
        _queue_policy(batching.default_queue_policy),
        {level: _queue_policy(policy) for level, policy in batching.priority_queue_policy.items()},
    )


def _queue_policy(message: Any) -> QueuePolicy:
    return QueuePolicy(
        message.timeout_action == message.DELAY,
        message.default_timeout_microseconds,
        message.allow_timeout_override,
        message.max_queue_size,
    )


def _labels(path: Path, filename: str) -> tuple[str, ...]:
    if not filename:
        return ()
    file = path.parent / filename
    try:
        return tuple(file.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"label file {file}: {error}") from error


def _steps(messages: Sequence[Any]) -> tuple[Step, ...]:
    return tuple(
        Step(
            message.model_name,
            dict(message.input_map),
            dict(message.output_map),
            str(message.model_version) if message.model_version > 0 else "",
        )
        for message in messages
    )


def _warmup(message: Any) -> Warmup:
    inputs = []
    for name, sample_input in sorted(message.inputs.items()):
        datatype = datatype_of(sample_input)
        source = sample_input.WhichOneof("input_data_type")
        if datatype is None or source is None:
            missing = "data_type" if datatype is None else "zero_data, random_data or input_data_file"
            raise ValueError(f"model_warmup '{message.name}': input '{name}' has no {missing}")
        if source == "input_data_file" and not is_inside(sample_input.input_data_file):
            raise ValueError(f"file '{sample_input.input_data_file}' is not in the model's folder")
        drawn = source == "random_data"
        inputs.append(
            WarmupInput(name, datatype, tuple(sample_input.dims), drawn, sample_input.input_data_file)
        )
    return Warmup(message.name, message.batch_size, tuple(inputs), message.count or 1)


def _version_policy(message: Any) -> VersionPolicy:
    choice = message.WhichOneof("policy_choice")
    if choice == "all":
        return VersionPolicy(latest=0)
    if choice == "specific":
        return VersionPolicy(specific=tuple(message.specific.versions))
    return VersionPolicy(latest=message.latest.num_versions or 1)


_MOST_INSTANCES = 4096
"""The most instances that are listed at all: counts come from clients too."""


def _instance_groups(groups: Sequence[Any]) -> list[list[str]]:
    """A device for each instance of each group, "" for an unstated one."""
    devices: list[list[str]] = []
    total = 0
    for group in groups:
        if group.count < 0:
            raise ValueError(f"instance_group has count {group.count}, must be 0 or more")
        total += max(group.count, 1) * max(len(group.gpus), 1)
        if total > _MOST_INSTANCES:
            raise ValueError(f"instance_group has {total} instances, more than {_MOST_INSTANCES}")
        each = [""]
        if group.kind == group.KIND_GPU:
            # on every GPU where none is named
            each = [f"cuda:{gpu}" for gpu in group.gpus or range(cuda_count()) or [0]]
        elif group.kind == group.KIND_CPU:
            each = ["cpu"]
        devices.append(each * max(group.count, 1))
    return devices
