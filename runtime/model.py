"""A model that runs here: its loaded versions, and how a request waits for one of them.

``LocalModel`` chooses the version, has the request checked, runs the instance in a thread (or at once
where the backend is that short) and stops waiting when the caller's deadline passes or the caller
goes away. A run that has begun is not interrupted: its thread is free again when the engine returns.
Loading belongs to ``runtime.repository``, the engines to ``runtime.backends``.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from runtime.backends import Instance
from runtime.reshape import Run
from runtime.statistics import Course, batch_size, count_failure, count_success
from runtime.validation import RequestCheck
from schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelState,
    ModelStatus,
    Readiness,
    Signature,
    Tensor,
    VersionStatistics,
    VersionStatus,
)

Ran = tuple[tuple[Tensor, ...], int, int]
"""What a run gave, and the ``time.monotonic_ns()`` at which it started and ended."""

# blanks around a number are let pass, as by Triton
_NUMBER = re.compile(r" *-?[0-9]{1,18} *")


def default_instances() -> int:
    """How many runs of one model go on at once where the configuration does not say."""
    return min(4, os.cpu_count() or 1)


class Version:
    """A version of a model that is ready: an instance, its agreed signature and its threads.

    ``instances`` is how many runs may go on at once; 0 runs on the event loop itself. ``run`` is the
    instance's own, or what stands around it where clients see other shapes than the instance.
    """

    def __init__(
        self,
        model: str,
        number: int,
        instance: Instance,
        signature: Signature,
        instances: int,
        run: Run | None = None,
    ) -> None:
        self.number = str(number)
        self.instance = instance
        self.signature = signature
        self.statistics = VersionStatistics()
        self.check = RequestCheck(model, signature).check
        self._run = run or instance.run
        self.threads: ThreadPoolExecutor | None = None
        if instances:
            self.threads = ThreadPoolExecutor(instances, thread_name_prefix=f"{model}/{number}")

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> Ran:
        """Run once, by the clock. Raises what the instance raises."""
        started = time.monotonic_ns()
        tensors = self._run(inputs, outputs)
        return tensors, started, time.monotonic_ns()

    async def close(self) -> None:
        """Wait for what runs or stands in the queue, whether or not a caller still waits, and free the
        instance."""
        if self.threads is not None:
            await asyncio.to_thread(self.threads.shutdown, wait=True)
        self.instance.close()


class LocalModel:
    """A ``Target`` that runs here.

    ``versions`` are ready, at least one; ``failed`` tells for each version that the version policy
    wants and that could not be loaded why. ``config`` is the serialized ``inference.ModelConfig``. Not
    bound to an event loop until the first request.
    """

    def __init__(
        self,
        name: str,
        versions: Sequence[Version],
        *,
        failed: Mapping[int, str] | None = None,
        platform: str = "",
        description: str = "",
        config: bytes = b"",
    ) -> None:
        self.name = name
        self.failed: Mapping[str, str] = {str(number): reason for number, reason in (failed or {}).items()}
        ordered = sorted(versions, key=lambda version: int(version.number))
        self._loaded = tuple(ordered)
        self._versions = {version.number: version for version in ordered}
        self._latest = ordered[-1]
        self._platform = platform
        self._description = description
        self._config = config
        self._closing = False

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run ``request`` on the version it asks for, the highest where it asks for none.

        Raises NOT_FOUND or UNAVAILABLE for a version that is not there, INVALID_TENSOR and UNSUPPORTED
        from the checks, DEADLINE_EXCEEDED, CANCELLED, and what the instance raises.
        """
        version = self._version(request.version)
        size = batch_size(request, version.signature)
        began = time.monotonic_ns()
        try:
            outputs = version.check(request)
            ready = time.monotonic_ns()
            tensors, started, ended = await self._run(version, request, outputs)
        except InferenceError:
            count_failure(version.statistics, size, began)
            raise
        course = Course(began, ready, started, ended, time.monotonic_ns())
        count_success(version.statistics, size, course)
        return InferResponse(self.name, tensors, version.number, request.id)

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        """The one response that :meth:`infer` gives."""
        yield await self.infer(request)

    async def signature(self, version: str = "") -> Signature:
        """The signature of ``version``, of the highest where that is empty."""
        return self._version(version).signature

    async def metadata(self, version: str = "") -> ModelMetadata:
        """The model as ``version`` declares it, with every version that is ready."""
        signature = self._version(version).signature
        return ModelMetadata(self.name, signature, tuple(self._versions), self._platform, self._description)

    async def status(self) -> ModelStatus:
        """Every version that is ready, and every one that could not be loaded."""
        versions = [
            *(VersionStatus(each.number, ModelState.READY, "", each.statistics) for each in self._loaded),
            *(
                VersionStatus(number, ModelState.UNAVAILABLE, reason)
                for number, reason in self.failed.items()
            ),
        ]
        versions.sort(key=lambda version: int(version.version))
        return ModelStatus(self.name, self._config, tuple(versions))

    def continue_statistics(self, counted: Mapping[str, VersionStatistics]) -> None:
        """Count on from ``counted``, by version: a version that is loaded again starts no new count."""
        for version in self._loaded:
            version.statistics = counted.get(version.number, version.statistics)

    async def ready(self, version: str = "") -> Readiness:
        """Whether ``version``, or any where that is empty, would be run now."""
        try:
            self._version(version)
        except InferenceError as error:
            return Readiness(False, error.message)
        return Readiness(True)

    async def close(self) -> None:
        """Take no more requests, finish those in flight, then free every version."""
        if self._closing:
            return
        self._closing = True
        for version in self._loaded:
            await version.close()

    def _version(self, asked: str) -> Version:
        if self._closing:
            raise InferenceError(ErrorCode.UNAVAILABLE, f"model '{self.name}' is being unloaded")
        if not asked:
            return self._latest
        version = self._versions.get(asked)
        return version or self._version_by_number(asked)

    def _version_by_number(self, asked: str) -> Version:
        """The version under another spelling of its number, such as ``01``; the texts are Triton's.

        MALFORMED would be too much for a well-formed message that asks for no version of a model.
        """
        if _NUMBER.fullmatch(asked) is None:
            raise InferenceError(
                ErrorCode.INVALID_TENSOR,
                f"failed to get model version from specified version string '{asked}' (details: stol), "
                "version should be an integral value > 0",
            )
        if int(asked) < 0:
            raise InferenceError(
                ErrorCode.INVALID_TENSOR,
                f"invalid model version specified '{asked}' , version should be an integral value > 0",
            )
        number = str(int(asked))
        if number in self._versions:
            return self._versions[number]
        unknown = f"Request for unknown model: '{self.name}' version {number}"
        if number in self.failed:
            # asking again does not help: the version stays as it failed until it is loaded anew
            raise InferenceError(ErrorCode.UNAVAILABLE, f"{unknown} is not at ready state", retryable=False)
        raise InferenceError(ErrorCode.NOT_FOUND, f"{unknown} is not found")

    async def _run(self, version: Version, request: InferRequest, outputs: tuple[str, ...]) -> Ran:
        try:
            return await self._run_in_time(version, request, outputs)
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise

    async def _run_in_time(self, version: Version, request: InferRequest, outputs: tuple[str, ...]) -> Ran:
        context = request.context
        if context.cancel.cancelled:
            raise self._cancelled()
        left = None if context.deadline is None else context.deadline - time.monotonic()
        if left is not None and left <= 0:
            raise self._too_late()
        if version.threads is None:
            return version.run(request.inputs, outputs)
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(version.threads, version.run, request.inputs, outputs)
        # cancelling what waits in the queue takes it out; what runs goes on without us
        context.cancel.on_cancel(answer.cancel)
        if left is None:
            return await self._unless_cancelled(answer, context)
        try:
            async with asyncio.timeout(left):
                return await self._unless_cancelled(answer, context)
        except TimeoutError:
            raise self._too_late() from None

    async def _unless_cancelled(self, answer: asyncio.Future[Ran], context: Context) -> Ran:
        try:
            return await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # only the token's own cancellation is an answer; a task's goes through
            if context.cancel.cancelled and not (task and task.cancelling()):
                raise self._cancelled() from None
            raise

    def _cancelled(self) -> InferenceError:
        return InferenceError(ErrorCode.CANCELLED, f"request to model '{self.name}' was cancelled")

    def _too_late(self) -> InferenceError:
        return InferenceError(
            ErrorCode.DEADLINE_EXCEEDED, f"model '{self.name}' did not answer before the deadline"
        )
