"""Health and reflection over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from interlingua.protocols.reflection import REFLECTION_METHODS
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository
from interlingua.schemas import Readiness, ServerMetadata
from interlingua.schemas.grpc import MESSAGES
from interlingua.schemas.oip import HEALTH_MESSAGES
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.pipeline import Pipeline
from interlingua.translator.serving.router import Router
from tests.runtime.python_models import ECHO, python_model, worker
from tests.streaming_models import AddSub
from tests.waiting import until

REQUEST: Any = HEALTH_MESSAGES["grpc.health.v1.HealthCheckRequest"]
RESPONSE: Any = HEALTH_MESSAGES["grpc.health.v1.HealthCheckResponse"]
SERVING, NOT_SERVING = 1, 2


@contextlib.asynccontextmanager
async def watching(service: Service) -> AsyncIterator[Any]:
    """A watch over a socket of ``service``."""
    server = GrpcServer(
        Pipeline(service, "test", [*DIALECTS["oip"].bindings.values()]).handlers["grpc"],
        Address("127.0.0.1", 0),
    )
    address = await server.start()
    async with grpc.aio.insecure_channel(str(address)) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch", REQUEST.SerializeToString, RESPONSE.FromString
        )
        yield watch(REQUEST(service="any"))
    assert await server.stop(1) == 0


async def reported(watch: Any, secs: float = 60) -> int:
    async with asyncio.timeout(secs):
        status: int = (await watch.read()).status
        return status


async def test_a_watch_tells_of_the_end() -> None:
    service = Service(Router(ModelCatalog({"m": AddSub()})), ServerMetadata("interlingua", "0"))
    async with watching(service) as watch:
        assert await reported(watch) == SERVING
        service.leave()
        assert await reported(watch) == NOT_SERVING
        assert await watch.read() is grpc.aio.EOF
        assert await watch.code() is grpc.StatusCode.OK


async def test_a_watch_tells_of_every_change_at_once(tmp_path: Path) -> None:
    python_model(tmp_path, ECHO)
    catalog = ModelCatalog(repositories=[Repository(tmp_path, controlled=True)])
    service = Service(Router(catalog), ServerMetadata("interlingua", "0"), ready_when_empty=True)
    async with watching(service) as watch:
        assert await reported(watch) == SERVING
        for online, status in ((False, NOT_SERVING), (True, SERVING)):
            service.switch(online)
            assert await reported(watch) == status
        loading = asyncio.create_task(catalog.load("m"))
        # not ready while a model that a client wants is being loaded
        assert [await reported(watch), await reported(watch)] == [NOT_SERVING, SERVING]
        await loading
        model = catalog.find("m")
        assert isinstance(model, LocalModel)
        worker(model)._process.kill()
        assert [await reported(watch), await reported(watch)] == [NOT_SERVING, SERVING]
        # to look again is no operation
        assert service.counted["ready"].count == 1
    await catalog.close()


async def test_a_watch_looks_at_nothing_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    async def readiness(*_: Any) -> Readiness:
        looked.append(1)
        return Readiness(True)

    monkeypatch.setattr(ModelCatalog, "readiness", readiness)
    monkeypatch.setattr("interlingua.translator.serving.processor._WATCH_SECS", 0.05)
    service = Service(Router(ModelCatalog({})), ServerMetadata("interlingua", "0"), ready_when_empty=True)
    async with watching(service) as watch:
        assert await reported(watch) == SERVING
        await asyncio.sleep(0.3)
        assert len(looked) == 1
    elsewhere = Service(Router(ModelCatalog({"m": AddSub()})), ServerMetadata("interlingua", "0"))
    async with watching(elsewhere) as watch:
        assert await reported(watch) == SERVING
        await until(lambda: len(looked) > 3, 60)


async def test_a_watch_may_be_left() -> None:
    service = Service(Router(ModelCatalog({})), ServerMetadata("interlingua", "0"), ready_when_empty=True)
    server = GrpcServer(
        Pipeline(service, "test", [*DIALECTS["oip"].bindings.values()]).handlers["grpc"],
        Address("127.0.0.1", 0),
    )
    address = await server.start()
    async with grpc.aio.insecure_channel(str(address)) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        await watch.read()
        watch.cancel()
        await until(lambda: not server.at_work, 60)
    await server.stop(0)


@pytest.mark.parametrize("method", sorted(REFLECTION_METHODS))
async def test_reflection(method: str) -> None:
    service = Service(Router(ModelCatalog({})), ServerMetadata("interlingua", "0"))
    server = GrpcServer(
        Pipeline(service, "test", [*DIALECTS["oip"].bindings.values()]).handlers["grpc"],
        Address("127.0.0.1", 0),
    )
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
