"""A local model: its loaded versions, and how a request waits for one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.model_config.message import with_decoupled
from interlingua.runtime.models.deadline import next_answer
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.only_answer import only_answer
from interlingua.runtime.models.response_cache import ResponseCache, key_of
from interlingua.runtime.models.statistics import (
    batch_size,
    count_failure,
    count_hit,
    count_refusal,
    count_success,
)
from interlingua.runtime.models.warmup import WarmupSample
from interlingua.runtime.repository.snapshot import Origin
from interlingua.runtime.target import ServerHooks, Target, Version, result_of
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
    unavailable,
    unsupported,
)
from interlingua.schemas.version_number import version_number

UNLOADED = "unloaded"
"""The original servers' reason for a version that was served before."""


class LocalModel(Target):
    """``versions`` are ready, at least one; ``failed`` are the reasons of versions of the version policy that
    could not be loaded. ``config`` is the serialized ``inference.ModelConfig``; ``samples`` are what
    :meth:`warm_up` runs. With ``caches`` it uses the server's response cache, if there is one.
    ``version_names`` is as in ``Target``. Not bound to an event loop until the first request."""

    passthrough = None
    reports_changes = True

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
        version_names: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.origin = origin
        self.needs = tuple(needs)
        self.failed: Mapping[str, str] = {str(number): reason for number, reason in (failed or {}).items()}
        ordered = sorted(versions, key=lambda version: int(version.number))
        self.loaded: Mapping[str, Version] = {version.number: version for version in ordered}
        self._latest = ordered[-1]
        self._retired: Mapping[str, VersionStatistics] = {}
        self._platform = platform
        self._description = description
        self._parameters = parameters or {}
        self._config = config
        self._samples = samples
        self.version_names = version_names or {}
        self._caches = caches
        self._cache: ResponseCache | None = None
        self._closing = False
        self._hooks: ServerHooks | None = None

    @property
    def caches(self) -> bool:
        return self._cache is not None

    @property
    def statistics(self) -> Mapping[str, VersionStatistics]:
        return {number: version.statistics for number, version in self.loaded.items()}

    def infers_at_once(self, request: InferRequest) -> bool:
        version = self.version(request.version)
        return not (version.learns or version.decoupled) and version.answers_at_once(request)

    def infer_now(self, request: InferRequest) -> InferResponse | None:
        version = self.version(request.version)
        if version.learns or version.decoupled:
            return None
        if self._cache is not None:
            return result_of(self.infer(request)) if version.answers_at_once(request) else None
        statistics = None if request.context.copied else version.statistics
        began = time.monotonic_ns()
        try:
            outputs = version.check(request)
        except InferenceError:
            count_refusal(statistics)
            raise
        size = batch_size(request, version.signature)
        ready = time.monotonic_ns()
        try:
            answer = version.answer_now(request, outputs)
        except InferenceError as error:
            count_failure(statistics, size, began, error)
            error.origin = error.origin or self.name
            raise
        if answer is None:
            return None
        _count(request, statistics, size, began, ready, answer)
        ran = request.version if request.version in self.version_names else version.number
        return InferResponse(self.name, answer.outputs, ran, request.id, answer.parameters)

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run ``request`` on the requested version, by default the highest. Raises NOT_FOUND or UNAVAILABLE
        for the version, INVALID_TENSOR from the checks, UNSUPPORTED for a decoupled model (for its second
        answer if the caller takes only one), OVERLOADED and UNAVAILABLE for a full queue or a queue timeout,
        DEADLINE_EXCEEDED, CANCELLED, and the instance's errors."""
        version = self.version(request.version)
        if version.learns:
            await version.learn()
        if version.decoupled:
            if request.answers == "only":
                return await only_answer(self.stream(request), self.name)
            raise unsupported(
                f"model '{self.name}' answers in a stream: a request for one answer "
                "doesn't support models with decoupled transaction policy"
            )
        ran = request.version if request.version in self.version_names else version.number
        size = batch_size(request, version.signature)
        statistics = None if request.context.copied else version.statistics
        began = time.monotonic_ns()
        try:
            outputs = version.check(request)
        except InferenceError:
            count_refusal(statistics)
            raise
        ready = time.monotonic_ns()
        try:
            cache = self._cache if request.sequence is None else None
            if cache is not None:
                key = key_of(version.scope, request, outputs)
                if (known := cache.get(key, ready)) is not None:
                    count_hit(statistics, size, began, ready)
                    return InferResponse(self.name, known.outputs, ran, request.id, known.parameters)
                looked_up = time.monotonic_ns()
            answer = await version.answer(request, outputs)
        except (InferenceError, asyncio.CancelledError) as end:
            # a disconnected caller got no answer either
            count_failure(statistics, size, began, end)
            if isinstance(end, InferenceError):
                end.origin = end.origin or self.name
            raise
        _count(request, statistics, size, began, ready, answer)
        if cache is not None:
            stored = time.monotonic_ns()
            cache.put(key, version.scope, answer.outputs, answer.parameters)
            if statistics is not None:
                statistics.cache_miss.add(looked_up - ready + time.monotonic_ns() - stored)
        return InferResponse(self.name, answer.outputs, ran, request.id, answer.parameters)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """The responses of a decoupled model, or the one of :meth:`infer`, also if the model has sent it and
        then failed. A response with an error is not the end, unless it is raised. Raises as :meth:`infer`
        does."""
        version = self.version(request.version)
        if version.learns:
            await version.learn()
        if not version.decoupled:
            try:
                yield await self.infer(request)
            except InferenceError as error:
                sent, error.before = error.before, None
                if sent is not None:
                    ran = request.version if request.version in self.version_names else version.number
                    yield InferResponse(
                        self.name, sent.outputs, ran, request.id, sent.parameters, final=False
                    )
                raise
            return
        size = batch_size(request, version.signature)
        statistics = None if request.context.copied else version.statistics
        began = time.monotonic_ns()
        try:
            outputs = version.check(request)
        except InferenceError:
            count_refusal(statistics)
            raise
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
                        course = began, ready, started, answer.ended, time.monotonic_ns(), 0
                        count_success(statistics, size, course, answer.execution)
                        answered = True
                        request.context.timings.update(queue=started - ready, exec=answer.ended - started)
                        request.context.ended.update(queue=started, exec=answer.ended)
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
        found = self.version(version)
        await found.learn()
        return found.decoupled

    async def signature(self, version: str = "") -> Signature:
        found = self.version(version)
        if found.learns:
            await found.learn_labels()
        return found.signature

    async def metadata(self, version: str = "") -> ModelMetadata:
        signature = self.version(version).signature
        versions = tuple(self.loaded)
        return ModelMetadata(
            self.name, signature, versions, self._platform, self._description, self._parameters
        )

    async def status(self) -> ModelStatus:
        """The ready, failed and retired versions."""
        reasons = {**dict.fromkeys(self._retired, UNLOADED), **self.failed}
        versions = []
        for number, version in self.loaded.items():
            ready = version.readiness()
            state = ModelState.READY if ready.ready else ModelState.UNAVAILABLE
            versions.append(VersionStatus(number, state, ready.reason, version.statistics))
        for number, reason in reasons.items():
            counted = self._retired.get(number) or VersionStatistics()
            versions.append(VersionStatus(number, ModelState.UNAVAILABLE, reason, counted))
        versions.sort(key=lambda version: int(version.version))
        latest = self._latest
        config = with_decoupled(self._config, latest.decoupled) if latest.learns else self._config
        return ModelStatus(self.name, config, tuple(versions))

    def continue_statistics(self, counted: Mapping[str, VersionStatistics]) -> None:
        for number, version in self.loaded.items():
            version.statistics = counted.get(number, version.statistics)
        self._retired = {
            number: statistics for number, statistics in counted.items() if number not in self.loaded
        }

    def join(self, hooks: ServerHooks) -> None:
        self._hooks = hooks
        if self._caches:
            self._cache = hooks.cache
        for version in self.loaded.values():
            version.join(hooks)

    async def warm_up(self, before: Target | None = None) -> None:
        """See ``Target``. No statistics count the samples. The ``LoadError`` names the version and the
        sample."""
        samples, self._samples = self._samples, ()
        kept = () if before is None else before.loaded.values()
        for version in self.loaded.values():
            if version in kept:
                continue
            if reason := await version.learn():
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
        return self.readiness(version)

    def readiness(self, version: str = "") -> Readiness:
        try:
            return self.version(version).readiness()
        except InferenceError as error:
            return Readiness(False, error.message)

    async def close(self) -> None:
        """Accept no more requests, finish those in flight, then free every version. Requests that still
        arrive here go to the model that is served under this name then."""
        await self.give_way(None)

    async def give_way(self, successor: Target | None) -> None:
        if self._closing:
            return
        self._closing = True
        kept = () if successor is None else successor.loaded.values()
        for version in self.loaded.values():
            if version not in kept:
                await version.close()
                if self._cache is not None:
                    self._cache.forget(version.scope)

    def version(self, requested: str) -> Version:
        """See ``Target``. Raises UNAVAILABLE for a version that failed or is no longer served."""
        if self._closing:
            # looked up, because a reference would keep every model that ever had the name
            heir = None if self._hooks is None else self._hooks.find(self.name)
            return super().version(requested) if heir in (None, self) else heir.version(requested)
        if not requested:
            return self._latest
        version = self.loaded.get(requested)
        return version or self._version_by_number(requested)

    def _version_by_number(self, requested: str) -> Version:
        """The version under another spelling of its number, such as ``01``."""
        number = self.version_names.get(requested) or version_number(requested)
        if number in self.loaded:
            return self.loaded[number]
        unknown = f"Request for unknown model: '{self.name}' version {number}"
        if number in self.failed or number in self._retired:
            # the version stays failed until it is loaded again
            raise unavailable(f"{unknown} is not at ready state", retryable=False)
        raise InferenceError(ErrorCode.NOT_FOUND, f"{unknown} is not found")


def _count(
    request: InferRequest,
    statistics: VersionStatistics | None,
    size: int,
    began: int,
    ready: int,
    answer: InstanceAnswer,
) -> None:
    """Count ``request``, of ``size`` batch elements, which ``answer`` answers, and note its times."""
    started, ended, context = answer.started, answer.ended, request.context
    course = began, ready, started, ended, time.monotonic_ns(), answer.gathering
    count_success(statistics, size, course, answer.execution)
    timings, ends = context.timings, context.ended
    timings["queue"], timings["exec"] = started - ready, ended - started
    ends["queue"], ends["exec"] = started, ended
