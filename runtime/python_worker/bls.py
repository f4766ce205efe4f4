"""The worker's side of a call of another model: ``InferenceRequest.exec`` and ``async_exec``.

The server's side, which finds the model, is ``outgoing``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from interlingua.runtime.python_worker.connection import Box, WorkerConnection
from interlingua.runtime.python_worker.triton_python_backend_utils import (
    InferenceRequest,
    InferenceResponse,
    TritonError,
)

_GONE = TritonError("the server is shutting down", TritonError.UNAVAILABLE)
_CANCELLED = TritonError("the call was cancelled", TritonError.CANCELLED)


class BlsClient:
    """Calls other models for ``InferenceRequest``."""

    def __init__(self, connection: WorkerConnection) -> None:
        self._connection = connection

    def infer(self, request: InferenceRequest, decoupled: bool) -> Any:
        """The response, or an iterator over the responses of a decoupled model."""
        responses = Responses(self._connection, request, decoupled)
        return responses if decoupled else next(responses)

    async def infer_async(self, request: InferenceRequest, decoupled: bool) -> Any:
        """The same, without blocking the event loop until the first response."""
        # a sixth of the time that a worker takes to start, and most models have no use for it
        import asyncio

        loop = asyncio.get_running_loop()
        come = asyncio.Event()

        def wake() -> None:
            # later responses have other waiters, perhaps after the loop has ended
            if not come.is_set():
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(come.set)

        responses = Responses(self._connection, request, decoupled, wake)
        self._connection.read_aside()
        await come.wait()
        return responses if decoupled else next(responses)


class Responses:
    """The responses to one call, as they come; the last one may have no outputs."""

    def __init__(
        self,
        connection: WorkerConnection,
        request: InferenceRequest,
        decoupled: bool,
        wake: Callable[[], object] | None = None,
    ) -> None:
        self._connection = connection
        self._box = Box(wake)
        self._ended = False
        packed = connection.pack(request.inputs())
        self._number = connection.open(self._box)
        value = [
            "call",
            self._number,
            request.model_name(),
            request.model_version(),
            request.request_id(),
            request.correlation_id(),
            request.flags(),
            request.timeout(),
            request.parameters(),
            request.requested_output_names(),
            decoupled,
            packed.value,
        ]
        connection.send(value, packed.payload, packed.descriptors)

    def __iter__(self) -> Responses:
        return self

    def __next__(self) -> InferenceResponse:
        if self._ended:
            raise StopIteration
        received = self._connection.wait(self._box)
        response, self._ended = received or (InferenceResponse(error=_GONE), True)
        answer: InferenceResponse = response
        return answer

    def cancel(self) -> None:
        """Request no more; responses that have arrived stay."""
        if self._connection.forget(self._number):
            self._connection.send(["uncall", self._number])
            self._box.put((InferenceResponse(error=_CANCELLED), True))

    def __del__(self) -> None:
        # a call whose constructor raised has no number
        if getattr(self, "_number", None) is not None:
            self.cancel()
