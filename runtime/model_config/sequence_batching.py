"""Reads ``sequence_batching`` of a ``config.pbtxt``. Refuses unsupported fields by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from interlingua.runtime.model_config.config import datatype_of
from interlingua.runtime.models.shapes import fits
from interlingua.runtime.repository.overrides import is_inside
from interlingua.runtime.scheduling.sequence_controls import zeros
from interlingua.runtime.scheduling.sequence_policy import (
    CONTROL_KINDS,
    CORRELATION_ID,
    DEFAULT_IDLE_US,
    Control,
    Direct,
    Oldest,
    SequenceBatching,
    State,
)
from interlingua.schemas import Datatype, InferenceError, Tensor

INITIAL_STATES = "initial_state"
"""The folder of initial states, in the model's folder."""

_CORRELATION_TYPES = {Datatype.UINT64, Datatype.INT64, Datatype.UINT32, Datatype.INT32, Datatype.BYTES}


def read_sequence_batching(path: Path, message: Any) -> SequenceBatching | None:
    """The sequences of ``message``, an ``inference.ModelConfig`` from ``path``; None without any. Raises
    ``ValueError`` naming the field at fault."""
    if not message.HasField("sequence_batching"):
        return None
    batching = message.sequence_batching
    for field in ("control_input", "state"):
        if batching.iterative_sequence and getattr(batching, field):
            raise ValueError(f"sequence_batching: {field} is not supported together with iterative_sequence")
    controls = [
        _control(declared_input.name, each)
        for declared_input in batching.control_input
        for each in declared_input.control
    ]
    states = [_state(path, each, message.max_batch_size > 0) for each in batching.state]
    _each_once("control", (control.kind for control in controls))
    unseen = [*(each.name for each in controls), *(each.input_name for each in states)]
    _each_once("input", unseen)
    for declared_input in message.input:
        if declared_input.name in unseen:
            raise ValueError(f"sequence_batching states input '{declared_input.name}', which clients give")
    _each_once("output", (state.output_name for state in states))
    return SequenceBatching(
        batching.max_sequence_idle_microseconds or DEFAULT_IDLE_US,
        tuple(controls),
        tuple(states),
        _strategy(batching, message.max_batch_size),
        batching.iterative_sequence,
    )


def _strategy(batching: Any, max_batch_size: int) -> Direct | Oldest:
    if batching.WhichOneof("strategy_choice") != "oldest":
        direct = batching.direct
        if not 0 <= direct.minimum_slot_utilization <= 1:
            raise ValueError(
                f"minimum_slot_utilization is {direct.minimum_slot_utilization}, not from 0 to 1"
            )
        return Direct(direct.max_queue_delay_microseconds, direct.minimum_slot_utilization)
    oldest = batching.oldest
    if oldest.max_candidate_sequences < 0:
        raise ValueError(f"max_candidate_sequences is {oldest.max_candidate_sequences}, must be 0 or more")
    for size in oldest.preferred_batch_size:
        if not 0 < size <= max(max_batch_size, 1):
            raise ValueError(
                f"sequence_batching: preferred_batch_size {size} is not from 1 to max_batch_size"
            )
    return Oldest(
        oldest.max_candidate_sequences,
        tuple(oldest.preferred_batch_size),
        oldest.max_queue_delay_microseconds,
        oldest.preserve_ordering,
    )


def _control(name: str, message: Any) -> Control:
    kind = message.Kind.Name(message.kind) if message.kind in message.Kind.values() else str(message.kind)
    if kind == CORRELATION_ID:
        datatype = _datatype(f"control input '{name}'", message)
        if datatype not in _CORRELATION_TYPES:
            raise ValueError(f"control input '{name}' is {datatype.value}, which holds no correlation id")
        return Control(name, kind, datatype)
    declared_input = [
        (datatype, tuple(values))
        for datatype, values in (
            (Datatype.INT32, message.int32_false_true),
            (Datatype.FP32, message.fp32_false_true),
            (Datatype.BOOL, message.bool_false_true),
        )
        if values
    ]
    if kind not in CONTROL_KINDS or len(declared_input) != 1 or len(declared_input[0][1]) != 2:
        raise ValueError(
            f"control input '{name}' needs int32_false_true, fp32_false_true or bool_false_true of two values"
        )
    ((datatype, values),) = declared_input
    return Control(name, kind, datatype, values)


def _state(path: Path, message: Any, batched: bool) -> State:
    for field in ("input_name", "output_name"):
        if not getattr(message, field):
            raise ValueError(f"a state has no {field}")
    name = message.input_name
    datatype = _datatype(f"state '{name}'", message)
    if any(size < -1 for size in message.dims):
        raise ValueError(f"state '{name}' has dims {list(message.dims)}; -1 marks a free one")
    if len(message.initial_state) > 1:
        raise ValueError(f"state '{name}' has {len(message.initial_state)} of initial_state, at most 1")
    shape = (*((-1,) if batched else ()), *message.dims)
    # a free dimension begins with 1, as the batch does
    first = tuple(1 if size == -1 else size for size in shape)
    initial = zeros(name, datatype, first)
    for declared_input in message.initial_state:
        initial = _initial(path, name, declared_input, datatype, shape)
    return State(name, message.output_name, datatype, shape, initial)


def _initial(path: Path, name: str, message: Any, datatype: Datatype, shape: tuple[int, ...]) -> Tensor:
    what = f"initial_state of state '{name}'"
    batch = shape[: len(shape) - len(message.dims)]
    free = any(size < 0 for size in message.dims)
    if _datatype(what, message) is not datatype or free or not fits((*batch, *message.dims), shape):
        raise ValueError(f"{what} is not of the datatype and dims of the state, none of them free")
    first = (*(1 for _ in batch), *message.dims)
    if message.WhichOneof("state_data") is None:
        raise ValueError(f"{what} needs zero_data or data_file")
    if not message.data_file:
        return zeros(name, datatype, first)
    if not is_inside(message.data_file):
        raise ValueError(f"file '{message.data_file}' is not in the model's folder")
    file = path.parent / INITIAL_STATES / message.data_file
    try:
        return Tensor.checked(name, datatype, first, file.read_bytes())
    except (OSError, InferenceError) as error:
        raise ValueError(f"{what}: {file}: {error}") from error


def _datatype(what: str, message: Any) -> Datatype:
    datatype = datatype_of(message)
    if datatype is None:
        raise ValueError(f"{what} has no data_type")
    return datatype


def _each_once(what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"sequence_batching states {what} '{name}' {count} times")
