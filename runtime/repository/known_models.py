"""The models that a server knows, as requests look them up: served ones, and why others are not served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.changes import Changes
from interlingua.runtime.models.model import UNLOADED
from interlingua.runtime.repository.joined_names import JoinedNames
from interlingua.runtime.target import Target
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ListedModel,
    ModelControl,
    ModelStatus,
    Readiness,
)

PLAIN = ModelControl()

Freeing = Callable[[], Coroutine[None, None, None]]
"""Frees a model that is no longer served, after its last request."""


class KnownModels:
    """``models`` is the live mapping of served models; ``changes`` reports changes of :meth:`readiness` of
    local models; ``requested_models`` are those that clients or new files have loaded. Subclasses implement
    the methods up to :meth:`close`. Use on one event loop."""

    def __init__(self, models: Mapping[str, Target]) -> None:
        self._models = dict(models)
        self.models: Mapping[str, Target] = self._models
        self.requested_models: set[str] = set()
        self.changes = Changes()
        self.joined = JoinedNames(self.models).resolve

    def names(self) -> list[str]:
        """All known models, sorted, except those without files."""
        raise NotImplementedError

    def known_versions(self, name: str) -> tuple[str, ...]:
        """The versions of a model that is not served."""
        raise NotImplementedError

    def blocking(self, name: str) -> str | None:
        """Why the server is not ready without a model that is not served; empty if a client has unloaded it,
        None if it is unknown."""
        raise NotImplementedError

    async def status(self, name: str) -> ModelStatus | None:
        """The status of one model, also after its files were removed; None for an unknown one. Raises
        UNAVAILABLE if an upstream does not answer."""
        raise NotImplementedError

    async def statuses(self) -> dict[str, ModelStatus]:
        """The status of every known model, also of those without files; only a name if its upstream does not
        answer."""
        raise NotImplementedError

    async def index(self, repository: str = "") -> tuple[ModelStatus, ...]:
        """Every known model, and by name alone all others in the repositories; only those of ``repository``
        if it is not empty. Raises UNSUPPORTED for an unknown repository."""
        raise NotImplementedError

    async def load(self, name: str, control: ModelControl = PLAIN) -> None:
        """Load a model, or load it again; if that fails, the served one stays. Models that it needs are
        loaded before it if they are not served and may be loaded.

        Raises UNAVAILABLE if loading is not allowed, FORBIDDEN for a configuration or files that are not
        allowed, UNSUPPORTED for an unknown repository, INTERNAL in the original servers' words for an unknown
        model, MODEL_FAILED if a version could not be loaded.
        """
        raise NotImplementedError

    async def unload(self, name: str, control: ModelControl = PLAIN) -> None:
        """Accept no more requests for a model and free it after those in flight, without waiting for that;
        with ``control.dependents`` also the models that were loaded only for it. An unknown model counts as
        unloaded, unless it must be ``served``. Raises UNAVAILABLE if unloading is not allowed, UNSUPPORTED
        for an unknown repository, NOT_FOUND."""
        raise NotImplementedError

    async def serve_only(self, listed: Sequence[ListedModel]) -> None:
        """Load the ``listed`` models of repositories that clients may control, then unload all others there,
        except those that a listed one needs. If one cannot be loaded, nothing is unloaded but what this call
        has loaded.

        Raises UNAVAILABLE if clients may control no repository, NOT_FOUND for a model that neither a
        repository has at this path nor the server serves otherwise, MODEL_FAILED if one could not be loaded.
        """
        raise NotImplementedError

    def take_over(self, served: Mapping[str, Target], failed: Mapping[str, LoadError]) -> list[Freeing]:
        """Serve ``served`` from now on; ``failed`` could not be loaded. Returns what frees those that they
        replace."""
        raise NotImplementedError

    def release(self, names: Iterable[str]) -> list[Freeing]:
        """Forget the models ``names``. Returns what frees them."""
        raise NotImplementedError

    async def warm_up(self) -> None:
        """Have every model run its samples before clients connect. A model that fails is not served, as one
        that could not be loaded."""
        raise NotImplementedError

    async def close(self) -> None:
        """Finish loads and requests, then free every model."""
        raise NotImplementedError

    # --- derived from these

    @property
    def is_empty(self) -> bool:
        """Whether no model is served, or would be if no client had unloaded it."""
        return not self._models and all(map(self.blocking, self.names()))

    @property
    def reports_all_changes(self) -> bool:
        """Whether ``changes`` covers every model."""
        return all(model.reports_changes for model in self._models.values())

    def find(self, name: str) -> Target:
        """The served model of that name. Raises NOT_FOUND."""
        target = self._models.get(name)
        if target is None:
            raise self.missing(name)
        return target

    def missing(self, name: str, version: str = "") -> InferenceError:
        """NOT_FOUND for a model that is not served, in Triton's words, which clients match on."""
        known = self.known_versions(name)
        if not known:
            why = "is not found"
        elif not version:
            why = "has no available versions"
        else:
            why = f"version {version} is {'not at ready state' if version in known else 'not found'}"
        return InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' {why}", origin=name)

    def standing(self, name: str, version: str = "") -> Readiness:
        """Whether a model would run now, without a request to an upstream."""
        target = self._models.get(name)
        if target is None:
            return Readiness(False, self.absence(name))
        return target.readiness(version)

    def absence(self, name: str) -> str:
        """Why a model is not served."""
        blocking = self.blocking(name)
        if blocking is None:
            return "it is not known here"
        return blocking or f"it is {UNLOADED}"

    async def readiness(self, names: Iterable[str]) -> Readiness:
        """Whether each of ``names`` is ready with all its versions or unloaded by a client; else the first
        that is not."""
        served = []
        for name in sorted(names):
            target = self._models.get(name)
            if target is not None:
                served.append(target)
            elif blocking := self.blocking(name):
                return Readiness(False, blocking)
        for target in served:
            for version, reason in target.failed.items():
                return Readiness(False, f"model '{target.name}' version {version} is not ready: {reason}")
        said = await asyncio.gather(*(target.ready() for target in served))
        for target, state in zip(served, said, strict=True):
            if not state.ready and not target.unloaded:
                return state
        return Readiness(True)
