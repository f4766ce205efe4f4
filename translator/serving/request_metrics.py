"""Counts what a listener is asked in a dialect, how that ends and how long each stage of it takes.

On the way of every request, so it only adds numbers: a microsecond, and one more where durations are asked
for. Families are made of them when somebody looks. What was asked of which model belongs to the statistics of
``runtime``.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar

from interlingua.protocols.wire import Buffer
from interlingua.schemas import Context, ErrorCode, InferenceError, Latencies, ListenerAddress, Operation
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.admin.metrics import Family, Sample, latency_samples
from interlingua.translator.serving.interleave import Told

Answer = TypeVar("Answer")

_TIMED = frozenset({Operation.INFER, Operation.INFER_STREAM})
"""Operations whose durations are counted, as all others are quick."""


class Tally:
    """What was asked of one listener in one dialect. ``ended`` counts requests by what they asked, None where
    that could not be read, and by why they failed, None for those that did not. With ``timed``, ``durations``
    and ``stages`` are those of inference, failed ones included; a stream lasts until its last response."""

    __slots__ = ("durations", "ended", "in_flight", "received_bytes", "sent_bytes", "stages", "timed")

    def __init__(self, timed: bool = False) -> None:
        self.timed = timed
        self.in_flight = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.ended: defaultdict[tuple[Operation | None, ErrorCode | None], int] = defaultdict(int)
        self.durations = Latencies()
        self.stages: defaultdict[str, Latencies] = defaultdict(Latencies)

    def begin(self, context: Context, nbytes: int) -> Counted:
        """A request of ``nbytes`` has come."""
        self.in_flight += 1
        self.received_bytes += nbytes
        return Counted(self, context)

    def refuse(self, code: ErrorCode) -> None:
        """A request has come that ends before anybody looks what it asks."""
        self.ended[None, code] += 1


class Counted:
    """A request on its way: whoever finds out what it asks sets ``operation``. Ends once, however often it is
    told to."""

    __slots__ = ("_began", "_context", "_tally", "ended", "operation")

    def __init__(self, tally: Tally, context: Context) -> None:
        self._tally = tally
        self._context = context
        self._began = time.monotonic_ns()
        self.operation: Operation | None = None
        self.ended = False

    def end(self, failure: ErrorCode | None = None) -> None:
        """It is answered, or has failed."""
        if self.ended:
            return
        self.ended = True
        tally = self._tally
        tally.in_flight -= 1
        tally.ended[self.operation, failure] += 1
        if tally.timed and self.operation in _TIMED:
            tally.durations.add(time.monotonic_ns() - self._began)
            stages = tally.stages
            for stage, ns in self._context.timings.items():
                # as Latencies.add has it, without four calls
                latencies = stages[stage]
                latencies.counts[bisect_left(LATENCY_BOUNDS_NS, ns)] += 1
                latencies.ns += ns

    async def stream(self, answers: AsyncGenerator[Told[Answer], None]) -> AsyncGenerator[Told[Answer], None]:
        """``answers``, with which the request ends. Raises as they do."""
        try:
            async with aclosing(answers):
                async for answer, last in answers:
                    if last:
                        self.end(self._context.failure)
                    yield answer, last
            self.end(self._context.failure)
        except BaseException as end:
            self.end(_why(end))
            raise


def _why(end: BaseException) -> ErrorCode:
    """What the exception that ended a request comes to; one that is no error says that nobody waits."""
    if isinstance(end, InferenceError):
        return end.code
    return ErrorCode.INTERNAL if isinstance(end, Exception) else ErrorCode.CANCELLED


def size_of(parts: Sequence[Buffer]) -> int:
    """How many bytes ``parts`` have."""
    nbytes = 0
    for part in parts:
        nbytes += part.nbytes if isinstance(part, memoryview) else len(part)
    return nbytes


def families(listening: Sequence[tuple[ListenerAddress, Mapping[str, Tally]]]) -> Iterator[Family]:
    """What the listeners have counted, by dialect."""
    tallies = [
        ({"listener": each.address, "transport": each.transport, "dialect": dialect}, tally)
        for each, by_dialect in listening
        for dialect, tally in by_dialect.items()
    ]
    yield Family(
        "interlingua_requests_total",
        "counter",
        "Requests that have ended, by operation ('unread' where that could not be told) and code "
        "('OK', OVERLOADED for those that were shed, CANCELLED for those whose client went away).",
        [
            Sample(count, {**labels, "operation": _operation(operation), "code": _code(code)})
            for labels, tally in tallies
            for (operation, code), count in tally.ended.items()
        ],
    )
    yield Family(
        "interlingua_requests_in_flight",
        "gauge",
        "Requests that have begun and not ended.",
        [Sample(tally.in_flight, labels) for labels, tally in tallies],
    )
    yield Family(
        "interlingua_received_bytes_total",
        "counter",
        "Bytes of request bodies and messages.",
        [Sample(tally.received_bytes, labels) for labels, tally in tallies],
    )
    yield Family(
        "interlingua_sent_bytes_total",
        "counter",
        "Bytes of answer bodies and messages.",
        [Sample(tally.sent_bytes, labels) for labels, tally in tallies],
    )
    yield Family(
        "interlingua_request_duration_seconds",
        "histogram",
        "Time from an inference request read to its last answer encoded, failed ones included.",
        [
            sample
            for labels, tally in tallies
            if any(tally.durations.counts)
            for sample in latency_samples(tally.durations, labels)
        ],
    )
    yield Family(
        "interlingua_stage_duration_seconds",
        "histogram",
        "Time that inference requests have spent in a stage: decode, queue, exec or upstream, encode.",
        [
            sample
            for labels, tally in tallies
            for stage, latencies in tally.stages.items()
            for sample in latency_samples(latencies, {**labels, "stage": stage})
        ],
    )


def _operation(operation: Operation | None) -> str:
    return "unread" if operation is None else operation.value


def _code(code: ErrorCode | None) -> str:
    return "OK" if code is None else code.name
