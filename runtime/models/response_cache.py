"""The response cache, for models whose configuration allows it.

One cache for the whole server, limited in bytes; the least recently used response is evicted. The key is the
exact content of a request. ``runtime.models.model`` decides which requests may use it. Everything runs on the
event loop, so there are no locks.
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
"""The cost of an entry besides its tensors, estimated."""


_scopes = count(1)


@dataclass(frozen=True, slots=True)
class Cached:
    """A response with memory of its own. ``scope`` is the version that it belongs to, ``nbytes`` its size
    against the limit."""

    scope: int
    outputs: tuple[Tensor, ...]
    parameters: Mapping[str, Parameter]
    nbytes: int


class ResponseCache:
    """At most ``limit_bytes`` of responses, currently ``used_bytes``. ``evictions`` and ``hits`` are counts,
    ``lookups`` and ``insertions`` counts with their time."""

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
        """The response for ``key``, if cached. The key was computed from ``began`` on, a
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
        """Keep a copy of a response, unless it is larger than the whole cache."""
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
        for key in [key for key, entry in self._entries.items() if entry.scope == scope]:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.used_bytes -= entry.nbytes


def new_scope() -> int:
    """A unique number: responses of one scope can be dropped together."""
    return next(_scopes)


def key_of(scope: int, request: InferRequest, outputs: tuple[str, ...]) -> bytes:
    """The key of a request: the ``scope`` of its version, the ``outputs`` to compute, the parameters, and
    each input's name, datatype, shape and bytes, in any order. A digest of 256 bits: no collisions,
    accidental or intended. Inputs must be in memory: those in a shared region are read as they are now."""
    digest = hashlib.sha256()
    parameters = sorted(request.parameters.items())
    digest.update(repr((scope, outputs, parameters)).encode())
    for tensor in sorted(request.inputs, key=lambda tensor: tensor.name):
        # the length of the data follows from this, so nothing can move from one field to the next
        head = repr((tensor.name, tensor.datatype.value, tensor.shape, tensor.nbytes))
        digest.update(head.encode())
        digest.update(tensor.view)
    return digest.digest()
