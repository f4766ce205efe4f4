"""The plan for a local model that answers at once: decoded, run and encoded in the callback that has received
the request, without a task.

Contract: as that of ``forward``. What goes wrong once the model has run ends in a task, which counts it as
the pipeline does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from interlingua.protocols.dialect import BrpcEndpoint, GrpcEndpoint, HttpEndpoint
from interlingua.protocols.plans import DONE, PlannedRequest
from interlingua.protocols.wire import REQUEST_ID, ArrivingMessage, Buffer, Headers
from interlingua.runtime.target import Target
from interlingua.schemas import Context, Operation
from interlingua.schemas.offload import OffloadRequired
from interlingua.translator.serving.access_log import EndpointLog, Size
from interlingua.translator.serving.accounting import Account
from interlingua.translator.serving.answer_headers import add_request_id, server_timing, with_request_id
from interlingua.translator.serving.in_flight import AnswerLimit, InFlightRequest
from interlingua.translator.serving.plans.readers import LocalReader
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.routing.route import Route

_MOST_SKIPPED = 1024
"""The most requests that the pipeline gets unread, after others that the model would not answer at once."""


@dataclass(slots=True, eq=False)
class LocalPlan:
    """The plan of requests of up to ``most`` bytes that ``reader`` reads, for ``target``, the ``model``. They
    name ``opened``, a model and a version; the model is ``stated`` if they name none. ``numbered`` is that of
    their action. The rest is what their handler has."""

    processor: RequestProcessor
    endpoint: HttpEndpoint | GrpcEndpoint | BrpcEndpoint
    account: Account
    access: EndpointLog
    limit: AnswerLimit
    timed: bool
    reader: LocalReader
    opened: tuple[str, str]
    numbered: Callable[[Headers, Context], Headers] | None
    stated: str
    model: str
    target: Target
    most: float
    local: ClassVar[bool] = True
    travels: ClassVar[frozenset[str]] = frozenset()
    _skip: int = 0
    _patience: int = 1

    def passes_by(self) -> bool:
        """Whether the pipeline gets this request unread, since the model has not answered others at once."""
        if not self._skip:
            return False
        self._skip -= 1
        return True

    def execute(
        self,
        message: Buffer | ArrivingMessage,
        head: Any,
        context: Context,
        waiting: PlannedRequest,
        route: Route | None,
    ) -> Any:
        """Answer ``message`` of ``waiting``; see ``protocols.plans``."""
        account, size, processor, client = self.account, len(message), self.processor, None
        if isinstance(message, ArrivingMessage) or size > self.most or not account.admit(size):
            return None
        if context.identity is not None:
            client = processor.clients.client(context.identity)
            if client.admit():  # the pipeline refuses it
                account.withdraw(size)
                return None
        context.began, context.server_id = time.monotonic_ns(), processor.service.id
        response = self._response(message, context)
        if response is None or type(response) is UnfinishedRun:
            account.withdraw(size)
            if client is not None:
                client.withdraw()
            if response is None:
                return None
            self._count(context, route)
            waiting.resume(response)
            return DONE
        self._count(context, route)
        timings, spent = context.timings, context.ended["encode"] - context.began
        processor.service.trends.count(spent, False)
        flow = (0, self.model) if route is None else (route.number, self.model)
        account.succeed(response.size, flow, spent, timings)
        if client is not None:
            client.end()
            processor.clients.count(client.name, None)
        if self.numbered is not None:
            response.headers = self.numbered(response.headers, context)
        if self.access.log.every:
            self._record(head, context, response, size)
        if self.timed:
            response.headers = (*response.headers, ("Server-Timing", server_timing(timings)))
        if REQUEST_ID in context.headers:
            response = add_request_id(response, context.headers)
        waiting.respond(response)
        return DONE

    def _count(self, context: Context, route: Route | None) -> None:
        """The model has run."""
        if route is not None:
            context.route = route.number
            route.count(self.model)

    def _passed_by(self) -> None:
        """The model would wait: leave as many of the next requests unread as the plan has done before."""
        self._skip, self._patience = self._patience, min(2 * self._patience, _MOST_SKIPPED)

    def _response(self, message: Buffer, context: Context) -> Any:
        """The response to ``message``; what goes on with it if the model has run and that failed; None if the
        pipeline is to serve it."""
        try:
            found = self.reader.read(message, context)
        except Exception:
            return None  # the pipeline raises it again
        if found is None:
            return None
        request, encode = found
        if request is None:
            return self._passed_by()
        request.model, request.context = self.stated, context
        context.ended["decode"] = decoded = time.monotonic_ns()
        context.timings["decode"] = decoded - context.began
        unfinished, answered = partial(UnfinishedRun, self, context, len(message)), 0
        try:
            response = self.target.infer_now(request)
            if response is None:
                context.timings, context.ended = {}, {}
                return self._passed_by()
            self._patience = 1
            context.request_number = next(self.processor.service.numbers)
            answered = time.monotonic_ns()
            response.model, context.version = request.model, response.version
            encoded: Any = encode(response)
        except OffloadRequired as required:
            limits = self.processor.limits
            return unfinished(partial(required.offloader.run, limits, encode, response), answered)
        except Exception as error:
            return unfinished(partial(_given, error))
        if encoded.size > self.limit.most:
            return unfinished(partial(_given, encoded), answered)
        context.ended["encode"] = ended = time.monotonic_ns()
        context.timings["encode"] = ended - answered
        return encoded

    def _record(self, head: Any, context: Context, response: Any, received: int) -> None:
        """Add a request to the access log."""
        access, context.target = self.access, self.model
        access.log.add(
            access.place,
            access.label.format(head),
            context,
            access.outcome(response, None, Operation.INFER),
            Size(received, response.size),
            (Operation.INFER, *self.opened),
        )


class UnfinishedRun:
    """A ``PlanExecution`` of ``plan``: a request whose model has run. ``finish`` returns
    its response, which may be too large, or raises; the model had ``answered`` at that
    ``time.monotonic_ns()``."""

    handle: None = None

    def __init__(
        self,
        plan: LocalPlan,
        context: Context,
        received: int,
        finish: Callable[[], Awaitable[Any]],
        answered: int = 0,
    ) -> None:
        self._plan = plan
        self._began = context.began
        self._received = received
        self._finish = finish
        self._answered = answered
        self._timings, self._ended, self._version = context.timings, context.ended, context.version
        self._number = context.request_number

    async def serve(self, request: Any) -> Any:
        """See ``protocols.plans``."""
        plan, failed = self._plan, True
        try:
            with self._in_flight(request) as in_flight:
                if request.context.identity is not None:
                    in_flight.count(plan.processor.clients, request.context.identity)
                found = in_flight.answer = await self._finish()
                self._ended["encode"] = ended = time.monotonic_ns()
                self._timings["encode"] = ended - self._answered
                failed = False
                if found.size > plan.limit.most:
                    raise in_flight.too_large(found, found.size, plan.limit)
                if plan.numbered is not None:
                    found.headers = plan.numbered(found.headers, request.context)
        finally:
            plan.processor.service.trends.count(time.monotonic_ns() - self._began, failed)
        answer = in_flight.answer
        plan.account.metrics.sent_bytes += answer.size
        if plan.timed:
            answer.headers = (*answer.headers, ("Server-Timing", server_timing(self._timings)))
        headers = request.context.headers
        return with_request_id(answer, headers) if REQUEST_ID in headers else answer

    def _in_flight(self, request: Any) -> InFlightRequest:
        plan, context = self._plan, request.context
        context.timings, context.ended = self._timings, self._ended
        context.target, context.version = plan.model, self._version
        in_flight = InFlightRequest(
            plan.processor.service, plan.account, plan.endpoint, request, self._received, plan.access
        )
        in_flight.opened = plan.endpoint.open(request)
        in_flight.began, in_flight.number = self._began, self._number
        return in_flight

    def leave(self) -> None:
        """Nothing counts it yet."""

    def abandon(self, request: Any) -> None:
        """See ``protocols.plans``."""
        with suppress(asyncio.CancelledError), self._in_flight(request):
            raise asyncio.CancelledError
        self._plan.processor.service.trends.count(time.monotonic_ns() - self._began, True)

    def close(self) -> None:
        """Nothing waits for it."""


async def _given(outcome: Any) -> Any:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
