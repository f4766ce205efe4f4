"""Health and reflection over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from protocols.reflection import REFLECTION_METHODS
from protocols.registry import DIALECTS
from protocols.transport.address import Address
from protocols.transport.grpc_server import GrpcServer
from runtime.catalog import ModelCatalog
from schemas import ServerMetadata
from schemas.grpc import MESSAGES
from schemas.oip import HEALTH_MESSAGES
from tests.streaming_models import AddSub
from translator.operations import Service
from translator.pipeline import Pipeline
from translator.router import Router

REQUEST: Any = HEALTH_MESSAGES["grpc.health.v1.HealthCheckRequest"]
RESPONSE: Any = HEALTH_MESSAGES["grpc.health.v1.HealthCheckResponse"]
SERVING, NOT_SERVING = 1, 2


async def test_a_watch_tells_of_the_end() -> None:
    service = Service(Router(ModelCatalog({"m": AddSub()})), ServerMetadata("interlingua", "0"))
    server = GrpcServer(Pipeline(service, "test", [DIALECTS["oip"]]).grpc, Address("127.0.0.1", 0))
    address = await server.start()
    async with grpc.aio.insecure_channel(str(address)) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch", REQUEST.SerializeToString, RESPONSE.FromString
        )(REQUEST(service="any"))
        assert (await watch.read()).status == SERVING
        service.draining = True
        assert (await watch.read()).status == NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        assert await watch.code() is grpc.StatusCode.OK
    assert await server.stop(1) == 0


async def test_a_watch_may_be_left() -> None:
    service = Service(Router(ModelCatalog({})), ServerMetadata("interlingua", "0"), ready_when_empty=True)
    server = GrpcServer(Pipeline(service, "test", [DIALECTS["oip"]]).grpc, Address("127.0.0.1", 0))
    address = await server.start()
    async with grpc.aio.insecure_channel(str(address)) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        await watch.read()
        watch.cancel()
        async with asyncio.timeout(5):
            while server._calls.running:
                await asyncio.sleep(0.01)
    await server.stop(0)


@pytest.mark.parametrize("method", sorted(REFLECTION_METHODS))
async def test_reflection(method: str) -> None:
    service = Service(Router(ModelCatalog({})), ServerMetadata("interlingua", "0"))
    server = GrpcServer(Pipeline(service, "test", [DIALECTS["oip"]]).grpc, Address("127.0.0.1", 0))
    address = await server.start()
    asked: Any = MESSAGES["grpc.reflection.v1.ServerReflectionRequest"]
    told: Any = MESSAGES["grpc.reflection.v1.ServerReflectionResponse"]
    async with grpc.aio.insecure_channel(str(address), compression=grpc.Compression.Gzip) as channel:
        call = channel.stream_stream(method, asked.SerializeToString, told.FromString)(
            [asked(list_services="*"), asked(file_containing_symbol="inference.GRPCInferenceService")]
        )
        answers = [answer async for answer in call]
    await server.stop(0)
    assert "inference.GRPCInferenceService" in [
        service.name for service in answers[0].list_services_response.service
    ]
    assert answers[1].file_descriptor_response.file_descriptor_proto
