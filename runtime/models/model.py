"""A model that runs here: its loaded versions, and how a request waits for one of them.

``LocalModel`` chooses the version, has the request checked and run, and stops waiting when the caller's
deadline passes or the caller goes away. What a version is, and where it runs, belongs to
``runtime.models.version``; loading to ``runtime.repository.files``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from interlingua.runtime.backends import ServerHooks
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.model_config.message import with_decoupled
from interlingua.runtime.models.deadline import next_answer
from interlingua.runtime.models.only_answer import only_answer
from interlingua.runtime.models.response_cache import ResponseCache, key_of
from interlingua.runtime.models.statistics import (
    Course,
    batch_size,
    count_failure,
    count_hit,
    count_success,
    entered,
)
from interlingua.runtime.models.version import Version, checked, status_of
from interlingua.runtime.models.version_number import version_number
from interlingua.runtime.models.warmup import WarmupSample
from interlingua.runtime.repository.snapshot import Origin
from interlingua.runtime.target import Target
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelState,
    ModelStatus,
    Parameter,
    Readiness,
    Signature,
    VersionStatistics,
    VersionStatus,
)

UNLOADED = "unloaded"
"""The original servers' reason for a version that was served before."""


class LocalModel(Target):
    """A ``Target`` that runs here.

    ``versions`` are ready, at least one; ``failed`` tells for each version that the version policy
    wants and that could not be loaded why. ``config`` is the serialized ``inference.ModelConfig``,
    ``origin`` what it was loaded from; its requests go through the models that it ``needs``; ``samples`` are
    what :meth:`warm_up` runs. With ``caches`` it answers what it was asked before from the server's response
    cache, where there is one. Not bound to an event loop until the first request.
    """

    passthrough = None

    def __init__(
        self,
        name: str,
        versions: Sequence[Version],
        *,
        failed: Mapping[int, str] | None = None,
        platform: str = "",
        description: str = "",
        parameters: Mapping[str, Parameter] | None = None,
        config: bytes = b"",
        origin: Origin | None = None,
        needs: Sequence[str] = (),
        caches: bool = False,
        samples: Sequence[WarmupSample] = (),
    ) -> None:
        self.name = name
        self.origin = origin
        self.needs = tuple(needs)
        self.failed: Mapping[str, str] = {str(number): reason for number, reason in (failed or {}).items()}
        ordered = sorted(versions, key=lambda version: int(version.number))
        self._loaded = tuple(ordered)
        self._versions = {version.number: version for version in ordered}
        self._latest = ordered[-1]
        self._retired: Mapping[str, VersionStatistics] = {}
        self._platform = platform
        self._description = description
        self._parameters = parameters or {}
        self._config = config
        self._samples = samples
        self._caches = caches
        self._cache: ResponseCache | None = None
        self._closing = False
        self._hooks: ServerHooks | None = None

    @property
    def loaded(self) -> Mapping[str, Version]:
        """The versions that are ready, by number, ascending."""
        return self._versions

    @property
    def caches(self) -> bool:
        """Whether its answers go to the server's response cache."""
        return self._cache is not None

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run ``request`` on the version it asks for, the highest where it asks for none.

        Raises NOT_FOUND or UNAVAILABLE for a version that is not there, INVALID_TENSOR from the checks,
        UNSUPPORTED for a decoupled model (for its second answer, where its only one will do), OVERLOADED
        and UNAVAILABLE where too many wait or it has waited too long, DEADLINE_EXCEEDED, CANCELLED, and
        what the instance raises.
        """
        version = self._version(request.version)
        if version.learns:
            await version.learn()
        if version.decoupled:
            if request.answers == "only":
                return await only_answer(self.stream(request), self.name)
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                f"model '{self.name}' answers in a stream: a request for one answer "
                "doesn't support models with decoupled transaction policy",
            )
        size = batch_size(request, version.signature)
        statistics = entered(version.statistics, request.context)
        began = time.monotonic_ns()
        outputs = checked(version, request)
        ready = time.monotonic_ns()
        try:
            cache = self._cache if request.sequence is None else None
            if cache is not None:
                key = key_of(version.scope, request, outputs)
                if (known := cache.get(key, ready)) is not None:
                    count_hit(statistics, size, began, ready)
                    return InferResponse(
                        self.name, known.outputs, version.number, request.id, known.parameters
                    )
                looked_up = time.monotonic_ns()
            answer = await version.answer(request, outputs)
        except (InferenceError, asyncio.CancelledError) as end:
            # a caller that has gone away got no answer either
            count_failure(statistics, size, began, end)
            if isinstance(end, InferenceError):
                end.origin = end.origin or self.name
            raise
        started, ended = answer.started, answer.ended
        course = Course(began, ready, started, ended, time.monotonic_ns(), answer.gathering)
        count_success(statistics, size, course, answer.execution)
        request.context.timings.update(queue=started - ready, exec=ended - started)
        if cache is not None:
            stored = time.monotonic_ns()
            cache.put(key, version.scope, answer.outputs, answer.parameters)
            if statistics is not None:
                statistics.cache_miss.add(looked_up - ready + time.monotonic_ns() - stored)
        return InferResponse(self.name, answer.outputs, version.number, request.id, answer.parameters)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """The responses of a decoupled model as it gives them, else the one that :meth:`infer` gives.

        A response with an error is not the end, unless it is raised. Raises as :meth:`infer` does.
        """
        version = self._version(request.version)
        if version.learns:
            await version.learn()
        if not version.decoupled:
            yield await self.infer(request)
            return
        size = batch_size(request, version.signature)
        statistics = entered(version.statistics, request.context)
        began = time.monotonic_ns()
        outputs = checked(version, request)
        ready = time.monotonic_ns()
        started = 0
        answered = False
        try:
            async with aclosing(version.answers(request, outputs)) as answers:
                final = False
                while not final:
                    answer = await next_answer(answers, self.name, request.context)
                    started, final = started or answer.started, answer.final
                    if final:
                        if answer.error is not None:
                            raise answer.error
                        course = Course(began, ready, started, answer.ended, time.monotonic_ns())
                        count_success(statistics, size, course, answer.execution)
                        answered = True
                        request.context.timings.update(queue=started - ready, exec=answer.ended - started)
                    yield InferResponse(
                        self.name,
                        answer.outputs,
                        version.number,
                        request.id,
                        answer.parameters,
                        final,
                        answer.error,
                        ordered=False,
                    )
        except (InferenceError, asyncio.CancelledError, GeneratorExit) as end:
            if not answered:
                count_failure(statistics, size, began, end)
            if isinstance(end, InferenceError):
                end.origin = end.origin or self.name
            raise

    async def decoupled(self, version: str = "") -> bool:
        """Whether ``version`` answers any number of times."""
        found = self._version(version)
        if found.learns:
            await found.learn()
        return found.decoupled

    async def signature(self, version: str = "") -> Signature:
        """The signature of ``version``, of the highest where that is empty."""
        found = self._version(version)
        if found.learns:
            await found.learn_labels()
        return found.signature

    async def metadata(self, version: str = "") -> ModelMetadata:
        """The model as ``version`` declares it, with every version that is ready."""
        signature = self._version(version).signature
        return ModelMetadata(
            self.name,
            signature,
            tuple(self._versions),
            self._platform,
            self._description,
            self._parameters,
        )

    async def status(self) -> ModelStatus:
        """Every version that is ready, that could not be loaded, or that was served before."""
        reasons = {**dict.fromkeys(self._retired, UNLOADED), **self.failed}
        versions = [
            *(status_of(each) for each in self._loaded),
            *(
                VersionStatus(
                    number, ModelState.UNAVAILABLE, reason, self._retired.get(number) or VersionStatistics()
                )
                for number, reason in reasons.items()
            ),
        ]
        versions.sort(key=lambda version: int(version.version))
        latest = self._latest
        config = with_decoupled(self._config, latest.decoupled) if latest.learns else self._config
        return ModelStatus(self.name, config, tuple(versions))

    def continue_statistics(self, counted: Mapping[str, VersionStatistics]) -> None:
        """Count on from ``counted``, by version: a version that is loaded again starts no new count, and one
        that is served no more keeps what it has."""
        for version in self._loaded:
            version.statistics = counted.get(version.number, version.statistics)
        self._retired = {
            number: statistics for number, statistics in counted.items() if number not in self._versions
        }

    def join(self, hooks: ServerHooks) -> None:
        """It is served from now on, among the models that ``hooks`` tells of."""
        self._hooks = hooks
        if self._caches:
            self._cache = hooks.cache
        for version in self._loaded:
            version.join(hooks)

    async def warm_up(self, before: LocalModel | None = None) -> None:
        """Run the samples of the configuration on every version but those that are of ``before``. They are in
        no statistics. Raises ``LoadError`` naming the version and the sample that failed."""
        samples, self._samples = self._samples, ()
        for version in self._loaded:
            if before is not None and version in before._loaded:
                continue
            if version.learns:
                reason = await version.learn()
                if reason:
                    raise self._not_loaded(version.number, reason)
            for sample in samples:
                try:
                    await version.warm_up(sample)
                except InferenceError as error:
                    reason = f"warm-up '{sample.name}' failed: {error.message}"
                    raise self._not_loaded(version.number, reason) from error

    def _not_loaded(self, number: str, reason: str) -> LoadError:
        message = f"model '{self.name}', version {number}: {reason}"
        return LoadError(message, {int(number): reason}, self._config)

    async def ready(self, version: str = "") -> Readiness:
        """Whether ``version``, or any where that is empty, would be run now."""
        return self.readiness(version)

    def readiness(self, version: str = "") -> Readiness:
        """As :meth:`ready`, at once."""
        try:
            return self._version(version).readiness()
        except InferenceError as error:
            return Readiness(False, error.message)

    async def close(self) -> None:
        """Take no more requests, finish those in flight, then free every version. Requests that still come
        here go to the model that is served by this name then."""
        await self._close(())

    async def give_way(self, successor: LocalModel) -> None:
        """As :meth:`close`, but versions that ``successor`` has taken over stay."""
        await self._close(successor._loaded)

    async def _close(self, kept: Sequence[Version]) -> None:
        if self._closing:
            return
        self._closing = True
        for version in self._loaded:
            if version not in kept:
                await version.close()
                if self._cache is not None:
                    self._cache.forget(version.scope)

    def _version(self, requested: str) -> Version:
        if self._closing:
            return self._heir()._version(requested)
        if not requested:
            return self._latest
        version = self._versions.get(requested)
        return version or self._version_by_number(requested)

    def _heir(self) -> LocalModel:
        """The model that is served in place of this one, for requests that found this one a moment ago. It is
        looked up: to keep it would keep every model that ever had the name."""
        heir = None if self._hooks is None else self._hooks.find(self.name)
        if not isinstance(heir, LocalModel) or heir is self:
            raise InferenceError(
                ErrorCode.NOT_FOUND, f"Request for unknown model: '{self.name}' has no available versions"
            )
        return heir

    def _version_by_number(self, requested: str) -> Version:
        """The version under another spelling of its number, such as ``01``."""
        number = version_number(requested)
        if number in self._versions:
            return self._versions[number]
        unknown = f"Request for unknown model: '{self.name}' version {number}"
        if number in self.failed or number in self._retired:
            # asking again does not help: the version stays as it failed until it is loaded again
            raise InferenceError(ErrorCode.UNAVAILABLE, f"{unknown} is not at ready state", retryable=False)
        raise InferenceError(ErrorCode.NOT_FOUND, f"{unknown} is not found")
