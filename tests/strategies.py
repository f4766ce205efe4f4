"""Hypothesis strategies for the IR: names, datatypes, shapes, tensors and signatures.

Every strategy is parametrised by what a dialect allows, so that one property holds for any of them.
Data is arbitrary bytes (NaN payloads, denormals, strings that are no text), except that a BOOL byte is
0 or 1, as the IR demands.
"""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import strategies as st

from interlingua.schemas import Datatype, Signature, Tensor, TensorSpec, element_count, pack_bytes

ALL_DATATYPES = tuple(Datatype)


def names(max_size: int = 12) -> st.SearchStrategy[str]:
    """Names of tensors and models: any text that UTF-8 can carry, not empty, no NUL."""
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=max_size)


def datatypes(allowed: Collection[Datatype] = ALL_DATATYPES) -> st.SearchStrategy[Datatype]:
    """One of ``allowed``, in the order of the enumeration."""
    return st.sampled_from([datatype for datatype in Datatype if datatype in allowed])


def shapes(
    min_rank: int = 0, max_rank: int = 4, min_side: int = 0, max_side: int = 4
) -> st.SearchStrategy[tuple[int, ...]]:
    """Full shapes: scalars and zero dimensions included unless bounded away."""
    sides = st.integers(min_side, max_side)
    return st.lists(sides, min_size=min_rank, max_size=max_rank).map(tuple)


@st.composite
def tensors(
    draw: st.DrawFn,
    allowed: Collection[Datatype] = ALL_DATATYPES,
    name: st.SearchStrategy[str] | str | None = None,
    shape: st.SearchStrategy[tuple[int, ...]] | None = None,
) -> Tensor:
    """A tensor of an ``allowed`` datatype with arbitrary contents."""
    datatype = draw(datatypes(allowed))
    sides = draw(shapes() if shape is None else shape)
    count = element_count(sides)
    if datatype is Datatype.BYTES:
        data = pack_bytes(draw(st.lists(st.binary(max_size=9), min_size=count, max_size=count)))
    else:
        size = count * datatype.itemsize
        data = draw(st.binary(min_size=size, max_size=size))
        if datatype is Datatype.BOOL:
            data = bytes(byte & 1 for byte in data)
    label = name if isinstance(name, str) else draw(names() if name is None else name)
    return Tensor.checked(label, datatype, sides, data)


@st.composite
def tensor_tuples(
    draw: st.DrawFn,
    allowed: Collection[Datatype] = ALL_DATATYPES,
    min_size: int = 1,
    max_size: int = 3,
    shape: st.SearchStrategy[tuple[int, ...]] | None = None,
) -> tuple[Tensor, ...]:
    """Several tensors whose names differ."""
    labels = draw(st.lists(names(), min_size=min_size, max_size=max_size, unique=True))
    return tuple(draw(tensors(allowed, label, shape)) for label in labels)


def signature_of(
    inputs: Collection[Tensor], outputs: Collection[Tensor] = (), max_batch_size: int = 0
) -> Signature:
    """A signature that these tensors fit, in their order; with ``max_batch_size`` their first dimension is
    the batch."""

    def specs(given: Collection[Tensor]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(tensor.name, tensor.datatype, declared(tensor.shape)) for tensor in given)

    def declared(shape: tuple[int, ...]) -> tuple[int, ...]:
        return (-1, *shape[1:]) if max_batch_size else shape

    return Signature(specs(inputs), specs(outputs), max_batch_size)


@st.composite
def batches(
    draw: st.DrawFn, allowed: Collection[Datatype] = ALL_DATATYPES, limit: int = 4
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs of a model with batches: their first dimension is the same, 1 to ``limit``."""
    shape = shapes(max_rank=3).map((draw(st.integers(1, limit)),).__add__)
    return draw(tensor_tuples(allowed, shape=shape)), draw(tensor_tuples(allowed, shape=shape))
