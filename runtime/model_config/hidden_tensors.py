"""Inputs and outputs of a model that its clients do not see: controls of sequences, and states.

Contract: the model has each as the configuration states it, under that name, with that datatype and in a
shape that fits; clients see the rest.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError, ModelConfig
from interlingua.runtime.scheduling.sequence_policy import SequenceBatching
from interlingua.schemas import Signature, TensorSpec
from interlingua.schemas.bounded_text import listed


def with_unseen(config: ModelConfig) -> ModelConfig:
    """``config`` as the model itself knows it, with the hidden tensors after the others, for a backend that
    binds declared names."""
    batching = config.sequence_batching
    if batching is None:
        return config
    inputs, outputs = _stated(batching, config.max_batch_size)
    shown = {spec.name for spec in config.outputs}
    hidden = tuple(spec for spec in outputs.values() if spec.name not in shown)
    return replace(
        config,
        # undeclared sides are up to the model
        inputs=(*config.inputs, *inputs.values()) if config.inputs else (),
        outputs=(*config.outputs, *hidden) if config.outputs else (),
    )


def seen_signature(path: Path, config: ModelConfig, found: Signature | None) -> Signature | None:
    """The clients' part of ``found``, the signature of the model at ``path``; a declared output stays. Raises
    ``LoadError`` for a hidden tensor that the model lacks, or has otherwise."""
    batching = config.sequence_batching
    if found is None or batching is None:
        return found
    inputs, outputs = _stated(batching, config.max_batch_size)
    _check(path, "input", inputs, found.inputs)
    _check(path, "output", outputs, found.outputs)
    shown = {spec.name for spec in config.outputs}
    return replace(
        found,
        inputs=tuple(spec for spec in found.inputs if spec.name not in inputs),
        outputs=tuple(spec for spec in found.outputs if spec.name not in outputs or spec.name in shown),
    )


def _stated(
    batching: SequenceBatching, max_batch_size: int
) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    """The hidden inputs and outputs, by name."""
    batch = (-1,) if max_batch_size else ()
    controls = [TensorSpec(control.name, control.datatype, (*batch, 1)) for control in batching.controls]
    states = [TensorSpec(state.input_name, state.datatype, state.shape) for state in batching.states]
    kept = [TensorSpec(state.output_name, state.datatype, state.shape) for state in batching.states]
    return {spec.name: spec for spec in (*controls, *states)}, {spec.name: spec for spec in kept}


def _check(path: Path, role: str, stated: dict[str, TensorSpec], found: tuple[TensorSpec, ...]) -> None:
    by_name = {spec.name: spec for spec in found}
    for name, hidden in stated.items():
        spec = by_name.get(name)
        if spec is None:
            names = listed(f"'{each}'" for each in by_name)
            raise LoadError(
                f"{path}: sequence_batching names {role} '{name}', but the model's {role}s are {names}"
            )
        # a shape that the file leaves open fits
        fits = not spec.shape or (
            len(spec.shape) == len(hidden.shape)
            and all(
                -1 in (here, there) or here == there
                for here, there in zip(hidden.shape, spec.shape, strict=True)
            )
        )
        if spec.datatype is not hidden.datatype or not fits:
            raise LoadError(
                f"{path}: sequence_batching has {role} '{name}' as {hidden.datatype.value} "
                f"{list(hidden.shape)}, "
                f"the model as {spec.datatype.value} {list(spec.shape)}"
            )
