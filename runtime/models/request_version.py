"""A version of a model whose instance receives whole requests, and may answer more than once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import count

from interlingua.runtime.backends import Answers, Job, RequestInstance
from interlingua.runtime.models.deadline import next_answer
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.reshape import Reshape, inward, outward
from interlingua.runtime.models.response_cache import new_scope
from interlingua.runtime.models.validation import RequestCheck
from interlingua.runtime.models.warmup import WarmupSample
from interlingua.runtime.scheduling.admission import Admission
from interlingua.runtime.scheduling.policy import DynamicBatching, Scheduling
from interlingua.runtime.scheduling.runners import UNBOUNDED, PlaceRunner, SharedAnswers
from interlingua.runtime.scheduling.scheduler import Scheduler
from interlingua.runtime.scheduling.sequence_scheduler import ALONE, SequenceScheduler, check_alone
from interlingua.runtime.scheduling.sequence_table import not_started
from interlingua.runtime.target import ServerHooks, Version
from interlingua.schemas import InferRequest, Readiness, Signature, Tensor, VersionStatistics
from interlingua.schemas import Sequence as Place


class RequestVersion(Version):
    """``input_reshapes`` and ``output_reshapes`` are for tensors whose shape clients see differently from the
    instance. ``scheduling`` states the queue, batches and sequences."""

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
        self._model = model
        self.scope = new_scope()
        self.instance = instance
        self.signature = signature
        self.decoupled = instance.decoupled
        self.statistics = VersionStatistics()
        self.check = RequestCheck(model, signature).check
        self._input_reshapes = input_reshapes or {}
        self._output_reshapes = output_reshapes or {}
        self._labelled = {spec.name for spec in signature.outputs if spec.labels}
        self._composition = instance.composition
        self.learns = self._composition is not None
        places = instance.places
        # a composition runs nothing itself, so no request waits in it
        self._admission = Admission(model, scheduling.limits, UNBOUNDED if self.learns else places)
        self._scheduler: Scheduler | SequenceScheduler | None = None
        sequences = scheduling.sequences
        self._iterations: Iterator[int] | None = None
        if sequences is not None and sequences.iterative:
            # each request is a sequence of its own; the instance keeps it from one execution to the next
            scheduling, sequences = replace(scheduling, batching=DynamicBatching()), None
            self._iterations = count(1)
        if scheduling.batching is None and sequences is None and instance.batches:
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

    async def answer(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        """See ``Version``. The final flag may be an answer of its own."""
        found: InstanceAnswer | None = None
        final = False
        async with aclosing(self.answers(request, outputs)) as answers:
            while not final:
                answer = await next_answer(answers, self._model, request.context)
                final = answer.final
                if answer.error is not None:
                    answer.error.before = found
                    raise answer.error
                if found is None or answer.outputs:
                    found = answer
        assert found is not None, "a final answer has come"  # noqa: S101
        return found

    async def answers(
        self, request: InferRequest, outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        """See ``Version``; the tensors have the shapes that clients see. Raises INVALID_TENSOR for a request
        outside a sequence if the model requires one."""
        inputs = inward(request.inputs, self._input_reshapes)
        if self._iterations is not None:
            request = self._iterated(request, self._iterations)
        with self.instance.guard(request.context):
            run = self._at_once if self._scheduler is None else self._in_a_batch
            async with aclosing(run(request, inputs, outputs)) as answers:
                async for answer in answers:
                    answer.outputs = outward(answer.outputs, self._output_reshapes)
                    yield answer

    def _iterated(self, request: InferRequest, ids: Iterator[int]) -> InferRequest:
        """``request`` at the start of its sequence. Raises INVALID_TENSOR for a batch, and for a request that
        continues a sequence: none waits for it."""
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
    ) -> AsyncGenerator[InstanceAnswer, None]:
        with self._admission.entered(request):
            async with aclosing(self.instance.stream(request, inputs, outputs)) as answers:
                async for answer in answers:
                    yield answer

    async def _in_a_batch(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        scheduler = self._scheduler
        assert scheduler is not None, "there is one"  # noqa: S101
        with scheduler.entered(request, inputs, outputs) as entry:
            batch: SharedAnswers = await _taken(entry.answer)
            async with aclosing(batch.answers) as answers:
                async for answer in answers:
                    answer.execution = batch.execution
                    if not self.decoupled:
                        await scheduler.turn(entry)
                    yield answer

    async def warm_up(self, sample: WarmupSample) -> None:
        """See ``Version``: on every place of the instance, or once if it has none."""
        request = sample.request
        outputs = self.check(request)
        inputs = inward(request.inputs, self._input_reshapes)
        if isinstance(self._scheduler, SequenceScheduler):
            inputs = self._scheduler.whole(inputs)
            request.sequence = ALONE
        elif self._iterations is not None:
            request = self._iterated(request, self._iterations)
        for _ in range(sample.count):
            for place in range(self.instance.places):
                held = await self.instance.claim(None, place)
                (answers,) = held.run([Job(request, inputs, outputs)])
                await _to_the_end(answers)
            if not self.instance.places:
                await _to_the_end(self.answers(request, outputs))

    def join(self, hooks: ServerHooks) -> None:
        self.instance.join(hooks)

    async def learn(self) -> str:
        if self._composition is None:
            return ""
        self.decoupled, fault = await self._composition.learn()
        return fault

    async def learn_labels(self) -> None:
        if self._composition is None:
            return
        labels = await self._composition.labels()
        outputs = tuple(
            spec if spec.name in self._labelled else replace(spec, labels=labels.get(spec.name, ()))
            for spec in self.signature.outputs
        )
        if outputs != self.signature.outputs:
            self.signature = replace(self.signature, outputs=outputs)

    @property
    def waiting(self) -> int:
        return self._admission.waiting if self._scheduler is None else self._scheduler.waiting

    @property
    def sequences(self) -> int:
        return 0 if self._scheduler is None else self._scheduler.sequences

    def end_sequences(self, is_lost: Callable[[int | str], bool]) -> None:
        if isinstance(self._scheduler, SequenceScheduler):
            self._scheduler.end(is_lost)

    def readiness(self) -> Readiness:
        return self.instance.readiness()

    async def close(self) -> None:
        if self._scheduler is not None:
            await self._scheduler.drain()
        await self.instance.close()


async def _to_the_end(answers: Answers | AsyncGenerator[InstanceAnswer, None]) -> None:
    """Read and drop all ``answers``. Raises the first error."""
    async with aclosing(answers):
        async for answer in answers:
            if answer.error is not None:
                raise answer.error


async def _taken(answer: asyncio.Future[SharedAnswers]) -> SharedAnswers:
    """The result of ``answer``; closes its answers if the caller disconnects at the same moment."""
    try:
        return await answer
    except asyncio.CancelledError:
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            await answer.result().answers.aclose()
        raise
