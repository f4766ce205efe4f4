"""What a configuration states of a model behind an upstream, held against what its server tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Signature, TensorSpec
from interlingua.translator.config.document import Path
from interlingua.translator.config.models import ModelOptions

Fault = tuple[Path, str]
"""Where in the model's section something stands, and what is wrong with it."""


def differences(model: ModelOptions, told: Signature, capability: Capability) -> Iterator[Fault]:
    """What of ``model`` is not as its server tells, in a dialect of ``capability``."""
    yield from _renames("inputs", model.inputs, told.inputs)
    yield from _renames("outputs", model.outputs, told.outputs)
    if model.signature is None:
        return
    stated = model.signature.build()
    yield from _tensors("inputs", stated.inputs, model.inputs, told.inputs, capability)
    yield from _tensors("outputs", stated.outputs, model.outputs, told.outputs, capability)


def _renames(kind: str, names: Mapping[str, str], told: Sequence[TensorSpec]) -> Iterator[Fault]:
    for ours, theirs in names.items():
        if theirs not in [spec.name for spec in told]:
            yield (kind, ours), _absent(kind, theirs, told)


def _tensors(
    kind: str,
    stated: Sequence[TensorSpec],
    names: Mapping[str, str],
    told: Sequence[TensorSpec],
    capability: Capability,
) -> Iterator[Fault]:
    theirs = {spec.name: spec for spec in told}
    for place, spec in enumerate(stated):
        at: Path = ("signature", kind, place)
        name = names.get(spec.name, spec.name)
        found = theirs.get(name)
        if found is None and not any(each.name for each in told) and place < len(told):
            found = told[place]  # a server without names binds by order
        if found is None:
            if spec.name not in names:  # else it is told where it is renamed
                yield (*at, "name"), _absent(kind, name, told)
            continue
        # what the dialect has no type for is told as the one that it travels in
        if found.datatype not in (spec.datatype, capability.widened.get(spec.datatype)):
            yield (*at, "datatype"), f"is {spec.datatype.value}, the server tells {found.datatype.value}"
        if not _alike(spec.shape, found.shape):
            yield (*at, "shape"), f"is {list(spec.shape)}, the server tells {list(found.shape)}"
    if kind == "inputs":
        used = {names.get(spec.name, spec.name) for spec in stated}
        missing = [spec.name for spec in told if spec.name and spec.name not in used and not spec.optional]
        if missing and used & theirs.keys():
            yield ("signature", kind), f"lacks '{missing[0]}', which the server's model takes"


def _absent(kind: str, name: str, told: Sequence[TensorSpec]) -> str:
    there = ", ".join(spec.name for spec in told) or "none"
    return f"the server's model has no {kind.removesuffix('s')} '{name}' (there are: {there})"


def _alike(stated: Sequence[int], told: Sequence[int]) -> bool:
    return len(stated) == len(told) and all(
        one == other or -1 in (one, other) for one, other in zip(stated, told, strict=True)
    )
