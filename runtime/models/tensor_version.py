"""A version of a model that is a function on tensors: it runs in threads, or on the event loop itself."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor

from interlingua.runtime.backends import Instance, TableInstance
from interlingua.runtime.model_config.config import UNLIMITED_BATCH_SIZE
from interlingua.runtime.models.deadline import cancelled, seconds_left, too_late
from interlingua.runtime.models.inline_runs import InlineRuns, shapes_of
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.reshape import Run
from interlingua.runtime.models.response_cache import new_scope
from interlingua.runtime.models.spread import Spread
from interlingua.runtime.models.validation import RequestCheck
from interlingua.runtime.models.warmup import WarmupSample
from interlingua.runtime.scheduling.admission import Admission
from interlingua.runtime.scheduling.batch import check_rows
from interlingua.runtime.scheduling.policy import Scheduling
from interlingua.runtime.scheduling.runners import Ran, ThreadRunner
from interlingua.runtime.scheduling.scheduler import Scheduler
from interlingua.runtime.scheduling.sequence_scheduler import SequenceScheduler
from interlingua.runtime.scheduling.sequence_state import StatefulRunner, States
from interlingua.runtime.target import Version
from interlingua.schemas import (
    NO_LEEWAY,
    InferenceError,
    InferRequest,
    Readiness,
    Signature,
    Tensor,
    VersionStatistics,
)

Timed = tuple[tuple[Tensor, ...], int, int]
"""The outputs of a run, and the ``time.monotonic_ns()`` of its start and end."""

_HELD = 4
"""A run that holds Python's global lock may be on the event loop up to so many times the limit. If it
were in a thread, the loop would wait for the lock, for up to 5 ms at a time."""

_READY = Readiness(True)


def default_instances() -> int:
    """The default number of concurrent runs of one model."""
    return min(4, os.cpu_count() or 1)


class TensorVersion(Version):
    """``instances`` is the number of concurrent runs; 0 runs on the event loop itself, without a queue.
    ``run`` wraps the instance's own if clients see other shapes. ``scheduling`` states the queue; with
    batches or sequences there is a ``scheduler``, otherwise requests wait for ``threads``. ``inline`` has the
    runs that may be on the event loop nevertheless, None for none: states of a sequence may grow. ``table``
    is the instance if it is one, ``default_outputs`` are those of a request that names none."""

    def __init__(
        self,
        model: str,
        number: int,
        instance: Instance,
        signature: Signature,
        instances: int,
        run: Run | None = None,
        scheduling: Scheduling | None = None,
        table: TableInstance | None = None,
        default_outputs: tuple[str, ...] = (),
    ) -> None:
        scheduling = scheduling or Scheduling()
        self.number = str(number)
        self._model = model
        self.scope = new_scope()
        self.instance = instance
        self.signature = signature
        self.statistics = VersionStatistics()
        self.default_outputs = default_outputs
        self.leeway = leeway = NO_LEEWAY if table is None else table.leeway
        self.check = RequestCheck(model, signature, leeway, default_outputs).check
        self._run = run or instance.run
        self.inline: InlineRuns | None = None
        if instance.bounded and instances and scheduling.limits.inline_run_us and not scheduling.sequences:
            held = _HELD if table is not None and table.holds_lock else 1
            self.inline = InlineRuns(self._run, scheduling.limits.inline_run_us * held)
            self._run = self.inline.in_thread
        self._unify = table.unified if table is not None and leeway.names else None
        self._instances = instances
        self._in_threads: set[Future[Timed]] = set()
        # without a stated batch size the first dimension may be any other
        self._batches = 0 < signature.max_batch_size < UNLIMITED_BATCH_SIZE and not scheduling.ragged
        self.threads: ThreadPoolExecutor | None = None
        self.admission = Admission(model, scheduling.limits, instances)
        self.scheduler: Scheduler | SequenceScheduler | None = None
        if instances:
            self.threads = ThreadPoolExecutor(instances, thread_name_prefix=f"{model}/{number}")
            if scheduling.sequences is not None:
                states = States(scheduling.sequences.states, signature.max_batch_size > 0)
                runners = [StatefulRunner(self._run, self.threads, states) for _ in range(instances)]
                self.scheduler = SequenceScheduler(
                    model,
                    signature,
                    scheduling.sequences,
                    runners,
                    self.admission,
                    joins=not scheduling.ragged,
                )
            elif scheduling.batching is not None:
                runner = ThreadRunner(self._run, self.threads, instances, self.inline)
                self.scheduler = Scheduler(model, signature, scheduling, runner, self.admission)

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...], run: Run | None = None) -> Timed:
        """Run once, by ``run`` if the instance is not called as usual, and measure. Raises the instance's
        errors, and MODEL_FAILED for a batch with another number of rows."""
        started = time.monotonic_ns()
        tensors = (run or self._run)(inputs, outputs)
        ended = time.monotonic_ns()
        if self._batches and inputs:
            check_rows(tensors, inputs[0].shape[0])
        return tensors, started, ended

    async def answer(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        answer = self.answer_now(request, outputs)
        if answer is not None:
            return answer
        left = seconds_left(self._model, request.context)
        try:
            if left is None:
                return await self._queued(request, outputs)
            async with asyncio.timeout(left):
                return await self._queued(request, outputs)
        except TimeoutError:
            raise too_late(self._model) from None

    def answer_now(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer | None:
        seconds_left(self._model, request.context)
        if self.threads is None:
            tensors, started, ended = self.run(request.inputs, outputs)
            return InstanceAnswer(tensors, {}, None, True, started, ended)
        return self._on_loop(request, outputs) if self._is_inline(request.inputs, outputs) else None

    def answers_at_once(self, request: InferRequest) -> bool:
        if self.threads is None or self.inline is None:
            return self.threads is None
        try:
            return self._is_inline(request.inputs, self.check(request))
        except InferenceError:
            # it is refused at once
            return True

    async def answers(
        self, request: InferRequest, outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        yield await self.answer(request, outputs)

    async def _queued(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        if self.scheduler is None:
            return await self._in_thread(request, outputs)
        inputs = request.inputs if self._unify is None else self._unify(request.inputs)
        with self.scheduler.entered(request, inputs, outputs) as entry:
            ran: Ran = await entry.answer
            await self.scheduler.turn(entry)
        gathering = ran.gathered - ran.started
        return InstanceAnswer(ran.outputs, {}, None, True, ran.started, ran.ended, gathering, ran.execution)

    def _is_inline(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> bool:
        """Whether an instance is free for a run on the event loop, and the run is short."""
        return (
            self.inline is not None
            and self.scheduler is None
            and len(self._in_threads) < self._instances
            and self.inline.takes(shapes_of(inputs, outputs))
        )

    def _on_loop(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        assert self.inline is not None  # noqa: S101
        if not self.admission.inside:  # it admits a first one, which leaves before anything else runs
            tensors, started, ended = self.run(request.inputs, outputs, self.inline.on_loop)
        else:
            with self.admission.entered(request):
                tensors, started, ended = self.run(request.inputs, outputs, self.inline.on_loop)
        return InstanceAnswer(tensors, {}, None, True, started, ended)

    async def _in_thread(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        assert self.threads is not None  # noqa: S101
        cancel = request.context.cancel
        nbytes = self.admission.enter(request)
        submitted = self.threads.submit(self.run, request.inputs, outputs)
        # a run continues after its caller disconnects
        self._in_threads.add(submitted)
        submitted.add_done_callback(self._in_threads.discard)
        running = asyncio.wrap_future(submitted)
        # this takes a waiting run out of the queue; a run that has started goes on by itself
        cancel.on_cancel(running.cancel)
        try:
            tensors, started, ended = await running
        except asyncio.CancelledError:
            # the token's cancellation is an answer; a cancelled task stays one
            if cancel.cancelled and not _is_cancelled():
                raise cancelled(self._model) from None
            raise
        finally:
            cancel.forget(running.cancel)
            self.admission.leave(nbytes)
        return InstanceAnswer(tensors, {}, None, True, started, ended)

    async def warm_up(self, sample: WarmupSample) -> None:
        """See ``Version``: once on each device, for all threads that share an instance there."""
        outputs = self.check(sample.request)
        inputs = sample.request.inputs
        if isinstance(self.scheduler, SequenceScheduler):
            inputs = self.scheduler.whole(inputs)
        devices = self.instance.count if isinstance(self.instance, Spread) else 1
        for _ in range(sample.count * devices):
            if self.threads is None:
                self.run(inputs, outputs)
            else:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self.threads, self.run, inputs, outputs)

    @property
    def waiting(self) -> int:
        return self.admission.waiting if self.scheduler is None else self.scheduler.waiting

    @property
    def sequences(self) -> int:
        return 0 if self.scheduler is None else self.scheduler.sequences

    def end_sequences(self, is_lost: Callable[[int | str], bool]) -> None:
        if isinstance(self.scheduler, SequenceScheduler):
            self.scheduler.end(is_lost)

    def readiness(self) -> Readiness:
        return _READY

    async def close(self) -> None:
        if self.scheduler is not None:
            await self.scheduler.drain()
        if self.threads is not None:
            await asyncio.to_thread(self.threads.shutdown, wait=True)
        self.instance.close()


def _is_cancelled() -> bool:
    """Whether the current task is. A frame that it ends must not refer to it: a task has its exception, which
    has the frame, and the cycle would keep the memory of a request."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
