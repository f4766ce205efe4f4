"""The rule of a route about datatypes that change on the way: refuse them, or widen more than dialects do.

Contract: no value is lost. *Widening* converts a tensor to a type that holds each of its values; a BOOL that
arrived as UINT8 becomes a BOOL again if it holds only 0 and 1. *Strict* refuses requests with tensors that a
dialect on the way carries as a wider type, even if that is undone at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from interlingua.protocols.dialect import Binding
from interlingua.schemas import Datatype, ErrorCode, InferenceError, InferRequest, Signature, Tensor


@dataclass(frozen=True, slots=True)
class Side:
    """The origin or destination of a request: its name, and the datatypes that it has ``widened``."""

    words: str
    widened: Mapping[Datatype, Datatype]

    @classmethod
    def of(cls, binding: Binding) -> Side:
        """The side with ``binding``."""
        return cls(f"dialect '{binding.dialect}'", binding.capability.widened)


HERE = Side("this server", {})
"""A local model gets tensors without a change."""


def refuse_changes(request: InferRequest, signature: Signature, caller: Side, callee: Side) -> None:
    """Raise UNREPRESENTABLE if a tensor of ``request`` or of its answer would travel as a wider type."""
    if not caller.widened and not callee.widened:
        return
    for kind, name, datatype in (*_inputs(request, signature), *_outputs(request, signature)):
        for side in (caller, callee):
            wider = side.widened.get(datatype)
            if wider is not None:
                raise InferenceError(
                    ErrorCode.UNREPRESENTABLE,
                    f"{kind} '{name}' of datatype {datatype.value} would travel between {caller.words} and "
                    f"{callee.words} as {wider.value}, which {side.words} has in its place: "
                    "the route of this request is strict",
                )


def _inputs(request: InferRequest, signature: Signature) -> Iterator[tuple[str, str, Datatype]]:
    for tensor in request.inputs:
        spec = signature.input_names.get(tensor.name)
        yield "input", tensor.name, tensor.datatype if spec is None else spec.datatype


def _outputs(request: InferRequest, signature: Signature) -> Iterator[tuple[str, str, Datatype]]:
    requested = None if request.outputs is None else {output.name for output in request.outputs}
    for spec in signature.outputs:
        if requested is None or spec.name in requested:
            yield "output", spec.name, spec.datatype


def widened(inputs: tuple[Tensor, ...], signature: Signature) -> tuple[Tensor, ...]:
    """``inputs``, converted to the datatypes of ``signature`` that hold each of their values. Raises
    UNREPRESENTABLE for UINT8 in place of BOOL that is neither 0 nor 1."""
    specs = signature.input_names
    return tuple(
        [_as(tensor, specs[tensor.name].datatype) if tensor.name in specs else tensor for tensor in inputs]
    )


def _as(tensor: Tensor, datatype: Datatype) -> Tensor:
    if datatype in WIDER.get(tensor.datatype, ()):
        # a signalling NaN becomes a quiet one, with a warning of NumPy
        with np.errstate(invalid="ignore"):
            return Tensor.from_numpy(tensor.name, tensor.numpy().astype(datatype.dtype))
    if tensor.datatype is Datatype.UINT8 and datatype is Datatype.BOOL:
        values = tensor.numpy()
        if values.size and values.max() > 1:
            raise InferenceError(
                ErrorCode.UNREPRESENTABLE,
                f"input '{tensor.name}' of datatype UINT8 has the value {values.max()}, which is no BOOL",
            )
        return Tensor(tensor.name, datatype, tensor.shape, tensor.view)
    return tensor


_INTEGERS = {
    Datatype.BOOL: (0, 1),
    **{
        datatype: (int(np.iinfo(datatype.dtype).min), int(np.iinfo(datatype.dtype).max))
        for datatype in Datatype
        if datatype.value.startswith(("INT", "UINT"))
    },
}
"""The least and greatest values."""

_FLOATS = {
    Datatype.FP16: (11, 5),
    Datatype.BF16: (8, 8),
    Datatype.FP32: (24, 8),
    Datatype.FP64: (53, 11),
}
"""The bits of significand and exponent."""


def _wider(datatype: Datatype) -> Iterable[Datatype]:
    """The other types that hold every value of ``datatype``."""
    if datatype in _INTEGERS:
        least, greatest = _INTEGERS[datatype]
        for other, (low, high) in _INTEGERS.items():
            if other is not datatype and low <= least and greatest <= high:
                yield other
        for other, (significand, _) in _FLOATS.items():
            if max(-least, greatest) <= 1 << significand:
                yield other
    elif datatype in _FLOATS:
        mine = _FLOATS[datatype]
        for other, theirs in _FLOATS.items():
            if other is not datatype and all(have >= need for have, need in zip(theirs, mine, strict=True)):
                yield other


WIDER: Mapping[Datatype, frozenset[Datatype]] = {kind: frozenset(_wider(kind)) for kind in Datatype}
"""The other types that hold every value of a type."""
