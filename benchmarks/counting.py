"""What it costs a request to be counted, and the server to be looked at: ``python -m benchmarks.counting``.

Microseconds of one core, the best of several rounds, by themselves: nothing else runs in the process.
"""

from __future__ import annotations

import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from interlingua.protocols.oip.server import GRPC_ENDPOINTS
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.runtime.models.statistics import count_success
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import Context, Operation, ServerMetadata, VersionStatistics
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.admin import models
from interlingua.translator.admin.metrics import exposition
from interlingua.translator.logs import setup as logs
from interlingua.translator.logs.output import FileOutput
from interlingua.translator.serving.access_log import AccessLog, EndpointLog
from interlingua.translator.serving.handler_grpc import grpc_status
from interlingua.translator.serving.in_flight import InFlightRequest
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.request_metrics import RequestMetrics
from interlingua.translator.serving.router import Router

ROUNDS, TURNS = 7, 20_000
STAGES = {"decode": 12_000, "queue": 1_000, "exec": 90_000, "encode": 15_000}
"""Nanoseconds of a small request."""


def cost_us(work: Callable[[], object], turns: int = TURNS) -> float:
    """Microseconds of one turn."""
    return min(timeit.repeat(work, number=turns, repeat=ROUNDS)) / turns * 1e6


def _request(timed: bool, log: AccessLog | None = None) -> tuple[Callable[[], InFlightRequest], Any, Any]:
    """What makes a request with a context of its own, what it is opened to, and its answer."""
    metrics = RequestMetrics(timed)
    service = Service(Router({}), ServerMetadata("s", "1"))
    (endpoint,) = [each for each in GRPC_ENDPOINTS if each.method.endswith("/ModelInfer")]
    place = {"listener": "127.0.0.1:8001", "transport": "grpc", "dialect": "oip"}
    access = EndpointLog(log or AccessLog(), place, "{0.method}", grpc_status)
    request, answer = GrpcRequest(endpoint.method, bytes(100)), GrpcAnswer(bytes(100))
    message = MESSAGES["inference.ModelInferRequest"](model_name="m").SerializeToString()
    opened = endpoint.open(replace(request, message=message))

    def make() -> InFlightRequest:
        request.context = context = Context(peer="127.0.0.1:40000")
        context.target, context.version = "m", "1"
        context.timings.update(STAGES)
        context.ended.update(STAGES)
        return InFlightRequest(service, metrics, endpoint, request, 100, access)

    return make, opened, answer


def counting(timed: bool, log: AccessLog | None = None) -> Callable[[], object]:
    """Count one request, as a pipeline does, and add it to ``log``."""
    make, opened, answer = _request(timed, log)

    def count() -> None:
        with make() as in_flight:
            in_flight.opened, in_flight.answer = opened, answer

    return count


def recording() -> Callable[[], object]:
    """Add a request to the access log, without the thread."""
    make, opened, answer = _request(timed=True, log=_Unwritten())
    in_flight = make()
    in_flight.opened, in_flight.answer = opened, answer
    return lambda: in_flight._record(None, Operation.INFER)


def logged_us(form: Literal["text", "json"]) -> float:
    """Processor time of all threads for one request in the access log, which goes to a file."""
    logs.set_up("info", form)
    with tempfile.TemporaryDirectory() as folder:
        log = AccessLog("all", write=partial(logs.write, output=FileOutput(f"{folder}/access.log")))
        plain, logged = counting(timed=True), counting(timed=True, log=log)
        best = []
        for _ in range(ROUNDS):
            spent = []
            for work in (plain, logged):
                began = time.process_time()
                for turn in range(TURNS):
                    work()
                    if turn % 1000 == 999:  # what is dropped costs nothing
                        time.sleep(0.05)
                spent.append((time.process_time() - began) / TURNS * 1e6)
            best.append(spent[1] - spent[0])
        log.close()
        if log.dropped:
            raise RuntimeError(f"{log.dropped} records dropped")
    return min(best)


class _Unwritten(AccessLog):
    """Leaves out the thread."""

    def __init__(self) -> None:
        super().__init__("all")
        self._writer.put = lambda record: None  # type: ignore[method-assign]


def looking(count: int) -> Callable[[], object]:
    """Write the metrics of ``count`` models that have been asked."""
    upstream = Upstream("there", {}, (), 1.0)
    served = {f"model_{number}": UpstreamModel("m", upstream, "m") for number in range(count)}
    for model in served.values():
        model.statistics["1"] = statistics = VersionStatistics()
        count_success(statistics, 1, (0, 1, 2, 3, 4, 0))
    catalog = ModelCatalog(served)
    return lambda: exposition(models.families(catalog))


def main() -> None:
    """Print a line for each."""
    print(f"a request counted:              {cost_us(counting(timed=False)):8.2f} us")
    print(f"a request counted, with stages: {cost_us(counting(timed=True)):8.2f} us")
    print(f"a record of the access log, on the event loop:   {cost_us(recording()):5.2f} us")
    for form in ("text", "json"):
        print(f"a record of the access log, all threads, {form}: {logged_us(form):5.2f} us")
    for count in (10, 1000):
        print(
            f"metrics of {count:4} models:         {cost_us(looking(count), max(1, 1000 // count)):8.0f} us"
        )


if __name__ == "__main__":
    main()
