"""Carries out what is not inference: probes and metadata. One function per operation, in a table."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from runtime.target import Target
from schemas import (
    ErrorCode,
    InferenceError,
    Operation,
    Readiness,
    ServerMetadata,
)
from translator.router import Router


@dataclass(slots=True)
class Service:
    """What the operations are about: the models, who must be ready, and whether we are leaving.

    ``required`` names the models without which the server is not ready; ``failed`` gives the reason
    for each model that could not be loaded. ``numbers`` counts the requests of the whole process.
    """

    router: Router
    metadata: ServerMetadata
    required: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    strict_readiness: bool = True
    ready_when_empty: bool = False
    draining: bool = False
    id: str = "inference:0"
    numbers: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operation is asked about: a model's target where the operation concerns one."""

    service: Service
    model: str = ""
    version: str = ""
    target: Target | None = None


async def _live(asked: Asked) -> Readiness:
    return Readiness(True)


async def _ready(asked: Asked) -> Readiness:
    service = asked.service
    if service.draining:
        return Readiness(False, "the server is shutting down")
    if not service.strict_readiness:
        return Readiness(True)
    for name in sorted(service.required & service.failed.keys()):
        return Readiness(False, f"model '{name}' could not be loaded: {service.failed[name]}")
    models = service.router.models
    if not models and not service.ready_when_empty:
        return Readiness(False, "the server has no model")
    required = [target for name, target in models.items() if name in service.required]
    said = await asyncio.gather(*(target.ready() for target in required))
    return next((state for state in said if not state.ready), Readiness(True))


async def _model_ready(asked: Asked) -> Readiness:
    if asked.target is None:
        reason = asked.service.failed.get(asked.model, "it is not known here")
        return Readiness(False, f"model '{asked.model}' is not ready: {reason}")
    return await asked.target.ready(asked.version)


async def _server_metadata(asked: Asked) -> ServerMetadata:
    return asked.service.metadata


async def _model_metadata(asked: Asked) -> Any:
    if asked.target is None:
        raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{asked.model}' is not found")
    return await asked.target.metadata(asked.version)


OPERATIONS: dict[Operation, Callable[[Asked], Awaitable[Any]]] = {
    Operation.LIVE: _live,
    Operation.READY: _ready,
    Operation.MODEL_READY: _model_ready,
    Operation.SERVER_METADATA: _server_metadata,
    Operation.MODEL_METADATA: _model_metadata,
}

OF_A_MODEL = frozenset({Operation.MODEL_READY, Operation.MODEL_METADATA})
"""Operations that concern one model; probes must not fail because it does not exist."""
