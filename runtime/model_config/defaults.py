"""The defaults of a server for fields that a configuration does not state.

Version 1 and Triton have the same: preferred sizes of batches, the idle time of a sequence, pinned memory,
and names, counts and kinds of instance groups. The messages are ``inference.ModelConfig``.
"""

from __future__ import annotations

from typing import Any

from interlingua.runtime.model_config.config import ModelConfig

_IDLE_MICROSECONDS = 1_000_000


def fill_in_scheduling(message: Any) -> None:
    """Set the defaults of batches and sequences in ``message``, whose ``max_batch_size`` is set."""
    largest = [message.max_batch_size] if message.max_batch_size > 0 else []
    if message.HasField("dynamic_batching") and not message.dynamic_batching.preferred_batch_size:
        message.dynamic_batching.preferred_batch_size[:] = largest
    if message.HasField("sequence_batching"):
        sequences = message.sequence_batching
        sequences.max_sequence_idle_microseconds = (
            sequences.max_sequence_idle_microseconds or _IDLE_MICROSECONDS
        )
        if sequences.HasField("oldest") and not sequences.oldest.preferred_batch_size:
            sequences.oldest.preferred_batch_size[:] = largest


def fill_in_engine(message: Any, config: ModelConfig) -> None:
    """Set the fields of models with an engine of their own: pinned memory, and the instance groups that
    ``config`` serves. Stated groups with another number of instances, because the server overrides it, become
    one group."""
    for memory in ("input_pinned_memory", "output_pinned_memory"):
        if not message.optimization.HasField(memory):
            getattr(message.optimization, memory).enable = True
    groups, instances = message.instance_group, config.instances or 1
    if sum(max(group.count, 1) * max(len(group.gpus), 1) for group in groups) != instances:
        del groups[:]
        on_gpu = any(device.startswith("cuda") for device in config.devices or (config.device,))
        groups.add(name=message.name, count=instances, kind="KIND_GPU" if on_gpu else "KIND_CPU")
    for number, group in enumerate(groups):
        group.name = group.name or f"{message.name}_{number}"
        group.count = max(group.count, 1)
        _place(group, config)


def _place(group: Any, config: ModelConfig) -> None:
    """Set the device of ``group``: a repository may state a GPU that this machine does not have."""
    if group.kind == group.KIND_MODEL:
        return
    kind, _, index = config.device.partition(":")
    if kind == "cuda":
        group.kind, group.gpus[:] = group.KIND_GPU, [int(index or 0)]
    elif not config.devices or group.kind != group.KIND_GPU:
        group.kind, group.gpus[:] = group.KIND_CPU, []
    elif not group.gpus:
        numbers = {int(device.partition(":")[2] or 0) for device in config.devices if device != "cpu"}
        group.gpus[:] = sorted(numbers)
