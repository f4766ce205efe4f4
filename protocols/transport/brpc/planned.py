"""A call of a bRPC connection that follows a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from interlingua.protocols.plans import DONE, PlanExecution, Plans
from interlingua.protocols.wire import BrpcAnswer, BrpcRequest
from interlingua.schemas import Context

Serve = Callable[[BrpcRequest], Awaitable[BrpcAnswer]]


class PlannedCall:
    """A ``PlannedRequest``. It has a ``response`` at once, or :meth:`serve` returns it, in a task."""

    __slots__ = ("_execution", "_request", "_resumed", "_served", "_waiter", "response")

    has_context = True

    def __init__(self, request: BrpcRequest) -> None:
        self._request = request
        self._execution: PlanExecution | None = None
        self._resumed = self._served = False
        self._waiter: asyncio.Future[None] | None = None
        self.response: BrpcAnswer | None = None

    @classmethod
    def begin(cls, plans: Plans, request: BrpcRequest) -> PlannedCall | None:
        """``request``, if a plan has it."""
        planned = cls(request)
        execution: Any = plans.execute(request, request.message, planned, True)
        if execution is None:
            return None
        if execution is not DONE:
            planned._execution = execution
        return planned

    def begun_context(self) -> Context:
        """See ``PlannedRequest``."""
        context = self._request.context
        context.reports_write = True
        return context

    def respond(self, response: BrpcAnswer) -> None:
        """See ``PlannedRequest``."""
        self.response = response
        self._wake()

    def resume(self, execution: PlanExecution) -> None:
        """See ``PlannedRequest``."""
        self._execution, self._resumed = execution, True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def serve(self, request: BrpcRequest) -> BrpcAnswer:
        """The response, of the plan or of the pipeline."""
        if self.response is None and not self._resumed:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._served = True
        if self.response is not None:
            return self.response
        assert self._execution is not None, "it is resumed"  # noqa: S101
        answer: BrpcAnswer = await self._execution.serve(request)
        return answer

    def end(self) -> None:
        """The task has ended, perhaps before it began."""
        if not self._served and self._execution is not None:
            self._request.context.cancel.cancel()
            self._execution.abandon(self._request)
