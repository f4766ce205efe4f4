"""Who may come in: the limits on the requests that are inside a model, waiting or running.

Contract: what entered leaves exactly once. It costs a comparison of numbers where no request waits. The sizes
of the levels of a queue belong to ``queue``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from interlingua.runtime.scheduling.policy import Limits
from interlingua.schemas import ErrorCode, InferenceError, InferRequest


class Admission:
    """Counts the requests inside model ``model``. Without a queue of their own, requests wait once there are
    ``places`` of them."""

    def __init__(self, model: str, limits: Limits, places: int) -> None:
        self.inside = 0
        self._waiting_bytes = 0
        self._model = model
        self._limits = limits
        self._places = places

    @property
    def waiting(self) -> int:
        """How many of those inside wait, where there is no queue."""
        return max(self.inside - self._places, 0)

    def enter(self, request: InferRequest) -> int:
        """Let ``request`` in where there is no queue; the bytes to pass to :meth:`leave`.

        Those are the bytes of a request that had to wait, as long as their memory is held: until it is
        answered. Raises OVERLOADED.
        """
        waiting = self.inside - self._places
        nbytes = self._checked(request, waiting, self._waiting_bytes) if waiting >= 0 else 0
        self._enter()
        self._waiting_bytes += nbytes
        return nbytes

    def leave(self, nbytes: int) -> None:
        """One that entered with ``nbytes`` is done."""
        self.inside -= 1
        self._waiting_bytes -= nbytes

    @contextmanager
    def entered(self, request: InferRequest) -> Iterator[None]:
        """Inside until the block ends. Raises as :meth:`enter`."""
        nbytes = self.enter(request)
        try:
            yield
        finally:
            self.leave(nbytes)

    def enter_queue(self, request: InferRequest, waiting: int, waiting_bytes: int) -> int:
        """Let ``request`` in after ``waiting`` others of a queue that keeps count of the bytes itself; the
        bytes of ``request``. It leaves with 0. Raises OVERLOADED."""
        nbytes = self._checked(request, waiting, waiting_bytes)
        self._enter()
        return nbytes

    def _checked(self, request: InferRequest, waiting: int, waiting_bytes: int) -> int:
        """The bytes of ``request``. One that is too large by itself may still wait alone. Raises OVERLOADED
        where ``waiting`` others, of ``waiting_bytes``, are as many as may."""
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
