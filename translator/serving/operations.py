"""The operations other than inference: probes, metadata, status, control of models and shared memory.

One function per operation, in a table. ``protocols.dialect.Action`` lists their arguments and results.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from interlingua.runtime.peers.handed_over import HandedOver
from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.shared_memory import SharedMemory
from interlingua.runtime.target import Target
from interlingua.schemas import (
    Context,
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
    VersionStatistics,
)
from interlingua.schemas.bounded_text import listed
from interlingua.translator.serving.access_log import AccessLog
from interlingua.translator.serving.observation import ByteBudget, Observer
from interlingua.translator.serving.passed_copies import PassedCopies
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.settings import LogBook
from interlingua.translator.serving.trends import TrendCounts, Trends
from interlingua.translator.tracing.settings import TraceBook
from interlingua.translator.tracing.tracer import Tracer

EVERY_DIALECT = "*"
"""In ``Service.offline``: all dialects, and the admin address."""


@dataclass(slots=True)
class Service:
    """The state that operations read and change.

    ``offline`` has the dialects in which clients have set it offline: it is not ready there, but answers.
    ``offline_scope`` is ``all`` if a client sets every dialect offline. Readiness needs the models
    ``required`` and those that clients have loaded. ``shared_memory_for`` names the callers that may use
    ``shared_memory``: ``all``, ``none`` or ``local``. ``numbers`` number the requests of the process.
    ``counted`` has durations by operation, ``trends`` the inferences over time. ``started_ns`` is a
    ``time.monotonic_ns()``. ``listeners`` are bound. ``observers`` observe every inference, with
    ``stream_budget`` for running streams and ``copies`` of messages that pass through. ``share`` repeats the
    changes of clients (``changes.StateChange``) in the other processes of the server, if it has several;
    ``total`` then returns what all of them have counted, by a name in ``totals.COUNTS``. ``tracer`` records
    the requests that ``traces`` samples, if the configuration has ``tracing``. ``access`` is the access log.
    ``epoch`` is another object after any change. Without ``plans`` the pipeline serves all requests.
    """

    router: Router
    metadata: ServerMetadata
    required: frozenset[str] = frozenset()
    strict_readiness: bool = True
    ready_when_empty: bool = False
    draining: bool = False
    handed_over: bool = False
    offline: frozenset[str] = frozenset()
    offline_scope: str = ""
    listeners: tuple[ListenerAddress, ...] = ()
    id: str = "inference:0"
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    shared_memory: SharedMemory = field(default_factory=SharedMemory)
    shared_memory_for: str = "local"
    traces: TraceBook = field(default_factory=TraceBook)
    tracer: Tracer | None = None
    log: LogBook = field(default_factory=LogBook)
    counted: dict[str, Duration] = field(default_factory=dict)
    trends: Trends = field(default_factory=Trends)
    observers: tuple[Observer, ...] = ()
    stream_budget: ByteBudget = field(default_factory=ByteBudget)
    copies: PassedCopies = field(default_factory=PassedCopies)
    share: Callable[[Any], Awaitable[None]] | None = None
    total: Callable[[str], Awaitable[Any]] | None = None
    access: AccessLog = field(default_factory=AccessLog)
    plans: bool = True
    started_ns: int = field(default_factory=time.monotonic_ns)
    epoch: object = None

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        object.__setattr__(self, "epoch", object())

    @property
    def catalog(self) -> KnownModels:
        return self.router.catalog

    def number(self, context: Context) -> None:
        """Number the request of ``context``, for dialects with the number in every answer."""
        context.server_id = self.id
        context.request_number = next(self.numbers)

    def leave(self) -> None:
        self.draining = True
        self.catalog.changes.happened()

    def hand_over(self) -> None:
        """Another process serves from now on, sequences of local models too: watches end, silently."""
        self.handed_over = True
        self.router.peers = HandedOver()
        self.catalog.changes.happened()

    def switch(self, online: bool, dialect: str = EVERY_DIALECT) -> None:
        """Set the server online, or offline in ``dialect``, that of the caller."""
        scope = EVERY_DIALECT if self.offline_scope == "all" else dialect
        self.offline = frozenset() if online else self.offline | {scope}
        self.catalog.changes.happened()

    def is_online(self, dialect: str = "") -> bool:
        """Whether the server is online for callers in ``dialect``; for others without one."""
        return not self.offline or not self.offline & {dialect, EVERY_DIALECT}


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """A request for an operation on ``model``, which is ``name`` by the ``route``, if any. ``target`` answers
    for it in the caller's names, if it is served. ``default_model`` is the listener's, ``dialect`` the
    caller's."""

    service: Service
    model: str = ""
    version: str = ""
    name: str = ""
    target: Target | None = None
    argument: Any = None
    default_model: str = ""
    route: Route | None = None
    dialect: str = ""

    def renamed(self, status: ModelStatus) -> ModelStatus:
        """``status`` of the model in the caller's names."""
        return status if self.route is None else self.route.names.status(status, self.model)

    @property
    def served(self) -> Target:
        """The target. Raises NOT_FOUND if there is none."""
        if self.target is None:
            raise self.service.catalog.missing(self.name, self.version)
        return self.target


