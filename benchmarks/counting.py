"""What it costs a request to be counted, and the server to be looked at: ``python -m benchmarks.counting``.

Microseconds of one core, the best of several rounds, by themselves: nothing else runs in the process.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

from interlingua.runtime.models.statistics import Course, count_success
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context, Operation, VersionStatistics
from interlingua.translator.admin import models
from interlingua.translator.admin.metrics import exposition
from interlingua.translator.serving.request_metrics import InFlightRequest, RequestMetrics

ROUNDS, TURNS = 7, 50_000
STAGES = {"decode": 12_000, "queue": 1_000, "exec": 90_000, "encode": 15_000}
"""Nanoseconds of a small request."""


def cost_us(work: Callable[[], object], turns: int = TURNS) -> float:
    """Microseconds of one turn."""
    return min(timeit.repeat(work, number=turns, repeat=ROUNDS)) / turns * 1e6


def counting(timed: bool) -> Callable[[], object]:
    """Count one request, as a pipeline does."""
    metrics = RequestMetrics(timed)
    context = Context()
    context.timings.update(STAGES)
    operation = Operation.INFER

    def count() -> None:
        request = InFlightRequest(metrics, context, 100)
        request.operation = operation
        request.end()
        metrics.sent_bytes += 100

    return count


def looking(count: int) -> Callable[[], object]:
    """Write the metrics of ``count`` models that have been asked."""
    upstream = Upstream("there", {}, (), 1.0)
    served = {f"model_{number}": UpstreamModel("m", upstream, "m") for number in range(count)}
    for model in served.values():
        model.statistics["1"] = statistics = VersionStatistics()
        count_success(statistics, 1, Course(0, 1, 2, 3, 4))
    catalog = ModelCatalog(served)
    return lambda: exposition(models.families(catalog))


def main() -> None:
    """Print a line for each."""
    print(f"a request counted:              {cost_us(counting(timed=False)):8.2f} us")
    print(f"a request counted, with stages: {cost_us(counting(timed=True)):8.2f} us")
    for count in (10, 1000):
        print(
            f"metrics of {count:4} models:         {cost_us(looking(count), max(1, 1000 // count)):8.0f} us"
        )


if __name__ == "__main__":
    main()
