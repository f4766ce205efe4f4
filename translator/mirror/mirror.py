"""A mirror: an observer that asks another model the same and holds the two answers against each other.

Callers never wait for it: a copy is made when its caller has been answered, what finds no room is dropped and
counted, and large tensors are compared in a thread. The copy goes through the target's own encoder, so the
other model may be anywhere and speak anything.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from runtime.kept import kept
from runtime.target import Target
from schemas import (
    CancelToken,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
)
from translator.config.mirror import MirrorOptions
from translator.diff import AnswerDiff, Tolerance, compare_answers
from translator.mirror.pairs import Pairs
from translator.mirror.report import Dropped, MirrorReport
from translator.mirror.sequences import Sequences
from translator.observation import Observed
from translator.recording.record import Answer, Record

_log = logging.getLogger(__name__)

_GRACE_SECS = 1.0
"""How much longer than its deadline a copy is waited for: targets keep to it themselves, in better words."""

_AT_ONCE_BYTES = 8192
"""Up to here answers are compared on the event loop, which takes less than to have a thread do it."""

_OUTPUT_BYTES = 512
"""What an output costs beside its bytes, as bytes that are compared."""

_SURPLUS = 16
"""How many responses too many are listened to: more would say nothing new."""


@dataclass(slots=True)
class Copy:
    """A request that waits to be copied, or whose copy is under way; ``came`` is a ``time.monotonic()``."""

    observed: Observed
    nbytes: int
    came: float


class Mirror:
    """An ``Observer`` that sends copies to the model ``options.to``, which ``find`` finds (raising NOT_FOUND
    where it is not served). ``report`` is what it has found so far. Use on one event loop, and ``close`` it
    before the models are closed."""

    def __init__(
        self,
        options: MirrorOptions,
        find: Callable[[str], Target],
        name: str = "",
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.report = MirrorReport(
            name or options.to, options.to, options.percent, options.rtol, options.atol
        )
        self._options = options
        self._find = find
        self._share = options.percent / 100
        self._chance = chance
        self._tolerance = Tolerance(options.rtol, options.atol)
        self._sequences: Sequences[Copy] = Sequences(self._ready)
        self._waiting: deque[Copy] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = self._stopped = False
        self._thread = ThreadPoolExecutor(1, "mirror")
        self._pairs = Pairs(options.keep) if options.keep is not None else None

    # --- as an observer

    def wants(self, request: InferRequest) -> bool:
        """Whether ``request`` is to be copied."""
        if self._closing:
            return False
        if request.sequence is None:
            return self._sampled()
        wanted = self._sequences.wants(request, self._sampled)
        self._leave_out(self._sequences.overdue(), Dropped.SEQUENCE)
        return wanted

    def saw(self, observed: Observed) -> None:
        """Copy what was asked, where there is room."""
        nbytes = _nbytes(observed)
        refused = self._refused(observed, nbytes)
        in_sequence = observed.request.sequence is not None
        number = observed.request.context.request_number
        if refused is not None:
            self.report.count_dropped(refused)
            if in_sequence:
                self._leave_out(self._sequences.lost(number), Dropped.SEQUENCE)
            return
        copy = Copy(observed, nbytes, time.monotonic())
        self._hold(copy)
        if not in_sequence:
            self._ready(copy)
        elif not self._sequences.came(number, copy):
            self._leave_out([copy], Dropped.SEQUENCE)

    async def close(self) -> None:
        """Take no more, finish what is held within ``finish_secs``, and drop the rest."""
        self._closing = True
        try:
            async with asyncio.timeout(self._options.finish_secs):
                await self._idle.wait()
        except TimeoutError:
            self._stopped = True
            facts = {"mirror": self.report.name, "count": self.report.held}
            _log.warning("copies were dropped", extra={"facts": facts})
        tasks = tuple(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # those that never were sent; the others have counted themselves
        self.report.count_dropped(Dropped.SHUTDOWN, self.report.held)
        self.report.held = self.report.held_bytes = 0
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        self._thread.shutdown()
        if self._pairs is not None:
            self._pairs.close()

    # --- what is held

    def _sampled(self) -> bool:
        return self._share >= 1 or self._chance() < self._share

    def _refused(self, observed: Observed, nbytes: int) -> Dropped | None:
        if self._closing:
            return Dropped.SHUTDOWN
        if observed.error is not None and observed.error.code is ErrorCode.CANCELLED:
            return Dropped.CANCELLED
        if observed.answered_by == self._options.to:
            return Dropped.SAME
        report = self.report
        if (
            report.held >= self._options.max_queue_requests
            or report.held_bytes + nbytes > self._options.max_queue_bytes
        ):
            return Dropped.QUEUE
        return None

    def _hold(self, copy: Copy) -> None:
        self.report.held += 1
        self.report.held_bytes += copy.nbytes
        self._idle.clear()

    def _release(self, copy: Copy) -> None:
        self.report.held -= 1
        self.report.held_bytes -= copy.nbytes
        if not self.report.held:
            self._idle.set()

    def _leave_out(self, copies: list[Copy], why: Dropped) -> None:
        for copy in copies:
            self.report.count_dropped(why)
            self._release(copy)

    def _ready(self, copy: Copy) -> None:
        """Nothing but the limit of what may be under way keeps ``copy`` from being sent."""
        self._waiting.append(copy)
        self._send_next()

    def _send_next(self) -> None:
        while self._waiting and not self._stopped and len(self._under_way) < self._options.max_concurrency:
            task = asyncio.get_running_loop().create_task(self._mirror(self._waiting.popleft()))
            self._under_way.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._send_next()

    # --- one copy

    async def _mirror(self, copy: Copy) -> None:
        seen, diverged = copy.observed, True
        try:
            answer = await self._ask(copy)
            diff = await self._compared(seen, answer)
            self.report.add(seen, answer, diff)
            diverged = bool(diff.failures)
            await self._keep(copy, answer, diff)
        except asyncio.CancelledError:
            self.report.count_dropped(Dropped.SHUTDOWN)
            raise
        except Exception:
            _log.exception("a copy could not be made", extra={"facts": {"mirror": self.report.name}})
            self.report.count_dropped(Dropped.ERROR)
        finally:
            if seen.request.sequence is not None:
                if diverged:
                    left = self._sequences.broken(seen.request.sequence.id)
                    self._leave_out(left, Dropped.SEQUENCE)
                self._sequences.done(seen.request.sequence.id)
            self._release(copy)

    async def _ask(self, copy: Copy) -> Answer:
        """What the other model answers, and how long it took."""
        responses: list[InferResponse] = []
        failure: InferenceError | None = None
        began = time.monotonic_ns()
        deadline = self._deadline(copy)
        try:
            target = self._find(self._options.to)
            request = self._copied(copy.observed.request, deadline)
            async with asyncio.timeout(deadline - time.monotonic() + _GRACE_SECS):
                if copy.observed.streamed:
                    await self._listen(target, request, len(copy.observed.responses), responses)
                else:
                    responses.append(_owned(await target.infer(request)))
        except InferenceError as error:
            failure = error
        except TimeoutError:
            failure = InferenceError(ErrorCode.DEADLINE_EXCEEDED, "no answer within the time of a copy")
        except Exception as error:
            _log.exception("unforeseen failure while a copy was answered")
            failure = InferenceError(ErrorCode.INTERNAL, f"unforeseen: {error}")
        return Answer(self._options.to, tuple(responses), failure, time.monotonic_ns() - began)

    async def _listen(
        self, target: Target, request: InferRequest, expected: int, responses: list[InferResponse]
    ) -> None:
        """Collect the responses of a stream, of which there should be about as many as ``expected``."""
        stream = target.stream(request)
        try:
            async for response in stream:
                responses.append(_owned(response))
                if len(responses) > expected + _SURPLUS:
                    return
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()

    def _deadline(self, copy: Copy) -> float:
        """When a copy that is sent now must be answered: as soon as its caller would have wanted it."""
        now = time.monotonic()
        limit = copy.observed.request.context.deadline
        secs = self._options.request_timeout_secs
        if limit is not None:
            secs = min(secs, max(0.0, limit - (copy.came - copy.observed.elapsed_ns / 1e9)))
        return now + secs

    def _copied(self, request: InferRequest, deadline: float) -> InferRequest:
        """What the other model is asked: the same, in whole tensors, on nobody's behalf."""
        outputs = request.outputs
        if outputs is not None:
            outputs = tuple([RequestedOutput(each.name, parameters=each.parameters) for each in outputs])
        return replace(
            request,
            model=self._options.to,
            version="",
            outputs=outputs,
            context=replace(
                request.context, deadline=deadline, cancel=CancelToken(), timings={}, caller=None
            ),
        )

    async def _compared(self, seen: Observed, answer: Answer) -> AnswerDiff:
        expected = Answer(seen.answered_by, seen.responses, seen.error)
        if seen.responses and seen.responses[-1].final:
            # the model answered, whatever kept its caller from getting that in its own dialect
            expected = replace(expected, error=None)
        work = partial(compare_answers, expected, answer, self._tolerance)
        if _effort(expected) + _effort(answer) <= _AT_ONCE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _keep(self, copy: Copy, answer: Answer, diff: AnswerDiff) -> None:
        if self._pairs is None:
            return
        record = Record.of(copy.observed, answer)
        if not self._pairs.takes(diff.equal, record.nbytes):
            return
        came_ago = time.monotonic() - copy.came
        record = replace(record, began_unix_ns=record.began_unix_ns - int(came_ago * 1e9))
        written = await asyncio.get_running_loop().run_in_executor(self._thread, self._pairs.write, record)
        self.report.count_kept(diff.equal, written)


def _owned(response: InferResponse) -> InferResponse:
    """``response`` with outputs that stay as they are while they are compared."""
    response.outputs = kept(response.outputs)
    return response


def _nbytes(seen: Observed) -> int:
    """What must be held of a request until its copy is answered."""
    outputs = [tensor for response in seen.responses for tensor in response.outputs]
    return sum([tensor.nbytes for tensor in (*seen.request.inputs, *outputs)])


def _effort(answer: Answer) -> int:
    """What it takes to compare ``answer``, in bytes."""
    outputs = [tensor for response in answer.responses for tensor in response.outputs]
    return sum([tensor.nbytes + _OUTPUT_BYTES for tensor in outputs])
