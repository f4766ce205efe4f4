"""Which requests take a route: conditions on their key and on their parameters.

Texts are globs with ``*``, ``?`` and ``[ab]``. Case matters, except in names of headers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from typing import Any

from interlingua.schemas import InferRequest
from interlingua.schemas.messages import Parameter

_WILD = frozenset("*?[")


@dataclass(slots=True)
class RouteKey:
    """The facts that route a request before it is decoded. An empty ``version`` is none; names in ``headers``
    are in lower case."""

    model: str
    dialect: str
    listener: str
    version: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Conditions:
    """All of them must hold. An empty ``dialect`` or ``listener`` is any, as is the ``version`` None; the
    version ``""`` matches requests without one."""

    model: str = "*"
    dialect: str = ""
    listener: str = ""
    version: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def names(self, model: str) -> bool:
        return self._model(model)

    def admits(self, key: RouteKey) -> bool:
        return (
            self.dialect in ("", key.dialect)
            and self.listener in ("", key.listener)
            and (self._version is None or self._version(key.version))
            and all(_holds(matches, key.headers.get(name)) for name, matches in self._headers)
        )

    def accepts(self, request: InferRequest) -> bool:
        """Whether the request has the parameters. Numbers of different types are not equal."""
        return all(_holds(matches, request.parameters.get(name)) for name, matches in self._parameters)

    @property
    def stated(self) -> Mapping[str, Any]:
        """The conditions that restrict anything, by name."""
        return {
            name: value
            for name in ("model", "dialect", "listener", "version", "headers", "parameters")
            if (value := getattr(self, name)) or (name == "version" and value == "")
        }

    @property
    def literal(self) -> str:
        """The name that the model must have; empty for a glob."""
        return "" if _WILD.intersection(self.model) else self.model

    @cached_property
    def _model(self) -> Callable[[Any], bool]:
        return _matcher(self.model)

    @cached_property
    def _version(self) -> Callable[[Any], bool] | None:
        return None if self.version is None else _matcher(self.version)

    @cached_property
    def _headers(self) -> tuple[tuple[str, Callable[[Any], bool]], ...]:
        return tuple((name.lower(), _matcher(glob)) for name, glob in self.headers.items())

    @cached_property
    def _parameters(self) -> tuple[tuple[str, Callable[[Any], bool]], ...]:
        return tuple((name, _matcher(wanted)) for name, wanted in self.parameters.items())


def _holds(matches: Callable[[Any], bool], value: Any) -> bool:
    return value is not None and matches(value)


def _matcher(wanted: Parameter) -> Callable[[Any], bool]:
    """Whether a value matches ``wanted``, where text is a glob."""
    if isinstance(wanted, str) and _WILD.intersection(wanted):
        pattern = re.compile(translate(wanted))
        return lambda value: isinstance(value, str) and pattern.match(value) is not None
    kind = type(wanted)
    return lambda value: type(value) is kind and value == wanted
