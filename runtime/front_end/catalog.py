"""The catalog of a front end: models of upstreams are here, all others in the runtime process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from interlingua.protocols.transport.memory import unfilled
from interlingua.runtime.front_end.link import RuntimeLink
from interlingua.runtime.front_end.model import RuntimeModel
from interlingua.runtime.front_end.snapshot import ModelsSnapshot
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.known_models import PLAIN, Freeing, KnownModels
from interlingua.runtime.target import Target
from interlingua.schemas import ListedModel, ModelControl, ModelStatus

_SHARED_BYTES = 1 << 16
"""Smaller messages get other memory: a copy of their tensors costs as little as a block of an arena."""


class FrontEndCatalog(KnownModels):
    """``remote`` are the models of upstreams. Connect its ``link`` before the first request."""

    def __init__(self, remote: Mapping[str, Target]) -> None:
        super().__init__(remote)
        self._here = ModelCatalog(remote)
        self._snapshot = ModelsSnapshot()
        self.link = RuntimeLink(self._apply, self.changes.happened)

    def allocate(self, size: int) -> memoryview:
        """Memory to receive a message of ``size`` bytes into. The runtime process reads large tensors there
        in place, unless there is no space, or no model. Raises ``MemoryError``."""
        if size >= _SHARED_BYTES and self._snapshot.served and self.link.connected:
            block = self.link.client.allocate(size)
            if block is not None:
                return block
        return unfilled(size)

    def names(self) -> list[str]:
        known = (name for name, absent in self._snapshot.absent.items() if absent.blocks is not None)
        return sorted({*self._models, *known})

    def known_versions(self, name: str) -> tuple[str, ...]:
        absent = self._snapshot.absent.get(name)
        return () if absent is None else absent.versions

    def blocking(self, name: str) -> str | None:
        absent = self._snapshot.absent.get(name)
        return None if absent is None else absent.blocks

    async def status(self, name: str) -> ModelStatus | None:
        if name in self._here.models:
            return await self._here.status(name)
        found: ModelStatus | None = await self.link.client.call("status", name)
        return found

    async def statuses(self) -> dict[str, ModelStatus]:
        there, here = await asyncio.gather(self.link.client.call("statuses"), self._here.statuses())
        return {**there, **here}

    async def index(self, repository: str = "") -> tuple[ModelStatus, ...]:
        found: tuple[ModelStatus, ...] = await self.link.client.call("index", repository)
        return found

    async def load(self, name: str, control: ModelControl = PLAIN) -> None:
        await self._control("load", name, control)

    async def unload(self, name: str, control: ModelControl = PLAIN) -> None:
        await self._control("unload", name, control)

    async def serve_only(self, listed: Sequence[ListedModel]) -> None:
        # the runtime process knows no models of upstreams
        others = [model for model in listed if model.name not in self._here.models]
        await self.link.client.call("serve_only", others)

    def take_over(self, served: Mapping[str, Target], failed: Mapping[str, LoadError]) -> list[Freeing]:
        """See ``KnownModels``: of the models of upstreams."""
        freeing = self._here.take_over(served, failed)
        self._models.update(served)
        self.changes.happened()
        return freeing

    def release(self, names: Iterable[str]) -> list[Freeing]:
        """See ``KnownModels``: of the models of upstreams. The runtime process may serve others under the
        names."""
        gone = {name: self._here.models[name] for name in names if name in self._here.models}
        for name, target in gone.items():
            if self._models.get(name) is target:
                del self._models[name]
        freeing = self._here.release(gone)
        self._apply(self._snapshot)
        return freeing

    async def warm_up(self) -> None:
        """The runtime process does."""

    async def close(self) -> None:
        """Disconnect from the runtime process, and free the models here."""
        self.link.close()
        await self._here.close()

    async def _control(self, act: str, name: str, control: ModelControl) -> None:
        target = self._here.models.get(name)
        if target is not None and target.controlled:
            await (self._here.load if act == "load" else self._here.unload)(name, control)
        else:
            await self.link.client.call(act, name, control)

    def _apply(self, snapshot: ModelsSnapshot) -> None:
        """Serve the models of ``snapshot``. One that was loaded again becomes another target, because what is
        remembered of a target is remembered by its identity."""
        self._snapshot = snapshot
        for name in self._models.keys() - snapshot.served.keys() - self._here.models.keys():
            del self._models[name]
        for name, served in snapshot.served.items():
            if name in self._here.models:
                continue
            known = self._models.get(name)
            if isinstance(known, RuntimeModel) and known.served.instance == served.instance:
                known.served = served
            else:
                self._models[name] = RuntimeModel(name, self.link, served)
        self.requested_models = set(snapshot.requested)
        self.changes.happened()
