"""Tensors that clients see in another shape than the model, by ``reshape`` in the configuration.

A v1 client cannot send a scalar or omit a dimension, so its model declares ``dims`` for the client and a
``reshape`` for itself. Only shapes change, never the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from interlingua.schemas import Tensor, model_failed

Run = Callable[[tuple[Tensor, ...], tuple[str, ...]], tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Reshape:
    """One tensor's full shape as clients see it (``outer``) and as the model does (``inner``). Both have as
    many free dimensions, -1, which take the same values in the same order (the batch is the first of them),
    and their fixed dimensions have the same product. Raises ``ValueError``."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.outer.count(-1) != self.inner.count(-1):
            raise ValueError("both must have as many free dimensions")
        if prod(map(abs, self.outer)) != prod(map(abs, self.inner)):
            raise ValueError("both must have as many elements")

    def to_inner(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return _carried(shape, self.outer, self.inner)

    def to_outer(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return _carried(shape, self.inner, self.outer)


def reshaped(run: Run, inputs: Mapping[str, Reshape], outputs: Mapping[str, Reshape]) -> Run:
    """``run`` with the shapes that clients see. Raises MODEL_FAILED if the model answers in an undeclared
    shape."""
    return lambda tensors, requested: outward(run(inward(tensors, inputs), requested), outputs)


def inward(tensors: tuple[Tensor, ...], reshapes: Mapping[str, Reshape]) -> tuple[Tensor, ...]:
    """The tensors of clients in the shapes of the model."""
    return tuple(
        _with_shape(tensor, reshapes[tensor.name].to_inner(tensor.shape))
        if tensor.name in reshapes
        else tensor
        for tensor in tensors
    )


def outward(tensors: tuple[Tensor, ...], reshapes: Mapping[str, Reshape]) -> tuple[Tensor, ...]:
    """The tensors of the model in the shapes of clients. Raises MODEL_FAILED as :func:`reshaped`."""
    return tuple(_outward(tensor, reshapes) for tensor in tensors)


def _outward(tensor: Tensor, outputs: Mapping[str, Reshape]) -> Tensor:
    reshape = outputs.get(tensor.name)
    if reshape is None:
        return tensor
    try:
        return _with_shape(tensor, reshape.to_outer(tensor.shape))
    except ValueError as error:
        raise model_failed(
            f"output '{tensor.name}' came in shape {list(tensor.shape)}, declared is {list(reshape.inner)}"
        ) from error


def _with_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return Tensor(tensor.name, tensor.datatype, shape, tensor.data)


def _carried(shape: tuple[int, ...], here: tuple[int, ...], there: tuple[int, ...]) -> tuple[int, ...]:
    free = []
    for size, declared in zip(shape, here, strict=True):
        if declared == -1:
            free.append(size)
        elif size != declared:
            raise ValueError(f"{list(shape)} does not fit {list(here)}")
    sizes = iter(free)
    return tuple(next(sizes) if declared == -1 else declared for declared in there)
