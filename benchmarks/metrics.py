"""The counters and histograms of a request, ours and in ``prometheus_client``.

``python -m benchmarks.metrics`` prints microseconds of one core, the best of several rounds
(``docs/adr/metrics.md``).
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from interlingua.schemas import Latencies, Operation
from interlingua.schemas.status import LATENCY_BOUNDS_NS
from interlingua.translator.admin.metrics import Family, exposition, latency_samples
from interlingua.translator.serving.request_metrics import RequestMetrics

ROUNDS, TURNS = 7, 20_000
STAGES = {"decode": 12_000, "queue": 1_000, "exec": 90_000, "encode": 15_000}
"""Nanoseconds of a small request."""
LABELS = {"listener": "127.0.0.1:8000", "transport": "http", "dialect": "oip"}
SERIES = 30
"""Series of each kind on a page: listeners, dialects and stages."""


def cost_us(work: Callable[[], object], turns: int = TURNS) -> float:
    """Microseconds of one turn."""
    return min(timeit.repeat(work, number=turns, repeat=ROUNDS)) / turns * 1e6


def counting_with_library() -> Callable[[], object]:
    """The same counters and histograms in ``prometheus_client``, with children found once, as is best."""
    registry, names = CollectorRegistry(), tuple(LABELS)
    bounds = [bound / 1e9 for bound in LATENCY_BOUNDS_NS]
    in_flight = Gauge("in_flight", "a", names, registry=registry).labels(**LABELS)
    ended = Counter("ended", "a", (*names, "operation", "code"), registry=registry)
    received = Counter("received", "a", names, registry=registry).labels(**LABELS)
    durations = Histogram("durations", "a", names, buckets=bounds, registry=registry).labels(**LABELS)
    stages = Histogram("stages", "a", (*names, "stage"), buckets=bounds, registry=registry)
    by_stage = {stage: stages.labels(**LABELS, stage=stage) for stage in STAGES}
    answered = ended.labels(**LABELS, operation="infer", code="OK")

    def count() -> None:
        in_flight.inc()
        received.inc(100)
        in_flight.dec()
        answered.inc()
        durations.observe(118e-6)
        for stage, ns in STAGES.items():
            by_stage[stage].observe(ns / 1e9)

    return count


def ours() -> Callable[[], object]:
    """What ``InFlightRequest`` counts."""
    metrics = RequestMetrics(True)
    key = Operation.INFER, None

    def count() -> None:
        metrics.in_flight += 1
        metrics.received_bytes += 100
        metrics.in_flight -= 1
        metrics.ended[key] += 1
        metrics.flows[0, "model"].add(118_000)
        for stage, ns in STAGES.items():
            metrics.stages[stage].add(ns)

    return count


def histograms() -> Iterator[Family]:
    latencies = Latencies()
    latencies.add(118_000)
    samples = [
        sample
        for number in range(SERIES)
        for sample in latency_samples(latencies, {**LABELS, "stage": str(number)})
    ]
    yield Family("stages", "histogram", "a", samples)


def histograms_of_library() -> CollectorRegistry:
    registry = CollectorRegistry()
    bounds = [bound / 1e9 for bound in LATENCY_BOUNDS_NS]
    stages = Histogram("stages", "a", (*LABELS, "stage"), buckets=bounds, registry=registry)
    for number in range(SERIES):
        stages.labels(**LABELS, stage=str(number)).observe(118e-6)
    return registry


def main() -> None:
    """Print a line for each."""
    library, known = counting_with_library(), histograms_of_library()
    rows = [
        ("a request, ours", ours(), TURNS),
        ("a request, prometheus_client", library, TURNS),
        (f"a page of {SERIES} histograms, ours", lambda: exposition(histograms()), 50),
        (f"a page of {SERIES} histograms, prometheus_client", lambda: generate_latest(known), 50),
    ]
    for name, work, turns in rows:
        print(f"{name + ':':48} {cost_us(work, turns):10.2f} us")


if __name__ == "__main__":
    main()
