"""Takes requests from the queue to batches, and starts them.

Contract: everything happens on one event loop, driven by arrivals, ends, at most one timer for the waiting
batch and one for each request that can expire; nothing polls. A request that is cancelled, expired or past
its deadline leaves the queue without running; a running one continues without its caller. Whatever changes
the queue makes the scheduler form the next batch again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from interlingua.runtime.models.deadline import cancelled, too_late
from interlingua.runtime.scheduling.admission import Admission
from interlingua.runtime.scheduling.batch import in_model_order, key_of
from interlingua.runtime.scheduling.forming import Rules, choose
from interlingua.runtime.scheduling.order import Order
from interlingua.runtime.scheduling.policy import DynamicBatching, Scheduling
from interlingua.runtime.scheduling.queue import EXPIRED, Entry, RequestQueue
from interlingua.runtime.scheduling.runners import Runner, fail
from interlingua.schemas import InferenceError, InferRequest, Signature, Tensor, unavailable


class Scheduler:
    """The queue of one version of ``model`` before ``runner``. Without batches, or with ragged ones, requests
    run one by one under the same policies. ``gives_outputs``: only requests for the same outputs share a
    batch. ``ordered``: answers may be kept in order, if configured."""

    def __init__(
        self,
        model: str,
        signature: Signature,
        scheduling: Scheduling,
        runner: Runner,
        admission: Admission,
        *,
        gives_outputs: bool = True,
        ordered: bool = True,
    ) -> None:
        batching = scheduling.batching or DynamicBatching()
        self._model = model
        self._admission = admission
        self._joins = signature.max_batch_size > 0 and not scheduling.ragged
        self._batched = signature.max_batch_size > 0
        self._places = {name: place for place, name in enumerate(signature.input_names)}
        self._gives_outputs = gives_outputs
        self._rules = Rules.of(batching, max(signature.max_batch_size, 1))
        self._queue = RequestQueue(batching)
        self._order = Order() if batching.preserve_ordering and ordered else None
        self._runner = runner
        self._timer: asyncio.TimerHandle | None = None
        self._due: asyncio.Handle | None = None
        self._quiet: asyncio.Event | None = None
        runner.on_free = self._advance
        runner.on_failure = self._fail_all

    sequences = 0
    """It has none."""

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def entered(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> AbstractContextManager[Entry]:
        """Queue ``request``, with ``inputs`` as the model sees them; its ``answer`` is set after the run.
        Leaving the block ends the wait: what has not begun then never runs. Raises OVERLOADED and UNAVAILABLE
        for a full queue. The answer may be UNAVAILABLE after a timeout, DEADLINE_EXCEEDED, CANCELLED, and the
        runner's errors."""
        return _Entered(self, request, inputs, outputs)

    def _enter(
        self, request: InferRequest, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]
    ) -> tuple[Entry, Callable[[], None]]:
        """The entry of ``request``, and a function that cancels it."""
        loop = asyncio.get_running_loop()
        inputs = in_model_order(inputs, self._places)
        key = key_of(inputs, outputs if self._gives_outputs else ()) if self._joins and inputs else None
        rows = inputs[0].shape[0] if self._batched and inputs else 0
        entry = Entry(request, inputs, outputs, rows, key, time.monotonic_ns(), loop.create_future())
        context = request.context

        def cancel() -> None:
            self._queue.remove(entry)
            entry.cancel(cancelled(self._model))

        entry.nbytes = self._admission.enter_queue(request, len(self._queue), self._queue.nbytes)
        try:
            self._queue.add(entry)
            if entry.expires:
                entry.timer = loop.call_later((entry.expires - entry.arrived) / 1e9, self._timed_out, entry)
            context.cancel.on_cancel(cancel)
            self._advance_soon()
        except BaseException:
            self._exit(entry, cancel)
            raise
        return entry, cancel

    def _exit(self, entry: Entry, cancel: Callable[[], None]) -> None:
        entry.request.context.cancel.forget(cancel)
        self._leave(entry)
        self._admission.leave(0)

    async def turn(self, entry: Entry) -> None:
        """Wait until the answer to ``entry`` may go to the caller. Raises CANCELLED."""
        if self._order is not None:
            await self._order.turn(entry)

    async def drain(self) -> None:
        """Wait until nothing waits or runs. Batches no longer wait to fill."""
        self._quiet = asyncio.Event()
        self._advance()
        await self._quiet.wait()

    # --- how it is done

    def _leave(self, entry: Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
        if self._queue.remove(entry):
            # a batch may wait for it, or a place be kept
            self._advance_soon()
        entry.abandon()
        if self._order is not None:
            self._order.leave(entry)

    def _advance_soon(self) -> None:
        """Once for all arrivals in one round of the loop, which can then share a batch."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_soon(self._advance)

    def _advance(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        runner = self._runner
        while self._queue and runner.free:
            now = time.monotonic_ns()
            taken, wait_ns = choose(self._queue, self._rules, runner.room, now)
            # the block learns of a disconnected caller only in the next round of the loop
            overdue = [entry for entry in taken if entry.answer.done() or self._is_overdue(entry, now)]
            if overdue:
                for entry in overdue:
                    self._overdue(entry, now)
                continue
            if wait_ns and self._quiet is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(wait_ns / 1e9, self._advance)
                return
            for entry in taken:
                self._queue.remove(entry)
                if self._order is not None:
                    self._order.enter(entry)
                if entry.timer is not None:
                    entry.timer.cancel()
            runner.start(taken)
        if self._queue:
            runner.wanted()
        else:
            runner.unwanted()
            if self._quiet is not None and not runner.busy:
                self._quiet.set()

    def _is_overdue(self, entry: Entry, now: int) -> bool:
        deadline = entry.request.context.deadline
        return 0 < entry.expires <= now or (deadline is not None and deadline * 1e9 <= now)

    def _overdue(self, entry: Entry, now: int) -> None:
        deadline = entry.request.context.deadline
        if entry.answer.done():
            self._queue.remove(entry)
        elif deadline is not None and deadline * 1e9 <= now:
            self._queue.remove(entry)
            fail([entry], too_late(self._model))
        else:
            self._expired(entry)

    def _timed_out(self, entry: Entry) -> None:
        self._expired(entry)
        # those that waited with it may be a batch without it, or the claimed place is not needed
        self._advance_soon()

    def _expired(self, entry: Entry) -> None:
        if self._queue.expire(entry):
            fail([entry], unavailable(EXPIRED))

    def _fail_all(self, error: InferenceError) -> None:
        waiting = list(self._queue)
        for entry in waiting:
            self._queue.remove(entry)
        fail(waiting, error)


class _Entered:
    """The block of :meth:`Scheduler.entered`. Every small request uses it: a generator-based context manager
    would cost as much as the whole block."""

    __slots__ = ("_arguments", "_cancel", "_entry", "_scheduler")

    def __init__(self, scheduler: Scheduler, *arguments: Any) -> None:
        self._scheduler = scheduler
        self._arguments = arguments

    def __enter__(self) -> Entry:
        self._entry, self._cancel = self._scheduler._enter(*self._arguments)
        return self._entry

    def __exit__(self, *_: object) -> None:
        self._scheduler._exit(self._entry, self._cancel)
