"""A mirror: an observer that has another model asked the same, and counts how the two answers differ.

Callers never wait for it: a copy is made when its caller has been answered, and what finds no room is dropped
and counted. Who asks and compares is a ``Judge``, here or in a process of its own.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from interlingua.schemas import ErrorCode, InferRequest
from interlingua.translator.config.mirror import MirrorOptions
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.judge import Judge
from interlingua.translator.mirror.report import Dropped, MirrorReport
from interlingua.translator.mirror.sequences import Sequences
from interlingua.translator.mirror.verdict import Copy
from interlingua.translator.recording.record import Record
from interlingua.translator.serving.observation import Observed

_log = logging.getLogger(__name__)


class Mirror:
    """An ``Observer`` that has ``judge`` ask the model ``options.to``. ``report`` is what it has found so
    far, under ``name``. Use on one event loop, and ``close`` it before the models are closed."""

    def __init__(
        self,
        options: MirrorOptions,
        judge: Judge,
        name: str,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.report = MirrorReport(name, options.to, options.percent, options.rtol, options.atol)
        self.max_stream_bytes = options.max_queue_bytes // 2
        self._options = options
        self._judge = judge
        self._share = options.percent / 100
        self._chance = chance
        self._sequences: Sequences[Copy] = Sequences(self._ready)
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self._seen: list[Observed] = []

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
        """Copy what was asked, where there is room; later, for the caller's answer is yet to be written."""
        if not self._seen:
            asyncio.get_running_loop().call_soon(self._take_all)
        self._seen.append(observed)

    def _take_all(self) -> None:
        seen, self._seen = self._seen, []
        for observed in seen:
            self._take(observed)

    def _take(self, observed: Observed) -> None:
        record = Record.of(observed)
        nbytes = record.nbytes
        refused = self._refused(record, nbytes)
        in_sequence = record.request.sequence is not None
        number = record.request.context.request_number
        if refused is not None:
            self.report.count_dropped(refused)
            if in_sequence:
                self._leave_out(self._sequences.lost(number), Dropped.SEQUENCE)
            return
        copy = Copy(record, nbytes, self._time_for(record))
        self._hold(copy)
        if not in_sequence:
            self._ready(copy)
        elif not self._sequences.came(number, copy):
            self._leave_out([copy], Dropped.SEQUENCE)

    async def start(self) -> None:
        """Get ready for what will come."""
        await self._judge.start()

    async def close(self) -> None:
        """Take no more, finish what is held within ``finish_secs``, and drop the rest."""
        await asyncio.sleep(0)  # what was seen just now is taken first
        self._closing = True
        try:
            async with asyncio.timeout(self._options.finish_secs):
                await self._idle.wait()
        except TimeoutError:
            facts = {"mirror": self.report.name, "count": self.report.held}
            _log.warning("mirror copies dropped", extra={"facts": facts})
        await self._judge.close()
        self.report.count_dropped(Dropped.SHUTDOWN, self.report.held)
        self.report.held = self.report.held_bytes = 0

    # --- what is held

    def _sampled(self) -> bool:
        return self._share >= 1 or self._chance() < self._share

    def _refused(self, record: Record, nbytes: int) -> Dropped | None:
        if self._closing:
            return Dropped.SHUTDOWN
        answer, report, options = record.answer, self.report, self._options
        if answer.error is not None and answer.error.code is ErrorCode.CANCELLED:
            return Dropped.CANCELLED
        if answer.cut and not answer.responses:
            return Dropped.QUEUE
        if answer.answered_by == options.to:
            return Dropped.SAME
        if report.held >= options.max_queue_requests:
            return Dropped.QUEUE
        return Dropped.QUEUE if report.held_bytes + nbytes > options.max_queue_bytes else None

    def _time_for(self, record: Record) -> float:
        """How long a copy may take: as long as its caller would have waited."""
        secs, limit = self._options.request_timeout_secs, record.request.context.deadline
        if limit is not None:
            secs = min(secs, max(0.0, limit - time.monotonic() + record.answer.elapsed_ns / 1e9))
        return secs

    def _hold(self, copy: Copy) -> None:
        self.report.held += 1
        self.report.held_bytes += copy.nbytes
        self._idle.clear()

    def _release(self, count: int, nbytes: int) -> None:
        self.report.held -= count
        self.report.held_bytes -= nbytes
        if not self.report.held:
            self._idle.set()

    def _leave_out(self, copies: list[Copy], why: Dropped) -> None:
        for copy in copies:
            self.report.count_dropped(why)
            self._release(1, copy.nbytes)

    # --- what is sent

    def _ready(self, copy: Copy) -> None:
        """Nothing keeps ``copy`` from being sent."""
        self._judge.submit(copy, self._told)

    def _told(self, findings: Findings) -> None:
        """Copies are over."""
        self.report.counts.merge(findings.counts)
        self.report.count_dropped(Dropped.ERROR, findings.lost)
        for id_, sound in findings.sequences:
            if not sound:
                self._leave_out(self._sequences.broken(id_), Dropped.SEQUENCE)
            self._sequences.done(id_)
        self._release(findings.count, findings.nbytes)
