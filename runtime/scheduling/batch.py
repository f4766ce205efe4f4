"""Joins requests to a batch, and splits its answer.

In every tensor of the IR, packed BYTES included, rows follow each other, so a batch is the concatenated bytes
of its requests, copied once, and an answer is a slice of the output. Contract: no request gets a row of
another; a model that answers with another number of rows than its input fails.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping, Sequence
from math import prod

from interlingua.runtime.scheduling.queue import Entry
from interlingua.schemas import Datatype, Tensor, model_failed

_LENGTH = struct.Struct("<I")


def in_model_order(inputs: tuple[Tensor, ...], places: Mapping[str, int]) -> tuple[Tensor, ...]:
    """``inputs`` by their ``places`` in the signature."""
    return inputs if len(inputs) < 2 else tuple(sorted(inputs, key=lambda tensor: places[tensor.name]))


def key_of(inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> Hashable:
    """Equal for requests that may share a batch: the same inputs, datatypes, shapes except for the batch, and
    ``outputs``. ``inputs`` are in the model's order."""
    return outputs, tuple((tensor.name, tensor.datatype, tensor.shape[1:]) for tensor in inputs)


def gathered(entries: Sequence[Entry]) -> tuple[Tensor, ...]:
    """The inputs of ``entries``, which have one key, as those of one request."""
    first = entries[0].inputs
    if len(entries) == 1:
        return first
    rows = sum(entry.rows for entry in entries)
    return tuple(
        Tensor(
            tensor.name,
            tensor.datatype,
            (rows, *tensor.shape[1:]),
            memoryview(b"".join([entry.inputs[index].view for entry in entries])),
        )
        for index, tensor in enumerate(first)
    )


def check_rows(outputs: Sequence[Tensor], rows: int) -> None:
    """Raises MODEL_FAILED for an output without as many ``rows``."""
    for tensor in outputs:
        shape = tensor.shape
        if not shape or shape[0] != rows:
            got = shape[0] if shape else "none"
            raise model_failed(
                f"output '{tensor.name}' of a batch has the wrong number of rows: expected {rows}, got {got}"
            )


def scattered(outputs: Sequence[Tensor], entries: Sequence[Entry]) -> list[tuple[Tensor, ...]]:
    """The rows of ``outputs`` that belong to each of ``entries``, as views. Raises as :func:`check_rows`."""
    check_rows(outputs, sum(entry.rows for entry in entries))
    if len(entries) == 1:
        return [tuple(outputs)]
    sizes = [entry.rows for entry in entries]
    cut = [_cut(tensor, sizes) for tensor in outputs]
    return [tuple(parts[index] for parts in cut) for index in range(len(entries))]


def _cut(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    view = tensor.view
    row = tensor.shape[1:]
    found = []
    start = 0
    for size in sizes:
        if tensor.datatype is Datatype.BYTES:
            end = _after(view, start, size * prod(row))
        else:
            end = start + size * prod(row) * tensor.datatype.itemsize
        found.append(Tensor(tensor.name, tensor.datatype, (size, *row), view[start:end]))
        start = end
    return found


def _after(view: memoryview, position: int, count: int) -> int:
    """The end of ``count`` packed elements from ``position`` on."""
    for _ in range(count):
        position += 4 + _LENGTH.unpack_from(view, position)[0]
    return position
