"""What front ends know about the models of the runtime process without a call: sent after every change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interlingua.schemas import Readiness


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that is served. ``instance`` differs between two models of one name, one loaded after the
    other. ``versions`` are the loaded ones with their readiness, ``failed`` others with the reasons.
    ``composite``: it calls other models. ``names`` are those of versions, with their numbers."""

    instance: int
    versions: Mapping[str, Readiness]
    failed: Mapping[str, str]
    composite: bool
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AbsentModel:
    """A model that is not served, and the ``versions`` that it had. ``blocks``: why the server is not ready
    without it, empty if a client has unloaded it, None if its files were removed."""

    versions: tuple[str, ...]
    blocks: str | None


@dataclass(frozen=True, slots=True)
class ModelsSnapshot:
    """The models of the runtime process; ``requested`` are those that clients or new files have loaded.
    ``number`` grows with every change."""

    number: int = 0
    served: Mapping[str, ServedModel] = field(default_factory=dict)
    absent: Mapping[str, AbsentModel] = field(default_factory=dict)
    requested: frozenset[str] = frozenset()
