"""Finds the target of a request: by the first route that accepts it, else by the name of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interlingua.protocols.dialect import Binding
from interlingua.runtime.peers.handed_over import HandedOver
from interlingua.runtime.peers.peers import Peers
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.target import Target
from interlingua.schemas import ModelRef
from interlingua.translator.serving.routing.conditions import RouteKey
from interlingua.translator.serving.routing.route import Route

_KEPT_NAMES = 1024


class Router:
    """Models by the names that clients use, and ``routes`` before them. A plain mapping is a fixed catalog.
    ``upstream_bindings`` has the binding of every
    upstream model. ``peers`` share the sequences of local models."""

    def __init__(
        self,
        models: KnownModels | Mapping[str, Target],
        routes: Sequence[Route] = (),
        upstream_bindings: Mapping[str, Binding] | None = None,
        peers: Peers | HandedOver | None = None,
    ) -> None:
        self.catalog = models if isinstance(models, KnownModels) else ModelCatalog(models)
        self.models = self.catalog.models
        self.peers = peers
        self.routes = tuple(routes)
        for number, route in enumerate(self.routes, 1):
            route.number = number
        self.upstream_bindings: Mapping[str, Binding] = upstream_bindings or {}
        self._stated = {route.when.literal: route for route in reversed(self.routes) if route.when.literal}
        self._joined: dict[ModelRef, Target] = {}
        self._named: dict[str, tuple[Route, ...]] = {}

    @property
    def starting(self) -> str:
        """Why no owner of a sequence has been certain yet; empty if they were."""
        return "" if self.peers is None else self.peers.starting

    def candidates(self, key: RouteKey) -> list[Route]:
        """The routes that match ``key``, up to the first without conditions on parameters. If none accepts
        the request, the model that it names answers."""
        found = []
        for route in self._naming(key.model):
            if route.when.admits(key):
                found.append(route)
                if not route.when.parameters:
                    break
        return found

    def route(self, key: RouteKey) -> Route | None:
        """The route for an operation other than inference, which has no parameters."""
        named = self._naming(key.model)
        return next((route for route in named if not route.when.parameters and route.when.admits(key)), None)

    def _naming(self, model: str) -> tuple[Route, ...]:
        found = self._named.get(model)
        if found is None:
            # clients choose the names
            if len(self._named) >= _KEPT_NAMES:
                self._named.clear()
            found = self._named[model] = tuple(route for route in self.routes if route.when.names(model))
        return found

    def target(self, name: str, version: str = "") -> Target:
        """The model ``name``. Raises NOT_FOUND with Triton's text, which clients match on."""
        target = self.models.get(name)
        if target is None:
            raise self.catalog.missing(name, version)
        return target

    async def joined(self, text: str) -> ModelRef:
        """The model in ``text``, perhaps with a version after a dash: the literal name of a route, or what
        :meth:`ModelCatalog.joined` finds. Raises as that."""
        if text in self._stated:
            return ModelRef(text)
        for name, route in self._stated.items():
            if not text.startswith(f"{name}-"):
                continue
            named = ModelRef(name, text[len(name) + 1 :])
            lead = self.models.get(route.lead(self.models))
            # cached, or every request would query the upstream
            if lead is not None and self._joined.get(named) is lead:
                return named
            if lead is not None and named.version in (await route.view(lead, name).metadata()).versions:
                self._joined[named] = lead
                return named
        return await self.catalog.joined(text)
