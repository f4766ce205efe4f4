"""Substitutes for what a recording lacks: redacted data, and the signature of a model whose server has no
metadata."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.schemas import Datatype, InferResponse, Signature, Tensor, TensorSpec, pack_bytes
from interlingua.translator.diff import Fault, TensorDiff, Tolerance
from interlingua.translator.recording.record import ANSWER, Record, RecordedAnswer
from interlingua.translator.recording.redaction import digest

_FLOATS = frozenset({Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64})

_SMALL = 100
"""The exclusive limit of generated integers, small enough for any model."""


class UnknowableError(Exception):
    """Two answers cannot be compared; the message says why."""


def generated(tensor: Tensor, seed: int) -> Tensor:
    """A replacement for the redacted ``tensor``, with data derived from its name and ``seed``: floats from 0
    to 1, small integers, letters."""
    random = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
    if tensor.datatype is Datatype.BYTES:
        letters = random.integers(97, 123, (tensor.count, 8), np.uint8)
        return Tensor.checked(
            tensor.name, Datatype.BYTES, tensor.shape, pack_bytes(row.tobytes() for row in letters)
        )
    limit = 2 if tensor.datatype is Datatype.BOOL else _SMALL
    values: NDArray[Any] = (
        random.random(tensor.count) if tensor.datatype in _FLOATS else random.integers(0, limit, tensor.count)
    )
    array = values.astype(tensor.datatype.dtype).reshape(tensor.shape)
    return Tensor.from_numpy(tensor.name, array, tensor.datatype)


def seen_signature(record: Record) -> Signature:
    """The signature inferred from a request and its answer; unbatched without ``max_batch_size``."""
    outputs = {tensor.name: tensor for response in record.answer.responses for tensor in response.outputs}
    shown = shown_signature(record.request.inputs, tuple(outputs.values()))
    return replace(shown, max_batch_size=record.max_batch_size or 0)


def shown_signature(inputs: Sequence[Tensor], outputs: Sequence[Tensor] = ()) -> Signature:
    """The signature inferred from tensors, with every dimension free."""

    def specs(tensors: Sequence[Tensor]) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(tensor.name, tensor.datatype, (-1,) * len(tensor.shape)) for tensor in tensors
        )

    return Signature(specs(inputs), specs(outputs))


def compare_redacted(
    record: Record, expected: RecordedAnswer, actual: RecordedAnswer, tolerance: Tolerance
) -> tuple[RecordedAnswer, RecordedAnswer, tuple[TensorDiff, ...]]:
    """Both answers without the redacted outputs, and how the digests of those differ. Raises
    ``UnknowableError`` if digests of floats differ but the values may be equal within ``tolerance``."""
    right, other = list(expected.responses), list(actual.responses)
    diffs: list[TensorDiff] = []
    for number, (one, another) in enumerate(zip(right, other, strict=False)):
        found = {tensor.name: tensor for tensor in another.outputs}
        hidden = {
            tensor.name: _difference(
                tensor, found[tensor.name], record.redacted[ANSWER, number, position], number, tolerance
            )
            for position, tensor in enumerate(one.outputs)
            if (ANSWER, number, position) in record.redacted and tensor.name in found
        }
        diffs += hidden.values()
        right[number], other[number] = _without(one, hidden), _without(another, hidden)
    return replace(expected, responses=tuple(right)), replace(actual, responses=tuple(other)), tuple(diffs)


def _difference(
    expected: Tensor, actual: Tensor, recorded: str, number: int, tolerance: Tolerance
) -> TensorDiff:
    if expected.shape != actual.shape:
        fault, words = Fault.SHAPE, (str(list(expected.shape)), str(list(actual.shape)))
    elif expected.datatype is not actual.datatype:
        fault, words = Fault.DATATYPE, (expected.datatype.value, actual.datatype.value)
    elif (have := digest(actual)) == recorded:
        return TensorDiff(expected.name, count=expected.count, response=number)
    elif expected.datatype in _FLOATS and tolerance != Tolerance():
        raise UnknowableError("a redacted output has another digest, but may be within the tolerance")
    else:
        fault, words = Fault.VALUES, (f"digest {recorded}", f"digest {have}")
    return TensorDiff(expected.name, fault, expected=words[0], actual=words[1], response=number)


def _without(response: InferResponse, names: dict[str, TensorDiff]) -> InferResponse:
    return replace(response, outputs=tuple(tensor for tensor in response.outputs if tensor.name not in names))
