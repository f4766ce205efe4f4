"""Decides which target answers a request, by the model's name and the routes of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from runtime.target import Target
from schemas import ErrorCode, InferenceError


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
    of that name answers."""

    def __init__(self, models: Mapping[str, Target], routes: Sequence[Route] = ()) -> None:
        self.models = models
        self._routes = routes

    def find(self, model: str, dialect: str, listener: str) -> Target | None:
        """The target that ``model`` leads to, None where there is none."""
        return self.models.get(self._name(model, dialect, listener))

    def resolve(self, model: str, dialect: str, listener: str) -> Target:
        """The target for ``model``. Raises NOT_FOUND in the words that clients of Triton match on."""
        name = self._name(model, dialect, listener)
        target = self.models.get(name)
        if target is None:
            raise InferenceError(
                ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found", origin=name
            )
        return target

    def _name(self, model: str, dialect: str, listener: str) -> str:
        for route in self._routes:
            if route.matches(model, dialect, listener):
                return route.to
        return model
