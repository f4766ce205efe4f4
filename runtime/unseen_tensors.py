"""Inputs and outputs of a model that its clients do not see: what it is told of sequences, and its states.

Contract: whatever a configuration says of them the model has, under that name, with that datatype and in a
shape that fits; what is left is what clients see. Running anything does not belong here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runtime.model_config import LoadError
from runtime.scheduling.sequence_policy import SequenceBatching
from schemas import Datatype, Signature, TensorSpec


def seen_signature(
    path: Path, batching: SequenceBatching, declared: Signature, found: Signature | None
) -> Signature | None:
    """``found``, what the model at ``path`` has, without what ``batching`` says of it; an output that is
    ``declared`` stays. Raises ``LoadError`` for a tensor that the model has not, or has otherwise."""
    if found is None:
        return None
    batch = (-1,) if declared.max_batch_size else ()
    inputs = {control.name: (control.datatype, (*batch, 1)) for control in batching.controls}
    outputs: dict[str, tuple[Datatype, tuple[int, ...]]] = {}
    for state in batching.states:
        inputs[state.input_name] = (state.datatype, state.shape)
        outputs[state.output_name] = (state.datatype, state.shape)
    _check(path, "input", inputs, found.inputs)
    _check(path, "output", outputs, found.outputs)
    shown = {spec.name for spec in declared.outputs}
    return replace(
        found,
        inputs=tuple(spec for spec in found.inputs if spec.name not in inputs),
        outputs=tuple(spec for spec in found.outputs if spec.name not in outputs or spec.name in shown),
    )


def _check(
    path: Path,
    role: str,
    stated: dict[str, tuple[Datatype, tuple[int, ...]]],
    found: tuple[TensorSpec, ...],
) -> None:
    by_name = {spec.name: spec for spec in found}
    for name, (datatype, shape) in stated.items():
        spec = by_name.get(name)
        if spec is None:
            names = ", ".join(f"'{each}'" for each in by_name)
            raise LoadError(
                f"{path}: sequence_batching names {role} '{name}', but the model's {role}s are {names}"
            )
        # of a shape that the file leaves open nothing can be said
        fits = not spec.shape or (
            len(spec.shape) == len(shape)
            and all(
                -1 in (here, there) or here == there for here, there in zip(shape, spec.shape, strict=True)
            )
        )
        if spec.datatype is not datatype or not fits:
            raise LoadError(
                f"{path}: sequence_batching has {role} '{name}' as {datatype.value} {list(shape)}, the model "
                f"as {spec.datatype.value} {list(spec.shape)}"
            )