# --- probes and metadata


_LEAVING = Readiness(False, "the server is shutting down", leaving=True)


async def _ready(request: OperationRequest) -> Readiness:
    service = request.service
    if service.draining:
        return _LEAVING
    if not service.is_online(request.dialect):
        return Readiness(False, "the server is offline")
    if not service.strict_readiness:
        return Readiness(True)
    state = await service.catalog.readiness(service.required | service.catalog.requested_models)
    empty = service.catalog.is_empty and not service.ready_when_empty
    reason = service.router.starting or ("the server has no model" if empty else "")
    return Readiness(False, reason) if state.ready and reason else state


async def _model_ready(request: OperationRequest) -> Readiness:
    # some balancers probe a model, and KServe's version 1 has no readiness of the server
    if request.service.draining:
        return _LEAVING
    state = None
    if request.route is not None:
        state = await request.route.ready(request.service.router.models, request.version)
    elif request.target is not None:
        state = await request.target.ready(request.version)
    if state is None:
        reason = request.service.catalog.absence(request.name)
        return Readiness(False, f"model '{request.model}' is not ready: {reason}")
    return state


async def _model_metadata(request: OperationRequest) -> ModelMetadata:
    metadata = await request.served.metadata(request.version)
    versions = (request.version,) if request.version else metadata.versions
    return replace(metadata, name=request.model, versions=versions, server=request.service.metadata)


async def _status(request: OperationRequest) -> ServerStatus:
    service = request.service
    if service.draining:
        raise InferenceError(ErrorCode.UNAVAILABLE, "Server exiting")
    if request.model:
        status = await service.catalog.status(request.name)
        if status is None:
            raise InferenceError(
                ErrorCode.NOT_FOUND, f"no status available for unknown model '{request.model}'"
            )
        (status,) = await _with_totals(service, [status])
        models = {request.model: await _requested(request, request.renamed(status))}
    else:
        statuses = await service.catalog.statuses()
        models = dict(zip(statuses, await _with_totals(service, statuses.values()), strict=True))
    return ServerStatus(
        service.id,
        ServerState.READY,
        time.monotonic_ns() - service.started_ns,
        models,
        service.counted if service.total is None else await service.total("operations"),
    )


async def _requested(request: OperationRequest, status: ModelStatus) -> ModelStatus:
    """``status`` with the requested version alone, if one is requested."""
    if not request.version:
        return status
    if request.target is None:
        return replace(status, versions=tuple(v for v in status.versions if v.version == request.version))
    found = await request.target.version_status(request.version)
    return replace(status, versions=() if found is None else (found,))


async def _deployment(request: OperationRequest) -> Deployment:
    if request.model:
        models = {request.model: replace(await request.served.status(), name=request.model)}
    else:
        models = {status.name: status for status in await _served(request)}
    return Deployment(models, request.default_model, request.service.listeners)


