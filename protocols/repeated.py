"""What messages of a model repeat, apart from the bytes of their tensors: caches for codecs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from interlingua.protocols.wire import Buffer
from interlingua.schemas import Datatype, InferRequest, InferResponse, SharedMemoryRef, Signature

MOST = 256
"""How many entries a cache has."""

LONGEST = 4096
"""The size in bytes of the longest cached text."""

T = TypeVar("T")

_USUAL_RANK = 8
"""Tensors of more dimensions are not cached: this bounds the memory of an entry."""

Described = tuple[str, Datatype, tuple[int, ...], int]
"""A tensor's name, datatype, shape and size in bytes."""

Form = tuple[tuple[Described, ...], tuple[str, ...] | None, list[Buffer]]
"""The inputs of a request, the names of requested outputs (None for all), and the data of the inputs."""


def repeated_form(request: InferRequest) -> Form | None:
    """The form of a ``request`` that has only tensors in memory and plain outputs; None for any other,
    and for one with long names."""
    if request.id or request.parameters or request.sequence or request.priority or request.timeout_us:
        return None
    length = len(request.model) + len(request.version)
    described: list[Described] = []
    contents: list[Buffer] = []
    for tensor in request.inputs:
        data, shape = tensor.data, tensor.shape
        if isinstance(data, SharedMemoryRef) or len(shape) > _USUAL_RANK or tensor.parameters:
            return None
        described.append((tensor.name, tensor.datatype, shape, len(data)))
        contents.append(data)
        length += len(tensor.name) + _USUAL_RANK
    names: list[str] = []
    for output in request.outputs or ():
        if output.classification or output.placement is not None or output.parameters:
            return None
        names.append(output.name)
        length += len(output.name)
    if length > LONGEST:
        return None
    return tuple(described), None if request.outputs is None else tuple(names), contents


def repeated_outputs(response: InferResponse) -> tuple[tuple[Described, ...], list[Buffer]] | None:
    """The outputs of a ``response`` that has only tensors in memory, and their data; None as above."""
    if response.parameters:
        return None
    length = len(response.model) + len(response.version)
    described: list[Described] = []
    contents: list[Buffer] = []
    for tensor in response.outputs:
        data, shape = tensor.data, tensor.shape
        if isinstance(data, SharedMemoryRef) or len(shape) > _USUAL_RANK or tensor.parameters:
            return None
        described.append((tensor.name, tensor.datatype, shape, len(data)))
        contents.append(data)
        length += len(tensor.name) + _USUAL_RANK
    return None if length > LONGEST else (tuple(described), contents)


class BySignature(Generic[T]):
    """A cache of values by the identity of a signature and a key. Not thread-safe."""

    def __init__(self) -> None:
        # with the signature, or another could get its id
        self._kept: dict[tuple[int, Hashable], tuple[Signature, T]] = {}

    def get(self, signature: Signature, key: Hashable) -> T | None:
        found = self._kept.get((id(signature), key))
        return None if found is None else found[1]

    def put(self, signature: Signature, key: Hashable, value: T) -> None:
        """Cache ``value``; the oldest one leaves if there are too many."""
        if len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[id(signature), key] = signature, value
