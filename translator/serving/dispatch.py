"""From an inference message to a plan: the route, the target, the decoded request, the form of the reply.

``processor`` carries out the plan. If its target rejects the request, it gets the plan of the fallback here.
A request is decoded once for all targets with the same signature.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from interlingua.protocols.dialect import Binding, Opened
from interlingua.runtime.peers.handed_over import HandedOver
from interlingua.runtime.peers.peers import Peers
from interlingua.runtime.shared_memory import Placement, is_used
from interlingua.runtime.target import PassedMessage, Target
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    Operation,
    Signature,
)
from interlingua.schemas.offload import DecodingLimits, OffloadRequired
from interlingua.translator.serving.observation import Observer, choosing
from interlingua.translator.serving.passed_copies import PassedCopies, PassedCopy
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import RouteKey
from interlingua.translator.serving.routing.route import Route

_UNFIT = frozenset({ErrorCode.INVALID_TENSOR, ErrorCode.UNREPRESENTABLE})
"""The errors of a request that does not fit a signature."""

Place = Callable[[InferRequest, Context], Placement]
"""Resolves the inputs of a request in shared memory; returns the placement of its outputs."""


class Decoded(NamedTuple):
    """A message decoded with ``signature``; ``placement`` is that of outputs in shared memory."""

    signature: Signature
    request: InferRequest
    form: Any
    placement: Placement | None


class DispatchPlan(NamedTuple):
    """How to answer a request: send ``request`` to ``target``, the model ``model``, and encode the response
    by ``form``. ``route`` is None if the caller names the model itself; ``mirror`` observes for the route."""

    route: Route | None
    model: str
    target: Target
    signature: Signature
    request: InferRequest
    form: Any
    placement: Placement | None
    mirror: Observer | None


@dataclass(slots=True, eq=False)
class Dispatch:
    """The message ``opened``, received over ``binding``; ``router`` finds its targets by its ``key``, first
    by the routes ``candidates``. Every method raises ``InferenceError``.

    ``place`` is called for requests that use shared memory, ``limits`` are on decoding. ``parameters`` are
    added to those of the request. ``forwarded``: a peer has chosen the model, and this daemon as the owner of
    the sequence.
    """

    router: Router
    opened: Opened[Any]
    binding: Binding
    key: RouteKey
    candidates: Sequence[Route]
    context: Context
    place: Place
    limits: DecodingLimits
    parameters: Mapping[str, str] | None = None
    forwarded: bool = False
    _decoded: Decoded | None = None
    _copy: PassedCopy | None = None
    # from pass_through to plan: the model that a split has drawn, the route that has fallen back
    _drawn: str = ""
    _fallen_back: Route | None = None

    async def split_version(self) -> None:
        """Split the text that names the model and perhaps a version."""
        router, key = self.router, self.key
        named = await router.joined(key.model)
        key.model, key.version = named.name, named.version
        self.candidates = router.candidates(key) if router.routes else ()

    async def pass_through(self, observers: tuple[Observer, ...], copies: PassedCopies) -> Any:
        """The answer, in the caller's form, if the target takes the message undecoded; else None. A copy for
        those of ``observers`` that choose the request goes to ``copies``."""
        route = self.candidates[0] if self.candidates else None
        model = self.key.model
        if route is not None:
            if not route.passes_through:
                return None
            model = self._draw(route)
            if route.mirror is not None:
                observers = (*observers, route.mirror)
        target = self.router.models.get(model)
        passthrough = self.opened.action.passthrough
        if target is None or passthrough is None or target.passthrough is not passthrough:
            return None
        self.context.target, self.context.route = model, 0 if route is None else route.number
        observe = None
        if observers:
            if not passthrough.observable:
                return None
            observe = partial(self._observe, observers, target)
        key = self.key
        try:
            answer = await target.pass_through(self.opened, key.model, key.version, self.context, observe)
        except BaseException as error:
            if route is not None and await self._is_decoded_after(route, error):
                return None
            if self._copy is not None:
                copies.add(self._copy, error)
            raise
        if answer is not None:
            if route is not None:
                route.count(model)
            if self._copy is not None:
                copies.add(self._copy)
        return answer

    async def pass_stream(self) -> AsyncGenerator[tuple[Any, bool], None]:
        """The answers, in the caller's form, and whether each is the last, if the target takes the streamed
        message undecoded; else nothing."""
        route = self.candidates[0] if self.candidates else None
        model = self.key.model
        if route is not None:
            if not route.passes_through or route.mirror is not None:
                return
            model = self._draw(route)
        target = self.router.models.get(model)
        passthrough = self.opened.action.stream_passthrough
        if target is None or target.stream_passthrough is not passthrough:
            return
        self.context.target, self.context.route = model, 0 if route is None else route.number
        key, answered = self.key, False
        stream = target.pass_stream(self.opened, key.model, key.version, self.context)
        try:
            async with aclosing(stream) as answers:
                async for answer in answers:
                    if route is not None and not answered:
                        route.count(model)
                    answered = True
                    yield answer
        except InferenceError as error:
            if answered or route is None or not await self._is_decoded_after(route, error):
                raise

    def _draw(self, route: Route) -> str:
        """The model of ``route`` that gets the message."""
        route.bound(self.context)
        self._drawn = route.unkeyed(self.key)
        return self._drawn

    def _observe(self, observers: tuple[Observer, ...], target: Target) -> PassedMessage | None:
        """Begin the copy of the message for those of ``observers`` that choose it; None without any."""
        key = self.key
        chosen = choosing(observers, InferRequest(key.model, (), version=key.version, context=self.context))
        if not chosen:
            return None
        self._copy = PassedCopy(chosen, target.name, key.dialect, key.listener, self._decode)
        return self._copy.passed

    async def _is_decoded_after(self, route: Route, error: BaseException) -> bool:
        """Whether the message that could not pass by ``route`` is decoded: for its fallback, or because it is
        of a sequence, which does not pass, so that the target has returned its signature alone."""
        if not isinstance(error, InferenceError):
            return False
        if route.fallback and await self._is_of_a_sequence(route):
            return True
        route.count(self._drawn)
        if route.falls_back(self._drawn, error, None, unread=False):
            self._fallen_back = route
            return True
        return False

    async def plan(self) -> DispatchPlan:
        """The first plan: by the first route that accepts the request, else for the model that it names."""
        if self._fallen_back is not None:
            return await self._plan(self._fallen_back, self._fallen_back.fallback)
        for route in self.candidates:
            if not route.when.parameters or await self._is_accepted(route):
                return await self._plan_by(route)
        return await self._plan(None, self.key.model)

    async def fallback(self, plan: DispatchPlan, error: InferenceError) -> DispatchPlan:
        """The plan after ``plan``, whose target has answered with ``error``; raises ``error`` if no other
        target may get the request."""
        route = plan.route
        if route is not None and route.falls_back(plan.model, error, plan.request.sequence, unread=False):
            return await self._plan(route, route.fallback)
        if await self._is_outdated(plan, error):
            return await self._plan(route, plan.model)
        if error.code is ErrorCode.UNREPRESENTABLE and error.origin:
            # the message names what the upstream's dialect cannot carry
            error.message += f" (requested in dialect '{self.key.dialect}')"
        raise error

    async def _is_outdated(self, plan: DispatchPlan, error: InferenceError) -> bool:
        """Whether an upstream has refused the request with ``error`` because the signature of ``plan`` is not
        its model's any more. A request of a sequence is not sent again."""
        if error.code is not ErrorCode.INVALID_TENSOR or not error.origin or plan.request.sequence:
            return False
        version = self.key.version
        with suppress(InferenceError):
            await plan.target.renew_signature(version, self.context.began)
            return await plan.target.signature(version) != plan.signature
        return False

    # --- routes

    async def _is_accepted(self, route: Route) -> bool:
        """Whether ``route``, with its conditions on parameters, accepts the request. The request is decoded
        for a model of the route, or for another candidate if no signature of those is available."""
        others = [model for each in self.candidates if each is not route for model in each.models]
        try:
            decoded = await self._decoded_for_any(route, route.models)
            if decoded is None:
                decoded = await self._decoded_for_any(route, dict.fromkeys((*others, self.key.model)))
        except InferenceError:
            return False
        return decoded is not None and route.when.accepts(decoded.request)

    async def _is_of_a_sequence(self, route: Route) -> bool:
        try:
            decoded = await self._decoded_for_any(route, route.models)
        except InferenceError:
            return False
        return decoded is not None and decoded.request.sequence is not None

    async def _plan_by(self, route: Route) -> DispatchPlan:
        """The plan for the model that ``route`` chooses, or for its fallback if the model's signature is
        unavailable."""
        route.bound(self.context)
        sequence = None
        if len(route.models) > 1:
            # requests of one sequence go to one model
            decoded = await self._decoded_for_any(route, route.models)
            sequence = None if decoded is None else decoded.request.sequence
        model = route.settled(self.key, sequence, self._drawn)
        try:
            return await self._plan(route, model)
        except InferenceError as error:
            if not route.falls_back(model, error, sequence, unread=True):
                raise
        return await self._plan(route, route.fallback)

    async def _plan(self, route: Route | None, model: str) -> DispatchPlan:
        """The plan for ``model`` of ``route``. A request without a signature fails in the statistics of the
        model. An upstream may have replaced its model: a request that does not fit is decoded again with a
        renewed signature."""
        version, sent = self.key.version, self.context.sent
        if sent is not None and sent.translates:
            target = sent.forward.target
            model = sent.model  # by a route perhaps
        elif route is None:
            # Router.target, inlined
            router = self.router
            target = router.models.get(model) or router.target(model, version)
        else:
            target = self._target(route, model)
            self.context.route = route.number
        self.context.target, self.context.upstream = model, ""
        timed = None if route is None else partial(route.timed_signature, target, self.context)
        began = time.monotonic_ns()
        try:
            if sent is not None and sent.translates:
                signature = sent.forward.known.local  # with which it was sent
            else:
                signature = await (timed or target.signature)(version)
        except (InferenceError, asyncio.CancelledError) as end:
            target.count_undecoded(end, version, began, self.context)
            raise
        try:
            try:
                decoded = self._decode(signature)
            except OffloadRequired as required:
                decoded = await self._offload(required, signature)
        except InferenceError as error:
            if error.code not in _UNFIT:
                raise
            await target.renew_signature(version, self.context.began)
            renewed = await (timed or target.signature)(version)
            if renewed == signature:
                raise
            decoded = await self._decoded_with(renewed)
        if self.opened.count is not None:
            self.opened.count()
        peers = self.router.peers
        if peers is not None and decoded.request.sequence is not None:
            target = self._owner(peers, route, model, target, decoded.request)
        if route is not None and route.datatypes:
            upstream = self.router.upstream_bindings.get(model)
            route.convert(decoded.request, decoded.signature, self.binding, upstream)
        return DispatchPlan(route, model, target, *decoded, None if route is None else route.mirror)

    def _target(self, route: Route, model: str) -> Target:
        return self._view(route, self.router.target(model, self.key.version))

    def _view(self, route: Route, target: Target) -> Target:
        return target if route.names.plain else route.view(target, self.key.model)

    def _owner(
        self,
        peers: Peers | HandedOver,
        route: Route | None,
        model: str,
        target: Target,
        request: InferRequest,
    ) -> Target:
        """``target``, or the same model at the owner of the sequence of ``request``. The servers of upstreams
        have the sequences of their models."""
        local = self.router.target(model, self.key.version)
        if local.upstream is not None:
            return target
        found = peers.target(local, request, self.forwarded)
        if found is local:
            return target
        return found if route is None else self._view(route, found)

    async def _signature(self, route: Route, model: str) -> Signature:
        return await route.timed_signature(self._target(route, model), self.context, self.key.version)

    # --- decoding

    async def _decoded_for_any(self, route: Route, models: Iterable[str]) -> Decoded | None:
        """The request decoded for one of ``models``; None without a signature."""
        signature = None
        if route.reader:
            with suppress(InferenceError):
                signature = await self._signature(route, route.reader)
        if signature is None:
            signature = await self._first_signature(route, models)
        return None if signature is None else await self._decoded_with(signature)

    async def _first_signature(self, route: Route, models: Iterable[str]) -> Signature | None:
        """The first signature of ``models`` to arrive. Later requests use the same model's."""
        tasks = {asyncio.ensure_future(self._signature(route, model)): model for model in models}
        waiting = set(tasks)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task, model in tasks.items():
                    if task in done:
                        with suppress(InferenceError):
                            signature = task.result()
                            route.reader = model if model in route.models else ""
                            return signature
        finally:
            for task in waiting:
                task.cancel()
            # retrieves the other failures
            await asyncio.gather(*tasks, return_exceptions=True)
        return None

    async def _decoded_with(self, signature: Signature) -> Decoded:
        """:meth:`_decode`, in a thread if that is required."""
        try:
            return self._decode(signature)
        except OffloadRequired as required:
            return await self._offload(required, signature)

    async def _offload(self, required: OffloadRequired, signature: Signature) -> Decoded:
        return await required.offloader.run(self.limits, self._decode, signature)

    def _decode(self, signature: Signature) -> Decoded:
        decoded = self._decoded
        if decoded is not None and (decoded.signature is signature or decoded.signature == signature):
            return decoded
        opened, context = self.opened, self.context
        action = opened.action
        if action.decode is None:
            raise TypeError(f"{action.operation.value} has no decoder")
        began = time.monotonic_ns()
        request, form = action.decode(opened, signature)
        request.model, request.context = self.key.model, context
        if action.operation is Operation.INFER_STREAM and not action.collects:
            request.answers = "many"
        if self.parameters:
            request.parameters = {**request.parameters, **self.parameters}
        if self.binding.capability.joined_versions:
            request.version = self.key.version
        placement = self.place(request, context) if is_used(request) else None
        # resolving inputs in shared memory counts as decoding
        context.ended["decode"] = ended = time.monotonic_ns()
        context.timings["decode"] = ended - began
        self._decoded = decoded = Decoded(signature, request, form, placement)
        return decoded
