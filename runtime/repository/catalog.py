"""Every model that the server knows: served, failed, unloaded by a client.

The router looks models up in the catalog, so a load or an unload takes effect at once. A model that is loaded
again is replaced: the new versions are ready before the old ones stop accepting requests; unchanged versions
stay. ``runtime.repository.files`` makes models from files; ``runtime.repository.repositories`` decides who
may request a load.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.model import UNLOADED
from interlingua.runtime.models.response_cache import ResponseCache
from interlingua.runtime.repository.absent import Absent, absent_by, all_in, not_renewed, partial_failure
from interlingua.runtime.repository.background_tasks import BackgroundTasks
from interlingua.runtime.repository.files import Repository, needed_models
from interlingua.runtime.repository.known_models import PLAIN, Freeing, KnownModels
from interlingua.runtime.repository.model_lists import ModelLists
from interlingua.runtime.repository.overrides import SentFiles
from interlingua.runtime.repository.renewal import failing_sample, free, load_from, loses_versions, reusable
from interlingua.runtime.repository.repositories import Repositories, check_overrides, names_in
from interlingua.runtime.target import ServerHooks, Target
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ListedModel,
    ModelControl,
    ModelState,
    ModelStatus,
    unsupported,
)

_KEPT_GONE = 1000
"""How many models without files keep their status, the latest ones."""

MAX_CLIENT_MODELS = 1024
"""How many models clients may have loaded at a time."""

_STATUS_SECS = 2.0
"""The timeout of one upstream in a status of all models."""

_log = logging.getLogger(__name__)


class ModelCatalog(KnownModels):
    """``failed`` are models that could not be loaded. Clients may load and unload the models of controlled
    ``repositories``, except those in ``fixed``, which the configuration defines; of two repositories with one
    model, the later one counts. ``homes`` are the repositories that models are, or were last, loaded from.
    Clients may have ``max_models`` loaded at a time, those that fail to load included; models that are served
    already, and loaded again, do not count."""

    def __init__(
        self,
        models: Mapping[str, Target] | None = None,
        failed: Mapping[str, LoadError] | None = None,
        repositories: Sequence[Repository] = (),
        fixed: Iterable[str] = (),
        cache: ResponseCache | None = None,
        max_models: int = MAX_CLIENT_MODELS,
    ) -> None:
        super().__init__(models or {})
        self._max_models = max_models
        self._loaded_by_clients: set[str] = set()
        self._absent = {name: absent_by(name, error) for name, error in (failed or {}).items()}
        self.repositories = Repositories(repositories, fixed)
        self.homes: dict[str, Repository] = {}
        for repository in repositories:
            self.homes |= {name: repository for name in names_in(repository) if self.knows(name)}
        self._gone: dict[str, ModelStatus] = {}
        self._not_renewed: dict[str, LoadError] = {}
        self._only_needed: set[str] = set()
        self._files: dict[str, SentFiles] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks = BackgroundTasks()
        self._lists = ModelLists(self)
        self._hooks = ServerHooks(self.find, self.standing, self.changes.happened, cache)
        for model in self._models.values():
            model.join(self._hooks)

    def names(self) -> list[str]:
        return sorted(self._models.keys() | self._absent.keys())

    def knows(self, name: str) -> bool:
        """Whether a model is served, or known although it is not."""
        return name in self._models or name in self._absent

    @property
    def gone(self) -> Iterable[str]:
        """The models without files whose status is kept."""
        return self._gone

    def known_versions(self, name: str) -> tuple[str, ...]:
        absent = self._absent.get(name)
        status = self._gone.get(name) if absent is None else absent.status
        return () if status is None else tuple([each.version for each in status.versions])

    def blocking(self, name: str) -> str | None:
        absent = self._absent.get(name)
        return None if absent is None else absent.blocks

    async def status(self, name: str) -> ModelStatus | None:
        target = self._models.get(name)
        if target is not None:
            status = replace(await target.status(), name=name)
            failure = self._not_renewed.get(name)
            return status if failure is None else not_renewed(status, failure)
        absent = self._absent.get(name)
        return self._gone.get(name) if absent is None else absent.status

    async def statuses(self) -> dict[str, ModelStatus]:
        return {**self._gone, **await self._statuses()}

    async def _statuses(self) -> dict[str, ModelStatus]:
        names = self.names()
        reported = await asyncio.gather(*(self._status_or_name(name) for name in names))
        return dict(zip(names, reported, strict=True))

    async def index(self, repository: str = "") -> tuple[ModelStatus, ...]:
        known = await self._statuses()
        chosen = self.repositories.named(repository)
        held: set[str] = set()
        for found in await asyncio.gather(*(asyncio.to_thread(names_in, each) for each in chosen)):
            held.update(found)
        for name in held:
            known.setdefault(name, ModelStatus(name))
        if repository:
            # two repositories may hold one model: it is of the one that it was loaded from
            names = {name for name, home in self.homes.items() if home in chosen}
            known = {name: known[name] for name in known if name in names | (held - self.homes.keys())}
        return tuple(known[name] for name in sorted(known))

    async def warm_up(self) -> None:
        models = list(self._models.values())
        failures = await asyncio.gather(*map(failing_sample, models))
        for model, failure in zip(models, failures, strict=True):
            if failure is not None:
                facts = {"model": model.name, "reason": str(failure)}
                _log.error("model failed to load", extra={"facts": facts})
                del self._models[model.name]
                self._absent[model.name] = absent_by(model.name, failure)
                self._tasks.start(free(model, None))
                self.changes.happened()

    async def load(self, name: str, control: ModelControl = PLAIN) -> None:
        chosen = self.repositories.named(control.repository)
        remote = self._remote(name, control)
        if remote is not None:
            await remote.load()
            return
        # not in a thread: acts on one model take turns in the order in which they came
        repository = self.repositories.home(name, chosen)
        self.repositories.check_control(name, repository)
        if repository is None and control.files:
            repository = self.repositories.home_of_files(name, chosen)
        if repository is None:
            raise _not_loaded(ErrorCode.INTERNAL, name, "failed to poll from model repository")
        check_overrides(name, repository, control)
        self._count_load(name)
        self._only_needed.discard(name)
        self.requested_models.add(name)
        # a load continues when its caller disconnects
        await asyncio.shield(self._tasks.start(self._load_with_needs(name, repository, control, (name,))))

    async def unload(self, name: str, control: ModelControl = PLAIN) -> None:
        chosen = self.repositories.named(control.repository)
        remote = self._remote(name, control)
        if remote is not None:
            await remote.unload()
            return
        if control.served:
            self.find(name)
        # its folder may be removed since it was loaded
        home = self.homes.get(name) or self.repositories.home(name, chosen)
        self.repositories.check_control(name, home)
        if control.repository and home not in chosen:
            return
        if self.knows(name):
            await asyncio.shield(self._tasks.start(self._unload(name, dependents=control.dependents)))

    async def serve_only(self, listed: Sequence[ListedModel]) -> None:
        # as a load, it continues when its caller disconnects
        await asyncio.shield(self._tasks.start(self._lists.apply(listed, self.repositories, self.homes)))

    async def follow(self, name: str, repository: Repository | None) -> None:
        """Serve a model as its files are now in ``repository``; None if they were removed: then unload it.
        Failures are logged and part of the model's status."""
        if repository is None:
            await asyncio.shield(self._tasks.start(self._unload(name, gone=True)))
            return
        self.requested_models.add(name)
        with contextlib.suppress(InferenceError):
            await asyncio.shield(self._tasks.start(self._load(name, repository, PLAIN)))

    # --- another configuration

    @contextlib.asynccontextmanager
    async def held(self, names: Iterable[str]) -> AsyncIterator[None]:
        """No load or unload of ``names`` begins until the block ends."""
        async with contextlib.AsyncExitStack() as stack:
            for name in sorted(set(names)):
                await stack.enter_async_context(self._locks[name])
            yield

    async def examine(self, models: Mapping[str, Target]) -> None:
        """Have ``models``, which are about to be served, run their samples, with each other. Raises
        ``LoadError``."""

        def find(name: str) -> Target:
            return models.get(name) or self.find(name)

        for model in models.values():
            model.join(replace(self._hooks, find=find))
        await asyncio.gather(*(model.warm_up(self._models.get(name)) for name, model in models.items()))

    def configure(self, repositories: Sequence[Repository], fixed: Iterable[str], max_models: int) -> None:
        """Load from ``repositories`` from now on; see the class."""
        self.repositories = Repositories(repositories, fixed)
        self._max_models = max_models
        paths = {each.path: each for each in repositories}
        self.homes = {name: paths.get(home.path, home) for name, home in self.homes.items()}

    def take_over(self, served: Mapping[str, Target], failed: Mapping[str, LoadError]) -> list[Freeing]:
        freeing: list[Freeing] = []
        for name, model in served.items():
            old, files = self._models.get(name), self._files.pop(name, None)
            if old is not None:
                model.continue_statistics(old.statistics)
                freeing.append(partial(free, old, files, model))
            model.join(self._hooks)
            self._models[name] = model
            for known in (self._absent, self._gone, self._not_renewed, self.homes):
                known.pop(name, None)
            if model.upstream is None and name not in self.repositories.fixed:
                home = self.repositories.home(name)
                self.homes |= {} if home is None else {name: home}
        self._absent |= {name: absent_by(name, error) for name, error in failed.items()}
        self.changes.happened()
        return freeing

    def release(self, names: Iterable[str]) -> list[Freeing]:
        freeing: list[Freeing] = []
        for name in names:
            old, files = self._models.pop(name, None), self._files.pop(name, None)
            if old is not None:
                freeing.append(partial(free, old, files))
            for known in (self._absent, self._gone, self._not_renewed, self.homes):
                known.pop(name, None)
            for chosen in (self._only_needed, self._loaded_by_clients, self.requested_models):
                chosen.discard(name)
        self.changes.happened()
        return freeing

    async def close(self) -> None:
        await self._tasks.finish()
        # at once, because a model in a process of its own takes some time to end
        await asyncio.gather(*(free(target, self._files.get(name)) for name, target in self._models.items()))

    # --- how it is done

    async def _load_with_needs(
        self, name: str, repository: Repository, control: ModelControl, above: tuple[str, ...]
    ) -> None:
        """Load a model after those that it needs; ``above`` are the models whose load needs this one."""
        source = replace(repository.source(name), config=control.config)
        try:
            for needed in await asyncio.to_thread(needed_models, source):
                home = self.repositories.controlled_home(needed)
                if home is None or needed in self._models or needed in above:
                    continue
                try:
                    self._count_load(needed)
                    self._only_needed.add(needed)
                    await self._load_with_needs(needed, home, PLAIN, (*above, needed))
                except InferenceError as error:
                    reason = f"it needs model '{needed}': {error.message}"
                    raise _not_loaded(error.code, name, reason) from error
            await self._load(name, repository, control)
        finally:
            if not self.knows(name):  # no unload would count it out
                self._loaded_by_clients.discard(name)

    def _count_load(self, name: str) -> None:
        """Count a model that a client loads. Raises FORBIDDEN above the limit."""
        loaded = self._loaded_by_clients
        if name in self._models or name in loaded:
            return
        if len(loaded) >= self._max_models:
            reason = f"clients have loaded {len(loaded)} models, as many as max_models permits; unload one"
            raise _not_loaded(ErrorCode.FORBIDDEN, name, reason)
        loaded.add(name)

    async def _load(self, name: str, repository: Repository, control: ModelControl) -> None:
        async with self._locks[name]:
            self.homes[name] = repository
            old = self._models.get(name)
            before = await self.status(name) or ModelStatus(name)
            reported = self._failure(name)
            if old is None:
                loading = all_in(before, ModelState.LOADING)
                self._absent[name] = Absent(loading, f"model '{name}' is being loaded")
                self.changes.happened()
            try:
                model, sent = await asyncio.to_thread(load_from, repository, name, control, reusable(old))
                if model is not old and not loses_versions(model, old):
                    await self._warm(model, sent, old)
            except Exception as error:
                # an engine may raise anything, and the model must not stay in the state of being loaded
                why = error if isinstance(error, LoadError) else LoadError(f"{type(error).__name__}: {error}")
                # loads that are retried report a reason once
                level = logging.DEBUG if str(why) in reported else logging.ERROR
                _log.log(level, "model failed to load", extra={"facts": {"model": name, "reason": str(why)}})
                if old is None:
                    self._absent[name] = absent_by(name, why, before.config)
                else:
                    self._not_renewed[name] = why
                self.changes.happened()
                reason = f"no version is available: {why}"
                raise _not_loaded(ErrorCode.MODEL_FAILED, name, reason) from error
            self._not_renewed.pop(name, None)
            if model is old:
                _log.debug("model unchanged", extra={"facts": {"model": name}})
            elif loses_versions(model, old):
                # versions that work are not lost because others cannot be loaded
                self._not_renewed[name] = partial_failure(model)
                self._tasks.start(free(model, sent, old))
            else:
                self._serve(model, sent, before)
            self.changes.happened()
        if model.failed:
            numbers = ",".join(sorted(model.failed, key=int))
            facts = {"model": name, "versions": numbers, "reason": str(partial_failure(model))}
            _log.error("model versions failed to load", extra={"facts": facts})
            raise _not_loaded(ErrorCode.MODEL_FAILED, name, f"versions that are not available: {numbers}")

    async def _warm(self, model: Target, sent: SentFiles | None, old: Target | None) -> None:
        """Have ``model`` run its samples. Raises ``LoadError`` after freeing all that ``model`` does not
        share with ``old``."""
        model.join(self._hooks)
        try:
            await model.warm_up(old)
        except LoadError:
            self._tasks.start(free(model, sent, old))
            raise

    def _serve(self, model: Target, sent: SentFiles | None, before: ModelStatus) -> None:
        """Replace the model of that name, whose status was ``before``."""
        name = model.name
        old, old_files = self._models.get(name), self._files.pop(name, None)
        model.continue_statistics({each.version: each.statistics for each in before.versions})
        self._models[name] = model
        self._absent.pop(name, None)
        self._gone.pop(name, None)
        if sent is not None:
            self._files[name] = sent
        if old is not None:
            self._tasks.start(free(old, old_files, model))
        _log.info("model loaded", extra={"facts": {"model": name, "versions": ",".join(model.loaded)}})

    async def _unload(self, name: str, dependents: bool = False, gone: bool = False) -> None:
        """Unload a model, with its ``dependents``, for good if its files are ``gone``."""
        async with self._locks[name]:
            before = await self.status(name) or ModelStatus(name)
            target = self._models.pop(name, None)
            self._not_renewed.pop(name, None)
            self._only_needed.discard(name)
            self._loaded_by_clients.discard(name)
            unloaded = None if gone else Absent(all_in(before, ModelState.UNAVAILABLE, UNLOADED), "")
            unloading = Absent(all_in(before, ModelState.UNLOADING), "")
            self._absent[name] = unloading
            if target is None:
                self._freed(unloading, unloaded)
            else:
                self._tasks.start(self._free(target, self._files.pop(name, None), unloading, unloaded))
            self.changes.happened()
        _log.info("model unloaded", extra={"facts": {"model": name}})
        if dependents and target is not None:
            for needed in self._only_needed.intersection(target.needs):
                if not any(needed in model.needs for model in self._models.values()):
                    await self._unload(needed, dependents=True)

    async def _free(
        self, target: Target, files: SentFiles | None, unloading: Absent, unloaded: Absent | None
    ) -> None:
        await free(target, files)
        self._freed(unloading, unloaded)

    def _freed(self, unloading: Absent, unloaded: Absent | None) -> None:
        """Replace the status ``unloading`` by ``unloaded``; None if the files were removed: then only the
        status is kept, for clients that read the counts."""
        name = unloading.status.name
        # it may have been loaded again meanwhile
        if self._absent.get(name) is not unloading:
            return
        if unloaded is None:
            del self._absent[name]
            self._gone[name] = all_in(unloading.status, ModelState.UNAVAILABLE, UNLOADED)
            while len(self._gone) > _KEPT_GONE:
                del self._gone[next(iter(self._gone))]
            self.homes.pop(name, None)
            self.requested_models.discard(name)
        else:
            self._absent[name] = unloaded
        # front ends get a snapshot after each change
        self.changes.happened()

    async def _status_or_name(self, name: str) -> ModelStatus:
        try:
            async with asyncio.timeout(_STATUS_SECS):
                return await self.status(name) or ModelStatus(name)
        except (InferenceError, TimeoutError) as error:
            _log.warning("model status unavailable", extra={"facts": {"model": name, "reason": str(error)}})
            return ModelStatus(name)

    def _failure(self, name: str) -> str:
        """Why the last load of a model failed, if that still counts."""
        absent = self._absent.get(name)
        return absent.blocks if absent is not None else str(self._not_renewed.get(name, ""))

    def _remote(self, name: str, control: ModelControl) -> Target | None:
        """The upstream's model ``name`` if clients may control it there. Raises UNSUPPORTED for arguments
        that an upstream cannot take, NOT_FOUND for an unknown model if there is no repository."""
        target = self._models.get(name)
        if not (self.repositories.by_precedence or self.knows(name)):
            text = f"Request for unknown model: '{name}' is not found: no upstream of this server lists it"
            raise InferenceError(ErrorCode.NOT_FOUND, text, origin=name)
        if target is None or not target.controlled:
            return None
        if control.repository or control.config is not None or control.files:
            raise unsupported(
                f"model '{name}' is behind another server: no repository, configuration or files can be "
                f"given with its load",
                origin=name,
            )
        return target


def _not_loaded(code: ErrorCode, name: str, why: str) -> InferenceError:
    return InferenceError(code, f"failed to load '{name}', {why}", origin=name)
