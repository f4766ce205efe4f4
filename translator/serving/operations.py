"""Carries out what is not inference: probes, metadata, status, control of models and shared memory.

One function per operation, in a table. What an operation is told and what it answers with stands with
``protocols.dialect.Action``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.shared_memory import SharedMemory
from interlingua.runtime.target import Target
from interlingua.schemas import (
    Deployment,
    Duration,
    ErrorCode,
    IndexQuery,
    InferenceError,
    ListenerAddress,
    LogSettings,
    Metrics,
    ModelControl,
    ModelMetadata,
    ModelState,
    ModelStatus,
    Operation,
    Readiness,
    ServerMetadata,
    ServerState,
    ServerStatus,
    SharedMemoryRegion,
    TraceSettings,
)
from interlingua.translator.serving.observation import Observer, Room
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.settings import LogBook, TraceBook
from interlingua.translator.serving.trends import Trends


@dataclass(slots=True)
class Service:
    """What the operations are about: the models, who must be ready, and whether we are leaving.

    ``online`` is what clients may switch: a server that is offline is not ready, and answers all the same.
    ``required`` names the models without which the server is not ready, beside those that clients have
    loaded. ``shared_memory`` is used by callers whom ``shared_memory_for`` allows: ``all``, ``none``, or
    those that are ``local``. ``numbers`` counts the requests of the whole process, ``counted`` the
    operations that were carried out, by name, ``trends`` inferences over time. ``started_ns`` is a
    ``time.monotonic_ns()``. ``listeners`` are those that are bound. ``observers`` look on at every inference,
    with ``stream_room`` for streams that go on.
    """

    router: Router
    metadata: ServerMetadata
    required: frozenset[str] = frozenset()
    strict_readiness: bool = True
    ready_when_empty: bool = False
    draining: bool = False
    online: bool = True
    listeners: tuple[ListenerAddress, ...] = ()
    id: str = "inference:0"
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    shared_memory: SharedMemory = field(default_factory=SharedMemory)
    shared_memory_for: str = "local"
    traces: TraceBook = field(default_factory=TraceBook)
    log: LogBook = field(default_factory=LogBook)
    counted: dict[str, Duration] = field(default_factory=dict)
    trends: Trends = field(default_factory=Trends)
    observers: tuple[Observer, ...] = ()
    stream_room: Room = field(default_factory=Room)
    started_ns: int = field(default_factory=time.monotonic_ns)

    @property
    def catalog(self) -> ModelCatalog:
        """Every model that is known."""
        return self.router.catalog

    def leave(self) -> None:
        """Say from now on that the server shuts down."""
        self.draining = True
        self.catalog.changes.happened()

    def switch(self, online: bool) -> None:
        """Be online or offline from now on."""
        self.online = online
        self.catalog.changes.happened()


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operation is asked about. ``name`` is the model that ``model`` leads to, by ``route`` where
    there is one, and ``target`` what answers for it, where there is one, in the caller's names; ``argument``
    is what the operation is told. ``default_model`` is the listener's."""

    service: Service
    model: str = ""
    version: str = ""
    name: str = ""
    target: Target | None = None
    argument: Any = None
    default_model: str = ""
    route: Route | None = None

    def seen(self, status: ModelStatus) -> ModelStatus:
        """The status of the model as the caller knows it."""
        return status if self.route is None else self.route.names.status(status, self.model)


# --- probes and metadata


async def _live(asked: Asked) -> Readiness:
    return Readiness(True)


async def _ready(asked: Asked) -> Readiness:
    service = asked.service
    if service.draining:
        return Readiness(False, "the server is shutting down", leaving=True)
    if not service.online:
        return Readiness(False, "the server is offline")
    if not service.strict_readiness:
        return Readiness(True)
    state = await service.catalog.readiness(service.required | service.catalog.asked_for)
    if state.ready and service.catalog.is_empty and not service.ready_when_empty:
        return Readiness(False, "the server has no model")
    return state


async def _set_online(asked: Asked) -> None:
    asked.service.switch(True)


async def _set_offline(asked: Asked) -> None:
    asked.service.switch(False)


async def _model_ready(asked: Asked) -> Readiness:
    said = None
    if asked.route is not None:
        said = await asked.route.ready(asked.service.router.models, asked.version)
    elif asked.target is not None:
        said = await asked.target.ready(asked.version)
    if said is None:
        reason = asked.service.catalog.absence(asked.name)
        return Readiness(False, f"model '{asked.model}' is not ready: {reason}")
    return said


