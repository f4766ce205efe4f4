"""A version of a model that is ready: what it runs on, and how it is checked and counted.

A :class:`Version` runs in threads or at once, a :class:`RequestVersion` wherever its instance does. Who
asks, and how long one waits for an answer, belongs to ``runtime.models.model``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from itertools import count

from interlingua.runtime.backends import Answer, Answers, Instance, Job, RequestInstance, Surroundings
from interlingua.runtime.model_config.config import UNLIMITED_BATCH_SIZE
from interlingua.runtime.models.reshape import Reshape, Run, inward, outward
from interlingua.runtime.models.response_cache import new_scope
from interlingua.runtime.models.spread import Spread
from interlingua.runtime.models.statistics import count_refusal, entered
from interlingua.runtime.models.validation import RequestCheck
from interlingua.runtime.models.warmup import Sample
from interlingua.runtime.scheduling.admission import Admission
from interlingua.runtime.scheduling.batch import check_rows
from interlingua.runtime.scheduling.policy import DynamicBatching, Scheduling
from interlingua.runtime.scheduling.runners import UNBOUNDED, Given, PlaceRunner, Ran, ThreadRunner
from interlingua.runtime.scheduling.scheduler import Scheduler
from interlingua.runtime.scheduling.sequence_scheduler import ALONE, SequenceScheduler, check_alone
from interlingua.runtime.scheduling.sequence_state import StatefulRunner, States
from interlingua.runtime.scheduling.sequence_table import not_started
from interlingua.schemas import (
    InferenceError,
    InferRequest,
    ModelState,
    Readiness,
    Signature,
    Tensor,
    VersionStatistics,
    VersionStatus,
)
from interlingua.schemas import Sequence as Place

Labels = Callable[[], Awaitable[Mapping[str, tuple[str, ...]]]]
Learn = Callable[[], Awaitable[tuple[bool, str]]]

Timed = tuple[tuple[Tensor, ...], int, int]
"""What a run gave, and the ``time.monotonic_ns()`` at which it started and ended."""

_READY = Readiness(True)


def default_instances() -> int:
    """How many runs of one model go on at once where the configuration does not say."""
    return min(4, os.cpu_count() or 1)


class Version:
    """A version of a model that is ready: an instance, its agreed signature and its threads.

    ``instances`` is how many runs may go on at once; 0 runs on the event loop itself. ``run`` is the
    instance's own, or what stands around it where clients see other shapes than the instance.
    ``scheduling`` says how requests wait; there is a ``scheduler`` where they may meet in batches or belong
    together, else they wait for ``threads``. What runs on the event loop never waits.
    """

    def __init__(
        self,
        model: str,
        number: int,
        instance: Instance,
        signature: Signature,
        instances: int,
        run: Run | None = None,
        scheduling: Scheduling | None = None,
    ) -> None:
        scheduling = scheduling or Scheduling()
        self.number = str(number)
        self.scope = new_scope()
        self.instance = instance
        self.signature = signature
        self.decoupled = False
        self.learns = False
        self.statistics = VersionStatistics()
        self.check = RequestCheck(model, signature).check
        self._run = run or instance.run
        # where nobody has stated a batch, that the first dimension is one is a guess
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
                runner = ThreadRunner(self._run, self.threads, instances)
                self.scheduler = Scheduler(model, signature, scheduling, runner, self.admission)

    def run(self, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> Timed:
        """Run once, by the clock. Raises what the instance raises, and MODEL_FAILED where a batch comes out
        with another number of rows than went in."""
        started = time.monotonic_ns()
        tensors = self._run(inputs, outputs)
        ended = time.monotonic_ns()
        if self._batches and inputs:
            check_rows(tensors, inputs[0].shape[0])
        return tensors, started, ended

    async def ask_in_batch(self, request: InferRequest, outputs: tuple[str, ...]) -> Ran:
        """Have ``request`` run in a batch. Raises what the instance raises and what
        :meth:`Scheduler.entered` tells."""
        assert self.scheduler is not None, "there is one"  # noqa: S101
        with self.scheduler.entered(request, request.inputs, outputs) as entry:
            ran: Ran = await entry.answer
            await self.scheduler.turn(entry)
            return ran

    async def warm_up(self, sample: Sample) -> None:
        """Run ``sample``, once on each device and for all threads that share an instance there; as a sequence
        of its own where there are sequences. Raises as a request would."""
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

    async def learn(self) -> str:
        """There is nothing to learn."""
        return ""

    @property
    def waiting(self) -> int:
        """How many requests wait for their run."""
        return self.admission.waiting if self.scheduler is None else self.scheduler.waiting

    def readiness(self) -> Readiness:
        """Ready: what is loaded can run."""
        return _READY

    async def close(self) -> None:
        """Wait for what runs or stands in the queue, whether or not a caller still waits, and free the
        instance."""
        if self.scheduler is not None:
            await self.scheduler.drain()
        if self.threads is not None:
            await asyncio.to_thread(self.threads.shutdown, wait=True)
        self.instance.close()


class RequestVersion:
    """A version whose instance is given whole requests; ``decoupled`` is the instance's own.

    ``input_reshapes`` and ``output_reshapes`` tell where clients see other shapes than the instance.
    ``scheduling`` says how requests wait, whether they meet in one execution, and whether they belong
    together. ``labels`` is the instance's own, of one that learns the labels of its
    classes from others; one that ``learns`` has to ask others whether it is decoupled.
    """

    def __init__(
        self,
        model: str,
        number: int,
        instance: RequestInstance,
        signature: Signature,
        input_reshapes: Mapping[str, Reshape] | None = None,
        output_reshapes: Mapping[str, Reshape] | None = None,
        scheduling: Scheduling | None = None,
    ) -> None:
        scheduling = scheduling or Scheduling()
        self.number = str(number)
        self.scope = new_scope()
        self.instance = instance
        self.signature = signature
        self.decoupled = instance.decoupled
        self.statistics = VersionStatistics()
        self.check = RequestCheck(model, signature).check
        self._input_reshapes = input_reshapes or {}
        self._output_reshapes = output_reshapes or {}
        self._labelled = {spec.name for spec in signature.outputs if spec.labels}
        self.labels: Labels | None = getattr(instance, "labels", None)
        self._learn: Learn | None = getattr(instance, "learn", None)
        self.learns = self._learn is not None
        # one that only asks others keeps nobody waiting
        places: int = getattr(instance, "places", UNBOUNDED)
        self._admission = Admission(model, scheduling.limits, places)
        self._scheduler: Scheduler | SequenceScheduler | None = None
        sequences = scheduling.sequences
        self._iterations: Iterator[int] | None = None
        if sequences is not None and sequences.iterative:
            # each request is a sequence of its own; the instance keeps it from one execution to the next
            scheduling, sequences = replace(scheduling, batching=DynamicBatching()), None
            self._iterations = count(1)
        if scheduling.batching is None and sequences is None and getattr(instance, "batches", False):
            # the model has completed its configuration so
            scheduling = replace(scheduling, batching=DynamicBatching())
        if sequences is not None:
            self._scheduler = SequenceScheduler(
                model,
                signature,
                sequences,
                [PlaceRunner(instance, place) for place in range(places)],
                self._admission,
                joins=not scheduling.ragged,
                whole_requests=True,
                ordered=not self.decoupled,
            )
        elif scheduling.batching is not None:
            self._scheduler = Scheduler(
                model,
                signature,
                scheduling,
                PlaceRunner(instance),
                self._admission,
                gives_outputs=False,
                ordered=not self.decoupled,
            )

    async def answers(self, request: InferRequest, outputs: tuple[str, ...]) -> AsyncGenerator[Answer, None]:
        """The answers to ``request`` in the shapes that clients see. Raises what the instance raises,
        INVALID_TENSOR for a request that is in no sequence where it must be, OVERLOADED and UNAVAILABLE
        where too many wait."""
        inputs = inward(request.inputs, self._input_reshapes)
        if self._iterations is not None:
            request = self._iterated(request, self._iterations)
        with self.instance.asked(request.context):
            ask = self._at_once if self._scheduler is None else self._in_a_batch
            async with aclosing(ask(request, inputs, outputs)) as answers:
                async for answer in answers:
                    answer.outputs = outward(answer.outputs, self._output_reshapes)
                    yield answer

    def _iterated(self, request: InferRequest, ids: Iterator[int]) -> InferRequest:
        """``request`` at the start of its sequence. Raises INVALID_TENSOR for a batch, and for a request that
        goes on with a sequence: there is none that waits for it."""
        if self.signature.max_batch_size:
            check_alone(request.model, request.inputs)
        place = request.sequence
        if place is None:
            return replace(request, sequence=Place(next(ids), start=True))
        if not place.start:
            raise not_started(request.model, place.id)
        return request

    async def _at_once(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AsyncGenerator[Answer, None]:
        with self._admission.entered(request):
            async with aclosing(self.instance.stream(request, inputs, outputs)) as answers:
                async for answer in answers:
                    yield answer

    async def _in_a_batch(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AsyncGenerator[Answer, None]:
        scheduler = self._scheduler
        assert scheduler is not None, "there is one"  # noqa: S101
        with scheduler.entered(request, inputs, outputs) as entry:
            given: Given = await _taken(entry.answer)
            async with aclosing(given.answers) as answers:
                async for answer in answers:
                    answer.execution = given.execution
                    if not self.decoupled:
                        await scheduler.turn(entry)
                    yield answer

    async def warm_up(self, sample: Sample) -> None:
        """Run ``sample`` on every place of the instance, or once where it has none; as a sequence of its own
        where it has sequences. Raises as a request would."""
        request = sample.request
        outputs = self.check(request)
        inputs = inward(request.inputs, self._input_reshapes)
        if isinstance(self._scheduler, SequenceScheduler):
            inputs = self._scheduler.whole(inputs)
            request.sequence = ALONE
        elif self._iterations is not None:
            request = self._iterated(request, self._iterations)
        places = getattr(self.instance, "places", 0)
        for _ in range(sample.count):
            for place in range(places):
                held = await self.instance.claim(None, place)
                (answers,) = held.run([Job(request, inputs, outputs)])
                await _to_the_end(answers)
            if not places:
                await _to_the_end(self.answers(request, outputs))

    def join(self, surroundings: Surroundings) -> None:
        """It is served from now on."""
        self.instance.join(surroundings)

    async def learn(self) -> str:
        """Have the instance ask the models that it goes through whether they are decoupled. Returns why it
        cannot go through them so, empty where it can."""
        assert self._learn is not None  # noqa: S101
        self.decoupled, fault = await self._learn()
        return fault

    async def learn_labels(self) -> None:
        """Take over the labels that ``labels`` tells, for outputs that have none of their own."""
        assert self.labels is not None  # noqa: S101
        told = await self.labels()
        outputs = tuple(
            spec if spec.name in self._labelled else replace(spec, labels=told.get(spec.name, ()))
            for spec in self.signature.outputs
        )
        if outputs != self.signature.outputs:
            self.signature = replace(self.signature, outputs=outputs)

    @property
    def waiting(self) -> int:
        """How many requests wait for their run."""
        return self._admission.waiting if self._scheduler is None else self._scheduler.waiting

    def readiness(self) -> Readiness:
        """Whether its instance is ready."""
        return self.instance.readiness()

    async def close(self) -> None:
        """Finish what runs or waits and free the instance."""
        if self._scheduler is not None:
            await self._scheduler.drain()
        await self.instance.close()


def checked(version: Version | RequestVersion, request: InferRequest) -> tuple[str, ...]:
    """The outputs to compute. Raises INVALID_TENSOR, which is counted as no failure of the model."""
    try:
        return version.check(request)
    except InferenceError:
        count_refusal(entered(version.statistics, request.context))
        raise


def status_of(version: Version | RequestVersion) -> VersionStatus:
    """The version as a server tells of it."""
    state = version.readiness()
    name = ModelState.READY if state.ready else ModelState.UNAVAILABLE
    return VersionStatus(version.number, name, state.reason, version.statistics)


async def _to_the_end(answers: Answers | AsyncGenerator[Answer, None]) -> None:
    """Take all ``answers`` and drop them. Raises the error of one that failed."""
    async with aclosing(answers):
        async for answer in answers:
            if answer.error is not None:
                raise answer.error


async def _taken(answer: asyncio.Future[Given]) -> Given:
    """What ``answer`` gives. Where the caller goes away as it comes, nobody is left to take the answers."""
    try:
        return await answer
    except asyncio.CancelledError:
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            await answer.result().answers.aclose()
        raise
