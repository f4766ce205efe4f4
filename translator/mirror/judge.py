"""Sends a copy to the mirror model, compares its answer with the caller's, and records some of the pairs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import ClassVar, Protocol

from interlingua.protocols.wire import REQUEST_ID
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.pool.gate import Gate
from interlingua.schemas import (
    CancelToken,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
)
from interlingua.schemas.trace import Trace
from interlingua.translator.config.mirror import MirrorOptions
from interlingua.translator.diff import AnswerDiff, Fault, TensorDiff, Tolerance, compare_answers
from interlingua.translator.logs.redaction import REDACTED
from interlingua.translator.mirror.comparison import Comparison, Copy
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.pairs import Pairs
from interlingua.translator.mirror.shared import SharedMirror
from interlingua.translator.recording.listening import repeat
from interlingua.translator.recording.record import Record, RecordedAnswer
from interlingua.translator.recording.redaction import Redaction

_log = logging.getLogger(__name__)

_GRACE_SECS = 1.0
"""Time to wait beyond a copy's deadline: targets enforce it themselves, with a better message."""

_AT_ONCE_BYTES = 8192
"""Answers up to this size are compared on the event loop: a thread hop costs more."""

_LONGEST_WAIT_SECS = 1e6
"""Copies wait until others end: the queue is limited, not the wait."""

_OUTPUT_BYTES = 512
"""The fixed cost of comparing an output, expressed in bytes."""


OnFindings = Callable[[Findings], None]
"""Receives the results of one or more copies."""


class Judge(Protocol):
    """Compares the answers of mirrored requests. Use on one event loop. Copies may wait ``gather_secs`` for
    others."""

    gather_secs: ClassVar[float] = 0.0

    async def start(self) -> None:
        """Prepare ahead of the first copy. A failure is logged; the next copy retries."""

    def submit(self, copy: Copy, on_findings: OnFindings) -> None:
        """Send ``copy`` to the mirror model, compare, and call ``on_findings``, which is the same for every
        copy. Never raises: any failure of the mirror model is a finding."""

    async def close(self) -> None:
        """Release everything; pending copies are dropped."""


