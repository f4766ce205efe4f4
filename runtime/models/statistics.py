"""Counts what a model was asked and how long each part of it took.

The counters are the plain values of ``schemas.status``; here stands how a request enters them. Times
are ``time.monotonic_ns()``. Everything is called on the event loop, so nothing here locks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from interlingua.schemas import Context, ErrorCode, InferenceError, InferHeads, InferRequest, Signature
from interlingua.schemas.status import ExecutionStatistics, RequestStatistics, VersionStatistics

MOST_BATCH_SIZES = 1024
"""How many different sizes of batch are counted apart; later ones enter the totals alone, so that no
client can make the counters grow without end."""


class Course(NamedTuple):
    """When a request that was answered came from one part of its way to the next: it ``began``, its
    inputs were ``ready``, it was ``started`` after waiting, the model had ``ended``, it was ``done``. A batch
    that holds it took ``gathering`` ns of its run to be put together."""

    began: int
    ready: int
    started: int
    ended: int
    done: int
    gathering: int = 0


@dataclass(slots=True)
class Execution:
    """One run of a model with a batch of ``rows``; whether it is ``counted``, which the first of its requests
    that is answered sees to."""

    rows: int
    counted: bool = False


def batch_size(request: InferRequest | InferHeads, signature: Signature) -> int:
    """How many batch elements ``request`` asks for; 1 where the model has no batches, and for a size
    that it does not take."""
    if signature.max_batch_size and request.inputs:
        shape = request.inputs[0].shape
        if shape and 0 < shape[0] <= signature.max_batch_size:
            return shape[0]
    return 1


def entered(counted: VersionStatistics, context: Context) -> VersionStatistics | None:
    """Where a request with ``context`` enters: ``counted``, or nowhere for a mirrored copy."""
    return None if context.copied else counted


def count_success(
    counted: VersionStatistics | None, size: int, course: Course, execution: Execution | None = None
) -> None:
    """Enter a request of ``size`` batch elements that was answered, by an ``execution`` that it may share,
    else by one of its own."""
    if counted is None:
        return
    input_ns = course.ready - course.began + course.gathering
    ran = course.ended - course.started - course.gathering
    taken = course.done - course.ended
    counted.inference_count += size
    if execution is None:
        _count_execution(counted, size, input_ns, ran, taken)
    elif not execution.counted:
        execution.counted = True
        _count_execution(counted, execution.rows, input_ns, ran, taken)
    counted.last_inference_ms = time.time_ns() // 1_000_000
    counted.latencies.add(course.done - course.began)
    requests = _of_size(counted, size)
    if requests is not None:
        requests.success.add(course.done - course.began)
        requests.compute_input.add(input_ns)
        requests.queue.add(course.started - course.ready)
        requests.compute_infer.add(ran)
        requests.compute_output.add(taken)


def count_hit(counted: VersionStatistics | None, size: int, began: int, looked: int) -> None:
    """Enter a request of ``size`` batch elements that was answered from the response cache, where it was
    ``looked`` for. As on Triton it counts as one that has waited, and leaves the time of the last inference
    alone."""
    if counted is None:
        return
    now = time.monotonic_ns()
    counted.cache_hit.add(now - looked)
    counted.latencies.add(now - began)
    requests = _of_size(counted, size)
    if requests is not None:
        requests.success.add(now - began)
        requests.queue.add(0)


def count_refusal(counted: VersionStatistics | None) -> None:
    """Enter a request that contradicts the signature."""
    if counted is not None:
        counted.refused += 1


def count_failure(counted: VersionStatistics | None, size: int, began: int, failure: BaseException) -> None:
    """Enter a request of ``size`` batch elements that failed just now by ``failure``: an ``InferenceError``,
    or what ends a task whose caller has gone away."""
    if counted is None:
        return
    code = failure.code if isinstance(failure, InferenceError) else ErrorCode.CANCELLED
    counted.failures[code] = counted.failures.get(code, 0) + 1
    requests = _of_size(counted, size)
    if requests is not None:
        requests.failed.add(time.monotonic_ns() - began)


def _count_execution(counted: VersionStatistics, rows: int, input_ns: int, ran: int, taken: int) -> None:
    """Enter a run with ``rows`` whose input, inference and output took so many ns."""
    counted.execution_count += 1
    executions = counted.executions.get(rows)
    if executions is None:
        if len(counted.executions) >= MOST_BATCH_SIZES:
            return
        executions = counted.executions[rows] = ExecutionStatistics()
    executions.compute_input.add(input_ns)
    executions.compute_infer.add(ran)
    executions.compute_output.add(taken)


def _of_size(counted: VersionStatistics, size: int) -> RequestStatistics | None:
    requests = counted.by_batch_size.get(size)
    if requests is None and len(counted.by_batch_size) < MOST_BATCH_SIZES:
        requests = counted.by_batch_size[size] = RequestStatistics()
    return requests
