"""Enters requests into the counters of ``schemas.status``.

Times are ``time.monotonic_ns()``. Everything runs on the event loop, so there are no locks. Mirrored copies
are not counted: their counters are None.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass

from interlingua.schemas import ErrorCode, InferenceError, InferHeads, InferRequest, Signature
from interlingua.schemas.status import (
    LATENCY_BOUNDS_NS,
    Duration,
    ExecutionStatistics,
    Latencies,
    RequestStatistics,
    VersionStatistics,
)

MOST_BATCH_SIZES = 1024
"""How many batch sizes have counters; other sizes count in the totals only, so that clients cannot grow the
counters without end."""


Course = tuple[int, int, int, int, int, int]
"""The times of an answered request: it began, its inputs were ready, it started after the queue, the model
ended, it was done; and how much of its run was spent on gathering its batch. A plain tuple: a named one costs
half a microsecond."""


@dataclass(slots=True)
class Execution:
    """One run of a model with a batch of ``rows``. The first of its requests that is answered makes it
    ``counted``."""

    rows: int
    counted: bool = False


def batch_size(request: InferRequest | InferHeads, signature: Signature) -> int:
    """The batch elements of ``request``; 1 for a model without batches, and for a size that the model does
    not take."""
    if signature.max_batch_size and request.inputs:
        shape = request.inputs[0].shape
        if shape and 0 < shape[0] <= signature.max_batch_size:
            return shape[0]
    return 1


def count_success(
    counted: VersionStatistics | None, size: int, course: Course, execution: Execution | None = None
) -> None:
    """Enter an answered request of ``size`` batch elements, run by a shared ``execution`` or one of its
    own."""
    if counted is None:
        return
    began, ready, started, ended, done, gathering = course
    input_ns, ran, taken = ready - began + gathering, ended - started - gathering, done - ended
    counted.inference_count += size
    counted.last_inference_ms = time.time_ns() // 1_000_000
    # Latencies.add and Duration.add, inlined here and below
    latencies = counted.latencies
    latencies.counts[bisect_left(LATENCY_BOUNDS_NS, done - began)] += 1
    latencies.ns += done - began
    requests = counted.by_batch_size.get(size) or _of_size(counted, size)
    if requests is not None:
        spent = requests.success
        spent.count += 1
        spent.ns += done - began
        spent = requests.compute_input
        spent.count += 1
        spent.ns += input_ns
        spent = requests.queue
        spent.count += 1
        spent.ns += started - ready
        spent = requests.compute_infer
        spent.count += 1
        spent.ns += ran
        spent = requests.compute_output
        spent.count += 1
        spent.ns += taken
    if execution is None or not execution.counted:
        rows = size
        if execution is not None:
            rows, execution.counted = execution.rows, True
        counted.execution_count += 1
        runs = counted.executions.get(rows) or _of_rows(counted, rows)
        if runs is not None:
            spent = runs.compute_input
            spent.count += 1
            spent.ns += input_ns
            spent = runs.compute_infer
            spent.count += 1
            spent.ns += ran
            spent = runs.compute_output
            spent.count += 1
            spent.ns += taken


def count_successes(
    counted: VersionStatistics, size: int, latencies: Latencies, output_ns: int, last_ms: int
) -> None:
    """Enter requests of ``size`` batch elements, each in a run of its own that took all of its time but its
    part of ``output_ns``; the last one ended at ``last_ms``, milliseconds since 1970."""
    number, ns = sum(latencies.counts), latencies.ns
    counted.inference_count += number * size
    counted.execution_count += number
    counted.last_inference_ms = max(counted.last_inference_ms, last_ms)
    counted.latencies.merge(latencies)
    none, ran, output = Duration(number), Duration(number, ns - output_ns), Duration(number, output_ns)
    requests, runs = _of_size(counted, size), _of_rows(counted, size)
    if requests is not None:
        requests.success.merge(Duration(number, ns))
        requests.queue.merge(none)
    for each in (requests, runs):
        if each is not None:
            each.compute_input.merge(none)
            each.compute_infer.merge(ran)
            each.compute_output.merge(output)


def count_hit(counted: VersionStatistics | None, size: int, began: int, ready: int) -> None:
    """Enter a request of ``size`` batch elements that the response cache answered; its look-up began when it
    was ``ready``. As on Triton it counts in the queue and leaves the time of the last inference alone."""
    if counted is None:
        return
    now = time.monotonic_ns()
    counted.cache_hit.add(now - ready)
    counted.latencies.add(now - began)
    requests = _of_size(counted, size)
    if requests is not None:
        requests.success.add(now - began)
        requests.queue.add(0)


def count_refusal(counted: VersionStatistics | None) -> None:
    if counted is not None:
        counted.refused += 1


def count_failure(counted: VersionStatistics | None, size: int, began: int, failure: BaseException) -> None:
    """Enter a request of ``size`` batch elements that failed now by ``failure``: an ``InferenceError``, or
    the cancellation of a disconnected caller."""
    if counted is None:
        return
    code = failure.code if isinstance(failure, InferenceError) else ErrorCode.CANCELLED
    counted.failures[code] = counted.failures.get(code, 0) + 1
    requests = _of_size(counted, size)
    if requests is not None:
        requests.failed.add(time.monotonic_ns() - began)


def _of_rows(counted: VersionStatistics, rows: int) -> ExecutionStatistics | None:
    executions = counted.executions.get(rows)
    if executions is None and len(counted.executions) < MOST_BATCH_SIZES:
        executions = counted.executions[rows] = ExecutionStatistics()
    return executions


def _of_size(counted: VersionStatistics, size: int) -> RequestStatistics | None:
    requests = counted.by_batch_size.get(size)
    if requests is None and len(counted.by_batch_size) < MOST_BATCH_SIZES:
        requests = counted.by_batch_size[size] = RequestStatistics()
    return requests
