"""The changes of clients to a server, for its successor: regions of shared memory, offline states, loaded
models. These are changes (``serving.changes``), which servers of one process and of several carry out alike.

Sequences stay where they run: their state is in models.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import ModelSource
from interlingua.schemas import InferenceError, ModelControl, Operation, SharedMemoryRegion, VersionPolicy
from interlingua.translator.serving.changes import StateChange, repeat
from interlingua.translator.serving.operations import EVERY_DIALECT, Service

_REGISTER, _UNREGISTER = Operation.SHARED_MEMORY_REGISTER, Operation.SHARED_MEMORY_UNREGISTER
_ONLINE, _OFFLINE = Operation.SET_ONLINE, Operation.SET_OFFLINE
MODELS = frozenset((Operation.MODEL_LOAD, Operation.MODEL_UNLOAD))

MOVING = frozenset((_REGISTER, _ONLINE, _OFFLINE))
"""The operations whose changes a log of them has, and a successor gets."""

_log = logging.getLogger(__name__)

Changes = Sequence[StateChange]


def changes_of(service: Service) -> list[StateChange]:
    """The changes that make another process what ``service`` is, except for models."""
    regions = [StateChange(_REGISTER, "", region, "") for region in service.shared_memory.status()]
    return [*regions, *offline_in(service.offline)]


def models_of(catalog: ModelCatalog) -> list[StateChange]:
    """The loads and unloads that make another catalog what ``catalog`` is. A model that a client has loaded
    with its own configuration or files is omitted: the client has to load it again."""
    found: list[StateChange] = []
    for name in catalog.names():
        home = catalog.repositories.controlled_home(name)
        if home is None:
            continue
        model = catalog.models.get(name)
        if model is None and catalog.blocking(name) == "":
            found.append(StateChange(Operation.MODEL_UNLOAD, name, ModelControl(), ""))
        elif model is not None and model.origin is not None:
            stated = model.origin.stated
            versions = stated.versions if isinstance(stated, ModelSource) else None
            if stated == replace(home.source(name), versions=versions):
                found.append(StateChange(Operation.MODEL_LOAD, name, ModelControl(versions=versions), ""))
    return found


def offline_in(scopes: Iterable[str]) -> list[StateChange]:
    """The changes that set a server offline in ``scopes`` alone."""
    return [
        StateChange(_ONLINE, "", None, EVERY_DIALECT),
        *(StateChange(_OFFLINE, "", None, scope) for scope in sorted(scopes)),
    ]


def later(before: Changes, now: Changes) -> list[StateChange]:
    """The changes that lead from the state that ``before`` makes to that of ``now``."""
    found = [
        StateChange(_UNREGISTER, "", change.argument.name, "")
        for change in before
        if change.operation is _REGISTER and change not in now
    ]
    of_lines = [[each for each in made if each.operation in (_ONLINE, _OFFLINE)] for made in (before, now)]
    if of_lines[0] != of_lines[1]:
        found += of_lines[1]
    done = (*before, *of_lines[1])
    return found + [change for change in now if change not in done]


async def carry_out(changes: Changes, service: Service) -> None:
    """Apply ``changes`` to ``service``. A failure is logged."""
    for change in changes:
        served = change.model in service.catalog.models
        plain = change.operation in MODELS and change.argument.versions is None
        if plain and served is (change.operation is Operation.MODEL_LOAD):
            continue
        try:
            await repeat(change, service)
        except InferenceError as error:
            facts = {"operation": change.operation.value, "model": change.model, "reason": error.message}
            _log.warning("change not taken over", extra={"facts": facts})


def document(changes: Changes) -> list[dict[str, Any]]:
    """``changes`` for JSON."""
    return [
        {
            "operation": each.operation.value,
            "model": each.model,
            "dialect": each.dialect,
            "argument": _document(each),
        }
        for each in changes
    ]


def _document(change: StateChange) -> Any:
    if change.operation in MODELS:
        versions = change.argument.versions
        return None if versions is None else asdict(versions)
    return asdict(change.argument) if change.operation is _REGISTER else None


def read(found: list[dict[str, Any]]) -> list[StateChange]:
    """The changes in a :func:`document`. Raises ``ValueError``, ``KeyError``, ``TypeError``."""
    return [
        StateChange(
            operation := Operation(each["operation"]),
            each["model"],
            _argument(operation, each["argument"]),
            each["dialect"],
        )
        for each in found
    ]


def _argument(operation: Operation, document: dict[str, Any] | None) -> Any:
    if operation in MODELS:
        return ModelControl(versions=None if document is None else _versions(**document))
    return None if document is None else SharedMemoryRegion(**document)


def _versions(latest: int, specific: Sequence[int]) -> VersionPolicy:
    return VersionPolicy(latest, tuple(specific))
