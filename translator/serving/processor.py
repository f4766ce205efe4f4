"""The steps of an opened request, the same for every dialect and transport: route, decode, execute, encode.

``handler`` opens requests and sends the answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from interlingua.protocols.dialect import Binding, Opened
from interlingua.runtime.peers.peers import FORWARDED
from interlingua.runtime.shared_memory import Placement
from interlingua.schemas import (
    Context,
    Duration,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
)
from interlingua.schemas.bounded_text import listed
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits, OffloadRequired
from interlingua.translator.access.audit import recorded
from interlingua.translator.access.authorization import Authorization, Caller
from interlingua.translator.access.classes import CLASS_OF, PRIVILEGED, OperationClass
from interlingua.translator.access.clients import Clients
from interlingua.translator.serving.changes import change_of
from interlingua.translator.serving.dispatch import Dispatch, DispatchPlan
from interlingua.translator.serving.header_parameters import HeaderParameters
from interlingua.translator.serving.interleave import StreamItem
from interlingua.translator.serving.observation import Observation
from interlingua.translator.serving.operations import (
    OPERATIONS,
    OperationRequest,
    Service,
)
from interlingua.translator.serving.routed_operations import by_route
from interlingua.translator.serving.routing.conditions import RouteKey

T = TypeVar("T")

_WATCH_SECS = 5.0
"""The interval between looks at a watched operation, if an upstream or a peer can change without an event."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RequestProcessor:
    """Carries out the opened requests of the handlers of ``listener``.

    Requests without a model name go to ``default_model``. Headers that ``header_parameters`` choose become
    parameters of inference requests. ``authorization`` permits operations to callers;
    ``restricts_inference``: it does so for inference too, which by default needs no check. ``limits`` are on
    the decoding of a message. ``clients`` counts the requests of those with an identity;
    ``authenticates``: requests may have credentials. ``serves_peers``: peers may forward requests to the
    listener.
    """

    service: Service
    listener: str
    default_model: str = ""
    header_parameters: HeaderParameters | None = None
    authorization: Authorization = field(default_factory=Authorization)
    limits: DecodingLimits = DEFAULT_LIMITS
    clients: Clients = field(default_factory=Clients)
    serves_peers: bool = False
    restricts_inference: bool = field(init=False)
    authenticates: bool = field(init=False)

    def __post_init__(self) -> None:
        self.authenticates = self.authorization.authenticator is not None
        self.restricts_inference = "inference" not in self.authorization.unrestricted

    def follow(self, successor: RequestProcessor) -> None:
        """Have the options of ``successor``, whose service and listener are the same."""
        self.default_model = successor.default_model
        self.header_parameters = successor.header_parameters
        self.authorization = successor.authorization
        self.restricts_inference = successor.restricts_inference
        self.authenticates = successor.authenticates
        self.serves_peers = successor.serves_peers
        self.service.epoch = object()

    async def perform(self, opened: Opened[Any], binding: Binding, context: Context) -> Any:
        """Carry out the operation of ``opened`` and encode the result. Raises ``InferenceError``."""
        action = opened.action
        if action.operation is not Operation.INFER:
            return await _within(context.deadline, self._operate(opened, binding, context))
        sent, failed = context.sent, True
        began = time.monotonic_ns() if sent is None else sent.began
        service, passthrough, answer = self.service, action.passthrough, None
        router = service.router
        joined = binding.capability.joined_versions
        # without any of these a message passes to the model that it names, if to any
        named = not (
            router.routes or service.observers or self.header_parameters or self.restricts_inference or joined
        )
        try:
            # targets themselves observe the deadline in the context
            if passthrough is not None and (named or sent is not None):
                model = opened.model or self.default_model
                target = router.models.get(model) if sent is None else sent.forward.target
                if target is not None and target.passthrough is passthrough:
                    context.target = model if sent is None else sent.model
                    answer = await target.pass_through(opened, model, opened.version, context)
            if answer is None:
                dispatch = self._dispatch(opened, binding, context)
                if joined:
                    await dispatch.split_version()
                if passthrough is not None and not (named or dispatch.parameters):
                    answer = await dispatch.pass_through(service.observers, service.copies)
                if answer is None:
                    if opened.arriving is not None:
                        await opened.arriving.collect()
                    answer = await self._answer(dispatch)
            failed = False
        finally:
            self.service.trends.count(time.monotonic_ns() - began, failed)
        return answer

    def may_pass(self, opened: Opened[Any], binding: Binding, context: Context) -> bool:
        """Whether an upstream may get the inference ``opened`` undecoded while it arrives, as far as known in
        advance. One that may go to a fallback is received first."""
        router, passthrough = self.service.router, opened.action.passthrough
        model = opened.model or self.default_model
        models: tuple[str, ...] = (model,)
        key = RouteKey(model, binding.dialect, self.listener, opened.version, context.headers)
        for route in router.candidates(key)[:1]:
            if not route.passes_through or route.fallback:
                return False
            models = route.models
        targets = [target for model in models if (target := router.models.get(model)) is not None]
        upstreams = [target.upstream for target in targets if target.passthrough is passthrough]
        return bool(upstreams) and all(upstream is not None and upstream.relays for upstream in upstreams)

    async def stream(
        self, opened: Opened[Any], binding: Binding, context: Context
    ) -> AsyncGenerator[StreamItem[Any], None]:
        """Every answer to an INFER_STREAM, and whether it is the last. Raises ``InferenceError`` before the
        first answer; encodes a later failure as an answer."""
        dispatch = self._dispatch(opened, binding, context)
        if binding.capability.joined_versions:
            await dispatch.split_version()
        passes = opened.action.stream_passthrough is not None
        if passes and not (self.service.observers or dispatch.parameters):
            passed = False
            async with aclosing(self._passed(dispatch)) as items:
                async for item in items:
                    passed = True
                    yield item
            if passed:
                return
        plan = await dispatch.plan()
        observed = plan.mirror is not None or self.service.observers
        observation = self._observe(dispatch, plan) if observed else None
        encode = opened.action.encode
        answered = False
        ended: BaseException | None = None
        began = time.monotonic_ns()
        try:
            async with aclosing(self._responses(dispatch, plan, observation)) as responses:
                async for plan, response in responses:
                    if plan.placement is not None and response.outputs:
                        plan.placement.fill(response)
                    response.model = plan.request.model
                    context.version = response.version
                    try:
                        answer = encode(plan.form, response)
                    except OffloadRequired as required:
                        answer = await required.offloader.run(self.limits, encode, plan.form, response)
                    if response.final and not (answered or response.ordered):
                        # an only answer would wait for those to earlier messages
                        yield None, False
                    answered = answered or answer is not None
                    yield answer, response.final
            return
        except BaseException as error:
            ended = error
            if not (answered and isinstance(error, Exception)):
                raise
            where = f"a stream of model '{plan.request.model}'"
            failure = error if isinstance(error, InferenceError) else unforeseen(where)
        finally:
            self.service.trends.count(time.monotonic_ns() - began, isinstance(ended, Exception))
            if observation is not None:
                observation.end(ended)
        context.failure = failure
        request = plan.request
        last = InferResponse(request.model, (), request.version, request.id, error=failure)
        yield encode(plan.form, last), True

    async def _passed(self, dispatch: Dispatch) -> AsyncGenerator[StreamItem[Any], None]:
        """The items of a message that passes through; nothing if it has to be decoded."""
        began = time.monotonic_ns()
        answered = failed = False
        try:
            async with aclosing(dispatch.pass_stream()) as answers:
                async for answer, last in answers:
                    if last and not answered:
                        # an only answer would wait for those to earlier messages
                        yield None, False
                    answered = True
                    yield answer, last
        except Exception:
            failed = answered = True
            raise
        finally:
            if answered:
                failed = failed or dispatch.context.failure is not None
                self.service.trends.count(time.monotonic_ns() - began, failed)

    async def watch(
        self, opened: Opened[Any], binding: Binding, context: Context
    ) -> AsyncGenerator[StreamItem[Any], None]:
        """The answer to a watched operation, now and after every change. Raises ``InferenceError``."""
        service, catalog = self.service, self.service.catalog
        eventful = catalog.reports_all_changes and service.router.peers is None
        sent, leaving = None, False
        while not leaving:
            # read before the answer, so that the last answer includes it
            leaving, count = service.draining or service.handed_over, catalog.changes.count
            # counted once as a request
            look = self._operate if sent is None else self._carry_out
            answer = await look(opened, binding, context)
            if answer != sent:
                yield answer, False
                sent = answer
            if not leaving:
                await catalog.changes.since(count, None if eventful else _WATCH_SECS)

    async def _answer(self, dispatch: Dispatch) -> Any:
        """The answer of the first plan whose target accepts the request."""
        plan = await dispatch.plan()
        observed = plan.mirror is not None or self.service.observers
        observation = self._observe(dispatch, plan) if observed else None
        try:
            while True:
                try:
                    response = await plan.target.infer(plan.request)
                    break
                except InferenceError as error:
                    plan = await dispatch.fallback(plan, error)
                if observation is not None:
                    observation.redirect(plan.target.name)
            if observation is not None:
                observation.on_response(response)
            answered = time.monotonic_ns()
            if plan.placement is not None:
                plan.placement.fill(response)
            # the caller may know the target by another name
            response.model = plan.request.model
            context = dispatch.context
            context.version = response.version  # that ran, whether or not its response can be encoded
            try:
                answer = dispatch.opened.action.encode(plan.form, response)
            except OffloadRequired as required:
                encode = dispatch.opened.action.encode
                answer = await required.offloader.run(self.limits, encode, plan.form, response)
            context.ended["encode"] = ended = time.monotonic_ns()
            context.timings["encode"] = ended - answered
        except BaseException as failure:
            if observation is not None:
                observation.end(failure)
            raise
        if observation is not None:
            observation.end()
        return answer

    async def _responses(
        self, dispatch: Dispatch, plan: DispatchPlan, observation: Observation | None
    ) -> AsyncGenerator[tuple[DispatchPlan, InferResponse], None]:
        """The responses of the first plan whose target accepts the request, as they arrive."""
        while True:
            responses = plan.target.stream(plan.request)
            answered = False
            try:
                async for response in responses:
                    answered = True
                    if observation is not None:
                        observation.on_response(response)
                    yield plan, response
                return
            except InferenceError as error:
                if answered:
                    raise
                plan = await dispatch.fallback(plan, error)
                if observation is not None:
                    observation.redirect(plan.target.name)
            finally:
                # closing cancels; an iterator that is not a generator has nothing to close
                if (close := getattr(responses, "aclose", None)) is not None:
                    await close()

    def _dispatch(self, opened: Opened[Any], binding: Binding, context: Context) -> Dispatch:
        translated = context.sent is not None and context.sent.translates
        if self.restricts_inference and not translated:
            self.authorization.admit("inference", context)
        router = self.service.router
        model = opened.model or self.default_model
        if not model:
            raise self._unnamed()
        key = RouteKey(model, binding.dialect, self.listener, opened.version, context.headers)
        chosen = None if translated else self.header_parameters
        parameters = None if chosen is None else chosen.of(context.headers)
        # the routes of the peer have chosen the model
        forwarded = self.serves_peers and FORWARDED in context.headers
        routed = router.routes and not (forwarded or translated)
        candidates = router.candidates(key) if routed else ()
        place, limits = self._place, self.limits
        return Dispatch(
            router, opened, binding, key, candidates, context, place, limits, parameters, forwarded
        )

    def _observe(self, dispatch: Dispatch, plan: DispatchPlan) -> Observation | None:
        """The observation of ``plan``, if an observer or the mirror of its route observes its request."""
        observers = self.service.observers
        if plan.mirror is not None:
            observers = (*observers, plan.mirror)
        streams = dispatch.opened.action.operation is Operation.INFER_STREAM
        return Observation.begin(
            observers,
            plan.request,
            dispatch.key.dialect,
            self.listener,
            plan.target.name,
            self.service.stream_budget if streams else None,
            plan.signature.max_batch_size,
        )

    def _place(self, request: InferRequest, context: Context) -> Placement:
        self.admit("shared_memory", context)
        return self.service.shared_memory.resolve(request)

    async def _operate(self, opened: Opened[Any], binding: Binding, context: Context) -> Any:
        began = time.monotonic_ns()
        answer = await self._carry_out(opened, binding, context)
        spent = time.monotonic_ns() - began
        self.service.counted.setdefault(opened.action.operation.value, Duration()).add(spent)
        context.timings["exec"] = spent
        context.ended["exec"] = began + spent
        return answer

    def _unnamed(self) -> InferenceError:
        return InferenceError(
            ErrorCode.NOT_FOUND,
            f"the request names no model and listener '{self.listener}' has no default_model",
        )

    async def _carry_out(self, opened: Opened[Any], binding: Binding, context: Context) -> Any:
        operation = opened.action.operation
        requested = CLASS_OF[operation]
        if requested in self.authorization.unrestricted:
            return await self._execute(opened, binding, context)
        if requested not in PRIVILEGED:
            self.authorization.admit(requested, context)
            return await self._execute(opened, binding, context)
        refusals = self.authorization.refusals
        about = opened.model
        if operation is Operation.MODELS_RELOAD:
            about = listed(model.name for model in opened.argument)
        with recorded(requested, operation.value, about, self.listener, binding.dialect, refusals) as entry:
            entry.caller = self.authorization.caller(context)
            entry.caller = self.admit(requested, context)
            entry.admitted = True
            return await self._execute(opened, binding, context)

    def admit(self, requested: OperationClass, context: Context) -> Caller:
        """See ``Authorization``; shared memory may be for no caller. Raises as that, and UNSUPPORTED."""
        if requested == "shared_memory":
            self._admit_to_shared_memory(context)
        return self.authorization.admit(requested, context)

    async def _execute(self, opened: Opened[Any], binding: Binding, context: Context) -> Any:
        operation = opened.action.operation
        offer = OPERATIONS.get(operation)
        if offer is None:
            raise InferenceError(ErrorCode.UNSUPPORTED, f"this server does not offer {operation.value}")
        model = opened.model
        if offer.of_a_model:
            model = model or self.default_model
            if not model and operation is not Operation.MODEL_READY:  # a probe gets a negative answer
                raise self._unnamed()
        router = self.service.router
        route = router.route(RouteKey(model, binding.dialect, self.listener, opened.version, context.headers))
        request = OperationRequest(
            self.service,
            model,
            opened.version,
            model,
            router.models.get(model),
            opened.argument,
            self.default_model,
            dialect=binding.dialect,
        )
        if route is None:
            result = await offer.perform(request)
        else:
            route.bound(context)
            result = await _within(context.deadline, by_route(offer, request, route))
        if self.service.share is not None and (change := change_of(operation, request)) is not None:
            await self.service.share(change)
        return opened.action.encode(opened, result)

    def _admit_to_shared_memory(self, context: Context) -> None:
        allowed = self.service.shared_memory_for
        if allowed == "none":
            raise InferenceError(ErrorCode.UNSUPPORTED, "this server does not allow shared memory")
        if allowed == "local" and not self.authorization.is_local(context):
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                "this server allows shared memory to clients on its own machine alone, over a loopback "
                "address or a unix socket",
            )


def unforeseen(where: str) -> InferenceError:
    """An internal error without details for the caller; the log gets the traceback."""
    _log.exception("unexpected error", extra={"facts": {"request": where}})
    return InferenceError(ErrorCode.INTERNAL, "internal error; the server's log has the details")


async def _within(deadline: float | None, work: Awaitable[T]) -> T:
    """Await ``work`` until ``deadline`` (``time.monotonic()``) at most."""
    if deadline is None:
        return await work
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await work
    except TimeoutError as timeout:
        raise InferenceError(
            ErrorCode.DEADLINE_EXCEEDED, "the deadline passed before the answer was ready"
        ) from timeout
