"""The limits on the requests that are inside a model, queued or running.

Contract: each request that enters leaves exactly once. It costs a comparison of numbers if no request waits.
``queue`` limits the levels of priority.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from interlingua.runtime.scheduling.policy import Limits
from interlingua.schemas import ErrorCode, InferenceError, InferRequest


class Admission:
    """Counts the requests inside ``model``. Without a queue of their own, requests wait once there are
    ``places`` of them."""

    def __init__(self, model: str, limits: Limits, places: int) -> None:
        self.inside = 0
        self._waiting_bytes = 0
        self._model = model
        self._limits = limits
        self._places = places

    @property
    def waiting(self) -> int:
        """How many of those inside wait, without a queue."""
        return max(self.inside - self._places, 0)

    def enter(self, request: InferRequest) -> int:
        """Admit ``request`` without a queue. Returns the bytes for :meth:`leave`: those of a request that had
        to wait, whose memory is held until it is answered. Raises OVERLOADED."""
        waiting = self.inside - self._places
        nbytes = self._checked(request, waiting, self._waiting_bytes) if waiting >= 0 else 0
        self._enter()
        self._waiting_bytes += nbytes
        return nbytes

    def leave(self, nbytes: int) -> None:
        self.inside -= 1
        self._waiting_bytes -= nbytes

    @contextmanager
    def entered(self, request: InferRequest) -> Iterator[None]:
        nbytes = self.enter(request)
        try:
            yield
        finally:
            self.leave(nbytes)

    def enter_queue(self, request: InferRequest, waiting: int, waiting_bytes: int) -> int:
        """Admit ``request`` after ``waiting`` others of a queue that counts the bytes itself. Returns the
        bytes of ``request``, which leaves with 0. Raises OVERLOADED."""
        nbytes = self._checked(request, waiting, waiting_bytes)
        self._enter()
        return nbytes

    def _checked(self, request: InferRequest, waiting: int, waiting_bytes: int) -> int:
        """The bytes of ``request``. A request above the limit may still wait alone. Raises OVERLOADED if
        ``waiting`` others, of ``waiting_bytes``, reach a limit."""
        limits = self._limits
        if waiting >= limits.queue_requests > 0:
            raise self._full(f"{waiting} requests wait")
        nbytes = 0
        for tensor in request.inputs:
            nbytes += tensor.nbytes
        if limits.queue_bytes and waiting_bytes and waiting_bytes + nbytes > limits.queue_bytes:
            raise self._full(f"requests of {waiting_bytes} bytes wait")
        return nbytes

    def _enter(self) -> None:
        if 0 < self._limits.concurrent <= self.inside:
            raise self._full(f"{self.inside} requests are inside")
        self.inside += 1

    def _full(self, why: str) -> InferenceError:
        return InferenceError(
            ErrorCode.OVERLOADED, f"Exceeds maximum queue size: {why} at model '{self._model}'"
        )
