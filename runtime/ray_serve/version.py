"""A version of a model that runs on replicas: how a request waits for one of them, and reaches it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from interlingua.runtime.models.deadline import cancelled, seconds_left, too_late
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.response_cache import new_scope
from interlingua.runtime.models.validation import RequestCheck
from interlingua.runtime.models.warmup import WarmupSample
from interlingua.runtime.ray_serve.deployment import Plan, ServeDeployment
from interlingua.runtime.ray_serve.errors import FAILURES, busy, inference_error
from interlingua.runtime.ray_serve.facts import VersionFacts
from interlingua.runtime.ray_serve.messages import (
    ANOTHER_GENERATION,
    Executions,
    PackedAnswer,
    pack_request,
    unpack_answer,
)
from interlingua.runtime.ray_serve.sequences import Course
from interlingua.runtime.target import ServerHooks, Version
from interlingua.schemas import (
    Context,
    InferRequest,
    Readiness,
    VersionStatistics,
    unavailable,
)

T = TypeVar("T")

_OTHER_FILES_SECS, _OTHER_FILES_TIMES = 0.05, 100
"""The pause after a replica without the files of a request, which was started during an update, and how often
others are tried."""


class RayVersion(Version):
    """The version of ``facts`` in the files of ``plan``, which ``deployment`` holds until it is closed."""

    def __init__(
        self, deployment: ServeDeployment, facts: VersionFacts, plan: Plan, release: Callable[[], None]
    ) -> None:
        self.number = str(facts.number)
        self.scope = new_scope()
        self.signature = facts.signature
        self.decoupled = facts.decoupled
        self.statistics = VersionStatistics()
        self._model = model = deployment.name
        self.check = RequestCheck(model, facts.signature, facts.leeway, facts.default_outputs).check
        self._deployment = deployment
        self._files = plan.newest, self.number
        self._release = release
        self._timeout_secs = deployment.cluster.options.request_timeout_secs
        self._executions = Executions()
        self._sequences = deployment.courses(plan, self.number) if plan.stateful else None
        # starts wait at a replica for a slot: those that would end the sequences before them need room
        self._starts = asyncio.Semaphore(max(1, plan.options.max_ongoing // 2))
        self._most_queued = plan.options.max_queued
        self._waiting_starts = self._running = 0
        self._finished: asyncio.Event | None = None

    async def answer(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        """See ``Version``. Raises UNAVAILABLE without a replica, and for a sequence whose replica has ended;
        OVERLOADED if all are busy."""
        sent = time.monotonic_ns()
        with self._in_flight():
            packed = await self._limited(self._one(request, outputs), request.context)
        return self._answer(packed, sent)

    async def answers(
        self, request: InferRequest, outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        if not self.decoupled:
            yield await self.answer(request, outputs)
            return
        sent = time.monotonic_ns()
        context = request.context
        with self._in_flight():
            async with AsyncExitStack() as stack:
                course = await self._limited(stack.enter_async_context(self._turn(request)), context)
                sending = self._exchange(self._deployment.stream, anext, request, outputs, course)
                response, packed = await self._limited(sending, context)
                try:
                    while not packed.final:
                        yield self._answer(packed, sent)
                        packed = await self._limited(anext(response), context)
                except BaseException:
                    _cancel(response)
                    raise
            yield self._answer(packed, sent)

    async def _one(self, request: InferRequest, outputs: tuple[str, ...]) -> PackedAnswer:
        """The answer of a version that is not decoupled."""
        async with self._turn(request) as course:
            _, packed = await self._exchange(self._deployment.infer, _whole, request, outputs, course)
            return packed

    async def _exchange(
        self,
        handle: Any,
        first: Callable[[Any], Awaitable[PackedAnswer]],
        request: InferRequest,
        outputs: tuple[str, ...],
        course: Course,
    ) -> tuple[Any, PackedAnswer]:
        """Serve's response, and its ``first`` answer. Raises ``InferenceError``."""
        try:
            for _ in range(_OTHER_FILES_TIMES):
                response = await self._send(handle, request, outputs, course)
                try:
                    packed = await first(response)
                except asyncio.CancelledError:
                    _cancel(response)
                    raise
                if not _has_other_files(packed):
                    break
                await asyncio.sleep(_OTHER_FILES_SECS)
        except FAILURES as error:
            raise inference_error(error, self._model) from error
        course.replica = packed.replica
        return response, packed

    @asynccontextmanager
    async def _turn(self, request: InferRequest) -> AsyncIterator[Course]:
        """The course of the sequence of ``request`` when its turn has come. Raises OVERLOADED, and as
        :meth:`SequenceCourses.turn`."""
        place = request.sequence
        if place is None or self._sequences is None:
            yield Course()
            return
        async with self._sequences.turn(place) as course:
            if not place.start:
                yield course
                return
            if self._starts.locked() and 0 <= self._most_queued <= self._waiting_starts:
                raise busy(self._model)
            self._waiting_starts += 1
            try:
                await self._starts.acquire()
            finally:
                self._waiting_starts -= 1
            try:
                yield course
            finally:
                self._starts.release()

    async def _send(
        self, handle: Any, request: InferRequest, outputs: tuple[str, ...], course: Course
    ) -> Any:
        """Send ``request`` to a replica, or to that of its sequence. Returns Serve's response."""
        left = seconds_left(self._model, request.context)
        state = self._deployment.state
        if not state.ready:
            raise unavailable(state.reason)
        put = self._deployment.cluster.put
        message, objects = await pack_request(request, request.inputs, outputs, self._files, put, left)
        if course.replica:
            handle = handle.options(session_id=course.replica)
        return handle.remote(message, *objects)

    async def _limited(self, step: Coroutine[Any, Any, T], context: Context) -> T:
        """The result of ``step``, by the timeout and the deadline. Cancels it with the caller and with the
        cluster. Raises ``InferenceError``."""
        end = time.monotonic() + self._timeout_secs
        if context.deadline is not None:
            end = min(end, context.deadline)
        call = asyncio.ensure_future(step)
        calls = self._deployment.calls
        calls.add(call)
        context.cancel.on_cancel(call.cancel)
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                return await call
        except TimeoutError:
            raise too_late(self._model) from None
        except asyncio.CancelledError:
            if context.cancel.cancelled:
                raise cancelled(self._model) from None
            if _is_cancelled():
                raise
            # the cluster is lost, or Serve has cancelled it
            state = self._deployment.state
            reason = state.reason or f"a replica of model '{self._model}' ended while it ran the request"
            raise unavailable(reason, begun=True) from None
        except FAILURES as error:
            raise inference_error(error, self._model) from error
        finally:
            context.cancel.forget(call.cancel)
            calls.discard(call)

    def _answer(self, packed: PackedAnswer, sent: int) -> InstanceAnswer:
        """The answer in ``packed``. Raises its error if it is all that has come."""
        answer = unpack_answer(packed, sent, self._executions)
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
        return 0 if self._sequences is None else len(self._sequences)

    def end_sequences(self, is_lost: Callable[[int | str], bool]) -> None:
        if self._sequences is not None:
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


async def _whole(response: Any) -> PackedAnswer:
    """The answer of ``response``, which is not a stream."""
    found: PackedAnswer = await response
    return found


def _cancel(response: Any) -> None:
    """Cancel ``response`` unless it has ended. Serve raises the error of one that has failed."""
    with suppress(*FAILURES):
        response.cancel()


def _has_other_files(packed: PackedAnswer) -> bool:
    error = packed.error
    return error is not None and ANOTHER_GENERATION in error[3]


def _is_cancelled() -> bool:
    """Whether the current task is cancelled, and not only the call that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
