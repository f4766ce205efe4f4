"""The server's side of one request at a worker: its answers, as they come."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.schemas import ErrorCode, InferenceError, InferRequest


class WorkerCall:
    """The ``Answers`` to ``request``: iterate, and ``aclose`` it in any case. ``taken`` gets the number of
    answers taken after each one; ``closed`` is called at the end."""

    def __init__(
        self,
        request: InferRequest,
        outputs: tuple[str, ...],
        taken: Callable[[WorkerCall, int], None],
        closed: Callable[[WorkerCall], None],
    ) -> None:
        self.context = request.context
        self.outputs = outputs
        self.slot = -1
        self.started = time.monotonic_ns()
        self._answers: deque[InstanceAnswer] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: InferenceError | None = None
        self._count = 0
        self._ended = False
        self._taken = taken
        self._closed = closed
        self.context.cancel.on_cancel(self.cancel)

    def __aiter__(self) -> WorkerCall:
        return self

    async def __anext__(self) -> InstanceAnswer:
        """The next answer. Raises MODEL_FAILED when the worker has exited, CANCELLED after ``cancel``."""
        if self._ended:
            raise StopAsyncIteration
        while not self._answers:
            if self._failure is not None:
                raise self._ending()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        answer = self._answers.popleft()
        self._count += 1
        self._ended = answer.final
        self._taken(self, self._count)
        return answer

    def _ending(self) -> InferenceError:
        """The failure, of which no reference stays: a cycle would keep the memory of the request."""
        assert self._failure is not None  # noqa: S101
        failure, self._failure, self._ended = self._failure, None, True
        return failure

    async def aclose(self) -> None:
        """Take no more answers; the model is notified."""
        self._ended = True
        self.context.cancel.forget(self.cancel)
        self._closed(self)

    def put(self, answer: InstanceAnswer) -> None:
        self._answers.append(answer)
        self._wake()

    def fail(self, failure: InferenceError) -> None:
        self._failure = failure
        self._wake()

    def cancel(self) -> None:
        """The caller has disconnected."""
        self._answers.clear()
        self.fail(InferenceError(ErrorCode.CANCELLED, "the request was cancelled"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
