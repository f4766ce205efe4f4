"""Tensors and signatures under other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from interlingua.schemas import Signature, Tensor, TensorSpec, invalid_tensor

Renames = Mapping[str, str]
"""New names by old ones; other names stay."""


def reversed_names(names: Renames) -> Renames:
    return {new: old for old, new in names.items()}


def renamed(tensors: tuple[Tensor, ...], names: Renames) -> tuple[Tensor, ...]:
    if not names:
        return tensors
    return tuple(tensor.renamed(names.get(tensor.name, tensor.name)) for tensor in tensors)


def refuse_hidden(kind: str, requested: Iterable[str], renames: Renames, back: Renames, model: str) -> None:
    """Raise INVALID_TENSOR if one of ``requested`` is the new name of a tensor of ``model``: clients know the
    old names, and an output would return under another name. ``back`` is ``renames`` reversed."""
    for name in requested:
        if name in back and name not in renames:
            raise invalid_tensor(
                f"unexpected inference {kind} '{name}' for model '{model}': it is called '{back[name]}' here"
            )


def renamed_signature(signature: Signature, inputs: Renames, outputs: Renames) -> Signature:
    if not inputs and not outputs:
        return signature
    return replace(
        signature,
        inputs=_renamed_specs(signature.inputs, inputs),
        outputs=_renamed_specs(signature.outputs, outputs),
    )


def _renamed_specs(specs: tuple[TensorSpec, ...], names: Renames) -> tuple[TensorSpec, ...]:
    return tuple(replace(spec, name=names.get(spec.name, spec.name)) for spec in specs)
