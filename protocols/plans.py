"""Requests that follow a plan, without a task: what a transport, its handler and a client agree on.

A handler learns plans from requests that its pipeline has answered. A transport offers each message to the
handler's ``Plans`` in the callback that has received it, before it begins a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

from interlingua.protocols.wire import ArrivingMessage, Buffer
from interlingua.schemas import Context

DONE: Final = object()
"""What ``Plans.execute`` returns after it has called ``PlannedRequest.respond``, or ``resume``."""


class PlannedRequest(Protocol):
    """A request of a transport that follows a plan. None of its methods raises. ``has_context``: it has a
    context, or needs one."""

    has_context: bool

    def begun_context(self) -> Context:
        """Its context, made on demand: most plans need none."""

    def respond(self, response: Any) -> None:
        """Send this response, as one of the handler."""

    def resume(self, execution: PlanExecution) -> None:
        """Have ``execution.serve`` answer the request, in a task."""


class PlanExecution(Protocol):
    """A plan at work on a request, which ends with ``PlannedRequest.respond`` or ``resume``. ``handle`` is
    what a client knows the call by; with an ``ArrivingMessage`` it takes the rest, by ``fed_by``."""

    handle: Any

    async def serve(self, request: Any) -> Any:
        """As the handler's ``serve``, after ``PlannedRequest.resume``, with the whole request."""

    def leave(self) -> None:
        """The pipeline has the request from now on, by :meth:`serve`."""

    def abandon(self, request: Any) -> None:
        """End ``request``, the whole request, whose client is gone."""

    def close(self) -> None:
        """After ``PlannedRequest.resume``: nothing will await :meth:`serve`."""


class Plans(Protocol):
    """The plans of a handler. A head has a place for what they know it by, ``plan_key``."""

    def execute(
        self, head: Any, message: Buffer | ArrivingMessage, request: PlannedRequest, answerable: bool
    ) -> Any:
        """Begin to answer ``request`` by a plan: its ``head`` has what precedes the ``message``, or a part of
        it. ``answerable``: it may get its response before this returns. Returns a ``PlanExecution``, DONE, or
        None if the handler is to serve it. Never raises."""


class SentWaiter(Protocol):
    """What gets the outcome of a call that no task waits for, as a future would."""

    def done(self) -> bool:
        """Whether it has one."""

    def set_result(self, reply: Any) -> None:
        """The reply, in its content coding. Never raises."""

    def set_exception(self, fault: Exception) -> None:
        """The error. Never raises."""

    def answer_begins(self, message: ArrivingMessage) -> Any:
        """The request that takes a response while it arrives, whose message begins so; None if it takes a
        whole one. Its ``fed_by`` returns what the rest goes to. Never raises."""


@runtime_checkable
class CallbackClient(Protocol):
    """A client that also sends without a task."""

    def prepare(self, request: Any, size: int) -> Any:
        """What :meth:`begin` needs to know of requests like ``request`` whose messages have ``size`` bytes;
        the message of ``request`` itself is not read. Raises as ``send``."""

    def begin(
        self, prepared: Any, message: Any, deadline: float, waiter: SentWaiter, headers: Mapping[str, str]
    ) -> Any:
        """Send a request now, on an open connection, with ``headers`` besides the prepared ones; its
        ``message`` has the prepared size, and may be an ``ArrivingMessage`` where the plan has a ``lead``.
        Returns a handle for :meth:`cancel`, None without such a connection. Raises as ``send``, with nothing
        sent."""

    async def finish(self, request: Any, outcome: Any) -> Any:
        """The reply to ``request``, whose waiter has got ``outcome``. Raises as ``send``."""

    def cancel(self, handle: Any, waiter: SentWaiter) -> None:
        """End the call, whose waiter has no outcome."""
