"""What is not inference, through the pipeline as a dialect would ask it; and tensors in shared memory."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.registry import DIALECTS
from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository, find_models, load_models
from interlingua.runtime.target import Target
from interlingua.schemas import (
    Context,
    Datatype,
    Deployment,
    Duration,
    ErrorCode,
    IndexQuery,
    InferenceError,
    InferRequest,
    ListenerAddress,
    Metrics,
    ModelMetadata,
    ModelState,
    Operation,
    Readiness,
    RequestedOutput,
    ServerMetadata,
    ServerState,
    ServerStatus,
    SharedMemoryRef,
    SharedMemoryRegion,
    Signature,
    Tensor,
)
from interlingua.schemas.oip import MESSAGES
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.grants import read_grants
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.processor import RequestProcessor
from interlingua.translator.serving.router import Router
from interlingua.translator.serving.routing.conditions import Conditions
from interlingua.translator.serving.routing.route import Route
from interlingua.translator.serving.routing.split import Split
from interlingua.translator.serving.settings import LogBook
from tests.runtime.onnx_models import write_identity

OIP = DIALECTS["oip"].bindings["http"]

HERE, AWAY = Context(peer="127.0.0.1"), Context(peer="10.0.0.7")


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """``m`` is served, ``spare`` can be loaded, ``alias*`` is a route to ``m``."""
    for name in ("m", "spare"):
        write_identity(tmp_path / name / "1" / "model.onnx")
    loaded = load_models(find_models(tmp_path, ["m"]))
    catalog = ModelCatalog(loaded.models, loaded.failed, [Repository(tmp_path, True)])
    routes = [
        Route(Split.only("m"), Conditions("alias*")),
        Route(Split.only("spare"), Conditions("later")),
    ]
    router = Router(catalog, routes)
    yield Service(router, ServerMetadata("s", "1.2.3"), frozenset({"m"}), id="me:1")
    await catalog.close()


def processor(service: Service) -> RequestProcessor:
    """A listener that permits what the service does."""
    allow = {"shared_memory": ["anyone"]} if service.shared_memory_for == "all" else {}
    return RequestProcessor(
        service, "127.0.0.1:8000", "m", authorization=Authorization("127.0.0.1:8000", read_grants(allow))
    )


async def ask(service: Service, operation: Operation, context: Context = HERE, **opened: Any) -> Any:
    """What ``operation`` answers, not encoded."""
    action: Action[Any] = Action(operation, lambda form, result: result)
    return await processor(service).perform(Opened(action, **opened), OIP, context)


@contextmanager
def refused(code: ErrorCode, said: str) -> Iterator[None]:
    with pytest.raises(InferenceError, match=said) as caught:
        yield
    assert caught.value.code is code


# --- status


async def test_the_status_of_the_server(service: Service) -> None:
    await ask(service, Operation.MODEL_LOAD, model="spare")
    await ask(service, Operation.MODEL_UNLOAD, model="spare")
    told: ServerStatus = await ask(service, Operation.STATUS)
    assert (told.id, told.state) == ("me:1", ServerState.READY)
    assert set(told.models) == {"m", "spare"}
    assert [each.state for each in told.models["m"].versions] == [ModelState.READY]
    again: ServerStatus = await ask(service, Operation.STATUS)
    assert 0 < told.uptime_ns < again.uptime_ns


async def test_the_status_of_one_model(service: Service) -> None:
    for asked in ("m", "alias_of_it"):
        told: ServerStatus = await ask(service, Operation.STATUS, model=asked)
        assert list(told.models) == [asked]
        assert told.models[asked].name == asked
    for asked in ("nobody", "later", "spare"):
        with refused(ErrorCode.NOT_FOUND, f"no status available for unknown model '{asked}'"):
            await ask(service, Operation.STATUS, model=asked)
    await ask(service, Operation.MODEL_LOAD, model="spare")
    assert list((await ask(service, Operation.STATUS, model="later")).models) == ["later"]


async def test_a_server_that_is_leaving(service: Service) -> None:
    service.draining = True
    with refused(ErrorCode.UNAVAILABLE, "Server exiting"):
        await ask(service, Operation.STATUS)
    assert await ask(service, Operation.READY) == Readiness(
        False, "the server is shutting down", leaving=True
    )
    assert not (await ask(service, Operation.MODEL_READY, model="m")).ready
    assert await ask(service, Operation.REPOSITORY_INDEX, argument=IndexQuery(ready=True)) == ()
    assert await ask(service, Operation.REPOSITORY_INDEX), "the index has the models"
    assert (await ask(service, Operation.LIVE)).ready


async def test_a_server_that_a_client_takes_out_of_readiness(service: Service) -> None:
    assert await ask(service, Operation.SET_OFFLINE) is None
    assert await ask(service, Operation.READY) == Readiness(False, "the server is offline")
    assert (await ask(service, Operation.LIVE)).ready
    assert (await ask(service, Operation.MODEL_READY, model="m")).ready, "it is asked as before"
    service.strict_readiness = False
    assert not (await ask(service, Operation.READY)).ready
    assert await ask(service, Operation.SET_ONLINE) is None
    assert await ask(service, Operation.READY) == Readiness(True)


async def test_what_is_served_and_where(service: Service) -> None:
    service.listeners = (ListenerAddress("http", "127.0.0.1:8000", ("oip",)),)
    told: Deployment = await ask(service, Operation.DEPLOYMENT)
    assert list(told.models) == ["m"], "not what could be loaded"
    assert (told.default_model, told.listeners) == ("m", service.listeners)
    one: Deployment = await ask(service, Operation.DEPLOYMENT, model="alias_of_it")
    assert [status.name for status in one.models.values()] == ["alias_of_it"]
    with refused(ErrorCode.NOT_FOUND, "unknown model: 'spare'"):
        await ask(service, Operation.DEPLOYMENT, model="spare")


async def test_inferences_are_seen_in_the_trends(service: Service) -> None:
    action: Action[Any] = Action(
        Operation.INFER, lambda form, result: result, lambda opened, signature: (opened.message, None)
    )
    listener = processor(service)
    for values in ([1.0, 2.0], [[1.0]]):
        asked = InferRequest("m", (Tensor.from_numpy("x", np.array(values, np.float32)),))
        with suppress(InferenceError):
            await listener.perform(Opened(action, "m", message=asked), OIP, HERE)
    told: Metrics = await ask(service, Operation.METRICS)
    assert told.trends["failed_percent"][29] == 50, "the second has too many dimensions"
    assert told.trends["latency_max_ms"][29] > 0


async def test_operations_are_counted_when_they_succeed(service: Service) -> None:
    for _ in range(3):
        await ask(service, Operation.LIVE)
    await ask(service, Operation.MODEL_LOAD, model="spare")
    with pytest.raises(InferenceError):
        await ask(service, Operation.MODEL_LOAD, model="nobody")
    told: ServerStatus = await ask(service, Operation.STATUS)
    assert {name: each.count for name, each in told.requests.items()} == {
        "live": 3,
        "model_load": 1,
        "status": 1,
    }
    assert told.requests["model_load"].ns > told.requests["live"].ns > 0
    assert service.counted["status"] == Duration(1, service.counted["status"].ns)


# --- models


async def test_models_are_controlled(service: Service) -> None:
    assert [(each.name, len(each.versions)) for each in await ask(service, Operation.REPOSITORY_INDEX)] == [
        ("m", 1),
        ("spare", 0),
    ]
    assert not (await ask(service, Operation.MODEL_READY, model="spare")).ready
    assert await ask(service, Operation.MODEL_LOAD, model="spare") is None
    assert (await ask(service, Operation.MODEL_READY, model="later")).ready, "by a route to it"
    assert await ask(service, Operation.MODEL_UNLOAD, model="spare") is None
    said = await ask(service, Operation.MODEL_READY, model="later")
    assert said == Readiness(False, "model 'later' is not ready: it is unloaded")
    with refused(ErrorCode.NOT_FOUND, "Request for unknown model: 'spare' has no available versions"):
        await ask(service, Operation.MODEL_METADATA, model="later")


async def test_metadata_has_the_name_that_the_caller_knows(service: Service) -> None:
    for asked, said in (("m", "m"), ("alias_of_it", "alias_of_it"), ("", "m")):
        assert (await ask(service, Operation.MODEL_METADATA, model=asked)).name == said


async def test_metadata_of_one_version_have_that_version_alone() -> None:
    class Two(Target):
        name = "two"

        async def metadata(self, version: str = "") -> ModelMetadata:
            return ModelMetadata("two", Signature((), ()), ("1", "2"))

    models: Any = {"two": Two()}
    asked = Service(Router(ModelCatalog(models, {})), ServerMetadata("s", "1"))
    for version, said in (("", ("1", "2")), ("1", ("1",))):
        found = await ask(asked, Operation.MODEL_METADATA, model="two", version=version)
        assert found.versions == said


@pytest.mark.parametrize(("code", "shown"), [(ErrorCode.NOT_FOUND, True), (ErrorCode.BAD_UPSTREAM, False)])
async def test_what_an_upstream_has_not_is_shown_by_the_fallback(
    service: Service, code: ErrorCode, shown: bool
) -> None:
    class Behind(Target):
        name = "behind"

        async def metadata(self, version: str = "") -> Any:
            raise InferenceError(code, "no such thing")

        status = metadata

    models: Any = {"behind": Behind(), "m": service.router.models["m"]}
    routes = [Route(Split.only("behind"), Conditions("safe"), fallback="m")]
    asked = Service(Router(ModelCatalog(models, {}), routes), ServerMetadata("s", "1"))
    for operation in (Operation.MODEL_METADATA, Operation.STATUS):
        with nullcontext() if shown else refused(code, "no such thing"):
            await ask(asked, operation, model="safe")


async def test_readiness(service: Service, tmp_path: Path) -> None:
    assert (await ask(service, Operation.READY)).ready
    (tmp_path / "spare" / "1" / "model.onnx").write_bytes(b"broken")
    with pytest.raises(InferenceError):
        await ask(service, Operation.MODEL_LOAD, model="spare")
    blocked = await ask(service, Operation.READY)
    assert not blocked.ready
    assert blocked.reason.startswith("model 'spare' could not be loaded: ")
    service.strict_readiness = False
    assert (await ask(service, Operation.READY)).ready
    service.strict_readiness = True
    for name in ("m", "spare"):
        await ask(service, Operation.MODEL_UNLOAD, model=name)
    assert (await ask(service, Operation.READY)).ready, "who unloads a model knows that it is not there"


@pytest.mark.parametrize("required", [True, False])
async def test_a_model_that_failed_at_start(required: bool) -> None:
    catalog = ModelCatalog({}, {"bad": LoadError("broken")})
    service = Service(Router(catalog), ServerMetadata("s", "1"), frozenset({"bad"} if required else ()))
    said = await ask(service, Operation.READY)
    assert not said.ready
    assert said.reason == (
        "model 'bad' could not be loaded: broken" if required else "the server has no model"
    )
    service.ready_when_empty = True
    assert (await ask(service, Operation.READY)).ready is not required


# --- shared memory


@pytest.fixture
def key() -> Iterator[str]:
    path = Path(f"/dev/shm/interlingua_test_{os.getpid()}_{time.monotonic_ns()}")
    path.write_bytes(np.arange(8, dtype=np.float32).tobytes() + bytes(64))
    yield f"/{path.name}"
    path.unlink()


async def test_regions(service: Service, key: str) -> None:
    region = SharedMemoryRegion("r", key, 0, 96)
    await ask(service, Operation.SHARED_MEMORY_REGISTER, argument=region)
    with refused(ErrorCode.ALREADY_EXISTS, "shared memory region 'r' already in manager"):
        await ask(service, Operation.SHARED_MEMORY_REGISTER, argument=region)
    assert await ask(service, Operation.SHARED_MEMORY_STATUS) == (region,)
    assert await ask(service, Operation.SHARED_MEMORY_STATUS, argument="r") == (region,)
    await ask(service, Operation.SHARED_MEMORY_UNREGISTER, argument="r")
    await ask(service, Operation.SHARED_MEMORY_UNREGISTER)
    assert await ask(service, Operation.SHARED_MEMORY_STATUS) == ()


@pytest.mark.parametrize(
    ("allowed", "context", "said"),
    [
        ("local", HERE, ""),
        ("local", AWAY, "shared memory to clients on its own machine alone"),
        ("all", AWAY, ""),
        ("none", HERE, "this server does not allow shared memory"),
    ],
)
async def test_who_may_use_shared_memory(
    service: Service, key: str, allowed: str, context: Context, said: str
) -> None:
    service.shared_memory_for = allowed
    region = SharedMemoryRegion("r", key, 0, 96)
    if not said:
        await ask(service, Operation.SHARED_MEMORY_REGISTER, context, argument=region)
        assert (await infer(service, context)).outputs
        return
    for operation in (
        Operation.SHARED_MEMORY_REGISTER,
        Operation.SHARED_MEMORY_STATUS,
        Operation.SHARED_MEMORY_UNREGISTER,
    ):
        with refused(ErrorCode.UNSUPPORTED, said):
            await ask(service, operation, context, argument=region)
    service.shared_memory.register(region)
    with refused(ErrorCode.UNSUPPORTED, said):
        await infer(service, context)


async def infer(service: Service, context: Context = HERE, size: int = 16) -> Any:
    """The answer to a request whose input and output stand in region ``r``, not encoded."""
    given = Tensor("x", Datatype.FP32, (4,), SharedMemoryRef("r", 8, 16))
    asked = (RequestedOutput("y", placement=SharedMemoryRef("r", 32, size)),)
    request = InferRequest("m", (given,), asked)
    action: Action[Any] = Action(
        Operation.INFER, lambda form, response: response, lambda opened, signature: (request, None)
    )
    return await processor(service).perform(Opened(action, "m"), OIP, context)


async def test_tensors_in_shared_memory(service: Service, key: str) -> None:
    await ask(service, Operation.SHARED_MEMORY_REGISTER, argument=SharedMemoryRegion("r", key, 0, 96))
    response = await infer(service, size=64)
    assert response.outputs[0].data == SharedMemoryRef("r", 32, 16)
    content = np.frombuffer(Path("/dev/shm", key[1:]).read_bytes(), np.float32)
    assert content[8:].tolist() == [2, 3, 4, 5, *[0] * 12]
    with refused(ErrorCode.INTERNAL, "shared memory size specified with the request for output 'y'"):
        await infer(service, size=8)
    await ask(service, Operation.SHARED_MEMORY_UNREGISTER, argument="r")
    with refused(ErrorCode.NOT_FOUND, "Unable to find shared memory region: 'r'"):
        await infer(service)


# --- configuration, statistics, settings


async def config_of(service: Service, **opened: Any) -> Any:
    return MESSAGES["inference.ModelConfig"].FromString(await ask(service, Operation.MODEL_CONFIG, **opened))


async def test_configuration(service: Service) -> None:
    assert (await config_of(service, model="m", version="1")).name == "m"
    # the listener's default model
    assert (await config_of(service)).backend == "onnxruntime"
    with refused(ErrorCode.NOT_FOUND, "Request for unknown model: 'nope' is not found"):
        await config_of(service, model="nope")
    with refused(ErrorCode.NOT_FOUND, "'m' version 2 is not found"):
        await config_of(service, model="m", version="2")


async def statistics(service: Service, **opened: Any) -> list[tuple[str, list[str]]]:
    told = await ask(service, Operation.STATISTICS, **opened)
    return [(model.name, [version.version for version in model.versions]) for model in told]


async def test_statistics(service: Service) -> None:
    assert await statistics(service) == [("m", ["1"])]
    assert await statistics(service, model="m") == [("m", ["1"])]
    assert await statistics(service, model="alias1") == [("alias1", ["1"])]
    for version in ("1", "01", " 1 "):
        assert await statistics(service, model="m", version=version) == [("m", ["1"])]
    with refused(ErrorCode.INVALID_TENSOR, "requested model 'spare' is not available"):
        await statistics(service, model="spare")
    with refused(ErrorCode.INVALID_TENSOR, "requested model version is not available for model 'm'"):
        await statistics(service, model="m", version="2")
    with refused(ErrorCode.INVALID_TENSOR, "failed to get model version from specified version string 'x'"):
        await statistics(service, model="m", version="x")
    await ask(service, Operation.MODEL_LOAD, model="spare")
    assert await statistics(service) == [("m", ["1"]), ("spare", ["1"])]
    await ask(service, Operation.MODEL_UNLOAD, model="spare")
    assert await statistics(service) == [("m", ["1"])]


async def test_the_index_of_what_is_ready(service: Service) -> None:
    async def names(query: IndexQuery) -> list[str]:
        return [model.name for model in await ask(service, Operation.REPOSITORY_INDEX, argument=query)]

    assert await names(IndexQuery()) == ["m", "spare"]
    assert await names(IndexQuery(ready=True)) == ["m"]
    with refused(ErrorCode.UNSUPPORTED, "'repository_name' specification is not supported for 'other'"):
        await names(IndexQuery("other"))


async def test_settings_of_traces(service: Service) -> None:
    async def rate(model: str = "", **changes: tuple[str, ...]) -> tuple[str, ...]:
        told = await ask(service, Operation.TRACE_SETTINGS, model=model, argument=changes)
        return told["trace_rate"]

    assert await rate(trace_rate=("5",)) == ("5",)
    assert await rate("m") == ("5",)
    assert await rate("m", trace_rate=("7",)) == ("7",)
    assert await rate() == ("5",)
    with refused(ErrorCode.INVALID_TENSOR, "Request for unknown model : nope"):
        await rate("nope", trace_rate=("7",))


async def test_settings_of_the_log(service: Service) -> None:
    seen = []
    service.log = LogBook(apply=seen.append)
    before = await ask(service, Operation.LOG_SETTINGS, argument={})
    told = await ask(service, Operation.LOG_SETTINGS, argument={"log_verbose_level": 3})
    assert told == {**before, "log_verbose_level": 3}
    assert seen == [told]


async def test_memory_of_a_gpu(service: Service) -> None:
    with refused(
        ErrorCode.INVALID_TENSOR, "failed to register CUDA shared memory region: 'r', GPUs not supported"
    ):
        await ask(service, Operation.CUDA_SHARED_MEMORY_REGISTER, argument="r")
    assert await ask(service, Operation.CUDA_SHARED_MEMORY_STATUS) == ()
    with refused(ErrorCode.NOT_FOUND, "Unable to find cuda shared memory region: 'r'"):
        await ask(service, Operation.CUDA_SHARED_MEMORY_STATUS, argument="r")
    await ask(service, Operation.CUDA_SHARED_MEMORY_UNREGISTER, argument="r")
