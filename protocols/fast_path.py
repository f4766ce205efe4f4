"""Requests that pass on without a task: what a transport, its handler and a client agree on.

A transport that receives one message like another requests a ``FastPath`` from its handler. From then on it
offers every such message to the path, in the callback that has received it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from interlingua.protocols.wire import ArrivingMessage, Buffer
from interlingua.schemas import Context


class FastCall(Protocol):
    """A message that was sent on. Unless :meth:`FastCaller.answered` is called, it is one of these two that
    ends the request. ``handle`` is what a client knows the call by; that of an ``ArrivingMessage`` takes the
    rest, by ``fed_by``."""

    handle: Any

    async def serve(self, request: Any) -> Any:
        """As the handler's ``serve``, after :meth:`FastCaller.fall_back`, with the whole request."""

    def leave(self) -> None:
        """The request takes its usual path from now on, by :meth:`serve`."""

    def abandon(self, request: Any) -> None:
        """End ``request``, the whole request, whose client is gone."""

    def close(self) -> None:
        """After :meth:`FastCaller.fall_back`: nothing will await :meth:`serve`."""


class FastCaller(Protocol):
    """A request of a transport that waits for a ``FastCall``. Neither method raises."""

    def answered(self, answer: Any) -> None:
        """Send this answer, as one of the handler."""

    def fall_back(self) -> None:
        """Have :meth:`FastCall.serve` answer the request, in a task."""


class InlineCaller(Protocol):
    """A request of a transport with an ``InlinePath``. Neither method raises."""

    def answered(self, answer: Any) -> None:
        """See ``FastCaller``."""

    def fall_back(self, call: FastCall | None = None) -> None:
        """Have :meth:`FastCall.serve` of ``call`` answer the request, in a task."""


class FastPath(Protocol):
    """For messages of ``size`` bytes with the same headers, or metadata. One that is arriving may be sent on
    once its first ``lead`` bytes are here; 0 if it must be complete."""

    size: int
    lead: int

    def begin(
        self, message: Buffer | ArrivingMessage, context: Context, caller: FastCaller
    ) -> FastCall | None:
        """Send ``message`` on; None if the handler is to serve it."""


class InlinePath(Protocol):
    """For requests with the same headers, except the length, that may be answered in the callback that has
    received them."""

    def answer(self, message: Buffer, context: Context | None = None) -> Any:
        """The answer to ``message``, a request with ``context`` if that is not the path's own; a ``FastCall``
        whose ``serve`` has it; None if the handler is to serve it. Never raises."""


FindPath = Callable[[Any], FastPath | None]
"""Returns the fast path of requests that repeat one, if the handler has one."""

FindInline = Callable[[Any], InlinePath | None]
"""The same of its inline path."""


class SentWaiter(Protocol):
    """What gets the outcome of a call that no task waits for, as a future would."""

    def done(self) -> bool:
        """Whether it has one."""

    def set_result(self, reply: Any) -> None:
        """The reply, in its content coding. Never raises."""

    def set_exception(self, fault: Exception) -> None:
        """The error. Never raises."""

    def answer_begins(self, message: ArrivingMessage) -> Any:
        """The caller that takes an answer while it arrives, whose message begins so; None if it takes a whole
        one. Its ``fed_by`` returns what the rest goes to. Never raises."""


@runtime_checkable
class CallbackClient(Protocol):
    """A client that also sends without a task."""

    def prepare(self, request: Any, size: int) -> Any:
        """What :meth:`begin` needs to know of requests like ``request`` whose messages have ``size`` bytes;
        the message of ``request`` itself is not read. Raises as ``send``."""

    def begin(self, prepared: Any, message: Any, deadline: float, waiter: SentWaiter) -> Any:
        """Send a request now, on an open connection; its ``message`` has the prepared size, and may be an
        ``ArrivingMessage`` where the path has a ``lead``.
        Returns a handle for :meth:`cancel`, None without such a connection. Raises as ``send``, with nothing
        sent."""

    async def finish(self, request: Any, outcome: Any) -> Any:
        """The reply to ``request``, whose waiter has got ``outcome``. Raises as ``send``."""

    def cancel(self, handle: Any, waiter: SentWaiter) -> None:
        """End the call, whose waiter has no outcome."""
