"""The plans of one handler: finds that of a request, and learns it from one that the pipeline has answered.

A plan depends on what a codec has read of the head (``NotedHeaders``) and of the message (``Template``), and
on the target of the request. Everything else is looked at with every request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

from interlingua.protocols.dialect import Binding, Endpoint, Opened
from interlingua.protocols.noted_headers import NotedHeaders
from interlingua.protocols.plans import PlannedRequest
from interlingua.protocols.templates import is_id
from interlingua.protocols.wire import NO_CONTEXT, ArrivingMessage, Buffer, GrpcRequest, HttpRequest
from interlingua.runtime.upstream.forward import ReceivedMessage
from interlingua.runtime.upstream.forwarding import TRAVELS
from interlingua.schemas import CancelToken, Context
from interlingua.translator.serving.access_log import EndpointLog
from interlingua.translator.serving.accounting import Account
from interlingua.translator.serving.in_flight import AnswerLimit
from interlingua.translator.serving.plans.filters import Filter, filters_of
from interlingua.translator.serving.plans.forward import ForwardPlan
from interlingua.translator.serving.plans.local import LocalPlan
from interlingua.translator.serving.plans.readers import CodecReader, local_readers
from interlingua.translator.serving.plans.templates import HeadKind, HeadKinds, Template
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.routing.conditions import RouteKey
from interlingua.translator.serving.routing.route import Route

_MOST_NAMES = 32
"""How many headers decide about plans. A request with more of them has none."""

_LONGEST_VALUE = 1 << 13
"""The size of all that is kept of a head. A request with more has no plan."""

Counted = tuple[Account, EndpointLog, AnswerLimit, bool]


@dataclass(frozen=True, slots=True)
class HeadForm:
    """Where a transport has the parts of a head: ``place`` is what chooses the endpoint, with whatever else
    precedes the headers."""

    place: Callable[[Any], Hashable]
    headers: Callable[[Any], Mapping[str, str]]


class PlanCache:
    """See ``protocols.plans.Plans``. ``form`` is that of the heads, ``serve`` the pipeline's."""

    def __init__(
        self,
        processor: RequestProcessor,
        form: HeadForm,
        serve: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self._processor = processor
        self._service = processor.service
        self._form = form
        self._serve = serve
        self._id = self._service.id
        self._names: tuple[str, ...] = ()
        self._heads = object()  # another one once heads that know their kinds have to look again
        self._kinds = HeadKinds()
        self._epoch: object = None
        self._stopped = False
        self._filters: tuple[Filter, ...] = ()

    def execute(
        self, head: Any, message: Buffer | ArrivingMessage, request: PlannedRequest, answerable: bool
    ) -> Any:
        """See ``Plans``."""
        cached, service = head.plan_key, self._service
        if cached is None or cached[0] is not self._heads:
            kind = self._kinds.get(self._key(head))
            if kind is None:
                return None
            travels = not TRAVELS.isdisjoint(self._form.headers(head))
            cached = head.plan_key = self._heads, kind, travels
        _, kind, travels = cached
        if service.epoch is not self._epoch:
            self._begin_epoch()
        if self._stopped or cached[0] is not self._heads:
            return None
        kind.used, template = True, None
        for each in kind.sizes.get(len(message), ()):
            if type(message) is bytes:
                for start, _, segment in each.segments:
                    if not message.startswith(segment, start):
                        break
                else:
                    if each.id is None or is_id(message, *each.id):
                        template = each
                        break
            elif each.fits(message):
                template = each
                if isinstance(message, ArrivingMessage):
                    message.example = each.message.example
                break
        else:
            if type(message) is not ArrivingMessage and not kind.learns():
                template = kind.decoded
        if template is None:
            head.plan_key = None  # another kind may have its place by now
            return None
        router, route, model = service.router, None, template.model
        if template.default and self._processor.default_model != model:
            return None
        if router.routes:
            route, drawn = self._drawn(self._form.headers(head), template)
            if drawn is None:
                kind.learns()
                return None
            model = drawn
        plan, found = template.plans.get(router.models.get(model)), None
        if plan is not None and not (plan.local and (not answerable or plan.passes_by())):
            context, passes = NO_CONTEXT, True
            if (
                travels
                or self._filters
                or plan.local
                or request.has_context
                or plan.access.log.every
                or (plan.travels and not plan.travels.isdisjoint(self._form.headers(head)))
            ):
                context = request.begun_context()
                for begin in self._filters:
                    if not begin(context, template.model):
                        passes = False
                        break
            if passes:
                found = plan.execute(message, head, context, request, route)
        if found is None:
            kind.learns()
            if route is not None:
                route.withdraw(self._form.headers(head))  # the pipeline draws again
        return found

    def _begin_epoch(self) -> None:
        """Something of the service has changed. Plans go on, unless its id has changed, which is in
        responses. There are none with observers, which get decoded requests."""
        service = self._service
        self._epoch, self._filters = service.epoch, filters_of(self._processor)
        self._stopped = bool(service.observers) or not service.plans
        if service.id != self._id:
            self._id, self._heads = service.id, object()
            self._kinds.clear()

    def _drawn(self, headers: Mapping[str, str], template: Template) -> tuple[Route | None, str | None]:
        """The route of a request with ``headers``, if there is one, and the model; None if the pipeline is to
        choose it: there is more to do, or a model without a plan."""
        router, listener = self._service.router, self._processor.listener
        key = RouteKey(template.model, template.dialect, listener, template.version, headers)
        candidates = router.candidates(key)
        if not candidates:
            return None, template.model
        route = candidates[0]
        if not route.passes_through or route.fallback or route.mirror is not None:
            return None, None
        if route.timeout_secs is not None:
            return None, None
        for name in route.to.used:
            if router.models.get(name) not in template.plans:
                return None, None
        return route, route.unkeyed(key)

    def _key(self, head: Any) -> Hashable:
        return self._form.place(head), tuple(map(self._form.headers(head).get, self._names))

    # --- learning

    def answered(
        self, request: Any, endpoint: Endpoint, binding: Binding, opened: Opened[Any], counted: Counted
    ) -> None:
        """The pipeline has answered ``request``, an inference that ``endpoint`` has ``opened``."""
        key = self._key(request)
        kind = self._kinds.get(key)
        if kind is None:
            kind = HeadKind()
            self._kinds.put(key, kind)
        if self._stopped or not kind.due:
            return
        kind.due = False
        noted = NotedHeaders(self._form.headers(request))
        try:
            self._learn(kind, request, endpoint, binding, opened, counted, noted)
        except Exception:
            return  # what the pipeline refuses has no plan
        if noted.all or len(noted.names) > _MOST_NAMES:
            kind.clear()
            return
        more = [name for name in noted.names if name not in self._names]
        if more:
            if len(self._names) + len(more) > _MOST_NAMES:
                return
            self._names, self._heads = (*self._names, *more), object()
            self._kinds.clear()
            self._kinds.put(self._key(request), kind)

    def _learn(
        self,
        kind: HeadKind,
        request: Any,
        endpoint: Any,
        binding: Binding,
        opened: Opened[Any],
        counted: Counted,
        noted: NotedHeaders,
    ) -> None:
        processor, service, own = self._processor, self._service, request.context
        model = own.target
        target = service.router.models.get(model)
        stated = opened.model or processor.default_model
        if target is None or opened.action.decode is None:
            return
        if binding.capability.joined_versions and stated != model:
            return
        context = Context(None, CancelToken(), "", "", own.peer, noted, service.id)
        http = isinstance(request, HttpRequest)
        headers = "headers" if http else "metadata" if isinstance(request, GrpcRequest) else ""
        field = "body" if http else "message"
        message, bare = request.body if http else request.message, request

        def like(data: Buffer, context: Context) -> Any:
            changes: dict[str, Any] = {headers: context.headers} if headers else {}
            return replace(bare, context=context, **{field: data}, **changes)

        bare = like(b"", context)  # a plan keeps no message

        def open_as(data: Buffer, context: Context) -> Opened[Any]:
            found: Opened[Any] = endpoint.open(like(data, context))
            return found

        def open_like(data: Buffer) -> Opened[Any]:
            return open_as(data, context)

        stated_as = stated, not opened.model, opened.version, binding.dialect
        if target.upstream is None:
            most = request.max_body_bytes if http and request.max_body_bytes is not None else inf
            opened = open_as(message, context)
            by_codec = partial(CodecReader, endpoint, like(b"", context), field, headers)
            place = opened.model, opened.version
            for reader in local_readers(message, opened, target, open_as, by_codec, context):
                made = LocalPlan(
                    processor,
                    endpoint,
                    *counted,
                    reader,
                    place,
                    opened.action.numbered,
                    stated,
                    model,
                    target,
                    most,
                )
                kind.template(message, reader.template, *stated_as).add(made)
            return
        received = ReceivedMessage(message, open_like, stated, opened.version, context)
        forward = target.forward(received)
        if forward is None:
            return
        account, access, limit, timed = counted
        place = opened.model, opened.version
        plan = ForwardPlan(
            processor, (account, access, limit.most, timed), place, model, self._serve, forward
        )
        kind.template(message, forward.template, *stated_as).add(plan)
