"""A call on a gRPC listener: messages in, a handler's answers out, on one HTTP/2 stream.

However a call ends, its handler's task is cancelled, and the call counts as running until the task is done.
``unary_call`` and ``stream_call`` have the two kinds.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from interlingua.protocols.plans import PlanExecution, Plans
from interlingua.protocols.transport.grpc.headers import CallHeaders, trailers, trailers_only
from interlingua.protocols.transport.grpc.messages import MessageError, MessageStream
from interlingua.protocols.transport.grpc.status import (
    DEADLINE_EXCEEDED,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    body_slow,
    body_stalled,
    too_large,
)
from interlingua.protocols.transport.h2.frames import Code
from interlingua.protocols.transport.h2.server import ServerConnection
from interlingua.protocols.transport.load import BodyLoad, ListenerLoad
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import GrpcAnswer, GrpcHandler
from interlingua.schemas import CancelToken, Context
from interlingua.schemas.offload import DecodingLimits


class CallHost(Protocol):
    """The connection of a call: what its calls share."""

    handler: GrpcHandler
    load: ListenerLoad
    loop: asyncio.AbstractEventLoop
    peer: str
    identity: str | None
    max_request_bytes: int | None
    max_response_bytes: int | None
    limits: DecodingLimits
    plans: Plans | None

    def call_began(self, call: GrpcCall) -> None:
        """Count a call as running."""

    def call_ended(self, call: GrpcCall) -> None:
        """Count it no longer."""


class GrpcCall(MessageStream):
    """The common part of unary and streaming calls. ``_over``: the answer is complete, or no client waits for
    it. ``_reset_at_work``: the connection counts the call among those reset whose task still runs.
    ``_execution`` is that of a plan for a ``_message``; ``_planned``: no task awaits it. ``_arrived`` is the
    ``time.monotonic_ns()`` of the headers, 0 if the message came with them."""

    __slots__ = (
        "_arrived",
        "_execution",
        "_headers",
        "_host",
        "_message",
        "_over",
        "_planned",
        "_reset_at_work",
        "_started",
        "_task",
        "_working",
        "connection",
        "context",
        "deadline",
        "has_context",
        "held",
    )

    def __init__(
        self,
        host: CallHost,
        connection: ServerConnection[CallHeaders | None],
        number: int,
        headers: CallHeaders,
        ended: bool,
    ) -> None:
        super().__init__(number, connection.sender.initial_window, ended)
        self.connection = connection
        self.body_left = headers.length
        self._host = host
        self._headers = headers
        self._task: asyncio.Task[None] | None = None
        self.held: BodyLoad | None = None
        self._execution: PlanExecution | None = None
        self._message: Any = b""
        self._started = self._working = self._over = self._reset_at_work = self._planned = False
        self.deadline = None if headers.timeout is None else time.monotonic() + headers.timeout
        self._arrived = 0 if ended else time.monotonic_ns()
        self.context: Context | None = None
        self.has_context = self.deadline is not None or host.identity is not None
        host.call_began(self)

    def begun_context(self) -> Context:
        """See ``PlannedRequest``."""
        context = self.context
        if context is None:
            host, metadata = self._host, self._headers.metadata
            # positional arguments: keywords take twice the time
            trace = metadata.get("traceparent", ""), metadata.get("tracestate", "")
            self.context = context = Context(self.deadline, CancelToken(), *trace, host.peer, metadata)
            context.identity, context.reports_write = host.identity, True
            context.arrived = self._arrived
        return context

    def on_reset(self, code: int) -> None:
        """See ``Stream``."""
        self._over = True
        if self.loan or self.window_held:
            self.connection.message_ended(self)
        self.sink = None
        if self._reset_at_work:
            return
        if self.context is not None:
            self.context.cancel.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._working:
            self._reset_at_work = True
            self.connection.reset_at_work += 1
        else:
            self._task = None
            self._host.call_ended(self)

    def on_drained(self) -> None:
        """See ``Stream``."""
        if self.half_closed_local and not self._working:
            self._host.call_ended(self)

    @property
    def awaits_body(self) -> bool:
        """Whether the client has begun a message and may send the rest of it."""
        return self.partial and not (self.half_closed_remote or self.window_held)

    def end_body(self, slow: bool, timeouts: Timeouts) -> None:
        """The client has stopped sending a message, or sends it too slowly."""
        self.end(body_slow(timeouts.min_bytes_per_sec) if slow else body_stalled(timeouts.body_secs))

    def expire(self) -> None:
        """End the call: its deadline has passed."""
        self.end(GrpcAnswer(code=DEADLINE_EXCEEDED, details="Deadline Exceeded"))

    def cut(self) -> None:
        """End the call: the server stops."""
        self.end(GrpcAnswer(code=UNAVAILABLE, details="the server is stopping"))

    def end(self, answer: GrpcAnswer) -> None:
        """End the call with a status of the transport's own."""
        if not self.half_closed_local:
            self.connection.sender.send_end(self, self._ending(answer))
        self.on_reset(Code.CANCEL)

    def _ending(self, answer: GrpcAnswer) -> bytes:
        """The field block that ends the call."""
        return trailers(answer) if self._started else trailers_only(answer)

    def _hold(self, size: int) -> bool:
        """Count ``size`` bytes of messages that are here. Whether the call may go on."""
        if self.held is None:
            self.held = BodyLoad(self._host.load)
        error = self.held.grow(size)
        if error is not None:
            self.end(GrpcAnswer(code=RESOURCE_EXHAUSTED, details=error.message))
        return error is None

    def _count(self, size: int) -> None:
        """The same, for the task of the call. Raises ``MessageError``."""
        if self.held is None:
            self.held = BodyLoad(self._host.load)
        error = self.held.grow(size)
        if error is not None:
            raise MessageError(RESOURCE_EXHAUSTED, error.message, fault=error)

    def _refusal(self, error: MessageError) -> GrpcAnswer:
        """What ends the call if a message cannot be taken."""
        limit = self._host.max_request_bytes
        if error.code != RESOURCE_EXHAUSTED or error.fault is not None or limit is None:
            return GrpcAnswer(code=error.code, details=error.details)
        if error.size is not None:
            return too_large("request", error.size, "max_request_bytes", limit)
        details = (
            f"the request has more bytes when decompressed than the {limit} that max_request_bytes of this "
            "listener allows"
        )
        return GrpcAnswer(code=RESOURCE_EXHAUSTED, details=details)

    def _done(self) -> None:
        """The task is done."""
        # if it was cancelled it refers to its frames: a cycle would keep the memory of the message
        self._task = None
        self._working = False
        if self.passthrough is not None:
            self.passthrough.detach()
        if self.feeder is not None:
            self.feeder.detach()
        if self.loan:
            self.connection.message_ended(self)
        if self._reset_at_work:
            self.connection.reset_at_work -= 1
        if self.half_closed_local:
            self._host.call_ended(self)