async def _model_config(request: OperationRequest) -> bytes:
    # all versions have one configuration; the requested one must exist
    await request.served.signature(request.version)
    return (await request.served.status()).config


async def _statistics(request: OperationRequest) -> tuple[ModelStatus, ...]:
    if not request.model:
        return tuple(map(_ready_versions, await _with_totals(request.service, await _served(request))))
    if request.target is None:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"requested model '{request.model}' is not available")
    status = replace(await request.target.status(), name=request.name)
    (status,) = await _with_totals(request.service, [status], request.route)
    status = replace(_ready_versions(status), name=request.model)
    if not request.version:
        return (status,)
    missing = f"requested model version is not available for model '{request.model}'"
    try:
        await request.target.signature(request.version)
    except InferenceError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        raise InferenceError(ErrorCode.INVALID_TENSOR, missing, origin=request.model) from error
    # the target may spell its number in another way, and a route may give it another name
    names = {request.version, request.version.strip().lstrip("0")}
    if request.route is not None:
        theirs = request.route.names.version(request.version)
        if not theirs:
            return (status,)
        names.add(request.route.names.reported_version(theirs))
    chosen = tuple(version for version in status.versions if version.version in names)
    if not chosen:
        raise InferenceError(ErrorCode.INVALID_TENSOR, missing, origin=request.model)
    return (replace(status, versions=chosen),)


async def _served(request: OperationRequest) -> list[ModelStatus]:
    statuses = await request.service.catalog.statuses()
    return [statuses[name] for name in sorted(request.service.router.models.keys() & statuses.keys())]


async def _with_totals(
    service: Service, statuses: Iterable[ModelStatus], route: Route | None = None
) -> Iterable[ModelStatus]:
    """``statuses`` of models by their own names, with what all processes have counted of upstream models.
    Versions have the names of the callers of ``route``."""
    if service.total is None:
        return statuses
    models = await service.total("models")
    return [_counted(status, models.get(status.name, {}), route) for status in statuses]


def _counted(
    status: ModelStatus, counts: Mapping[str, VersionStatistics], route: Route | None
) -> ModelStatus:
    if route is not None:
        counts = {route.names.reported_version(own): each for own, each in counts.items()}
    versions = [
        replace(each, statistics=counts.get(each.version, each.statistics)) for each in status.versions
    ]
    return replace(status, versions=tuple(versions))


def _ready_versions(status: ModelStatus) -> ModelStatus:
    ready = tuple(version for version in status.versions if version.state is ModelState.READY)
    return replace(status, versions=ready)


async def _metrics(request: OperationRequest) -> Metrics:
    service = request.service
    counts: TrendCounts = service.trends.counts() if service.total is None else await service.total("trends")
    return counts.metrics()


# --- models


async def _repository_index(request: OperationRequest) -> tuple[ModelStatus, ...]:
    query: IndexQuery = request.argument or IndexQuery()
    models = await request.service.catalog.index(query.repository)
    if not query.ready:
        return models
    if request.service.draining:
        return ()
    return tuple(model for model in map(_ready_versions, models) if model.versions)


async def _model_load(request: OperationRequest) -> None:
    await request.service.catalog.load(_controlled(request), request.argument or ModelControl())


async def _model_unload(request: OperationRequest) -> None:
    await request.service.catalog.unload(_controlled(request), request.argument or ModelControl())


def _controlled(request: OperationRequest) -> str:
    """The model to load or unload. Raises UNSUPPORTED for a route to several."""
    if request.route is None:
        return request.model
    models = request.route.to.used
    if len(models) == 1:
        return models[0]
    if request.model in models:
        return request.model
    names = listed(f"'{name}'" for name in models)
    raise InferenceError(
        ErrorCode.UNSUPPORTED,
        f"a route splits requests for model '{request.model}' among {names}: "
        "load and unload each by its name",
    )


