"""Builds what the configuration describes: models, upstreams, routes and a pipeline per listener.

Nothing here listens, and connections to upstreams open on first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.descriptors import client_ceiling
from interlingua.protocols.transport.load import ListenerLoad, Load
from interlingua.runtime.models.response_cache import ResponseCache
from interlingua.runtime.peers.handed_over import HandedOver
from interlingua.runtime.peers.peers import Peers
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import (
    Loaded,
    ModelSource,
    Progress,
    Repository,
    find_models,
    load_models,
)
from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.repository.polling import Poller
from interlingua.runtime.scheduling.policy import DEFAULT_LIMITS, Limits
from interlingua.runtime.shared_memory import SharedMemory
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import ListenerAddress, ServerMetadata
from interlingua.translator import mirror
from interlingua.translator.access.authentication import Authenticator
from interlingua.translator.access.build import authenticator_of, authorization_of, client_limits
from interlingua.translator.access.clients import Clients
from interlingua.translator.admin import ray
from interlingua.translator.admin.overview import ReadinessWatch
from interlingua.translator.admin.site import Site, add_sources
from interlingua.translator.admin.sources import Sources
from interlingua.translator.config.bindings import bindings_of
from interlingua.translator.config.identities import has_identities
from interlingua.translator.config.models import ModelOptions, RepositoryOptions
from interlingua.translator.config.options import Config, ListenerOptions
from interlingua.translator.config.peer_listener import serves_peers
from interlingua.translator.config.peers import NAME
from interlingua.translator.config.ray import RayOptions
from interlingua.translator.logs import setup as logs
from interlingua.translator.mirror import Mirror
from interlingua.translator.mirror.shared import MirrorSlots
from interlingua.translator.peering.build import peers_of
from interlingua.translator.peering.metrics import peer_families
from interlingua.translator.recording import build as recording
from interlingua.translator.recording.tap import Tap
from interlingua.translator.serving.access_log import access_log
from interlingua.translator.serving.header_parameters import HeaderParameters
from interlingua.translator.serving.operations import EVERY_DIALECT, Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.request_metrics import RequestMetrics
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing import report
from interlingua.translator.serving.routing.build import build
from interlingua.translator.serving.routing.examine import Examiner
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.settings import LogBook
from interlingua.translator.tracing import build as tracing
from interlingua.translator.upstream_assembly import binding_of, decoding_limits, upstream_models

if TYPE_CHECKING:
    from interlingua.translator.tracing.exporter import Exporter

C = TypeVar("C", bound=KnownModels, covariant=True)


@dataclass(frozen=True, slots=True)
class Models(Generic[C]):
    """The models of a process, the ``upstreams`` of some, what keeps them up to date, and the ``peers`` that
    share their sequences. ``close`` it after the last request."""

    catalog: C
    upstreams: Mapping[str, Upstream]
    poller: Poller | None = None
    cache: ResponseCache | None = None
    peers: Peers | None = None

    async def close(self) -> None:
        """Free the models, close the connections."""
        if self.poller is not None:
            await self.poller.stop()
        await self.catalog.close()
        for upstream in self.upstreams.values():
            await upstream.close()
        if self.peers is not None:
            await self.peers.close()


@dataclass(slots=True)
class Assembly:
    """Everything between the listeners and the targets. ``close`` it after the last request. ``sources`` has
    the metrics and reports of its parts, ``request_metrics`` and ``loads`` are those of each listener,
    ``load`` is that of all together, ``clients`` those with an identity, by ``authenticator``."""

    config: Config
    service: Service
    models: Models[KnownModels]
    load: Load
    clients: Clients
    authenticator: Authenticator | None = None
    sources: Sources = field(default_factory=Sources)
    request_metrics: list[Mapping[str, RequestMetrics]] = field(default_factory=list)
    loads: list[ListenerLoad] = field(default_factory=list)
    tap: Tap | None = None
    examiner: Examiner | None = None
    exporter: Exporter | None = None
    mirrors: tuple[Mirror, ...] = ()

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """By name."""
        return self.models.upstreams

    def pipeline(self, listener: ListenerOptions) -> Pipeline:
        """The pipeline of one listener; call it in the order in which listeners are bound."""
        pattern = listener.headers_as_parameters
        pipeline = Pipeline(
            self.service,
            listener.listen,
            bindings_of(self.config, listener),
            listener.default_model or self.config.default_model or "",
            listener.max_request_bytes,
            timed=self.config.admin is not None,
            header_parameters=None if pattern is None else HeaderParameters(pattern),
            authorization=authorization_of(self.config, listener, self.authenticator),
            load=self._load(listener),
            limits=decoding_limits(listener),
            by_transport=listener.transport == "any",
            clients=self.clients,
            cors=None if listener.cors is None else listener.cors.build(),
            max_response_bytes=listener.max_response_bytes,
            serves_peers=serves_peers(self.config, listener),
        )
        self.request_metrics.append(pipeline.request_metrics)
        self.loads.append(pipeline.load)
        return pipeline

    def _load(self, listener: ListenerOptions) -> ListenerLoad:
        return ListenerLoad(
            listener.listen,
            self.load,
            max_connections=listener.max_connections,
            max_connections_per_address=listener.max_connections_per_address,
            max_requests=listener.max_inflight_requests,
            max_bytes=listener.max_inflight_bytes,
            ceiling=client_ceiling(),
        )

    def site(self) -> Site:
        return Site(self.service, self.sources, ReadinessWatch(self.service))

    def is_bound(self, listeners: Iterable[tuple[ListenerOptions, Address]]) -> None:
        """Report ``listeners`` to clients."""
        self.service.listeners = tuple(
            ListenerAddress(options.transport, str(address), options.dialects)
            for options, address in listeners
        )

    def observe(self, mirrors: Sequence[Mirror | None], tap: Tap | None) -> None:
        """Have the mirrors of the routes and ``tap`` observe the requests, and report on all parts."""
        config, service = self.config, self.service
        optional = {name for name, model in config.models.items() if not model.required}
        service.required = frozenset(service.catalog.names()) - optional
        metrics, loads = self.request_metrics, self.loads
        servers, peers = self.upstreams, self.models.peers
        if peers is not None:
            servers = {**servers, NAME: peers.upstream}
            self.sources.metrics.append(partial(peer_families, peers))
        add_sources(self.sources, service, servers, metrics, loads, self.models.cache)
        if has_identities(config):
            self.sources.metrics.append(self.clients.families)
        if routes := service.router.routes:
            self.sources.add("routes", partial(report.families, routes), partial(report.reports, routes))
            self.examiner = Examiner(routes, service.router.models)
        self.mirrors = tuple(each for each in mirrors if each is not None)
        if self.mirrors:
            found = [each.report for each in self.mirrors]
            self.sources.add("mirror", partial(mirror.families, found), partial(mirror.reports, found))
            self.sources.parts["mirror"] = lambda: found
        if any(model.backend == "ray" for model in config.models.values()):
            self.sources.add("ray", ray.families, ray.report)
        self.tap = tap
        if tap is not None:
            service.observers += (tap,)
            self.sources.add("tap", tap.metrics, tap.report)
        if self.exporter is not None:
            self.sources.metrics.append(self.exporter.metrics)
            for each in self.mirrors:
                each.export = self.exporter.export
        if self.mirrors or tap is not None:
            self.sources.metrics.append(service.copies.metrics)

    async def start(self) -> None:
        """Start the processes of mirrors, and follow the list of peers."""
        await asyncio.gather(*(each.start() for each in self.mirrors))
        if self.models.peers is not None:
            await self.models.peers.start()

    async def close(self) -> None:
        """Finish copies to mirrors, free the models, close the connections, flush the tap and the traces."""
        if self.examiner is not None:
            await self.examiner.stop()
        await self.service.copies.finish()
        await asyncio.gather(*(each.close() for each in self.mirrors))
        await self.models.close()
        if self.tap is not None:
            await asyncio.to_thread(self.tap.close)
        if self.exporter is not None:
            await asyncio.to_thread(self.exporter.close)
        await asyncio.to_thread(self.service.access.close)


def load_local(config: Config, progress: Progress | None = None) -> Loaded:
    """Load the local models; the result lists those that fail. Blocks. Raises ``LoadError`` for an unreadable
    repository."""
    return load_models([source for source, _ in local_models(config)], progress)


def local_models(config: Config) -> list[tuple[ModelSource, tuple[str | int, ...]]]:
    """The sources of local models, each with its place in ``config``, or that of its repository. Raises
    ``LoadError`` for an unreadable repository."""
    found: dict[str, tuple[ModelSource, tuple[str | int, ...]]] = {
        source.name: (source, ("model_repository", number))
        for number, repository in enumerate(config.model_repository)
        for source in find_models(
            Path(repository.path), repository.load, _limits(config, repository), repository.allow_pickle
        )
    }
    for name in config.models:
        found.pop(name, None)
    found |= {source.name: (source, ("models", source.name)) for source in stated_models(config)}
    return list(found.values())


def stated_models(config: Config) -> list[ModelSource]:
    """The sources of the local models under `models`."""
    return [
        _source(name, model, _limits(config), config.ray)
        for name, model in config.models.items()
        if model.backend is not None
    ]


def build_models(config: Config, loaded: Loaded) -> Models[ModelCatalog]:
    """The models in ``loaded`` and those of upstreams."""
    upstreams, remote = upstream_models(config)
    cache = ResponseCache(config.server.response_cache_bytes) if config.server.response_cache_bytes else None
    models: dict[str, Target] = {**loaded.models, **remote}
    catalog = ModelCatalog(
        models, loaded.failed, repositories_of(config), config.models, cache, config.server.max_models
    )
    poller = Poller(catalog, config.server.repository_poll_secs, stated_models(config))
    return Models(catalog, upstreams, poller, cache, peers_of(config, catalog.models))


def repositories_of(config: Config) -> list[Repository]:
    return [_repository(each, _limits(config, each)) for each in config.model_repository]


def assemble(config: Config, loaded: Loaded) -> Assembly:
    """Build what ``config`` describes around the models in ``loaded``. Raises as :func:`assemble_around`."""
    return assemble_around(config, build_models(config, loaded))


def assemble_around(
    config: Config, models: Models[KnownModels], slots: MirrorSlots | None = None
) -> Assembly:
    """Build what ``config`` describes around ``models``, which the assembly owns. ``slots``: several
    processes share the mirrors. Raises ``OSError`` if the file of the tap or of the access log cannot be
    opened."""
    mirrors = mirror.build(config, models.catalog.find, slots=slots)
    service = _service(config, models, list(map(build, config.routes, mirrors)))
    load = Load(config.server.max_inflight_requests, config.server.max_inflight_bytes)
    clients, authenticator = Clients(client_limits(config.auth)), authenticator_of(config.auth)
    assembly = Assembly(config, service, models, load, clients, authenticator)
    if config.tracing is not None and config.tracing.enabled:
        service.traces, service.tracer, assembly.exporter = tracing.tracer_of(config.tracing)
    assembly.observe(mirrors, recording.build(config))
    return assembly


def _service(config: Config, models: Models[KnownModels], routes: Sequence[Route]) -> Service:
    server, catalog = config.server, models.catalog
    return Service(
        router_of(config, catalog, routes, models.peers),
        metadata_of(config),
        strict_readiness=server.strict_readiness,
        ready_when_empty=server.ready_when_empty,
        offline=frozenset({EVERY_DIALECT} if server.start_offline else ()),
        offline_scope=server.offline_scope,
        id=server.id,
        shared_memory=SharedMemory(server.shared_memory.max_regions, server.shared_memory.max_bytes),
        shared_memory_for=server.shared_memory.allow,
        log=LogBook(logs.settings(server.log_level), logs.apply),
        access=access_log(server.access_log, server.access_log_file, catalog),
        plans=server.plans,
    )


def router_of(
    config: Config, catalog: KnownModels, routes: Sequence[Route], peers: Peers | HandedOver | None = None
) -> Router:
    upstream_bindings = {
        name: binding_of(config.upstreams[model.upstream])
        for name, model in config.models.items()
        if model.upstream is not None
    }
    return Router(catalog, routes, upstream_bindings, peers)


def metadata_of(config: Config) -> ServerMetadata:
    extensions = [name for dialect in DIALECTS.values() for name in dialect.manifest.extensions]
    if config.tracing is not None and config.tracing.enabled:
        extensions.append("trace")
    return ServerMetadata(config.server.name, version("interlingua"), tuple(dict.fromkeys(extensions)))


def _limits(config: Config, repository: RepositoryOptions | None = None) -> Limits:
    """The limits of models that state none, those in ``repository`` if it is given."""
    server, limits = config.server, DEFAULT_LIMITS
    if repository is not None:
        limits = replace(limits, override_instances=repository.max_override_instances)
    return replace(limits, inline_run_us=server.max_inline_run_us, instances=server.max_instances)


def _repository(options: RepositoryOptions, limits: Limits) -> Repository:
    watched: frozenset[str] | Literal["*"] = frozenset()
    if options.control == "poll":
        watched = "*" if options.load == "*" else frozenset(options.load)
    explicit = options.control == "explicit"
    return Repository(
        Path(options.path),
        explicit,
        options.name,
        options.overrides,
        watched,
        limits,
        options.allow_pickle,
    )


def _source(name: str, model: ModelOptions, limits: Limits, cluster: RayOptions | None = None) -> ModelSource:
    ray = model.deployment(cluster) if model.backend == "ray" else None
    return ModelSource(
        name,
        Path(model.path) if model.path is not None else None,
        # on Ray the files decide
        backend="" if ray is not None else model.backend or "",
        description=model.description,
        parameters=model.parameters,
        signature=model.signature.build() if model.signature is not None else None,
        instances=model.instances or 0,
        device=model.device or "",
        providers=tuple((provider, {}) for provider in model.providers),
        limits=model.limits(limits),
        allow_pickle=bool(model.allow_pickle),
        ray=ray,
    )