class LocalJudge:
    """A ``Judge`` on this event loop, for the mirror with ``options``. ``find`` looks up its model and raises
    NOT_FOUND if it is not served. ``shares_file``: other processes write to the same recording. ``shared``:
    they run copies for the same mirror."""

    gather_secs: ClassVar[float] = 0.0

    def __init__(
        self,
        options: MirrorOptions,
        find: Callable[[str], Target],
        shares_file: bool = False,
        shared: SharedMirror | None = None,
    ) -> None:
        self._to = options.to
        self._find = find
        self._tolerance = Tolerance(options.rtol, options.atol)
        self._thread = ThreadPoolExecutor(1, "mirror")
        kept = None if shared is None else shared.kept
        hidden = options.redacted
        self._redaction = Redaction(hidden.tensors, hidden.parameters)
        keep = options.keep
        self._pairs = None if keep is None else Pairs(keep, self._redaction, shares_file, kept)
        self._limit = options.max_concurrency
        self._gate = Gate(options.max_concurrency, max_wait_secs=_LONGEST_WAIT_SECS)
        if shared is not None:
            self._gate.share(shared.gate)
        self._waiting: deque[tuple[Copy, OnFindings]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        pass

    def submit(self, copy: Copy, on_findings: OnFindings) -> None:
        self._waiting.append((copy, on_findings))
        self._run_next()

    def _run_next(self) -> None:
        while self._waiting and len(self._running) < self._limit:
            task = asyncio.get_running_loop().create_task(self._run(*self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._run_next()

    async def _run(self, copy: Copy, on_findings: OnFindings) -> None:
        comparison = None
        try:
            async with self._gate.passing(self._to, 0, None):
                comparison = await self._judge(copy)
        except Exception:
            _log.exception("mirror comparison failed")
        on_findings(Findings.of(copy, comparison))

    async def _judge(self, copy: Copy) -> Comparison:
        record = copy.record
        answer = await self._ask(record, copy.secs, copy.trace)
        diff = await self._compared(record, answer)
        shown = _redacted(diff, self._redaction)
        comparison = Comparison(shown, answer.error is not None, answer.elapsed_ns)
        if self._pairs is None:
            return comparison
        pair = replace(record, mirrored=answer)
        if not self._pairs.takes(diff.equal, pair.nbytes):
            return comparison
        written = await asyncio.get_running_loop().run_in_executor(self._thread, self._pairs.write, pair)
        return replace(comparison, kept=("equal" if diff.equal else "different") if written else "failed")

    async def close(self) -> None:
        self._waiting.clear()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._gate.close()
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        self._thread.shutdown()
        if self._pairs is not None:
            self._pairs.close()

    async def _ask(self, record: Record, secs: float, trace: Trace | None) -> RecordedAnswer:
        """The mirror model's answer, and the time it took, which ``trace`` records."""
        responses: list[InferResponse] = []
        failure: InferenceError | None = None
        began = time.monotonic_ns()
        try:
            target = self._find(self._to)
            request = self._copied(record.request, time.monotonic() + secs, trace)
            async with asyncio.timeout(secs + _GRACE_SECS):
                await repeat(target, request, record, responses)
        except InferenceError as error:
            failure = error
        except TimeoutError:
            failure = InferenceError(ErrorCode.DEADLINE_EXCEEDED, "no answer within the time of a copy")
        except Exception as error:
            _log.exception("unexpected error in mirror target")
            failure = InferenceError(ErrorCode.INTERNAL, f"unexpected: {error}")
        ended = time.monotonic_ns()
        if trace is not None:
            _end_trace(trace, self._to, began, ended, failure)
        return RecordedAnswer(self._to, tuple(responses), failure, ended - began)

    def _copied(self, request: InferRequest, deadline: float, trace: Trace | None) -> InferRequest:
        """The request for the mirror model: the same inputs, whole tensors as outputs, no caller. The copy
        belongs to the caller's trace, but not to the caller's request id, which names exactly one request."""
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
            ended={},
            caller=None,
            headers=headers,
            copied=True,
            trace=trace,
        )
        if trace is not None:
            context.traceparent = trace.traceparent
        return replace(request, model=self._to, version="", outputs=outputs, context=context)

    async def _compared(self, record: Record, answer: RecordedAnswer) -> AnswerDiff:
        expected = record.answer
        if expected.cut or (expected.error and expected.responses and expected.responses[-1].final):
            # the end of a cut stream is unrelated to its first responses; and if the model has answered, a
            # failure to encode that in the caller's dialect does not count
            expected = replace(expected, error=None)
        work = partial(compare_answers, expected, answer, self._tolerance)
        if _effort(expected) + _effort(answer) <= _AT_ONCE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _redacted(diff: AnswerDiff, redaction: Redaction) -> AnswerDiff:
    """``diff`` without the values of redacted outputs; shapes, datatypes, positions and errors stay."""
    if not any(redaction.covers(output.name) for output in diff.outputs):
        return diff
    outputs = [_hidden(each) if redaction.covers(each.name) else each for each in diff.outputs]
    return replace(diff, outputs=tuple(outputs))


def _hidden(output: TensorDiff) -> TensorDiff:
    if output.fault is not Fault.VALUES:
        return replace(output, sides=(None, None))
    return replace(output, sides=(None, None), expected=REDACTED, actual=REDACTED)


def _effort(answer: RecordedAnswer) -> int:
    outputs = [tensor for response in answer.responses for tensor in response.outputs]
    return sum([tensor.nbytes + _OUTPUT_BYTES for tensor in outputs])


def _end_trace(trace: Trace, model: str, began: int, ended: int, failure: InferenceError | None) -> None:
    span = trace.own("mirror", began, ended)
    span.attributes["interlingua.model"] = model
    if failure is not None:
        span.error, span.attributes["error.type"] = failure.message, failure.code.name
