"""What a replica reports about its model: all that the daemon needs to serve it without its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interlingua.schemas import NO_LEEWAY, Leeway, Parameter, Signature


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """One version that is ready; see ``backends.TableInstance`` for ``leeway`` and ``default_outputs``."""

    number: int
    signature: Signature
    decoupled: bool = False
    leeway: Leeway = NO_LEEWAY
    default_outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model: its versions that are ready, at least one, and the reasons of those that ``failed``."""

    versions: tuple[VersionFacts, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    platform: str = ""
    config: bytes = b""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica: the files that it runs, by generation, why others ``failed`` to load, what it has counted,
    and its memory."""

    replica: str
    models: Mapping[str, ModelFacts]
    failed: Mapping[str, str]
    node: str
    process: int
    running: int
    waiting: int
    answered: int
    executed: int
    resident_bytes: int
