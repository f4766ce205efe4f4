"""Polls repositories whose models follow their files, and updates the catalog.

A model is loaded or unloaded when its files have changed and two polls in a row find the same: files that are
still being written are left alone. A model that failed is tried again when its files change.

Models of the configuration that run on other machines follow their files too. One that failed is tried again
with each poll, because the machines may be the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import ALL, ModelSource, Repository
from interlingua.runtime.repository.snapshot import Snapshot

SETTLE_SECS = 1.0
"""The longest time until changed files are polled again, to see whether they have settled."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatedModel(Repository):
    """A model of the configuration, as a repository with nothing else. Hashed by its path."""

    stated: ModelSource | None = field(default=None, hash=False)

    @classmethod
    def of(cls, source: ModelSource) -> StatedModel:
        assert source.path is not None, "only files can be followed"  # noqa: S101
        return cls(source.path.parent, name=source.name, limits=source.limits, stated=source)

    def source(self, name: str) -> ModelSource:
        assert self.stated is not None, "it is of a source"  # noqa: S101
        return self.stated


@dataclass(frozen=True, slots=True)
class _Sight:
    repository: Repository
    files: Snapshot


@dataclass(slots=True)
class _Scan:
    """The models of one poll, and the paths of those that were unreadable."""

    models: dict[str, _Sight] = field(default_factory=dict)
    unclear: set[Path] = field(default_factory=set)


class Poller:
    """Polls the watched models of ``catalog``, and those of the ``stated`` sources that are followed, every
    ``secs``. ``start`` it on the catalog's event loop, and ``stop`` it before the catalog is closed."""

    def __init__(self, catalog: ModelCatalog, secs: float, stated: Iterable[ModelSource] = ()) -> None:
        self._catalog = catalog
        self._secs = secs
        self._stated = {each.name: StatedModel.of(each) for each in stated if each.followed}
        self._followed: dict[str, _Sight] = {}
        self._last: Mapping[str, _Sight] = {}
        self._unreadable: dict[Path, str] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def is_needed(self) -> bool:
        watched = any(each.watched for each in self._catalog.repositories.by_precedence)
        return watched or bool(self._stated)

    def start(self) -> None:
        """Poll from now on, starting from the files that the models were loaded from."""
        self._followed = self._last = dict(self._served())
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Poll no more. A load that has begun continues."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def poll(self) -> bool:
        """Poll once and load what has changed and settled. Returns whether something has changed and not
        settled."""
        scan = await asyncio.to_thread(self._scan)
        now, before, self._last = scan.models, self._last, scan.models
        due: dict[str, Repository | None] = {}
        unsettled = False
        for name in now.keys() | self._followed.keys():
            seen, followed = now.get(name), self._followed.get(name)
            again = name in self._stated and self._catalog.blocking(name) is not None
            if seen == followed and not again:
                continue
            if followed is not None and followed.repository.path / name in scan.unclear:
                continue
            if seen != before.get(name):
                unsettled = True
            elif seen is None:
                del self._followed[name]
                due[name] = None
            else:
                self._followed[name] = seen
                due[name] = seen.repository
        await asyncio.gather(*(self._catalog.follow(name, home) for name, home in due.items()))
        return unsettled

    # --- how it is done

    async def _run(self) -> None:
        secs = self._secs
        while True:
            await asyncio.sleep(secs)
            try:
                unsettled = await self.poll()
            except Exception:
                # models have to follow their files after any error
                _log.exception("repository poll failed")
                unsettled = False
            secs = min(self._secs, SETTLE_SECS) if unsettled else self._secs

    def _served(self) -> Iterator[tuple[str, _Sight]]:
        """The watched models that are served, with their files as they were loaded."""
        for name, model in self._catalog.models.items():
            origin = model.origin
            if origin is None or origin.files is None:
                continue
            if name in self._stated:
                yield name, _Sight(self._stated[name], origin.files)
                continue
            for repository in self._catalog.repositories.by_precedence:
                if _watches(repository, name) and repository.source(name) == origin.stated:
                    yield name, _Sight(repository, origin.files)

    def _scan(self) -> _Scan:
        """Scan every watched model. Blocks."""
        scan = _Scan()
        for name, model in self._stated.items():
            try:
                files = model.source(name).snapshot()
                if files is not None:
                    scan.models[name] = _Sight(model, files)
            except OSError:
                # files that are gone do not stop replicas that have loaded them
                scan.unclear.add(model.path / name)
        seen = set(self._catalog.repositories.fixed)
        for repository in self._catalog.repositories.by_precedence:
            names = self._names(repository)
            if names is None:
                # that does not mean that its models are gone
                names = [name for name, sight in self._followed.items() if sight.repository == repository]
                scan.unclear.update(repository.path / name for name in names)
            for name in names:
                path = repository.path / name
                if name in seen or path in scan.unclear or not self._is_watched(name, repository):
                    continue
                seen.add(name)
                try:
                    files = repository.source(name).snapshot()
                    if files is not None:
                        scan.models[name] = _Sight(repository, files)
                except OSError:
                    # it is being written, or was just removed
                    if repository.folder(name).exists():
                        scan.unclear.add(path)
        return scan

    def _is_watched(self, name: str, repository: Repository) -> bool:
        """Whether ``name`` follows its files in ``repository``; not if it was loaded from one without a
        watch."""
        home = self._catalog.homes.get(name)
        return _watches(repository, name) and (home is None or _watches(home, name))

    def _names(self, repository: Repository) -> list[str] | None:
        """The models that ``repository`` holds; None if it is unreadable, which is logged once."""
        try:
            names = repository.names()
        except LoadError as error:
            if self._unreadable.get(repository.path) != str(error):
                _log.error("repository unreadable", extra={"facts": {"reason": str(error)}})
            self._unreadable[repository.path] = str(error)
            return None
        self._unreadable.pop(repository.path, None)
        return names


def _watches(repository: Repository, name: str) -> bool:
    return repository.watched == ALL or name in repository.watched
