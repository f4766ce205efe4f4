"""Compares the declared signature of an upstream's model with the server's metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from interlingua.protocols.dialect import Capability
from interlingua.schemas import Signature, TensorSpec
from interlingua.translator.config.document import Path
from interlingua.translator.config.models import ModelOptions

Fault = tuple[Path, str]
"""A key in the section of the model, and its fault."""


def differences(model: ModelOptions, there: Signature, capability: Capability) -> Iterator[Fault]:
    """The faults of ``model``, whose server, in a dialect of ``capability``, reports the signature
    ``there``."""
    yield from _renames("inputs", model.inputs, there.inputs)
    yield from _renames("outputs", model.outputs, there.outputs)
    if model.signature is None:
        return
    stated = model.signature.build()
    yield from _tensors("inputs", stated.inputs, model.inputs, there.inputs, capability)
    yield from _tensors("outputs", stated.outputs, model.outputs, there.outputs, capability)


def _renames(kind: str, names: Mapping[str, str], there: Sequence[TensorSpec]) -> Iterator[Fault]:
    for ours, theirs in names.items():
        if theirs not in [spec.name for spec in there]:
            yield (kind, ours), _absent(kind, theirs, there)


def _tensors(
    kind: str,
    stated: Sequence[TensorSpec],
    names: Mapping[str, str],
    there: Sequence[TensorSpec],
    capability: Capability,
) -> Iterator[Fault]:
    theirs = {spec.name: spec for spec in there}
    for place, spec in enumerate(stated):
        at: Path = ("signature", kind, place)
        name = names.get(spec.name, spec.name)
        found = theirs.get(name)
        if found is None and not any(each.name for each in there) and place < len(there):
            found = there[place]  # a server without names binds by order
        if found is None:
            if spec.name not in names:  # else reported at the renaming
                yield (*at, "name"), _absent(kind, name, there)
            continue
        # a datatype that the dialect lacks is reported as the wider one
        if found.datatype not in (spec.datatype, capability.widened.get(spec.datatype)):
            yield (*at, "datatype"), f"is {spec.datatype.value}, the server reports {found.datatype.value}"
        if not _alike(spec.shape, found.shape):
            yield (*at, "shape"), f"is {list(spec.shape)}, the server reports {list(found.shape)}"
    if kind == "inputs":
        used = {names.get(spec.name, spec.name) for spec in stated}
        missing = [spec.name for spec in there if spec.name and spec.name not in used and not spec.optional]
        if missing and used & theirs.keys():
            yield ("signature", kind), f"lacks '{missing[0]}', which the server's model requires"


def _absent(kind: str, name: str, there: Sequence[TensorSpec]) -> str:
    names = ", ".join(spec.name for spec in there) or "none"
    return f"the server's model has no {kind.removesuffix('s')} '{name}' (there are: {names})"


def _alike(stated: Sequence[int], there: Sequence[int]) -> bool:
    return len(stated) == len(there) and all(
        one == other or -1 in (one, other) for one, other in zip(stated, there, strict=True)
    )