async def _server_metadata(asked: Asked) -> ServerMetadata:
    return asked.service.metadata


async def _model_metadata(asked: Asked) -> ModelMetadata:
    if asked.target is None:
        raise asked.service.catalog.missing(asked.name, asked.version)
    told = await asked.target.metadata(asked.version)
    return replace(told, name=asked.model, server=asked.service.metadata)


async def _status(asked: Asked) -> ServerStatus:
    service = asked.service
    if service.draining:
        raise InferenceError(ErrorCode.UNAVAILABLE, "Server exiting")
    if asked.model:
        status = await service.catalog.status(asked.name)
        if status is None:
            raise InferenceError(
                ErrorCode.NOT_FOUND, f"no status available for unknown model '{asked.model}'"
            )
        models = {asked.model: asked.seen(status)}
    else:
        models = await service.catalog.statuses()
    return ServerStatus(
        service.id,
        ServerState.READY,
        time.monotonic_ns() - service.started_ns,
        models,
        service.counted,
    )


async def _deployment(asked: Asked) -> Deployment:
    service = asked.service
    if asked.model:
        if asked.target is None:
            raise service.catalog.missing(asked.name, asked.version)
        models = {asked.model: replace(await asked.target.status(), name=asked.model)}
    else:
        told = await service.catalog.statuses()
        models = {name: told[name] for name in sorted(service.router.models.keys() & told.keys())}
    return Deployment(models, asked.default_model, service.listeners)


async def _metrics(asked: Asked) -> Metrics:
    return asked.service.trends.metrics()


async def _model_config(asked: Asked) -> bytes:
    if asked.target is None:
        raise asked.service.catalog.missing(asked.name, asked.version)
    # all versions have one configuration; this one must be there
    await asked.target.signature(asked.version)
    return (await asked.target.status()).config


async def _statistics(asked: Asked) -> tuple[ModelStatus, ...]:
    if not asked.model:
        told = await asked.service.catalog.statuses()
        served = sorted(asked.service.router.models.keys() & told.keys())
        return tuple(_ready_versions(told[name]) for name in served)
    if asked.target is None:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"requested model '{asked.model}' is not available")
    status = replace(_ready_versions(await asked.target.status()), name=asked.model)
    if not asked.version:
        return (status,)
    missing = f"requested model version is not available for model '{asked.model}'"
    try:
        await asked.target.signature(asked.version)
    except InferenceError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        raise InferenceError(ErrorCode.INVALID_TENSOR, missing, origin=asked.model) from error
    # the target may know it under another spelling of its number, or a route under another name
    wanted = {asked.version, asked.version.strip().lstrip("0")}
    if asked.route is not None:
        theirs = asked.route.names.version(asked.version)
        if not theirs:
            return (status,)
        wanted.add(asked.route.names.told_version(theirs))
    chosen = tuple(version for version in status.versions if version.version in wanted)
    if not chosen:
        raise InferenceError(ErrorCode.INVALID_TENSOR, missing, origin=asked.model)
    return (replace(status, versions=chosen),)


def _ready_versions(status: ModelStatus) -> ModelStatus:
    ready = tuple(version for version in status.versions if version.state is ModelState.READY)
    return replace(status, versions=ready)


# --- models


async def _repository_index(asked: Asked) -> tuple[ModelStatus, ...]:
    query: IndexQuery = asked.argument or IndexQuery()
    models = await asked.service.catalog.index(query.repository)
    if not query.ready:
        return models
    return tuple(model for model in map(_ready_versions, models) if model.versions)


async def _model_load(asked: Asked) -> None:
    await asked.service.catalog.load(_controlled(asked), asked.argument or ModelControl())


async def _model_unload(asked: Asked) -> None:
    await asked.service.catalog.unload(_controlled(asked), asked.argument or ModelControl())


def _controlled(asked: Asked) -> str:
    """The model to load or unload. Raises UNSUPPORTED for a name that stands for several."""
    if asked.route is None:
        return asked.model
    models = asked.route.to.used
    if len(models) == 1:
        return models[0]
    if asked.model in models:
        return asked.model
    listed = ", ".join(f"'{name}'" for name in models)
    raise InferenceError(
        ErrorCode.UNSUPPORTED,
        f"a route splits requests for model '{asked.model}' among {listed}: load and unload each by its name",
    )


# --- settings


