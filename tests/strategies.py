"""Hypothesis strategies for the IR: names, datatypes, shapes, tensors, signatures, requests and responses.

Every strategy takes what a dialect allows as an argument, so that one property covers all dialects: the first
half takes datatypes and shapes, the second a ``Capability``, and honours every flag of it that is about content.
Data is arbitrary bytes (NaN payloads, denormals, strings that are no text), except that a BOOL byte is
0 or 1, as the IR demands. Strategies that depend on nothing drawn are made once: Hypothesis validates each
new one at its first draw, which costs more than the draw.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import strategies as st

from interlingua.protocols.dialect import Capability
from interlingua.schemas import (
    Datatype,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Sequence,
    Signature,
    Tensor,
    TensorSpec,
    element_count,
    pack_bytes,
)

ALL_DATATYPES = tuple(Datatype)


@cache
def names(max_size: int = 12) -> st.SearchStrategy[str]:
    """Names of tensors and models: any text that UTF-8 can carry, not empty, no NUL."""
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=max_size)


def datatypes(allowed: Collection[Datatype] = ALL_DATATYPES) -> st.SearchStrategy[Datatype]:
    """One of ``allowed``, in the order of the enumeration."""
    return _one_of(frozenset(allowed))


@cache
def _one_of(allowed: frozenset[Datatype]) -> st.SearchStrategy[Datatype]:
    return st.sampled_from([datatype for datatype in Datatype if datatype in allowed])


@cache
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
    some = _batched(frozenset(allowed), draw(st.integers(1, limit)))
    return draw(some), draw(some)


@cache
def _batched(allowed: frozenset[Datatype], count: int) -> st.SearchStrategy[tuple[Tensor, ...]]:
    return tensor_tuples(allowed, shape=shapes(max_rank=3).map((count,).__add__))


# --- what a capability carries

NUMBERS = st.integers(1, 2**63 - 1)
TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=9)
LABELS = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=9)

PARAMETERS: dict[type, st.SearchStrategy[bool | int | float | str]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: TEXTS,
}
"""Values of parameters, by type."""

WITH_FIELDS = frozenset({"priority", "timeout"})
"""Parameters for which the IR has fields."""

_FORMS = ("", "number", "text")
_FLOATS = (Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64)


def common(*capabilities: Capability) -> Capability:
    """What all of ``capabilities`` carry of requests and responses, its datatypes in ``exact``."""
    names_allowed = [each.parameter_names for each in capabilities if each.parameter_names is not None]
    return Capability(
        exact=frozenset(kind for kind in Datatype if all(each.carries(kind) for each in capabilities)),
        versions=_FORMS[min(_FORMS.index(each.versions) for each in capabilities)],
        joined_versions=any(each.joined_versions for each in capabilities),
        ids=_FORMS[min(_FORMS.index(each.ids) for each in capabilities)],
        parameters=frozenset.intersection(*(each.parameters for each in capabilities)),
        parameter_names=frozenset.intersection(*names_allowed) if names_allowed else None,
        sequences=frozenset.intersection(*(each.sequences for each in capabilities)),
        priorities=all(each.priorities for each in capabilities),
        scalars=all(each.scalars for each in capabilities),
        requested_outputs=all(each.requested_outputs for each in capabilities),
        answer_versions=all(each.answer_versions for each in capabilities),
        answer_parameters=all(each.answer_parameters for each in capabilities),
        text_only=any(each.text_only for each in capabilities),
        nan_payloads=all(each.nan_payloads for each in capabilities),
    )


def carried(capability: Capability, **sizes: int) -> st.SearchStrategy[tuple[Tensor, ...]]:
    """Several tensors that ``capability`` carries; ``sizes`` as for :func:`tensor_tuples`."""
    rank = 0 if capability.scalars else 1
    return _carried(_datatypes(capability), rank, capability.text_only, capability.nan_payloads, **sizes)


@cache
def _carried(
    allowed: frozenset[Datatype], min_rank: int, text_only: bool, nan_payloads: bool, **sizes: int
) -> st.SearchStrategy[tuple[Tensor, ...]]:
    some = tensor_tuples(allowed, shape=shapes(min_rank=min_rank), **sizes)
    return some.map(lambda drawn: _plain(drawn, text_only, nan_payloads))


def carried_batches(capability: Capability) -> st.SearchStrategy[tuple[tuple[Tensor, ...], ...]]:
    """As :func:`batches`, of tensors that ``capability`` carries."""
    return _carried_batches(_datatypes(capability), capability.text_only, capability.nan_payloads)


@cache
def _carried_batches(
    allowed: frozenset[Datatype], text_only: bool, nan_payloads: bool
) -> st.SearchStrategy[tuple[tuple[Tensor, ...], ...]]:
    return batches(allowed).map(lambda sides: tuple(_plain(side, text_only, nan_payloads) for side in sides))


@st.composite
def requests(
    draw: st.DrawFn,
    capability: Capability,
    inputs: st.SearchStrategy[tuple[Tensor, ...]],
    outputs: tuple[Tensor, ...] = (),
) -> InferRequest:
    """A request with every field that ``capability`` carries, for a model with ``outputs``. A version that is
    joined to the model's name is left to the router and stays empty."""
    forms = {"": st.just(""), "number": NUMBERS.map(str), "text": NUMBERS.map(str) | LABELS}
    ids = {**forms, "text": TEXTS}
    return InferRequest(
        "model",
        draw(inputs),
        _requested(draw, outputs) if outputs and capability.requested_outputs else None,
        version="" if capability.joined_versions else draw(forms[capability.versions]),
        id=draw(st.just("") | ids[capability.ids]),
        parameters=draw(parameters(capability)),
        sequence=draw(st.none() | sequences(capability)) if capability.sequences else None,
        priority=draw(st.integers(0, 2**32 - 1)) if capability.priorities else 0,
        timeout_us=draw(st.integers(0, 2**63 - 1)) if capability.priorities else 0,
    )


