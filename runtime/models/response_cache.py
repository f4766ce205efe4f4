"""Answers that were given before, for models whose configuration says that asking again tells nothing new.

One cache for the whole server, bounded in bytes; what was not used for longest makes room. An answer is found
by the exact content of its question. Whether a question may be answered from here at all is for
``runtime.models.model`` to say. Everything is called on the event loop, so nothing here locks.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from interlingua.schemas import Duration, InferRequest, Tensor
from interlingua.schemas.messages import Parameter

_ENTRY_BYTES = 512
"""What an entry costs beside its tensors: about what the objects around them take."""


_scopes = count(1)


@dataclass(frozen=True, slots=True)
class Cached:
    """An answer: the outputs with memory of their own, and the parameters. ``scope`` is what it belongs
    to, ``nbytes`` what it counts against the limit."""

    scope: int
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter]
    nbytes: int


class ResponseCache:
    """At most ``limit_bytes`` of answers. ``used_bytes`` is what is there now, ``evictions`` counts answers
    that had to make room, ``hits`` look-ups that found one. ``lookups`` and ``insertions`` count both with
    the time that they took."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.evictions = 0
        self.hits = 0
        self.lookups = Duration()
        self.insertions = Duration()
        # by use, the oldest first
        self._entries: OrderedDict[bytes, Cached] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes, began: int) -> Cached | None:
        """The answer to the question with ``key``, if it is there. The key was computed from ``began`` on, a
        ``time.monotonic_ns()``: most of the time of a look-up."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
            self.hits += 1
        self.lookups.add(time.monotonic_ns() - began)
        return found

    def put(
        self, key: bytes, scope: int, outputs: tuple[Tensor, ...], parameters: Mapping[str, Parameter]
    ) -> None:
        """Keep an answer, copied, unless it is larger than the whole cache."""
        nbytes = len(key) + _ENTRY_BYTES + sum(tensor.nbytes + len(tensor.name) for tensor in outputs)
        if nbytes > self.limit_bytes:
            return
        began = time.monotonic_ns()
        self._drop(key)
        while self.used_bytes + nbytes > self.limit_bytes:
            self._drop(next(iter(self._entries)))
            self.evictions += 1
        # views would keep alive what they are cut from: a batch, the body of a request
        own = tuple(
            Tensor(tensor.name, tensor.datatype, tensor.shape, memoryview(bytes(tensor.view)))
            for tensor in outputs
        )
        self._entries[key] = Cached(scope, own, dict(parameters), nbytes)
        self.used_bytes += nbytes
        self.insertions.add(time.monotonic_ns() - began)

    def forget(self, scope: int) -> None:
        """Drop every answer of ``scope``."""
        for key in [key for key, entry in self._entries.items() if entry.scope == scope]:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.used_bytes -= entry.nbytes


def new_scope() -> int:
    """A number that nothing else has: what belongs to it can be forgotten together."""
    return next(_scopes)


def key_of(scope: int, request: InferRequest, outputs: tuple[str, ...]) -> bytes:
    """What tells one question from every other: the ``scope`` of what answers it, the ``outputs`` to
    compute, the parameters, and each input's name, datatype, shape and bytes, whatever their order.

    A digest of 256 bits, so that two questions never meet by accident nor by intent. Inputs must be in
    memory: those in a shared region are read as they are now.
    """
    digest = hashlib.sha256()
    parameters = sorted(request.parameters.items())
    digest.update(repr((scope, outputs, parameters)).encode())
    for tensor in sorted(request.inputs, key=lambda tensor: tensor.name):
        # the length of the data follows from this, so nothing can move from one field to the next
        head = repr((tensor.name, tensor.datatype.value, tensor.shape, tensor.nbytes))
        digest.update(head.encode())
        digest.update(tensor.view)
    return digest.digest()