async def _trace_settings(asked: Asked) -> TraceSettings:
    if asked.model and asked.target is None:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"Request for unknown model : {asked.model}")
    traces = asked.service.traces
    if asked.argument:
        traces.change(asked.model, asked.argument)
    return traces.settings(asked.model)


async def _log_settings(asked: Asked) -> LogSettings:
    log = asked.service.log
    if asked.argument:
        log.change(asked.argument)
    return log.settings()


# --- shared memory


async def _shared_memory_register(asked: Asked) -> None:
    asked.service.shared_memory.register(asked.argument)


async def _shared_memory_unregister(asked: Asked) -> None:
    asked.service.shared_memory.unregister(asked.argument)


async def _shared_memory_status(asked: Asked) -> tuple[SharedMemoryRegion, ...]:
    return asked.service.shared_memory.status(asked.argument)


async def _cuda_register(asked: Asked) -> None:
    raise InferenceError(
        ErrorCode.INVALID_TENSOR,
        f"failed to register CUDA shared memory region: '{asked.argument}', GPUs not supported",
    )


async def _cuda_unregister(asked: Asked) -> None:
    """None can have been registered, and to forget one that is not there is no error."""


async def _cuda_status(asked: Asked) -> tuple[SharedMemoryRegion, ...]:
    if asked.argument is not None:
        raise InferenceError(
            ErrorCode.NOT_FOUND, f"Unable to find cuda shared memory region: '{asked.argument}'"
        )
    return ()


OPERATIONS: dict[Operation, Callable[[Asked], Awaitable[Any]]] = {
    Operation.LIVE: _live,
    Operation.READY: _ready,
    Operation.MODEL_READY: _model_ready,
    Operation.SERVER_METADATA: _server_metadata,
    Operation.MODEL_METADATA: _model_metadata,
    Operation.MODEL_CONFIG: _model_config,
    Operation.STATISTICS: _statistics,
    Operation.STATUS: _status,
    Operation.REPOSITORY_INDEX: _repository_index,
    Operation.MODEL_LOAD: _model_load,
    Operation.MODEL_UNLOAD: _model_unload,
    Operation.SHARED_MEMORY_REGISTER: _shared_memory_register,
    Operation.SHARED_MEMORY_UNREGISTER: _shared_memory_unregister,
    Operation.SHARED_MEMORY_STATUS: _shared_memory_status,
    Operation.CUDA_SHARED_MEMORY_REGISTER: _cuda_register,
    Operation.CUDA_SHARED_MEMORY_UNREGISTER: _cuda_unregister,
    Operation.CUDA_SHARED_MEMORY_STATUS: _cuda_status,
    Operation.TRACE_SETTINGS: _trace_settings,
    Operation.LOG_SETTINGS: _log_settings,
    Operation.SET_ONLINE: _set_online,
    Operation.SET_OFFLINE: _set_offline,
    Operation.DEPLOYMENT: _deployment,
    Operation.METRICS: _metrics,
}

OF_A_MODEL = frozenset({Operation.MODEL_READY, Operation.MODEL_METADATA, Operation.MODEL_CONFIG})
"""Operations that concern one model, the default one where none is named; probes must not fail because it
does not exist."""

OF_SHARED_MEMORY = frozenset(
    {
        Operation.SHARED_MEMORY_REGISTER,
        Operation.SHARED_MEMORY_UNREGISTER,
        Operation.SHARED_MEMORY_STATUS,
    }
)
"""Operations for those only who may use shared memory."""

_SHOWN_BY_ANY = frozenset(
    {
        Operation.MODEL_METADATA,
        Operation.MODEL_CONFIG,
        Operation.STATISTICS,
        Operation.STATUS,
        Operation.DEPLOYMENT,
    }
)
"""What any model of a route may tell for the others."""


async def by_route(operation: Operation, asked: Asked, route: Route) -> Any:
    """Carry out ``operation`` for the model that ``route`` leads to: the first one that is served. Where that
    is away, the next one tells what callers need to know to ask. Raises ``InferenceError``."""
    models = asked.service.router.models
    names = [name for name in route.models if name in models] or [route.models[0]]
    if operation not in _SHOWN_BY_ANY:
        del names[1:]
    failure: InferenceError | None = None
    for name in names:
        target = models.get(name)
        view = None if target is None else route.view(target, asked.model)
        try:
            return await OPERATIONS[operation](replace(asked, name=name, target=view, route=route))
        except InferenceError as error:
            if not (error.retryable or error.model_not_found):
                raise
            failure = failure or error
    assert failure is not None, "there is a model"  # noqa: S101
    raise failure
