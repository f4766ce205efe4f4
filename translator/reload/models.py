"""The models and upstreams of another configuration: loaded while the others are served, then swapped in.

A model with an equal source and unchanged files stays as it is, and so does an upstream with equal options:
its connections, its health, its counts. Models that clients have loaded stay while their repository does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.runtime.repository.known_models import Freeing, KnownModels
from interlingua.runtime.repository.polling import Poller
from interlingua.runtime.repository.renewal import free, reusable
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.translator.assembly import Models, local_models, repositories_of, stated_models
from interlingua.translator.config.models import RepositoryOptions
from interlingua.translator.config.options import Config
from interlingua.translator.reload.differences import Difference, Differences
from interlingua.translator.reload.outcome import ReloadRefusedError
from interlingua.translator.upstream_assembly import upstream_models

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ModelSuccession:
    """What replaces the models and upstreams ``before``. Call :meth:`commit`, :meth:`finish` and then the
    results of both, or :meth:`abort`."""

    before: Models[KnownModels]
    config: Config
    upstreams: dict[str, Upstream] = field(default_factory=dict)
    local: dict[str, Target] = field(default_factory=dict)
    remote: dict[str, Target] = field(default_factory=dict)
    failed: dict[str, LoadError] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    _held: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def catalog(self) -> KnownModels:
        return self.before.catalog

    async def prepare_remote(self, config_before: Config) -> None:
        """Build the upstreams, without a connection, and their models. Raises ``OSError`` for the files of
        TLS and of headers."""
        kept = {
            name: self.before.upstreams[name]
            for name, options in self.config.upstreams.items()
            if config_before.upstreams.get(name) == options
        }
        self.upstreams, remote = upstream_models(self.config, kept)
        for name, target in remote.items():
            same = config_before.models.get(name) == self.config.models[name]
            if not (same and target.upstream in kept.values() and name in self.catalog.models):
                self.remote[name] = target
        self.removed += [
            name
            for name, options in config_before.models.items()
            if options.upstream is not None and name not in remote
        ]

    async def prepare_local(self, config_before: Config, catalog: ModelCatalog) -> None:
        """Load the local models that are new or changed, and run their samples. Raises
        ``ReloadRefusedError`` for one that does not load, ``LoadError`` for an unreadable repository."""
        wanted = await asyncio.to_thread(local_models, self.config)
        sources = {source.name: (source, place) for source, place in wanted}
        remote = {name for name, options in self.config.models.items() if options.upstream is not None}
        gone = [
            name
            for name in catalog.names()
            if name not in sources and name not in remote and not self._stays(name, catalog)
        ]
        self.removed = [*dict.fromkeys(each for each in (*self.removed, *gone) if each not in sources)]
        due = [
            source
            for source, place in sources.values()
            if not self._belongs_to_clients(source.name, place, config_before, catalog)
        ]
        await self._held.enter_async_context(catalog.held([*(each.name for each in due), *self.removed]))
        await self._load(due, catalog)
        try:
            await catalog.examine(self.local)
        except LoadError as error:
            raise ReloadRefusedError(str(error)) from error

    async def _load(self, sources: Iterable[ModelSource], catalog: ModelCatalog) -> None:
        faults: list[str] = []
        for source in sources:
            old = _local(catalog.models.get(source.name))
            try:
                model = await asyncio.to_thread(load_model, source, reusable(old))
            except LoadError as error:
                if old is None and catalog.blocking(source.name):
                    # it did not load before either
                    self.failed[source.name] = error
                else:
                    faults.append(f"model '{source.name}': {error}")
                continue
            if model is old:
                continue
            self.local[source.name] = model
            known = {} if old is None else old.failed
            lost = [f"version {number}: {why}" for number, why in model.failed.items() if number not in known]
            faults += [f"model '{source.name}', {each}" for each in lost]
        if faults:
            raise ReloadRefusedError(*faults)

    def _belongs_to_clients(
        self, name: str, place: tuple[str | int, ...], config_before: Config, catalog: ModelCatalog
    ) -> bool:
        """Whether clients decide about a model: it is of a repository with explicit control, which is as it
        was."""
        repository = _repository_at(self.config, place)
        if repository is None or repository.control != "explicit" or name in config_before.models:
            return False
        return repository in config_before.model_repository and catalog.knows(name)

    def _stays(self, name: str, catalog: ModelCatalog) -> bool:
        """Whether a model that the configuration does not name is of a repository that it does."""
        home = catalog.homes.get(name)
        if home is None:
            return False
        same = [each for each in self.config.model_repository if Path(each.path) == home.path]
        return any(each.control != "none" for each in same) and (
            name in catalog.requested_models or home in repositories_of(self.config)
        )

    def commit(self) -> list[Freeing]:
        """Serve what is new and what has changed, except where another process must serve a model first."""
        deferred = self._moving_away()
        remote = {name: target for name, target in self.remote.items() if name not in deferred}
        catalog = self.catalog
        if isinstance(catalog, ModelCatalog):
            catalog.configure(repositories_of(self.config), self.config.models, self.config.server.max_models)
        return catalog.take_over({**self.local, **remote}, self.failed)

    def finish(self) -> list[Freeing]:
        """Serve no longer what is removed."""
        deferred = {name: self.remote[name] for name in self._moving_away()}
        return [*self.catalog.take_over(deferred, {}), *self.catalog.release(self.removed)]

    def _moving_away(self) -> list[str]:
        """Models that were local and are an upstream's now."""
        return [name for name in self.remote if _local(self.catalog.models.get(name)) is not None]

    async def succeed(self, config_before: Config) -> Models[KnownModels]:
        """The models from now on, with what keeps them up to date."""
        await self._held.aclose()
        poller, old = self.before.poller, self.before.poller
        repositories = config_before.model_repository != self.config.model_repository
        secs = self.config.server.repository_poll_secs
        if isinstance(self.catalog, ModelCatalog) and (
            repositories or secs != config_before.server.repository_poll_secs or self.local or self.removed
        ):
            if old is not None:
                await old.stop()
            poller = Poller(self.catalog, secs, stated_models(self.config))
            if poller.is_needed:
                poller.start()
        return Models(self.catalog, self.upstreams, poller, self.before.cache, self.before.peers)

    @property
    def leaving(self) -> list[Upstream]:
        """The upstreams that no model has from now on."""
        kept = set(map(id, self.upstreams.values()))
        return [each for each in self.before.upstreams.values() if id(each) not in kept]

    async def abort(self) -> None:
        """Free what was prepared."""
        await self._held.aclose()
        models = self.catalog.models
        await asyncio.gather(*(free(each, None, models.get(name)) for name, each in self.local.items()))
        kept = set(map(id, self.before.upstreams.values()))
        await asyncio.gather(*(each.close() for each in self.upstreams.values() if id(each) not in kept))

    def describe(self, found: Differences, known: Mapping[str, object]) -> None:
        """Add the models of repositories to what differs; ``known`` were served before."""
        models = found["models"]
        for name in self.local:
            if name not in models.added and name not in models.changed:
                _add(models, name, name in known)
        models.removed += [name for name in self.removed if name not in models.removed]


def _local(target: Target | None) -> Target | None:
    """A model that runs here."""
    return target if target is not None and target.upstream is None else None


def _add(models: Difference, name: str, known: bool) -> None:
    if known:
        models.changed[name] = ["files"]
    else:
        models.added.append(name)


def _repository_at(config: Config, place: tuple[str | int, ...]) -> RepositoryOptions | None:
    """The repository of a model with this place in the configuration."""
    section, key = place
    return config.model_repository[int(key)] if section == "model_repository" else None
