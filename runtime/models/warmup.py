"""The requests that a model runs before clients connect: the samples of ``model_warmup`` in a configuration.

Engines defer work until the first request of a size; a sample takes that request's place. This module makes a
request of a sample; ``Version.warm_up`` runs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from interlingua.schemas import Datatype, InferenceError, InferRequest, Tensor

FOLDER = "warmup"
"""The folder of sample files, in the model's folder."""

MAX_RUNS = 10_000
"""The most runs of all samples of a model."""

MAX_SAMPLE_BYTES = 1 << 30
"""The most memory of all samples of a model. Clients may override ``model_warmup`` too."""

_SEED = 0
_WORD = 8
"""The length of a random element of BYTES."""

_TEXT_BYTES = 64
"""The memory of such an element, as a Python object."""


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a sample: ``shape`` without the batch, and the ``file`` with the bytes of one batch
    element; without a file the values are zeros or ``random``."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    random: bool = False
    file: str = ""


@dataclass(frozen=True, slots=True)
class Warmup:
    """A sample of the configuration, to be run ``count`` times with ``batch_size`` elements."""

    name: str
    batch_size: int
    inputs: tuple[WarmupInput, ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class WarmupSample:
    name: str
    request: InferRequest
    count: int


def read_samples(
    model: str, folder: Path, warmups: tuple[Warmup, ...], batched: bool
) -> tuple[WarmupSample, ...]:
    """The requests to ``model`` that ``warmups`` state; ``batched``: shapes begin with a batch. Skips a batch
    of 0, like Triton. Blocks. Raises ``ValueError`` naming the sample and the input: a free dimension, a
    missing file or one of the wrong size, a batch for a model without one, samples above the limits."""
    _check_sizes(warmups)
    return tuple(
        WarmupSample(warmup.name, _request(model, folder, warmup, batched), warmup.count)
        for warmup in warmups
        if warmup.batch_size
    )


def _check_sizes(warmups: tuple[Warmup, ...]) -> None:
    """Raise ``ValueError`` for samples above ``MAX_RUNS`` and ``MAX_SAMPLE_BYTES``, before they are made."""
    runs = nbytes = 0
    for warmup in warmups:
        runs += warmup.count
        for each in warmup.inputs:
            elements = math.prod(max(dimension, 0) for dimension in each.shape) * warmup.batch_size
            nbytes += elements * (each.datatype.itemsize or _TEXT_BYTES)
        if runs > MAX_RUNS:
            raise ValueError(f"sample '{warmup.name}': {runs} runs, more than {MAX_RUNS}")
        if nbytes > MAX_SAMPLE_BYTES:
            raise ValueError(f"sample '{warmup.name}': {nbytes} bytes, more than {MAX_SAMPLE_BYTES}")


def _request(model: str, folder: Path, warmup: Warmup, batched: bool) -> InferRequest:
    if not batched and warmup.batch_size != 1:
        raise ValueError(f"sample '{warmup.name}' has a batch of {warmup.batch_size}; the model takes none")
    tensors = []
    for each in warmup.inputs:
        try:
            tensors.append(_tensor(folder, each, warmup.batch_size, batched))
        except (ValueError, OSError, MemoryError, InferenceError) as error:
            raise ValueError(f"sample '{warmup.name}', input '{each.name}': {error}") from error
    return InferRequest(model, tuple(tensors))


def _tensor(folder: Path, stated: WarmupInput, batch_size: int, batched: bool) -> Tensor:
    if any(dimension < 0 for dimension in stated.shape):
        raise ValueError(f"dims {list(stated.shape)} have a free dimension, which a sample cannot have")
    shape = (batch_size, *stated.shape) if batched else stated.shape
    if not stated.file:
        return Tensor.from_numpy(stated.name, _drawn(stated, shape), stated.datatype)
    element = (folder / FOLDER / stated.file).read_bytes()
    return Tensor.checked(stated.name, stated.datatype, shape, element * batch_size)


def _drawn(stated: WarmupInput, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Zeros or empty texts; or numbers from 0 to 1, small integers and words, the same each time."""
    generator = np.random.default_rng(_SEED)
    size = math.prod(shape)
    if stated.datatype is Datatype.BYTES:
        letters = generator.integers(ord("a"), ord("z") + 1, (size, _WORD if stated.random else 0), np.uint8)
        words = np.empty(size, object)
        words[:] = [row.tobytes() for row in letters]
        return words.reshape(shape)
    dtype = stated.datatype.dtype
    if not stated.random:
        return np.zeros(shape, dtype)
    if dtype.kind in "iu":
        return generator.integers(0, 128, shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    return generator.random(shape).astype(dtype)
