"""A route: which requests it accepts, which model gets them, and when the fallback gets them instead.

Contract: a request that may have begun never goes to another model. All requests of a sequence go to one
model: the one that its id selects, or the fallback if that one has rejected its start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from interlingua.protocols.dialect import Binding
from interlingua.runtime.target import Target
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    Readiness,
    Sequence,
    Signature,
)
from interlingua.translator.serving.observation import Observer
from interlingua.translator.serving.routing.conditions import Conditions, RouteKey
from interlingua.translator.serving.routing.datatypes import HERE, Side, refuse_changes, widened
from interlingua.translator.serving.routing.names import Names, View
from interlingua.translator.serving.routing.split import Split

Datatypes = Literal["", "strict", "widen"]

_TURNED_AWAY = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED})

_MOVED = 1 << 16
"""How many sequences at the fallback are remembered."""


@dataclass(slots=True)
class RouteCounts:
    """The requests of a route, whatever their outcome: ``parts`` by the model that they were meant for,
    ``fallbacks`` those that went to the fallback instead."""

    requests: int = 0
    fallbacks: int = 0
    parts: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Route:
    """Requests for which the conditions ``when`` hold go ``to`` a model, or to several by weight, in its
    ``names``; to the model ``fallback`` if that one rejects them.

    In a split each sequence stays at one model, and so do requests with the same value of the header
    ``sticky``. ``number`` is that in the configuration,
    from 1. ``timeout_secs`` limits the time of a request. ``datatypes`` is the rule of
    :mod:`~interlingua.translator.serving.routing.datatypes`. ``mirror`` observes.
    """

    to: Split
    when: Conditions = field(default_factory=Conditions)
    names: Names = field(default_factory=Names)
    sticky: str = ""
    fallback: str = ""
    timeout_secs: float | None = None
    datatypes: Datatypes = ""
    mirror: Observer | None = None
    counts: RouteCounts = field(default_factory=RouteCounts)
    number: int = 0

    def __post_init__(self) -> None:
        self.sticky = self.sticky.lower()
        self.counts.parts = dict.fromkeys(self.to.used, 0)
        # every model that a request may go to, the fallback last
        self.models = tuple(dict.fromkeys(filter(None, (*self.to.used, self.fallback))))
        self._moved: dict[int | str, None] = {}
        # the model whose signature decodes requests until their own model is known
        self.reader = ""

    @property
    def passes_through(self) -> bool:
        """Whether its requests may go to an upstream undecoded."""
        return self.names.plain and not (self.when.parameters or self.datatypes)

    def bound(self, context: Context) -> None:
        if self.timeout_secs is not None:
            limit = time.monotonic() + self.timeout_secs
            context.deadline = limit if context.deadline is None else min(limit, context.deadline)

    # --- which model gets a request

    def unkeyed(self, key: RouteKey) -> str:
        value = key.headers.get(self.sticky) if self.sticky else None
        return self.to.keyed(value) if value else self.to.next()

    def withdraw(self, headers: Mapping[str, str]) -> None:
        """The model that :meth:`unkeyed` has returned for a request with ``headers`` is to be drawn again."""
        if not (self.sticky and headers.get(self.sticky)):
            self.to.undo()

    def settled(self, key: RouteKey, sequence: Sequence | None, drawn: str = "") -> str:
        """Count a request and return its model: the fallback for a sequence that has started there. ``drawn``
        is an earlier result of :meth:`unkeyed`."""
        if sequence is None:
            model = drawn or self.unkeyed(key)
        else:
            model = self.to.keyed(str(sequence.id))
            if sequence.start:
                self._moved.pop(sequence.id, None)
            elif sequence.id in self._moved:
                self.count(model)
                self._fall_back(sequence)
                return self.fallback
        self.count(model)
        return model

    def count(self, model: str) -> None:
        self.counts.requests += 1
        self.counts.parts[model] += 1

    def falls_back(
        self, model: str, error: InferenceError, sequence: Sequence | None, *, unread: bool
    ) -> bool:
        """Whether a request that ``model`` answered with ``error`` goes to the fallback, which counts it.
        ``unread``: the model has received only a query for its signature."""
        if not self.fallback or model == self.fallback or error.begun:
            return False
        if sequence is not None and not sequence.start:
            return False
        unavailable = error.model_not_found or (error.code in _TURNED_AWAY and (error.retryable or unread))
        if unavailable:
            self._fall_back(sequence)
        return unavailable

    def _fall_back(self, sequence: Sequence | None) -> None:
        self.counts.fallbacks += 1
        if sequence is None:
            return
        if sequence.end:
            self._moved.pop(sequence.id, None)
        else:
            # from its start on; a running one keeps its place
            self._moved.setdefault(sequence.id)
            if len(self._moved) > _MOVED:
                del self._moved[next(iter(self._moved))]

    # --- what happens on the way

    def convert(
        self, request: InferRequest, signature: Signature, caller: Binding, upstream: Binding | None
    ) -> None:
        """Apply the route's rule about datatypes to ``request`` on its way from ``caller`` to a model of
        ``upstream``, None for a local model. Raises UNREPRESENTABLE."""
        if self.datatypes == "strict":
            callee = HERE if upstream is None else Side.of(upstream)
            refuse_changes(request, signature, Side.of(caller), callee)
        elif self.datatypes == "widen":
            request.inputs = widened(request.inputs, signature)

    async def timed_signature(self, target: Target, context: Context, version: str) -> Signature:
        """The signature of ``target``, before the deadline. Raises as it, and DEADLINE_EXCEEDED."""
        if self.timeout_secs is None or context.deadline is None:
            return await target.signature(version)
        try:
            async with asyncio.timeout(context.deadline - time.monotonic()):
                return await target.signature(version)
        except TimeoutError:
            raise InferenceError(
                ErrorCode.DEADLINE_EXCEEDED, f"model '{target.name}' did not answer before the deadline"
            ) from None

    # --- other operations

    def view(self, target: Target, model: str) -> Target:
        return View(target, self.names, model)

    def lead(self, models: Mapping[str, Target]) -> str:
        """The model that represents the route: the first that is served, else the first."""
        return next((name for name in self.models if name in models), self.models[0])

    async def ready(self, models: Mapping[str, Target], version: str) -> Readiness | None:
        """Whether a model is ready; None if none is served."""
        first: Readiness | None = None
        for name in self.models:
            target = models.get(name)
            if target is not None:
                state = await target.ready(self.names.version(version))
                if state.ready:
                    return state
                first = first or state
        return first
