"""Messages that pass through to an upstream undecoded are authorized as others are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import orjson
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.wire import GrpcRequest, HttpRequest
from interlingua.schemas import Context, Datatype, ServerMetadata, Signature, TensorSpec
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.grants import read_grants
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.loopback import behind, echoing, serving

SPEC = (TensorSpec("x", Datatype.FP32, (-1,)),)
VALUES = np.arange(3, dtype=np.float32)


def listener(transport: str, model: Any, callers: list[str]) -> Pipeline:
    service = Service(Router({"m": model}), ServerMetadata("s", "1"))
    authorization = Authorization("0.0.0.0:1", read_grants({"inference": callers}))
    binding = DIALECTS["oip"].bindings[transport]
    return Pipeline(service, "0.0.0.0:1", [binding], authorization=authorization)


async def over_http(pipeline: Pipeline, headers: Mapping[str, str]) -> bool:
    document = {
        "inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}]
    }
    head = orjson.dumps(document)
    sent = {**headers, "inference-header-content-length": str(len(head))}
    context = Context(peer="127.0.0.1", headers=sent)
    request = HttpRequest("POST", "/v2/models/m/infer", "", sent, head + VALUES.tobytes(), context=context)
    handler = pipeline.handlers["http"]
    answer = handler.head(request) or await handler.serve(request)
    assert answer.status in (200, 403), b"".join(answer.parts)
    return bool(answer.status == 200)


def message() -> bytes:
    inputs = [{"name": "x", "shape": [3], "datatype": "FP32"}]
    request = MESSAGES["inference.ModelInferRequest"]
    return bytes(
        request(model_name="m", inputs=inputs, raw_input_contents=[VALUES.tobytes()]).SerializeToString()
    )


async def over_grpc(pipeline: Pipeline, headers: Mapping[str, str]) -> bool:
    context = Context(peer="ipv4:127.0.0.1:5", headers=headers)
    request = GrpcRequest("/inference.GRPCInferenceService/ModelInfer", message(), headers, context)
    answer = await pipeline.handlers["grpc"].serve(request)
    assert answer.code in (0, 14), answer
    return bool(answer.code == 0)


async def over_a_stream(pipeline: Pipeline, headers: Mapping[str, str]) -> bool:
    async def messages() -> AsyncIterator[bytes]:
        yield message()

    context = Context(peer="ipv4:127.0.0.1:5", headers=headers)
    call = GrpcRequest("/inference.GRPCInferenceService/ModelStreamInfer", b"", headers, context)
    (answer,) = [each async for each in pipeline.handlers["grpc"].stream(call, messages())]
    return bool(answer.code == 0)


@pytest.mark.parametrize(
    ("transport", "ask"), [("http", over_http), ("grpc", over_grpc), ("grpc", over_a_stream)]
)
@pytest.mark.parametrize("passes", [True, False])
async def test_inference(tmp_path: Any, transport: str, ask: Any, passes: bool) -> None:
    (tmp_path / "key").write_text("s3cret")
    there = serving(echoing({"m": Signature(SPEC, SPEC)}), "oip")
    target = behind(there, "oip", transport, "m") if passes else there.service.router.models["m"]
    if passes:
        assert target.passthrough is not None
    # prepared once for both callers: the permitted one comes first
    pipeline = listener(transport, target, [f"key:x-key={tmp_path / 'key'}"])
    counted = there.request_metrics["oip"]
    assert await ask(pipeline, {"x-key": "s3cret"})
    before = counted.received_bytes
    assert passes is (before > 0)
    assert not await ask(pipeline, {"x-key": "guess"})
    assert not await ask(pipeline, {})
    assert counted.received_bytes == before, "nothing reached the upstream"
    assert await ask(listener(transport, target, ["local"]), {})
    assert not await ask(listener(transport, target, ["10.0.0.0/8", f"key:x-key={tmp_path / 'key'}"]), {})
