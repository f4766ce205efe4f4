"""Asks the other model, holds its answer against the caller's, and writes some of both down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Protocol

from interlingua.protocols.wire import REQUEST_ID
from interlingua.runtime.target import Target
from interlingua.schemas import (
    CancelToken,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
)
from interlingua.translator.config.mirror import MirrorOptions
from interlingua.translator.diff import AnswerDiff, Tolerance, compare_answers
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.pairs import Pairs
from interlingua.translator.mirror.verdict import Copy, Verdict
from interlingua.translator.recording.listening import listen, owned
from interlingua.translator.recording.record import Answer, Record

_log = logging.getLogger(__name__)

_GRACE_SECS = 1.0
"""How much longer than its deadline a copy is waited for: targets keep to it themselves, in better words."""

_AT_ONCE_BYTES = 8192
"""Up to here answers are compared on the event loop, which takes less than to have a thread do it."""

_OUTPUT_BYTES = 512
"""What an output costs beside its bytes, as bytes that are compared."""


Told = Callable[[Findings], None]
"""Called with what became of copies, of several at once or of each."""


class Judge(Protocol):
    """Judges requests that were answered. Use on one event loop."""

    async def start(self) -> None:
        """Get ready, so that the first need not wait for that. A failure is logged, and it is tried again
        when it is needed."""

    def submit(self, copy: Copy, told: Told) -> None:
        """Ask the other model what ``copy`` asks, compare, and have ``told``, the same each time, hear of it.
        Never raises; whatever the other model does is a finding."""

    async def close(self) -> None:
        """Let go of everything; what is not judged yet is not judged any more."""


class LocalJudge:
    """A ``Judge`` on this event loop, of the mirror with ``options``. ``find`` finds its model, and raises
    NOT_FOUND where it is not served."""

    def __init__(self, options: MirrorOptions, find: Callable[[str], Target]) -> None:
        self._to = options.to
        self._find = find
        self._tolerance = Tolerance(options.rtol, options.atol)
        self._thread = ThreadPoolExecutor(1, "mirror")
        self._pairs = Pairs(options.keep) if options.keep is not None else None
        self._limit = options.max_concurrency
        self._waiting: deque[tuple[Copy, Told]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """See ``Judge``."""

    def submit(self, copy: Copy, told: Told) -> None:
        """See ``Judge``."""
        self._waiting.append((copy, told))
        self._run_next()

    def _run_next(self) -> None:
        while self._waiting and len(self._running) < self._limit:
            task = asyncio.get_running_loop().create_task(self._run(*self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._run_next()

    async def _run(self, copy: Copy, told: Told) -> None:
        verdict = None
        try:
            verdict = await self._judge(copy.record, copy.secs)
        except Exception:
            _log.exception("mirror comparison failed")
        told(Findings.of(copy, verdict))

    async def _judge(self, record: Record, secs: float) -> Verdict:
        answer = await self._ask(record, secs)
        diff = await self._compared(record, answer)
        verdict = Verdict(diff, answer.error is not None, answer.elapsed_ns)
        if self._pairs is None:
            return verdict
        pair = replace(record, mirrored=answer)
        if not self._pairs.takes(diff.equal, pair.nbytes):
            return verdict
        written = await asyncio.get_running_loop().run_in_executor(self._thread, self._pairs.write, pair)
        return replace(verdict, kept=("equal" if diff.equal else "different") if written else "failed")

    async def close(self) -> None:
        """See ``Judge``."""
        self._waiting.clear()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        self._thread.shutdown()
        if self._pairs is not None:
            self._pairs.close()

    async def _ask(self, record: Record, secs: float) -> Answer:
        """What the other model answers, and how long it takes."""
        responses: list[InferResponse] = []
        failure: InferenceError | None = None
        began = time.monotonic_ns()
        try:
            target = self._find(self._to)
            request = self._copied(record.request, time.monotonic() + secs)
            async with asyncio.timeout(secs + _GRACE_SECS):
                if record.streamed:
                    await listen(target, request, record.answer, responses)
                else:
                    responses.append(owned(await target.infer(request)))
        except InferenceError as error:
            failure = error
        except TimeoutError:
            failure = InferenceError(ErrorCode.DEADLINE_EXCEEDED, "no answer within the time of a copy")
        except Exception as error:
            _log.exception("unexpected error in mirror target")
            failure = InferenceError(ErrorCode.INTERNAL, f"unforeseen: {error}")
        return Answer(self._to, tuple(responses), failure, time.monotonic_ns() - began)

    def _copied(self, request: InferRequest, deadline: float) -> InferRequest:
        """What the other model is asked: the same, in whole tensors, on nobody's behalf. The copy belongs to
        the caller's trace, but the caller's request id names one request, and not this one."""
        outputs = request.outputs
        if outputs is not None:
            outputs = tuple([RequestedOutput(each.name, parameters=each.parameters) for each in outputs])
        headers = request.context.headers
        if REQUEST_ID in headers:
            kept = [(name.lower(), value) for name, value in headers.items()]
            headers = {name: value for name, value in kept if name != REQUEST_ID}
        context = replace(
            request.context,
            deadline=deadline,
            cancel=CancelToken(),
            timings={},
            caller=None,
            headers=headers,
            copied=True,
        )
        return replace(request, model=self._to, version="", outputs=outputs, context=context)

    async def _compared(self, record: Record, answer: Answer) -> AnswerDiff:
        expected = record.answer
        if expected.cut or (expected.error and expected.responses and expected.responses[-1].final):
            # how a stream that was cut has ended says nothing of its first responses; and where a model has
            # answered, no matter what kept its caller from getting that in its own dialect
            expected = replace(expected, error=None)
        work = partial(compare_answers, expected, answer, self._tolerance)
        if _effort(expected) + _effort(answer) <= _AT_ONCE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _effort(answer: Answer) -> int:
    """What it takes to compare ``answer``, in bytes."""
    outputs = [tensor for response in answer.responses for tensor in response.outputs]
    return sum([tensor.nbytes + _OUTPUT_BYTES for tensor in outputs])
