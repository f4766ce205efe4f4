"""The runtime process as front ends see it: their requests, calls on the catalog, and snapshots for all."""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from weakref import WeakKeyDictionary

from interlingua.runtime.front_end.snapshot import AbsentModel, ModelsSnapshot, ServedModel
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.ring.channel import Ends
from interlingua.runtime.ring.server import Calls, RuntimeServer
from interlingua.runtime.target import Target
from interlingua.schemas import (
    InferenceError,
    ListedModel,
    ModelControl,
    ModelMetadata,
    ModelStatus,
    Signature,
)

_PATIENCE_SECS = 1.0
"""How long a load waits for front ends to apply it: one that is stopped does not hold it for longer."""

_log = logging.getLogger(__name__)


class Hub:
    """Serves the models of ``catalog`` to front ends. Use on one event loop."""

    def __init__(self, catalog: ModelCatalog) -> None:
        self._catalog = catalog
        self._front_ends: set[RuntimeServer] = set()
        self._snapshot = ModelsSnapshot()
        self._instances: WeakKeyDictionary[Target, int] = WeakKeyDictionary()
        # a process that is started later has other numbers
        self._numbers = count(time.monotonic_ns())
        self._watching: asyncio.Task[None] | None = None
        self._calls: Calls = {
            "decoupled": self._decoupled,
            "signature": self._signature,
            "metadata": self._metadata,
            "status": catalog.status,
            "statuses": self._statuses,
            "index": catalog.index,
            "load": self._load,
            "unload": self._unload,
            "serve_only": self._serve_only,
        }

    def connect(self, ends: Ends) -> None:
        """Serve the front end at the other end of ``ends``. Raises ``OSError``."""

        def lost() -> None:
            self._front_ends.discard(front_end)

        front_end = RuntimeServer(ends, self._catalog.find, self._calls, lost)
        self._front_ends.add(front_end)
        self._publish()
        front_end.notify(pickle.dumps(self._snapshot))
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """Disconnect from all front ends, and cancel their requests."""
        if self._watching is not None:
            self._watching.cancel()
        await asyncio.gather(*(each.close() for each in self._front_ends))

    async def _watch(self) -> None:
        changes = self._catalog.changes
        while True:
            number = changes.count
            self._publish()
            await changes.since(number, None)

    def _publish(self) -> None:
        """Send a snapshot if it differs from the last one."""
        last = self._snapshot
        now = replace(self._take_snapshot(), number=last.number)
        if now == last and last.number:
            return
        self._snapshot = replace(now, number=last.number + 1)
        notice = pickle.dumps(self._snapshot)
        for front_end in self._front_ends:
            try:
                front_end.notify(notice)
            except InferenceError as error:
                _log.error("models not sent to front end", extra={"facts": {"reason": error.message}})

    def _take_snapshot(self) -> ModelsSnapshot:
        catalog = self._catalog
        models = {name: model for name, model in catalog.models.items() if model.upstream is None}
        return ModelsSnapshot(
            served={
                name: ServedModel(
                    self._instance(model),
                    {number: version.readiness() for number, version in model.loaded.items()},
                    dict(model.failed),
                    bool(model.needs),
                    model.version_names,
                )
                for name, model in models.items()
            },
            absent={
                name: AbsentModel(catalog.known_versions(name), catalog.blocking(name))
                for name in (*catalog.names(), *catalog.gone)
                if name not in catalog.models
            },
            requested=frozenset(catalog.requested_models),
        )

    def _instance(self, model: Target) -> int:
        number = self._instances.get(model)
        if number is None:
            number = self._instances[model] = next(self._numbers)
        return number

    # --- calls

    async def _decoupled(self, name: str, version: str) -> bool:
        return await self._catalog.find(name).decoupled(version)

    async def _signature(self, name: str, version: str) -> Signature:
        return await self._catalog.find(name).signature(version)

    async def _metadata(self, name: str, version: str) -> ModelMetadata:
        return await self._catalog.find(name).metadata(version)

    async def _statuses(self) -> dict[str, ModelStatus]:
        """Those of the models that run here."""
        catalog = self._catalog
        found: dict[str, ModelStatus] = {}
        for name in (*catalog.gone, *catalog.names()):
            target = catalog.models.get(name)
            if target is None or target.upstream is None:
                found[name] = await catalog.status(name) or ModelStatus(name)
        return found

    async def _load(self, name: str, control: ModelControl) -> None:
        await self._carry_out(self._catalog.load, name, control)

    async def _unload(self, name: str, control: ModelControl) -> None:
        await self._carry_out(self._catalog.unload, name, control)

    async def _serve_only(self, listed: Sequence[ListedModel]) -> None:
        await self._carry_out(self._catalog.serve_only, listed)

    async def _carry_out(self, act: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Carry out ``act``; return when every front end has applied the result, so that no caller sees the
        server in two states."""
        try:
            await act(*arguments)
        finally:
            await self.settle()

    async def settle(self) -> None:
        """Return when every front end serves what the catalog has now, except for one that is stopped."""
        self._publish()
        number = self._snapshot.number
        waiting = [asyncio.ensure_future(each.seen(number)) for each in self._front_ends]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=_PATIENCE_SECS)
            for each in late:
                each.cancel()
