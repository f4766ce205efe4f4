"""What listeners count of the requests that go through a pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import BrpcRequest, GrpcRequest, HttpRequest
from interlingua.runtime.target import Target
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ListenerAddress,
    ModelMetadata,
    Readiness,
    ServerMetadata,
    Signature,
    TensorSpec,
)
from interlingua.schemas.datatypes import Datatype
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.admin.metrics import exposition
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.request_metrics import RequestMetrics, families
from interlingua.translator.serving.router import Router

SIGNATURE = Signature((TensorSpec("x", Datatype.FP32, (-1,)),), (TensorSpec("x", Datatype.FP32, (-1,)),))
INFER = orjson.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]})


class Echo(Target):
    """Answers with its inputs, as often as ``times``; or fails, at once or after them, or never answers."""

    name = "m"

    def __init__(self, times: int = 1, failure: BaseException | None = None, never: bool = False) -> None:
        self.times, self.failure, self.never = times, failure, never

    async def infer(self, request: InferRequest) -> InferResponse:
        if self.never:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        request.context.timings.update(queue=10, exec=20)
        return InferResponse("m", request.inputs, "1", request.id)

    async def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        for number in range(self.times):
            last = number + 1 == self.times and self.failure is None
            yield InferResponse("m", request.inputs, "1", request.id, final=last)
        if self.failure is not None:
            raise self.failure

    async def signature(self, version: str = "") -> Signature:
        return SIGNATURE

    async def metadata(self, version: str = "") -> ModelMetadata:
        return ModelMetadata("m", SIGNATURE, ("1",))

    async def ready(self, version: str = "") -> Readiness:
        return Readiness(True)


def pipeline(target: Any, timed: bool = True) -> Pipeline:
    models: dict[str, Target] = {"m": target}
    service = Service(Router(models), ServerMetadata("s", "1"))
    return Pipeline(
        service,
        "here",
        [*DIALECTS["oip"].bindings.values(), *DIALECTS["grps"].bindings.values()],
        max_request_bytes=100,
        timed=timed,
    )


async def requested(server: Pipeline, path: str, body: bytes = b"", method: str = "POST") -> int:
    request = HttpRequest(method, path, body=body)
    answer = server.handlers["http"].head(request) or await server.handlers["http"].serve(request)
    if isinstance(answer.parts, AsyncIterator):
        async for _ in answer.parts:
            pass
    return answer.status


def ended(metrics: RequestMetrics) -> dict[tuple[str | None, str | None], int]:
    return {
        (operation and operation.value, code and code.name): count
        for (operation, code), count in metrics.ended.items()
    }


async def test_an_answered_request() -> None:
    server = pipeline(Echo())
    assert await requested(server, "/v2/models/m/infer", INFER) == 200
    metrics = server.request_metrics["oip"]
    assert ended(metrics) == {("infer", None): 1}
    assert (metrics.in_flight, metrics.received_bytes) == (0, len(INFER))
    assert metrics.sent_bytes > 50
    assert sum(metrics.durations.counts) == 1
    assert {stage: sum(each.counts) for stage, each in metrics.stages.items()} == {
        "decode": 1,
        "queue": 1,
        "exec": 1,
        "encode": 1,
    }
    assert metrics.stages["exec"].ns == 20
    assert not server.request_metrics["grps"].ended


async def test_durations_exist_only_where_an_observer_requests_them() -> None:
    server = pipeline(Echo(), timed=False)
    assert await requested(server, "/v2/models/m/infer", INFER) == 200
    metrics = server.request_metrics["oip"]
    assert ended(metrics) == {("infer", None): 1}
    assert not any(metrics.durations.counts)
    assert not metrics.stages


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (InferenceError(ErrorCode.OVERLOADED, "full"), "OVERLOADED"),
        (InferenceError(ErrorCode.MODEL_FAILED, "broken"), "MODEL_FAILED"),
        (ValueError("a fault of ours"), "INTERNAL"),
    ],
)
async def test_failures_are_counted_by_code(failure: Exception, code: str) -> None:
    server = pipeline(Echo(failure=failure))
    assert await requested(server, "/v2/models/m/infer", INFER) >= 400
    message = MESSAGES["inference.ModelInferRequest"](model_name="m")
    message.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(1)
    call = GrpcRequest("/inference.GRPCInferenceService/ModelInfer", message.SerializeToString())
    assert (await server.handlers["grpc"].serve(call)).code
    assert ended(server.request_metrics["oip"]) == {("infer", code): 2}
    assert server.request_metrics["oip"].in_flight == 0


async def test_what_ends_before_it_is_read() -> None:
    server = pipeline(Echo())
    assert await requested(server, "/v2/models/m/infer", b"{bad") == 400
    assert await requested(server, "/v2/nowhere") == 404
    request = HttpRequest("POST", "/v2/models/m/infer")
    assert server.handlers["http"].head(request) is None
    server.handlers["http"].refuse(request, InferenceError(ErrorCode.TOO_LARGE, "too large"))
    counted = {("infer", "MALFORMED"): 1, (None, "NOT_FOUND"): 1, (None, "TOO_LARGE"): 1}
    assert ended(server.request_metrics["oip"]) == counted


async def test_other_operations_have_no_durations() -> None:
    server = pipeline(Echo())
    assert await requested(server, "/v2/health/live", method="GET") == 200
    assert ended(server.request_metrics["oip"]) == {("live", None): 1}
    assert not any(server.request_metrics["oip"].durations.counts)


async def test_who_goes_away_has_cancelled() -> None:
    server = pipeline(Echo(never=True))
    request = HttpRequest("POST", "/v2/models/m/infer", body=INFER)
    assert server.handlers["http"].head(request) is None
    task = asyncio.ensure_future(server.handlers["http"].serve(request))
    await asyncio.sleep(0.01)
    assert server.request_metrics["oip"].in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.request_metrics["oip"].in_flight == 0
    assert ended(server.request_metrics["oip"]) == {("infer", "CANCELLED"): 1}


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (None, None),
        (InferenceError(ErrorCode.MODEL_FAILED, "broken"), "MODEL_FAILED"),
        (OSError(), "INTERNAL"),
    ],
)
async def test_a_stream_ends_with_its_last_answer(failure: Exception | None, code: str | None) -> None:
    server = pipeline(Echo(3, failure))
    metrics = server.request_metrics["oip"]
    request = HttpRequest("POST", "/v2/models/m/generate_stream", body=b'{"x": [1]}')
    assert server.handlers["http"].head(request) is None
    answer = await server.handlers["http"].serve(request)
    assert isinstance(answer.parts, AsyncIterator)
    await anext(answer.parts)
    assert (metrics.in_flight, metrics.ended) == (1, {})
    sent = metrics.sent_bytes
    async for _ in answer.parts:
        pass
    assert ended(metrics) == {("infer_stream", code): 1}
    assert metrics.in_flight == 0
    assert metrics.sent_bytes > sent > 0


async def test_a_stream_without_a_reader_is_cancelled() -> None:
    server = pipeline(Echo(3))
    request = HttpRequest("POST", "/v2/models/m/generate_stream", body=b'{"x": [1]}')
    assert server.handlers["http"].head(request) is None
    answer = await server.handlers["http"].serve(request)
    parts: Any = answer.parts
    await anext(parts)
    await parts.aclose()
    assert ended(server.request_metrics["oip"]) == {("infer_stream", "CANCELLED"): 1}


async def test_each_message_of_a_grpc_stream_is_a_request() -> None:
    server = pipeline(Echo(2))
    message = MESSAGES["inference.ModelInferRequest"](model_name="m")
    message.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(1)

    async def messages() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield message.SerializeToString()

    call = GrpcRequest("/inference.GRPCInferenceService/ModelStreamInfer", b"", context=Context())
    answers = [answer async for answer in server.handlers["grpc"].stream(call, messages())]
    assert len(answers) == 10
    metrics = server.request_metrics["oip"]
    assert ended(metrics) == {("infer_stream", None): 5}
    assert metrics.sent_bytes == sum(len(answer.message) for answer in answers)
    assert sum(metrics.stages["decode"].counts) == 5


async def test_calls_over_brpc() -> None:
    server = pipeline(Echo())
    request = BrpcRequest("GrpsBrpcService", "CheckLiveness", b"")
    assert (await server.handlers["brpc"].serve(request)).code == 0
    assert ended(server.request_metrics["grps"]) == {("live", None): 1}


async def test_families_are_read_by_prometheus() -> None:
    server = pipeline(Echo())
    await requested(server, "/v2/models/m/infer", INFER)
    await requested(server, "/v2/models/m/infer", b"{bad")
    listening = ListenerAddress("http", "127.0.0.1:8000", ("oip", "grps"))
    text = exposition(families([(listening, server.request_metrics)])).decode()
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    where = {"listener": "127.0.0.1:8000", "transport": "http", "dialect": "oip"}

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted({**where, **labels}.items()))]

    assert value("interlingua_requests_total", operation="infer", code="OK") == 1
    assert value("interlingua_requests_in_flight") == 0
    assert value("interlingua_received_bytes_total") == len(INFER) + 4
    assert value("interlingua_stage_duration_seconds_count", stage="exec") == 1
    assert value("interlingua_stage_duration_seconds_sum", stage="exec") == pytest.approx(2e-8)
    assert value("interlingua_request_duration_seconds_bucket", le="+Inf") >= 1
    assert value("interlingua_requests_in_flight", dialect="grps") == 0
