"""A mirror: an observer that sends the same request to another model and counts how the answers differ.

Callers never wait for it: a copy is made after the caller has its answer, and is dropped and counted if the
queue is full. A ``Judge`` sends and compares, in this process or in a separate one."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable

from interlingua.schemas import ErrorCode, InferRequest
from interlingua.schemas.trace import Trace
from interlingua.translator.config.mirror import MirrorOptions
from interlingua.translator.mirror.comparison import Copy
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.judge import Judge
from interlingua.translator.mirror.report import Dropped, MirrorReport
from interlingua.translator.mirror.sequences import Sequences
from interlingua.translator.mirror.shared import SharedMirror
from interlingua.translator.mirror.wire import Gathered
from interlingua.translator.recording.record import Record
from interlingua.translator.serving.observation import Observed

_log = logging.getLogger(__name__)

_MOST_GATHERED = 64
"""Observed requests that wait for others before they are copied."""

_AT_ONCE = 16
"""Copies in one turn of the event loop, about 0.2 ms."""

_LARGE_BYTES = 1 << 16
"""A request with a tensor of this size does not wait for others."""


class Mirror:
    """An ``Observer`` whose ``judge`` sends copies to the model ``options.to``. ``report`` has the results so
    far, under ``name``; ``export`` gets the traces of copies. Use on one event loop, and ``close`` it before
    the models."""

    def __init__(
        self,
        options: MirrorOptions,
        judge: Judge,
        name: str,
        chance: Callable[[], float] = random.random,
        shared: SharedMirror | None = None,
    ) -> None:
        self.report = MirrorReport(name, options.to, options.percent, options.rtol, options.atol)
        self.export: Callable[[Trace], None] | None = None
        self.max_stream_bytes = options.max_queue_bytes // 2
        self._options = options
        self._judge = judge
        self._shared = shared
        self._share = options.percent / 100
        self._chance = chance
        sequences = None if shared is None else shared.sequences
        self._sequences: Sequences[Copy] = Sequences(self._ready, self._drop_sequence, sequences)
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self._gathered: Gathered[Observed] = Gathered(self._take_over, judge.gather_secs, _MOST_GATHERED)
        self._untaken: deque[Observed] = deque()
        self._seen = 0

    # --- as an observer

    def should_observe(self, request: InferRequest) -> bool:
        if self._closing:
            return False
        if request.sequence is None:
            return self._sampled()
        wanted = self._sequences.wants(request, self._sampled)
        self._drop_sequence(self._sequences.overdue())
        return wanted

    def on_response(self, observed: Observed) -> None:
        """Keep ``observed`` for a copy: the caller's answer is not yet written."""
        self._seen += 1
        self.report.held += 1
        self._idle.clear()
        # a sequence goes on with the result of its copy, and memory is limited
        soon = observed.request.sequence is not None or _is_large(observed)
        self._gathered.add(observed, soon=soon)

    def _take_over(self, seen: list[Observed]) -> None:
        self._untaken.extend(seen)
        self._take_some()

    def _take_some(self) -> None:
        """Copy a few of the observed requests; those of callers are served between these."""
        for _ in range(min(_AT_ONCE, len(self._untaken))):
            self._take(self._untaken.popleft())
        if self._untaken:
            asyncio.get_running_loop().call_soon(self._take_some)

    def _take(self, observed: Observed) -> None:
        self._seen -= 1
        self.report.held -= 1
        record = Record.of(observed)
        nbytes = record.nbytes
        refused = self._refused(record, nbytes)
        in_sequence = record.request.sequence is not None
        number = record.request.context.request_number
        if refused is not None:
            self.report.count_dropped(refused)
            if in_sequence:
                self._drop_sequence(self._sequences.lost(number))
            self._release(0, 0)
            return
        self._idle.clear()
        trace = record.request.context.trace
        copy = Copy(record, nbytes, self._time_for(record), None if trace is None else trace.part())
        if not in_sequence:
            self._ready(copy)
        elif not self._sequences.answered(number, copy):
            self._drop_sequence([copy])

    async def start(self) -> None:
        await self._judge.start()

    async def close(self) -> None:
        """Take no more copies, finish the held ones within ``finish_secs``, and drop the rest."""
        self._take_all()
        self._closing = True
        try:
            async with asyncio.timeout(self._options.finish_secs):
                await self._idle.wait()
        except TimeoutError:
            facts = {"mirror": self.report.name, "count": self.report.held}
            _log.warning("mirror copies dropped", extra={"facts": facts})
        await self._judge.close()
        self._take_all()
        self._sequences.close()
        self.report.count_dropped(Dropped.SHUTDOWN, self.report.held)
        self.report.held = self.report.held_bytes = 0
        self._publish()

    def _take_all(self) -> None:
        self._gathered.flush()
        while self._untaken:
            self._take(self._untaken.popleft())

    # --- the queue

    def _sampled(self) -> bool:
        return self._share >= 1 or self._chance() < self._share

    def _refused(self, record: Record, nbytes: int) -> Dropped | None:
        if self._closing:
            return Dropped.SHUTDOWN
        answer, options = record.answer, self._options
        if answer.error is not None and answer.error.code is ErrorCode.CANCELLED:
            return Dropped.CANCELLED
        if answer.cut and not answer.responses:
            return Dropped.QUEUE
        if answer.answered_by == options.to:
            return Dropped.SAME
        return None if self._claims(nbytes) else Dropped.QUEUE

    def _claims(self, nbytes: int) -> bool:
        """Hold one copy more, if the queue of all processes has space."""
        report, options, shared = self.report, self._options, self._shared
        report.held += 1
        report.held_bytes += nbytes
        self._publish()
        held, size = report.held - self._seen, report.held_bytes
        if shared is not None:
            held, size = shared.total()
        if held <= options.max_queue_requests and size <= options.max_queue_bytes:
            return True
        self._release(1, nbytes)
        return False

    def _publish(self) -> None:
        if self._shared is not None:
            self._shared.publish(self.report.held - self._seen, self.report.held_bytes)

    def _time_for(self, record: Record) -> float:
        """How long a copy may take: as long as its caller would wait."""
        secs, limit = self._options.request_timeout_secs, record.request.context.deadline
        if limit is not None:
            began = time.monotonic() - (time.time_ns() - record.began_unix_ns) / 1e9
            secs = min(secs, max(0.0, limit - began))
        return secs

    def _release(self, count: int, nbytes: int) -> None:
        self.report.held -= count
        self.report.held_bytes -= nbytes
        self._publish()
        if not self.report.held:
            self._idle.set()

    def _drop_sequence(self, copies: list[Copy]) -> None:
        """Drop ``copies``, which follow one that is missing in their sequence."""
        for copy in copies:
            self.report.count_dropped(Dropped.SEQUENCE)
            self._release(1, copy.nbytes)

    # --- copies

    def _ready(self, copy: Copy) -> None:
        self._judge.submit(copy, self._on_findings)

    def _on_findings(self, findings: Findings) -> None:
        """Count finished copies, and continue their sequences."""
        self.report.counts.merge(findings.counts)
        self.report.count_dropped(Dropped.ERROR, findings.lost)
        for id_, sound in findings.sequences:
            if not sound:
                self._drop_sequence(self._sequences.broken(id_))
            self._sequences.done(id_)
        if self.export is not None:
            for trace in findings.traces:
                self.export(trace)
        self._release(findings.count, findings.nbytes)


def _is_large(observed: Observed) -> bool:
    """Judged by its first tensors, because callers wait."""
    inputs, responses = observed.request.inputs, observed.responses
    if inputs and inputs[0].nbytes >= _LARGE_BYTES:
        return True
    outputs = responses[0].outputs if responses else ()
    return observed.streamed or (bool(outputs) and outputs[0].nbytes >= _LARGE_BYTES)
