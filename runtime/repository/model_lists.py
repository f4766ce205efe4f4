"""Lists of all models that clients want to be served, applied one after the other.

Models that a list omits are unloaded after all in it are loaded, so that no request misses a model that
both the last list and this one have.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interlingua.runtime.repository.files import Repository
from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.repository.repositories import Repositories
from interlingua.schemas import ErrorCode, InferenceError, ListedModel, ModelControl


@dataclass(slots=True)
class ModelLists:
    """Applies lists of models to ``catalog``, one at a time."""

    catalog: KnownModels
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def apply(
        self, listed: Sequence[ListedModel], repositories: Repositories, homes: Mapping[str, Repository]
    ) -> None:
        """See ``KnownModels.serve_only``. ``homes`` are the repositories that models are from."""
        async with self._lock:
            repositories.check_any_control()
            catalog = self.catalog
            served = frozenset(catalog.models)
            chosen = await asyncio.to_thread(_controlled, listed, repositories, served)
            await self._load(chosen, served)
            kept = self._with_needs(model.name for model in listed)
            for name in catalog.names():
                home = homes.get(name)
                controlled = home is not None and home.controlled and name not in repositories.fixed
                if controlled and name not in kept and catalog.blocking(name) != "":
                    await catalog.unload(name)

    async def _load(self, chosen: Sequence[ListedModel], served: frozenset[str]) -> None:
        """Load the models in turn. Raises MODEL_FAILED if one fails, after unloading those that were not
        ``served`` before."""
        catalog = self.catalog
        try:
            for model in chosen:
                await catalog.load(model.name, ModelControl(versions=model.versions))
        except InferenceError as error:
            for model in chosen:
                if model.name not in served and catalog.blocking(model.name) != "":
                    await catalog.unload(model.name)
            if error.code is not ErrorCode.MODEL_FAILED:
                raise
            raise InferenceError(
                ErrorCode.MODEL_FAILED,
                f"Some models did not become available: {{{error.origin}}}: {error.message}",
                origin=error.origin,
            ) from error

    def _with_needs(self, names: Iterable[str]) -> set[str]:
        """``names``, and the models that these need, directly or not."""
        kept: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in kept:
                kept.add(name)
                target = self.catalog.models.get(name)
                waiting.extend(() if target is None else target.needs)
        return kept


def _controlled(
    listed: Iterable[ListedModel], repositories: Repositories, served: frozenset[str]
) -> list[ListedModel]:
    """Those of ``listed`` that clients control; the others are ``served`` whatever clients want. Reads
    folders. Raises NOT_FOUND."""
    found: list[ListedModel] = []
    for model in listed:
        home = repositories.controlled_home(model.name)
        if home is not None and _is_same(home.folder(model.name), model.path):
            found.append(model)
        elif home is not None or model.name not in served:
            raise InferenceError(
                ErrorCode.NOT_FOUND,
                f"Could not find base path {model.path} for servable {model.name}: no repository that "
                "clients may control has the model there",
                origin=model.name,
            )
    return found


def _is_same(folder: Path, path: str) -> bool:
    # os.path, because a client's path may be too long for pathlib
    try:
        return os.path.realpath(folder) == os.path.realpath(path)
    except (OSError, ValueError):
        return False
