"""Takes the requests of a sequence to the instance that has the sequence, and to batches there.

Contract: the requests of a sequence run one after the other, in the order of their arrival, on one instance.
Everything happens on one event loop, driven by arrivals, ends, one timer for each waiting batch and one for
the sequence that is idle next. A request that leaves without a run breaks its sequence: the model's memory
would be wrong from there on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from interlingua.runtime.models.deadline import cancelled
from interlingua.runtime.scheduling.admission import Admission
from interlingua.runtime.scheduling.batch import in_model_order, key_of
from interlingua.runtime.scheduling.forming import Rules
from interlingua.runtime.scheduling.order import Order
from interlingua.runtime.scheduling.policy import DynamicBatching
from interlingua.runtime.scheduling.queue import Entry
from interlingua.runtime.scheduling.runners import Runner, SharedAnswers, fail
from interlingua.runtime.scheduling.sequence_controls import Controls, zeros
from interlingua.runtime.scheduling.sequence_forming import Batch, direct, oldest
from interlingua.runtime.scheduling.sequence_policy import Oldest, SequenceBatching
from interlingua.runtime.scheduling.sequence_state import States
from interlingua.runtime.scheduling.sequence_table import (
    Lane,
    LiveSequence,
    SequenceTable,
    not_started,
    starts,
)
from interlingua.schemas import InferenceError, InferRequest, Signature, Tensor, invalid_tensor
from interlingua.schemas import Sequence as Place

ALONE = Place(1, True, True)
"""The place of a request that is a sequence of its own."""


def check_alone(model: str, inputs: Sequence[Tensor]) -> None:
    """Raise INVALID_TENSOR for ``inputs`` of more than one row, which no sequence takes."""
    if any(tensor.shape[:1] != (1,) for tensor in inputs):
        raise invalid_tensor(
            f"inference request to model '{model}' must specify batch-size 1 due to requirements of sequence "
            "batcher"
        )


class SequenceScheduler:
    """The sequences of one version of ``model`` before ``runners``, one for each instance.

    ``joins``: requests may share batches if the model has any. ``whole_requests``: the runners pass the model
    each request by itself, with any outputs; padding rows then go only to a model with a READY control.
    ``ordered``: answers may be kept in order, if configured. ``waiting`` counts the requests
    that have not begun.
    """

    def __init__(
        self,
        model: str,
        signature: Signature,
        batching: SequenceBatching,
        runners: Sequence[Runner],
        admission: Admission,
        *,
        joins: bool = True,
        whole_requests: bool = False,
        ordered: bool = True,
    ) -> None:
        rows = max(signature.max_batch_size, 1)
        self._model = model
        self._admission = admission
        self._batched = signature.max_batch_size > 0
        self._states = States(batching.states, self._batched)
        self._joins = joins and self._batched and self._states.joins
        self._places = {name: place for place, name in enumerate(signature.input_names)}
        self._whole_requests = whole_requests
        self._controls = Controls(model, batching.controls, self._batched)
        self._fills = self._controls.has_ready or not whole_requests
        self._strategy = strategy = batching.strategy
        self._order: Order | None = None
        if isinstance(strategy, Oldest):
            dynamic = DynamicBatching(strategy.preferred_sizes, strategy.max_delay_us)
            self._rules = Rules.of(dynamic, rows)
            self._order = Order() if strategy.preserve_ordering and ordered else None
        self._idle_secs = batching.idle_us / 1e6
        self._runners = tuple(runners)
        slots = batching.slots(signature.max_batch_size)
        self._table = SequenceTable(model, len(runners), slots, lambda number: runners[number].ready)
        self._timers: list[asyncio.TimerHandle | None] = [None] * len(runners)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._due: asyncio.Handle | None = None
        self._quiet: asyncio.Event | None = None
        self.waiting = 0
        self._waiting_bytes = 0
        self._dropping: set[asyncio.Task[None]] = set()
        for lane, runner in zip(self._table.lanes, runners, strict=True):
            runner.on_free = partial(self._advance_lane, lane)
            runner.on_failure = partial(self._fail_lane, lane)
            runner.on_replaced = partial(self._break_lane, lane)

    @property
    def sequences(self) -> int:
        """The number of sequences that have started and not ended."""
        return len(self._table)

    @contextmanager
    def entered(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> Iterator[Entry]:
        """Queue ``request`` in its sequence, with ``inputs`` as the model sees them; its ``answer`` is set
        after the run. Leaving the block ends the wait: what has not begun then never runs.

        Raises INVALID_TENSOR for a request without a sequence or with a batch, and OVERLOADED for a full
        queue. The answer may be CANCELLED, INVALID_TENSOR for a sequence that broke meanwhile, and the
        runner's errors.
        """
        loop = asyncio.get_running_loop()
        if self._batched:
            check_alone(self._model, inputs)
        now = time.monotonic()
        self._table.expire(now, self._idle_secs)
        place = self._table.check(request.sequence)
        inputs = in_model_order(inputs, self._places) + self._controls.of(place)
        key = key_of(inputs, () if self._whole_requests else outputs) if self._joins else None
        arrived = time.monotonic_ns()
        entry = Entry(request, inputs, outputs, int(self._batched), key, arrived, loop.create_future())
        entry.nbytes = self._admission.enter_queue(request, self.waiting, self._waiting_bytes)
        sequence = self._table.enter(entry, place, now)
        self.waiting += 1
        self._waiting_bytes += entry.nbytes
        context = request.context

        def cancel() -> None:
            self._drop(sequence, entry)
            entry.cancel(cancelled(self._model))

        try:
            context.cancel.on_cancel(cancel)
            self._advance_soon()
            self._watch()
            yield entry
        finally:
            context.cancel.forget(cancel)
            self._leave(sequence, entry)
            self._admission.leave(0)

    async def turn(self, entry: Entry) -> None:
        """Wait until the answer to ``entry`` may go to the caller. Raises CANCELLED."""
        if self._order is not None:
            await self._order.turn(entry)

    def whole(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """``inputs`` with all hidden inputs for a request that is a sequence of its own. Raises
        INVALID_TENSOR as :meth:`entered`."""
        if self._batched:
            check_alone(self._model, inputs)
        return inputs + self._controls.of(ALONE) + self._states.initial()

    def end(self, is_lost: Callable[[int | str], bool]) -> None:
        """End the sequences whose ids are lost; requests that have entered still run."""
        for sequence in list(self._table):
            if not is_lost(sequence.id):
                continue
            sequence.ended = True
            if not sequence.inside:
                self._table.over(sequence)
        self._advance_soon()

    async def drain(self) -> None:
        """Wait until nothing waits or runs. From now on batches do not wait to fill, and a sequence ends with
        its requests."""
        self._quiet = asyncio.Event()
        self._end_quiet_ones()
        self._advance()
        await self._quiet.wait()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    # --- how it is done

    def _leave(self, sequence: LiveSequence, entry: Entry) -> None:
        self._drop(sequence, entry)
        entry.abandon()
        if self._order is not None:
            self._order.leave(entry)
        sequence.inside -= 1
        self._table.touch(sequence, time.monotonic())
        if self._quiet is not None:
            self._end_quiet_ones()
            self._advance_soon()

    def _drop(self, sequence: LiveSequence, entry: Entry) -> None:
        """Remove ``entry``, if it still waits."""
        if entry not in sequence.waiting:
            return
        dropped = self._table.drop(sequence, entry)
        self._no_longer_wait([entry, *dropped])
        fail(dropped, not_started(self._model, sequence.id))
        self._advance_soon()

    def _no_longer_wait(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.waiting -= 1
            self._waiting_bytes -= entry.nbytes

    def _advance_soon(self) -> None:
        """Once for all arrivals in one round of the loop, which can then share a batch."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_soon(self._advance)

    def _advance(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        for lane in self._table.lanes:
            self._advance_lane(lane)

    def _advance_lane(self, lane: Lane) -> None:
        timer = self._timers[lane.number]
        if timer is not None:
            timer.cancel()
            self._timers[lane.number] = None
        runner = self._runners[lane.number]
        while lane.ready and runner.free:
            now = time.monotonic_ns()
            batch, wait_ns = self._next_batch(lane, runner.room, now)
            # the block learns of a disconnected caller only in the next round of the loop
            gone = [each for each in batch if each is not None and each.waiting[0].answer.done()]
            if gone:
                for sequence in gone:
                    self._drop(sequence, sequence.waiting[0])
                continue
            if wait_ns and self._quiet is None:
                loop = asyncio.get_running_loop()
                self._timers[lane.number] = loop.call_later(wait_ns / 1e9, self._advance_lane, lane)
                return
            runner.start(self._taken(batch))
        if lane.ready:
            runner.wanted()
            return
        runner.unwanted()
        if self._quiet is not None and not self.waiting and not any(each.busy for each in self._runners):
            self._quiet.set()

    def _next_batch(self, lane: Lane, room: int, now: int) -> tuple[Batch, int]:
        if isinstance(self._strategy, Oldest):
            return oldest(lane, self._rules, room, now)
        return direct(lane, self._strategy, room, now, self._fills)

    def _taken(self, batch: Batch) -> list[Entry]:
        """The next request of each sequence of ``batch``, and entries for the padding rows."""
        found = [None if sequence is None else self._table.take(sequence) for sequence in batch]
        entries = [entry for entry in found if entry is not None]
        self._no_longer_wait(entries)
        if self._order is not None:
            last = max(entry.arrived for entry in entries)
            # an instance that is still busy may have earlier ones, and these run whatever their callers do
            earlier = [entry for entry in self._table.waiting_in_slots() if entry.arrived < last]
            for entry in sorted([*earlier, *entries], key=lambda entry: entry.arrived):
                self._order.enter(entry)
        if len(entries) == len(found):
            return entries
        first = entries[0]
        own = first.inputs[: len(first.inputs) - len(self._controls.padding)]
        inputs = tuple(zeros(tensor.name, tensor.datatype, tensor.shape) for tensor in own)
        inputs += self._controls.padding
        return [self._padding_row(first, inputs) if entry is None else entry for entry in found]

    def _padding_row(self, like: Entry, inputs: tuple[Tensor, ...]) -> Entry:
        answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(self._forget)
        request = InferRequest(self._model, ())
        return Entry(request, inputs, like.outputs, like.rows, like.key, like.arrived, answer)

    def _forget(self, answer: asyncio.Future[object]) -> None:
        """Retrieve the ``answer`` of a padding row, which has no caller."""
        if answer.cancelled() or answer.exception() is not None:
            return
        result = answer.result()
        if isinstance(result, SharedAnswers):
            task = asyncio.get_running_loop().create_task(result.answers.aclose())
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)

    def _fail_lane(self, lane: Lane, error: InferenceError) -> None:
        """The instance of ``lane`` runs nothing now, and has lost its sequences."""
        for sequence in list(lane.slots.values()):
            waiting = list(sequence.waiting)
            sequence.waiting.clear()
            self._no_longer_wait(waiting)
            self._table.over(sequence)
            fail(waiting, error)

    def _break_lane(self, lane: Lane) -> None:
        """The instance of ``lane`` was restarted, and has lost its sequences."""
        for sequence in list(lane.slots.values()):
            if not sequence.begun:
                continue
            if not sequence.waiting:
                self._table.over(sequence)
            elif not starts(first := sequence.waiting[0]):
                self._drop(sequence, first)
                fail([first], not_started(self._model, sequence.id))

    def _end_quiet_ones(self) -> None:
        for sequence in list(self._table):
            if not sequence.inside:
                self._table.over(sequence)

    def _watch(self) -> None:
        """Check again when the next sequence may have been idle too long."""
        first = self._table.first_to_idle
        if self._idle_timer is None and first is not None and self._quiet is None:
            remaining = first.last + self._idle_secs - time.monotonic()
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(max(remaining, 0), self._expire_idle)

    def _expire_idle(self) -> None:
        self._idle_timer = None
        self._table.expire(time.monotonic(), self._idle_secs)
        self._advance_soon()
        self._watch()
