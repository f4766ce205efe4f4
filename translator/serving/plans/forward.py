"""The plan for an upstream: its call goes out from the callback that has received the message, the response
from the one that has received the reply.

Contract: what counts, what is logged, and what a caller gets, is what the pipeline would count, log and send.
The pipeline goes on with a request once anything has come that the plan cannot use, or its client is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from interlingua.protocols.plans import PlannedRequest
from interlingua.protocols.wire import NO_CONTEXT, REQUEST_ID, ArrivingMessage, Buffer, GrpcAnswer
from interlingua.runtime.upstream.forward import SentCall, UpstreamForward
from interlingua.schemas import Context, InferenceError, Operation
from interlingua.translator.access.clients import Client
from interlingua.translator.serving.access_log import EndpointLog, Size
from interlingua.translator.serving.accounting import Account
from interlingua.translator.serving.answer_headers import UPSTREAM_TIMING, add_request_id, server_timing
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.routing.route import Route

_MOST_MISSED = 4
"""After so many replies in a row that a plan could not use, the pipeline is quicker."""


class Forwarded(SentCall):
    """A ``PlanExecution``: a request with ``context``, NO_CONTEXT if it needs none, and its id
    ``identity``, if any, sent by ``plan`` on ``route``. ``request`` waits for the response; ``head`` is its
    head, ``client`` counts it too."""

    __slots__ = ("_begun", "_task", "client", "context", "head", "identity", "plan", "request", "route")

    def __init__(
        self,
        plan: ForwardPlan,
        request: PlannedRequest,
        head: Any,
        context: Context,
        route: Route | None,
        identity: bytes,
    ) -> None:
        # SentCall.__init__, inlined
        self.forward = plan.forward
        self.model = plan.model
        self.began = time.monotonic_ns()
        self.taken = False
        self._future = self._outcome = None
        self.plan = plan
        self.request: PlannedRequest | None = request
        self.head = head
        self.context = context
        self.route = route
        self.identity = identity
        self.client: Client | None = None
        self._begun: tuple[Any, str] | None = None

    def answer_begins(self, message: ArrivingMessage) -> Any:
        """See ``SentWaiter``."""
        if self.request is not None:
            self._begun = self.plan.begun(self, message)
        return None if self._begun is None else self.request

    def set_result(self, reply: Any) -> None:
        request = self.request
        response = None if request is None else self.plan.response(self, reply, self._begun)
        if request is None or response is None:
            self._end(reply)
            return
        self._outcome, self.request, self.handle = reply, None, None
        request.respond(response)

    def set_exception(self, fault: Exception) -> None:
        self._end(fault)

    def _end(self, outcome: Any) -> None:
        """The pipeline goes on from ``outcome``."""
        request = self.request
        super().set_result(outcome)
        if request is not None:
            self.leave()
            request.resume(self)

    def leave(self) -> None:
        """See ``protocols.plans``."""
        if self.request is not None:
            self.request = None
            self.plan.withdraw(self)

    async def serve(self, request: Any) -> Any:
        """See ``protocols.plans``."""
        request.context.sent = self
        if self.route is not None:
            request.context.route = self.route.number
        try:
            return await self.plan.serve(request)
        finally:
            self.close()

    def abandon(self, request: Any) -> None:
        """See ``protocols.plans``: the pipeline ends as soon as it waits for the reply."""
        self.leave()
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._serve_nobody(request))
        loop.call_soon(self._task.cancel)

    async def _serve_nobody(self, request: Any) -> None:
        """Serve ``request``, whose response nothing reads: the reply may have come already."""
        response = await self.serve(request)
        if response.rest is not None:
            response.rest.close()


class ForwardPlan:
    """The plan of requests that name ``opened``, a model and a version, for ``model``, which ``forward``
    reaches, with the headers that ``travels`` names. ``serve`` is the pipeline's. ``most`` is the longest
    response; one that is ``timed`` has ``Server-Timing``."""

    local = False

    __slots__ = (
        "_account",
        "_flow",
        "_most",
        "_processor",
        "_size",
        "_timed",
        "access",
        "context",
        "forward",
        "model",
        "opened",
        "serve",
        "target",
        "travels",
    )

    def __init__(
        self,
        processor: RequestProcessor,
        counted: tuple[Account, EndpointLog, float, bool],
        opened: tuple[str, str],
        model: str,
        serve: Callable[[Any], Awaitable[Any]],
        forward: UpstreamForward,
    ) -> None:
        self._processor = processor
        self._account, self.access, self._most, self._timed = counted
        self._size = forward.template.size
        self.travels = frozenset(forward.upstream.forwarding.names)
        self._flow = 0, model
        self.context = Context(server_id=processor.service.id)
        self.opened = opened
        self.model = model
        self.serve = serve
        self.forward = forward
        self.target = forward.target

    def execute(
        self,
        message: Buffer | ArrivingMessage,
        head: Any,
        context: Context,
        request: PlannedRequest,
        route: Route | None,
    ) -> Forwarded | None:
        """Send ``message`` of ``request``; None if the pipeline is to serve it."""
        account = self._account
        if type(message) is ArrivingMessage and not self.forward.lead:
            return None
        if not account.admit(self._size):
            return None
        template = self.forward.template
        identity = b"" if template.id is None else template.id_in(message)
        sent, client = Forwarded(self, request, head, context, route, identity), None
        if context.identity is not None:
            client = self._processor.clients.client(context.identity)
            if client.admit():  # the pipeline refuses it
                account.withdraw(self._size)
                return None
            sent.client = client
        try:
            begun = self.forward.begin(message, context, sent)
        except InferenceError:
            begun = False  # the pipeline raises it again
        if not begun:
            account.withdraw(self._size)
            if client is not None:
                client.withdraw()
            return None
        if route is not None:
            route.count(self.model)
        return sent

    def withdraw(self, sent: Forwarded) -> None:
        """The pipeline counts the request that was ``sent``."""
        self._account.withdraw(self._size)
        if sent.client is not None:
            sent.client.withdraw()

    def begun(self, sent: Forwarded, message: ArrivingMessage) -> tuple[Any, str] | None:
        """The caller's response that begins so and its version, if it passes as it is."""
        forward = self.forward
        arriving: Any = message
        if not forward.lead or message.size > self._most:
            return None
        try:
            found = forward.read(GrpcAnswer(arriving))  # which has no id
        except Exception:
            return None  # it is read again as a whole
        return found if type(found) is tuple else None

    def response(self, sent: Forwarded, reply: Any, begun: tuple[Any, str] | None) -> Any:
        """The caller's response, if the plan can use ``reply``, or as it has ``begun``; else None."""
        forward, received = self.forward, time.monotonic_ns()
        try:
            if not reply.plain:
                found = begun
            else:
                found = forward.read(reply, sent.identity) if sent.identity else forward.read(reply)
        except Exception:
            return None  # the pipeline raises it again
        if type(found) is not tuple:
            forward.missed += 1
            forward.unfit = forward.unfit or forward.missed == _MOST_MISSED
            return None
        forward.missed = 0
        response, version = found
        size = response.size
        if size > self._most:
            return None
        began, context, service = sent.began, sent.context, self._processor.service
        sent.member.end(True)
        number = next(service.numbers)
        if forward.decodes:
            ended, translated = time.monotonic_ns(), sent.translated
            stages = {
                "decode": translated - began,
                "upstream": received - translated,
                "encode": ended - received,
            }
            forward.counts.repeated(version, forward.batch_size, ended - translated, ended - received, ended)
        else:
            ended = received
            stages = {"upstream": received - began}
            forward.counts.repeated(version, forward.batch_size, received - began, 0, received)
        service.trends.count(ended - began, False)
        flow = self._flow if sent.route is None else (sent.route.number, self.model)
        self._account.succeed(size, flow, ended - began, stages)
        if sent.client is not None:
            sent.client.end()
            self._processor.clients.count(sent.client.name, None)
        if forward.numbered is not None:
            self.context.request_number = number
            response.headers = forward.numbered(response.headers, self.context)
        if self._timed:
            timing = (
                server_timing(stages) if forward.decodes else UPSTREAM_TIMING % (stages["upstream"] / 1e6)
            )
            response.headers = (*response.headers, ("Server-Timing", timing))
        if context is NO_CONTEXT:
            return response
        if self.access.log.every:
            self._record(sent, response, version, number, stages)
        return add_request_id(response, context.headers) if REQUEST_ID in context.headers else response

    def _record(
        self, sent: Forwarded, response: Any, version: str, number: int, stages: dict[str, int]
    ) -> None:
        """Add a request to the access log."""
        context, access, ended = sent.context, self.access, sent.began
        context.began, context.request_number, context.timings = sent.began, number, stages
        for stage, ns in stages.items():
            ended += ns
            context.ended[stage] = ended
        context.target, context.version, context.upstream = self.model, version, sent.member.url
        access.log.add(
            access.place,
            access.label.format(sent.head),
            context,
            access.outcome(response, None, Operation.INFER),
            Size(self._size, response.size),
            (Operation.INFER, *self.opened),
        )
