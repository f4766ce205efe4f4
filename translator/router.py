"""Decides which target answers a request, by the model's name and the routes of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from runtime.catalog import ModelCatalog
from runtime.target import Target


@dataclass(frozen=True, slots=True)
class Route:
    """Where requests go that match: ``model`` is a glob, an empty ``dialect`` or ``listener`` matches
    all. ``to`` is the name of a model."""

    to: str
    model: str = "*"
    dialect: str = ""
    listener: str = ""

    def matches(self, model: str, dialect: str, listener: str) -> bool:
        """Whether a request for ``model`` in ``dialect`` on ``listener`` takes this route."""
        return (
            self.dialect in ("", dialect)
            and self.listener in ("", listener)
            and fnmatchcase(model, self.model)
        )


class Router:
    """Models by the names that clients use. The first route that matches wins; without one the model
    of that name answers. Models that never change may come as a plain mapping."""

    def __init__(self, models: ModelCatalog | Mapping[str, Target], routes: Sequence[Route] = ()) -> None:
        self.catalog = models if isinstance(models, ModelCatalog) else ModelCatalog(models)
        self.models = self.catalog.models
        self._routes = routes

    def name(self, model: str, dialect: str, listener: str) -> str:
        """The name of the model that ``model`` leads to, whether or not there is one."""
        for route in self._routes:
            if route.matches(model, dialect, listener):
                return route.to
        return model

    def resolve(self, model: str, dialect: str, listener: str, version: str = "") -> Target:
        """The target for ``model``. Raises NOT_FOUND, of ``version`` where one was asked, in the words that
        clients of Triton match on."""
        name = self.name(model, dialect, listener)
        target = self.models.get(name)
        if target is None:
            raise self.catalog.missing(name, version)
        return target
