"""Runs batches, on the threads of an ``Instance`` or the places of a ``RequestInstance``.

A runner says how many batches it could start, starts one, sets the answer of every entry, and reports when it
could start another. It knows nothing of queues.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from interlingua.runtime.backends import Answers, Job, Place, RequestInstance
from interlingua.runtime.models.inline_runs import InlineRuns, shapes_of
from interlingua.runtime.models.reshape import Run
from interlingua.runtime.models.statistics import Execution
from interlingua.runtime.scheduling.batch import gathered, scattered
from interlingua.runtime.scheduling.queue import Entry
from interlingua.schemas import InferenceError, Tensor

UNBOUNDED = 1 << 30


class Ran(NamedTuple):
    """One request's part of a run: its outputs, when the batch left the queue, was gathered and had ended
    (``time.monotonic_ns()``), and the execution that it shares."""

    outputs: tuple[Tensor, ...]
    started: int
    gathered: int
    ended: int
    execution: Execution


class SharedAnswers(NamedTuple):
    """The answers to one request, as they come, and the execution that it shares."""

    answers: Answers
    execution: Execution


def _nothing(*_: object) -> None:
    """The callback of events without a listener."""


class Runner(Protocol):
    """``free`` batches can start now, each of up to ``room`` entries. ``on_free`` is called when there may be
    more, ``on_failure`` when waiting requests cannot run, ``on_replaced`` when the model has lost its memory
    of earlier runs."""

    on_free: Callable[[], None] = staticmethod(_nothing)
    on_failure: Callable[[InferenceError], None] = staticmethod(_nothing)
    on_replaced: Callable[[], None] = staticmethod(_nothing)

    @property
    def free(self) -> int: ...

    @property
    def room(self) -> int: ...

    @property
    def ready(self) -> bool:
        """Whether waiting requests would run."""

    @property
    def busy(self) -> bool:
        """Whether something that was started here is unfinished."""

    def wanted(self) -> None:
        """A request waits and nothing is free."""
        return

    def unwanted(self) -> None:
        """No request waits."""
        return

    def start(self, entries: list[Entry]) -> None:
        """Run ``entries`` as one batch and set each one's ``answer``. Never raises."""


class ThreadRunner(Runner):
    """Runs ``run`` on ``threads``, up to ``instances`` batches at once; the answer is a :class:`Ran`. Short
    runs of ``inline`` with one request are on the event loop, each in a turn of its own."""

    free = 0
    room = UNBOUNDED
    ready = True

    def __init__(self, run: Run, threads: Executor, instances: int, inline: InlineRuns | None = None) -> None:
        self.free = instances
        self._run = run
        self._inline = inline
        self._threads = threads
        self._instances = instances

    @property
    def busy(self) -> bool:
        return self.free < self._instances

    def start(self, entries: list[Entry]) -> None:
        self.free -= 1
        loop = asyncio.get_running_loop()
        first, *others = entries
        # several run in a thread, where more collect to a larger batch meanwhile
        if (
            self._inline is not None
            and not others
            and self._inline.takes(shapes_of(first.inputs, first.outputs))
        ):
            try:
                answer(entries, self._work(entries, self._inline.on_loop))
            except Exception as error:
                fail(entries, error)
            loop.call_soon(self._release)
            return
        running = loop.run_in_executor(self._threads, self._work, entries, self._run)
        running.add_done_callback(lambda done: self._ended(entries, done))

    def _work(self, entries: list[Entry], run: Run) -> list[Ran]:
        started = time.monotonic_ns()
        inputs = gathered(entries)
        ready = time.monotonic_ns()
        outputs = run(inputs, entries[0].outputs)
        ended = time.monotonic_ns()
        execution = execution_of(entries)
        # without batches the first dimension is any other
        answers = scattered(outputs, entries) if entries[0].rows else [outputs]
        return [Ran(each, started, ready, ended, execution) for each in answers]

    def _ended(self, entries: list[Entry], done: asyncio.Future[list[Ran]]) -> None:
        error = done.exception()
        if error is None:
            answer(entries, done.result())
        else:
            fail(entries, error)
        self._release()

    def _release(self) -> None:
        self.free += 1
        self.on_free()


class PlaceRunner(Runner):
    """Runs on a place of ``instance``, any or the one with ``number``, claimed when a request waits; the
    answer is a :class:`SharedAnswers`."""

    def __init__(self, instance: RequestInstance, number: int | None = None) -> None:
        self._instance = instance
        self._number = number
        self._before: Place | None = None
        self._place: Place | None = None
        self._claim: asyncio.Task[None] | None = None

    @property
    def free(self) -> int:
        return int(self._place is not None)

    @property
    def room(self) -> int:
        return self._place.room if self._place is not None else 0

    @property
    def ready(self) -> bool:
        return self._instance.readiness(self._number).ready

    @property
    def busy(self) -> bool:
        """A claim is all that continues here: the instance knows what it runs."""
        return self._claim is not None

    def wanted(self) -> None:
        if self._claim is None:
            self._claim = asyncio.get_running_loop().create_task(self._claim_one())

    def unwanted(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            place.release()

    def start(self, entries: list[Entry]) -> None:
        place, self._place = self._place, None
        assert place is not None, "started without a place"  # noqa: S101
        execution = execution_of(entries)
        jobs = [Job(entry.request, entry.inputs, entry.outputs) for entry in entries]
        for entry, answers in zip(entries, place.run(jobs), strict=True):
            entry.answer.set_result(SharedAnswers(answers, execution))

    async def _claim_one(self) -> None:
        try:
            self._place = await self._instance.claim(place=self._number)
            if self._number is not None and self._before not in (None, self._place):
                self.on_replaced()
            self._before = self._place
        except InferenceError as error:
            self.on_failure(error)
        finally:
            self._claim = None
            self.on_free()


def execution_of(entries: Sequence[Entry]) -> Execution:
    return Execution(sum(entry.rows for entry in entries) or 1)


def answer(entries: Sequence[Entry], rans: Sequence[Ran]) -> None:
    for entry, ran in zip(entries, rans, strict=True):
        if not entry.answer.done():
            entry.answer.set_result(ran)


def fail(entries: Sequence[Entry], error: BaseException) -> None:
    """Fail ``entries`` with ``error``, each with its own copy, since callers may write to it."""
    for entry in entries:
        if not entry.answer.done():
            own = error
            if isinstance(error, InferenceError):
                own = InferenceError(
                    error.code,
                    error.message,
                    origin=error.origin,
                    retryable=error.retryable,
                    details=error.details,
                    begun=error.begun,
                )
                own.__cause__ = error.__cause__
            entry.answer.set_exception(own)