@st.composite
def responses(draw: st.DrawFn, capability: Capability, outputs: tuple[Tensor, ...]) -> InferResponse:
    """A response with ``outputs`` and every field that ``capability`` carries."""
    version = str(draw(NUMBERS)) if capability.answer_versions else ""
    free = replace(capability, parameters=frozenset(PARAMETERS), parameter_names=None)
    return InferResponse(
        "model", outputs, version, parameters=draw(parameters(free)) if capability.answer_parameters else {}
    )


def parameters(capability: Capability) -> st.SearchStrategy[dict[str, bool | int | float | str]]:
    """Parameters of a request."""
    if not capability.parameters:
        return st.just({})
    known = capability.parameter_names
    keys = (
        LABELS.filter(lambda name: name not in WITH_FIELDS)
        if known is None
        else st.sampled_from(sorted(known))
    )
    if known is not None and not known:
        return st.just({})
    values = st.one_of(PARAMETERS[kind] for kind in sorted(capability.parameters, key=repr))
    return st.dictionaries(keys, values, max_size=3)


def sequences(capability: Capability) -> st.SearchStrategy[Sequence]:
    """A place in a sequence."""
    by_type: dict[type, st.SearchStrategy[int | str]] = {int: NUMBERS, str: TEXTS}
    ids = st.one_of(by_type[kind] for kind in sorted(capability.sequences, key=repr))
    return st.builds(Sequence, ids, st.booleans(), st.booleans())


def _requested(draw: st.DrawFn, outputs: tuple[Tensor, ...]) -> tuple[RequestedOutput, ...] | None:
    chosen = st.lists(st.sampled_from(outputs), min_size=1, unique_by=lambda tensor: tensor.name)
    some = draw(st.none() | chosen)
    return None if some is None else tuple(RequestedOutput(tensor.name) for tensor in some)


def _datatypes(capability: Capability) -> frozenset[Datatype]:
    return frozenset(filter(capability.carries, Datatype))


def _plain(drawn: tuple[Tensor, ...], text_only: bool, nan_payloads: bool) -> tuple[Tensor, ...]:
    """``drawn`` with such contents as a capability with these flags can tell apart."""
    if text_only:
        drawn = tuple(map(_with_text, drawn))
    return drawn if nan_payloads else tuple(map(_with_one_nan, drawn))


def _with_text(tensor: Tensor) -> Tensor:
    if tensor.datatype is not Datatype.BYTES:
        return tensor
    data = pack_bytes(element.decode("latin-1").encode() for element in tensor.elements())
    return Tensor.checked(tensor.name, tensor.datatype, tensor.shape, data)


def _with_one_nan(tensor: Tensor) -> Tensor:
    if tensor.datatype not in _FLOATS:
        return tensor
    array = tensor.numpy()
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of signalling NaNs
        return Tensor.from_numpy(tensor.name, np.where(np.isnan(array), array.dtype.type("nan"), array))
