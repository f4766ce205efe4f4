"""Counts the requests of a listener by dialect: how many, how they end, how long each stage takes.

The statistics of ``runtime`` count requests by model.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from interlingua.protocols.transport.load import ListenerLoad
from interlingua.schemas import ErrorCode, Latencies, ListenerAddress, Operation
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.admin.metrics import Exemplar, Family, Sample, latency_samples


@dataclass(slots=True)
class Flow(Latencies):
    """The inferences that took one way through the server; ``failed`` are those with an error."""

    failed: int = 0


class RequestMetrics:
    """The requests of one listener in one dialect. ``ended`` counts them by operation, None where decoding
    did not get that far, and by the code of their failure, None for success. With ``timed``, ``flows`` are
    the inferences by the number of their route, 0 for none, and the model that it has chosen, empty for none;
    ``stages`` are those of inference too. A stream lasts until its last response; ``streams`` are running.
    ``exemplars`` are sampled ones by the number of their bucket. ``load`` is that of the listener, to which
    its dialects add together."""

    __slots__ = (
        "dialect",
        "ended",
        "exemplars",
        "flows",
        "in_flight",
        "load",
        "received_bytes",
        "sent_bytes",
        "stages",
        "streams",
        "timed",
    )

    def __init__(self, timed: bool = False, load: ListenerLoad | None = None, dialect: str = "") -> None:
        self.dialect = dialect
        self.load = ListenerLoad() if load is None else load
        self.timed = timed
        self.in_flight = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.ended: defaultdict[tuple[Operation | None, ErrorCode | None], int] = defaultdict(int)
        self.flows: defaultdict[tuple[int, str], Flow] = defaultdict(Flow)
        self.streams = 0
        self.exemplars: dict[int, Exemplar] = {}
        self.stages: defaultdict[str, Latencies] = defaultdict(Latencies)

    @property
    def durations(self) -> Latencies:
        """Those of inference, failed ones included."""
        found = Latencies()
        for flow in self.flows.values():
            found.merge(flow)
        return found

    def exemplify(self, trace_id: str, ns: int) -> None:
        """Keep a sampled inference that took ``ns`` as the exemplar of its bucket."""
        self.exemplars[bisect_left(LATENCY_BOUNDS_NS, ns)] = Exemplar(trace_id, ns / 1e9, time.time())

    def refuse(self, code: ErrorCode, operation: Operation | None = None) -> None:
        """Count a request that ends before it is opened."""
        self.ended[operation, code] += 1


def families(listening: Sequence[tuple[ListenerAddress, Mapping[str, RequestMetrics]]]) -> Iterator[Family]:
    request_metrics = [
        (_labels(each, name), metrics) for each, by_name in listening for name, metrics in by_name.items()
    ]
    yield Family(
        "interlingua_requests_total",
        "counter",
        "Requests that have ended, by operation ('unread' where that is unknown) and code "
        "('OK', OVERLOADED for those that were shed, CANCELLED for those whose client disconnected).",
        [
            Sample(count, {**labels, "operation": _operation(operation), "code": _code(code)})
            for labels, metrics in request_metrics
            for (operation, code), count in metrics.ended.items()
        ],
    )
    yield Family(
        "interlingua_requests_in_flight",
        "gauge",
        "Requests that have begun and not ended.",
        [Sample(metrics.in_flight, labels) for labels, metrics in request_metrics],
    )
    yield Family(
        "interlingua_received_bytes_total",
        "counter",
        "Bytes of request bodies and messages.",
        [Sample(metrics.received_bytes, labels) for labels, metrics in request_metrics],
    )
    yield Family(
        "interlingua_sent_bytes_total",
        "counter",
        "Bytes of answer bodies and messages.",
        [Sample(metrics.sent_bytes, labels) for labels, metrics in request_metrics],
    )
    yield Family(
        "interlingua_request_duration_seconds",
        "histogram",
        "Time from an inference request read to its last answer encoded, failed ones included.",
        [
            sample
            for labels, metrics in request_metrics
            if any((durations := metrics.durations).counts)
            for sample in latency_samples(durations, labels, metrics.exemplars)
        ],
    )
    yield Family(
        "interlingua_stage_duration_seconds",
        "histogram",
        "Time that inference requests have spent in a stage: decode, queue, exec or upstream, encode.",
        [
            sample
            for labels, metrics in request_metrics
            for stage, latencies in metrics.stages.items()
            for sample in latency_samples(latencies, {**labels, "stage": stage})
        ],
    )


def _labels(listener: ListenerAddress, name: str) -> Mapping[str, str]:
    """The labels of requests in the dialect ``name``, or of the binding ``name``, as `dialect/transport`."""
    dialect, _, transport = name.partition("/")
    return {
        "listener": listener.address,
        "transport": transport or listener.transport,
        "dialect": dialect,
    }


def _operation(operation: Operation | None) -> str:
    return "unread" if operation is None else operation.value


def _code(code: ErrorCode | None) -> str:
    return "OK" if code is None else code.name
