"""The program of a replica: one of our models, with its versions, batches and limits, in a process of Ray.

A replica serves *generations* of the files. Serve changes its configuration in place, so during a rolling
update it has the generation that the daemon still requests and the next one; unchanged versions are the same
in both. A generation that does not load leaves the others as they are.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, NoReturn, cast

import ray
from ray import serve

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.models.statistics import Execution
from interlingua.runtime.models.tensor_version import TensorVersion
from interlingua.runtime.ray_serve.facts import ModelFacts, ReplicaReport, VersionFacts
from interlingua.runtime.ray_serve.loopback import bind_to_loopback
from interlingua.runtime.ray_serve.messages import (
    ANOTHER_GENERATION,
    PackedAnswer,
    PackedRequest,
    pack_answer,
    pack_error,
    unpack_request,
)
from interlingua.runtime.repository.files import ModelSource, load_model
from interlingua.runtime.target import ServerHooks, Version
from interlingua.schemas import (
    InferenceError,
    ModelMetadata,
    ModelStatus,
    Readiness,
    unavailable,
    unsupported,
)

_KEPT_EXECUTIONS = 256

if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
    bind_to_loopback()


class Replica:
    """Serves the model of :class:`ModelSource`; :meth:`reconfigure` comes before the first request."""

    def __init__(self) -> None:
        self._models: dict[str, LocalModel] = {}
        self._failed: dict[str, str] = {}
        self._executions: dict[int, tuple[Execution, int]] = {}
        self._running = self._answered = self._executed = 0
        self._loading = asyncio.Lock()
        self._id = serve.get_replica_context().replica_id.unique_id

    async def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Serve the generations of ``config``, of which the last is that of the files now. Raises
        ``LoadError`` if there is none that loads: Serve then starts another replica."""
        # by way of Serve, whose ports execute code anyway
        source = cast(ModelSource, pickle.loads(bytes.fromhex(config["source"])))  # noqa: S301
        wanted: list[str] = config["generations"]
        async with self._loading:
            newest = wanted[-1]
            if newest not in self._models:
                await self._load(source, newest)
            for generation in [each for each in self._models if each not in wanted]:
                model = self._models.pop(generation)
                await model.give_way(self._models.get(newest))
        if not self._models:
            raise LoadError(self._failed[newest])

    async def _load(self, source: ModelSource, generation: str) -> None:
        before = next(reversed(self._models.values()), None)
        self._failed = {}
        try:
            model = await asyncio.to_thread(load_model, source, before)
            if model is not before:
                model.join(_HOOKS)
                await model.warm_up(before)
        except LoadError as error:
            self._failed = {generation: str(error)}
        else:
            self._models[generation] = cast(LocalModel, model)

    async def infer(self, packed: PackedRequest, *objects: Any) -> PackedAnswer:
        """The one answer of a version that is not decoupled."""
        self._running += 1
        try:
            request = unpack_request(self._name, packed, objects)
            answer = await self._version(packed).answer(request, packed.outputs)
            return pack_answer(self._id, answer, self._shared(answer.execution))
        except InferenceError as error:
            return self._failure(error)
        finally:
            self._running -= 1
            self._answered += 1

    async def stream(self, packed: PackedRequest, *objects: Any) -> AsyncIterator[PackedAnswer]:
        """The answers as they come, the last one final."""
        self._running += 1
        try:
            request = unpack_request(self._name, packed, objects)
            async with aclosing(self._version(packed).answers(request, packed.outputs)) as answers:
                async for answer in answers:
                    yield pack_answer(self._id, answer, self._shared(answer.execution))
        except InferenceError as error:
            yield self._failure(error)
        finally:
            self._running -= 1
            self._answered += 1

    async def report(self) -> ReplicaReport:
        versions = [each for model in self._models.values() for each in model.loaded.values()]
        return ReplicaReport(
            self._id,
            {
                generation: facts_of(model, await model.metadata(), await model.status())
                for generation, model in self._models.items()
            },
            dict(self._failed),
            ray.get_runtime_context().get_node_id(),
            os.getpid(),
            self._running,
            sum(each.waiting for each in {id(each): each for each in versions}.values()),
            self._answered,
            self._executed,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        )

    @property
    def _name(self) -> str:
        return next(iter(self._models.values())).name

    def _version(self, packed: PackedRequest) -> Version:
        model = self._models.get(packed.generation)
        # files may change between the daemon's look and a replica's
        if model is None or packed.version not in model.loaded:
            raise unavailable(
                f"a replica of model '{self._name}' has other files", details={ANOTHER_GENERATION: True}
            )
        return model.loaded[packed.version]

    def _failure(self, error: InferenceError) -> PackedAnswer:
        return PackedAnswer(self._id, (), {}, True, 0, error=pack_error(error))

    def _shared(self, execution: Execution | None) -> tuple[int, int] | None:
        """The number of a run that several requests share, and its rows. Each of them comes here."""
        if execution is None:
            self._executed += 1
            return None
        known = self._executions.get(id(execution))
        if known is None:
            self._executed += 1
            # kept, so that no other run gets its identity while its requests come
            known = self._executions[id(execution)] = execution, self._executed
            while len(self._executions) > _KEPT_EXECUTIONS:
                del self._executions[next(iter(self._executions))]
        return known[1], execution.rows


def facts_of(model: LocalModel, metadata: ModelMetadata, status: ModelStatus) -> ModelFacts:
    """What the daemon serves ``model`` by."""
    return ModelFacts(
        tuple(map(_version_facts, model.loaded.values())),
        dict(model.failed),
        metadata.platform,
        status.config,
    )


def _version_facts(version: Version) -> VersionFacts:
    number, signature = int(version.number), version.signature
    if isinstance(version, TensorVersion):
        return VersionFacts(number, signature, version.decoupled, version.leeway, version.default_outputs)
    return VersionFacts(number, signature, version.decoupled)


def _no_other_model(name: str) -> NoReturn:
    raise unsupported(f"a model on Ray calls no other model: '{name}'")


_HOOKS = ServerHooks(
    _no_other_model,
    lambda name, version: Readiness(False, f"a model on Ray calls no other model: '{name}'"),
    lambda: None,
)
