"""A version of a model that runs on replicas: how a request waits for one of them, and reaches it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from interlingua.runtime.models.deadline import cancelled, seconds_left, too_late
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.response_cache import new_scope
from interlingua.runtime.models.validation import RequestCheck
from interlingua.runtime.models.warmup import WarmupSample
from interlingua.runtime.ray_serve.deployment import ServeDeployment
from interlingua.runtime.ray_serve.errors import FAILURES, inference_error
from interlingua.runtime.ray_serve.facts import VersionFacts
from interlingua.runtime.ray_serve.messages import (
    ANOTHER_GENERATION,
    Executions,
    PackedAnswer,
    pack_request,
    unpack_answer,
)
from interlingua.runtime.ray_serve.sequences import Course, SequenceCourses
from interlingua.runtime.scheduling.sequence_table import not_started
from interlingua.runtime.target import ServerHooks, Version
from interlingua.schemas import (
    InferenceError,
    InferRequest,
    Readiness,
    VersionStatistics,
    unavailable,
)

_ON_LOOP_BYTES = 1 << 18
"""The event loop copies so much into the object store itself: a thread would take longer."""

_OTHER_FILES_SECS, _OTHER_FILES_TIMES = 0.05, 100
"""The pause after a replica without the files of a request, which was started during an update, and how often
others are tried."""


class RayVersion(Version):
    """The version of ``facts`` in the files of ``generation``. ``release`` it once."""

    def __init__(
        self,
        deployment: ServeDeployment,
        facts: VersionFacts,
        generation: str,
        release: Callable[[], None],
    ) -> None:
        self.number = str(facts.number)
        self.scope = new_scope()
        self.signature = facts.signature
        self.decoupled = facts.decoupled
        self.statistics = VersionStatistics()
        self._model = model = deployment.name
        self.check = RequestCheck(model, facts.signature, facts.leeway, facts.default_outputs).check
        self._deployment = deployment
        self._generation = generation
        self._release = release
        self._timeout_secs = deployment.cluster.options.request_timeout_secs
        self._executions = Executions()
        self._sequences = SequenceCourses()
        self._running = 0
        self._finished: asyncio.Event | None = None

    async def answer(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        """See ``Version``. Raises UNAVAILABLE without a replica, and for a sequence whose replica has ended;
        OVERLOADED if all are busy."""
        with self._in_flight():
            if request.sequence is None:
                return await self._once(request, outputs, None)
            async with self._sequences.turn(request.sequence) as course:
                return await self._once(request, outputs, course)

    async def answers(
        self, request: InferRequest, outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        if not self.decoupled:
            yield await self.answer(request, outputs)
            return
        with self._in_flight():
            place = request.sequence
            turn = nullcontext() if place is None else self._sequences.turn(place)
            async with turn as course, aclosing(self._all(request, outputs, course)) as answers:
                async for answer in answers:
                    yield answer

    async def _once(
        self, request: InferRequest, outputs: tuple[str, ...], course: Course | None
    ) -> InstanceAnswer:
        sent = time.monotonic_ns()
        end = time.monotonic() + self._timeout_secs
        for _ in range(_OTHER_FILES_TIMES):
            response = await self._send(self._deployment.infer, request, outputs, course)
            packed = await self._wait(_result(response), request, end, course)
            if not _has_other_files(packed):
                break
            await asyncio.sleep(_OTHER_FILES_SECS)
        return self._answer(packed, sent, course)

    async def _all(
        self, request: InferRequest, outputs: tuple[str, ...], course: Course | None
    ) -> AsyncGenerator[InstanceAnswer, None]:
        sent = time.monotonic_ns()
        end = time.monotonic() + self._timeout_secs
        response, final, tries = None, False, 0
        try:
            while not final:
                if response is None:
                    response = await self._send(self._deployment.stream, request, outputs, course)
                packed = await self._wait(_next(response), request, end, course)
                if _has_other_files(packed) and tries < _OTHER_FILES_TIMES:
                    response, tries = None, tries + 1
                    await asyncio.sleep(_OTHER_FILES_SECS)
                    continue
                final = packed.final
                end = time.monotonic() + self._timeout_secs
                yield self._answer(packed, sent, course)
        finally:
            if response is not None and not final:
                response.cancel()

    async def _send(
        self, handle: Any, request: InferRequest, outputs: tuple[str, ...], course: Course | None
    ) -> Any:
        """Send ``request`` to a replica, or to that of its sequence. Returns Serve's response."""
        if course is not None and course.lost and request.sequence is not None:
            raise not_started(self._model, request.sequence.id)
        left = seconds_left(self._model, request.context)
        state = self._deployment.state
        if not state.ready:
            raise unavailable(state.reason)
        try:
            message, objects = await pack_request(
                request, request.inputs, outputs, (self._generation, self.number), _put, left
            )
            if course is not None and course.replica:
                handle = handle.options(session_id=course.replica)
            return handle.remote(message, *objects)
        except FAILURES as error:
            raise self._failed(error, course) from error

    async def _wait(
        self,
        answer: Coroutine[Any, Any, PackedAnswer],
        request: InferRequest,
        end: float,
        course: Course | None,
    ) -> PackedAnswer:
        """The result of ``answer``, by ``end`` and the deadline. Cancels it with the caller and with the
        cluster."""
        context = request.context
        deadline = end if context.deadline is None else min(end, context.deadline)
        call = asyncio.ensure_future(answer)
        calls = self._deployment.calls
        calls.add(call)
        context.cancel.on_cancel(call.cancel)
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await call
        except TimeoutError:
            raise too_late(self._model) from None
        except asyncio.CancelledError:
            if context.cancel.cancelled:
                raise cancelled(self._model) from None
            if not self._deployment.state.ready and not _is_cancelled():
                raise unavailable(self._deployment.state.reason, begun=True) from None
            raise
        except FAILURES as error:
            raise self._failed(error, course) from error
        finally:
            context.cancel.forget(call.cancel)
            calls.discard(call)

    def _failed(self, error: BaseException, course: Course | None) -> InferenceError:
        if course is not None:
            course.replica = ""
        return inference_error(error, self._model)

    def _answer(self, packed: PackedAnswer, sent: int, course: Course | None) -> InstanceAnswer:
        """The answer in ``packed``. Raises its error if it is all that has come."""
        answer = unpack_answer(packed, sent, self._executions)
        if course is not None:
            course.replica = packed.replica
        if answer.error is not None and answer.final:
            raise answer.error
        return answer

    async def warm_up(self, sample: WarmupSample) -> None:
        """Each replica has run its samples before it takes requests."""

    def join(self, hooks: ServerHooks) -> None:
        self._deployment.loop = asyncio.get_running_loop()
        self._deployment.changed = hooks.changed

    @property
    def waiting(self) -> int:
        seen, plan = self._deployment.seen_now, self._deployment.plan
        if seen is None or plan is None:
            return self._running
        return max(0, self._running - len(seen.running) * plan.options.max_ongoing)

    @property
    def sequences(self) -> int:
        return len(self._sequences)

    def end_sequences(self, is_lost: Callable[[int | str], bool]) -> None:
        self._sequences.end(is_lost)

    def readiness(self) -> Readiness:
        return self._deployment.state

    async def close(self) -> None:
        if self._running:
            self._finished = asyncio.Event()
            await self._finished.wait()
        await asyncio.to_thread(self._release)

    @contextmanager
    def _in_flight(self) -> Iterator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._finished is not None and not self._running:
                self._finished.set()


async def _put(array: NDArray[np.uint8]) -> Any:
    """The reference of ``array`` in the object store."""
    if array.nbytes <= _ON_LOOP_BYTES:
        return ray.put(array)
    return await asyncio.to_thread(ray.put, array)


async def _result(response: Any) -> PackedAnswer:
    return await _or_cancel(response, response)


async def _next(response: Any) -> PackedAnswer:
    return await _or_cancel(response.__anext__(), response)


async def _or_cancel(answer: Awaitable[Any], response: Any) -> PackedAnswer:
    """The result of ``answer``; cancels ``response`` with this call."""
    try:
        found: PackedAnswer = await answer
    except asyncio.CancelledError:
        response.cancel()
        raise
    return found


def _has_other_files(packed: PackedAnswer) -> bool:
    error = packed.error
    return error is not None and ANOTHER_GENERATION in error[3]


def _is_cancelled() -> bool:
    """Whether the current task is cancelled, and not only the call that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