# --- settings


async def _trace_settings(request: OperationRequest) -> TraceSettings:
    if request.model and request.target is None:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"Request for unknown model : {request.model}")
    traces = request.service.traces
    if request.argument:
        traces.change(request.model, request.argument)
    total = request.service.total
    return traces.settings(request.model, None if total is None else await total("traces"))


async def _log_settings(request: OperationRequest) -> LogSettings:
    log = request.service.log
    if request.argument:
        log.change(request.argument)
    return log.settings()


# --- shared memory


async def _cuda_register(request: OperationRequest) -> None:
    raise InferenceError(
        ErrorCode.INVALID_TENSOR,
        f"failed to register CUDA shared memory region: '{request.argument}', GPUs not supported",
    )


async def _cuda_status(request: OperationRequest) -> tuple[SharedMemoryRegion, ...]:
    if request.argument is not None:
        raise InferenceError(
            ErrorCode.NOT_FOUND, f"Unable to find cuda shared memory region: '{request.argument}'"
        )
    return ()


class Offer(NamedTuple):
    """An operation that the server offers.

    ``of_a_model``: it concerns one model, the default model if the request names none. ``any_model``: any
    model of a route can answer for the others, in case the first is unavailable.
    """

    perform: Callable[[OperationRequest], Awaitable[Any]]
    of_a_model: bool = False
    any_model: bool = False


def _at_once(perform: Callable[[OperationRequest], Any]) -> Callable[[OperationRequest], Awaitable[Any]]:
    """An operation that never waits."""

    async def operation(request: OperationRequest) -> Any:
        return perform(request)

    return operation


OPERATIONS: Mapping[Operation, Offer] = {
    Operation.LIVE: Offer(_at_once(lambda request: Readiness(True))),
    Operation.READY: Offer(_ready),
    Operation.MODEL_READY: Offer(_model_ready, of_a_model=True),
    Operation.SERVER_METADATA: Offer(_at_once(lambda request: request.service.metadata)),
    Operation.MODEL_METADATA: Offer(_model_metadata, of_a_model=True, any_model=True),
    Operation.MODEL_CONFIG: Offer(_model_config, of_a_model=True, any_model=True),
    Operation.STATISTICS: Offer(_statistics, any_model=True),
    Operation.STATUS: Offer(_status, any_model=True),
    Operation.REPOSITORY_INDEX: Offer(_repository_index),
    Operation.MODEL_LOAD: Offer(_model_load),
    Operation.MODEL_UNLOAD: Offer(_model_unload),
    Operation.MODELS_RELOAD: Offer(lambda request: request.service.catalog.serve_only(request.argument)),
    Operation.SHARED_MEMORY_REGISTER: Offer(
        _at_once(lambda request: request.service.shared_memory.register(request.argument))
    ),
    Operation.SHARED_MEMORY_UNREGISTER: Offer(
        _at_once(lambda request: request.service.shared_memory.unregister(request.argument))
    ),
    Operation.SHARED_MEMORY_STATUS: Offer(
        _at_once(lambda request: request.service.shared_memory.status(request.argument))
    ),
    Operation.CUDA_SHARED_MEMORY_REGISTER: Offer(_cuda_register),
    # no region can be registered, and unregistering an unknown one succeeds
    Operation.CUDA_SHARED_MEMORY_UNREGISTER: Offer(_at_once(lambda request: None)),
    Operation.CUDA_SHARED_MEMORY_STATUS: Offer(_cuda_status),
    Operation.TRACE_SETTINGS: Offer(_trace_settings),
    Operation.LOG_SETTINGS: Offer(_log_settings),
    Operation.SET_ONLINE: Offer(_at_once(lambda request: request.service.switch(True, request.dialect))),
    Operation.SET_OFFLINE: Offer(_at_once(lambda request: request.service.switch(False, request.dialect))),
    Operation.DEPLOYMENT: Offer(_deployment, any_model=True),
    Operation.METRICS: Offer(_metrics),
}
