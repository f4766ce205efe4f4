"""Two front ends and one catalog: every look-up gives what the catalog itself gives."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from interlingua.runtime.front_end.catalog import FrontEndCatalog
from interlingua.runtime.front_end.hub import Hub
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository, find_models, load_models
from interlingua.runtime.repository.known_models import KnownModels
from interlingua.runtime.ring.channel import create
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ListedModel,
    ModelControl,
    Readiness,
    Tensor,
    VersionPolicy,
)
from interlingua.schemas.datatypes import Datatype
from tests.runtime.onnx_models import node, value, write
from tests.waiting import until

ARENA_BYTES = 1 << 20
X = Tensor.from_numpy("x", np.array([1, -2], np.float32))


def write_model(repository: Path, name: str, operator: str, version: int = 1) -> None:
    """A model whose ``y`` is ``operator`` of ``x``."""
    write(
        repository / name / str(version) / "model.onnx",
        [node(operator, ["x"], ["y"])],
        [value("x", Datatype.FP32, ["n"])],
        [value("y", Datatype.FP32, ["n"])],
    )


@dataclass
class Server:
    folder: Path
    catalog: ModelCatalog
    hub: Hub
    front_ends: list[FrontEndCatalog]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    write_model(tmp_path, "neg", "Neg")
    write_model(tmp_path, "both", "Neg")
    write_model(tmp_path, "both", "Abs", version=2)
    (tmp_path / "both" / "config.pbtxt").write_text("version_policy { all { } }")
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"broken")
    repository = Repository(tmp_path, controlled=True)
    loaded = load_models(find_models(tmp_path, "*"))
    catalog = ModelCatalog(loaded.models, loaded.failed, [repository])
    hub = Hub(catalog)
    front_ends = [FrontEndCatalog({}) for _ in range(2)]
    for each in front_ends:
        await connect(each, hub)
    yield Server(tmp_path, catalog, hub, front_ends)
    for each in front_ends:
        await each.close()
    await hub.close()
    await catalog.close()


async def connect(front_end: FrontEndCatalog, hub: Hub) -> None:
    here, there = create(ARENA_BYTES)
    hub.connect(there)
    await front_end.link.connect(here)


async def ask(catalog: KnownModels, name: str, version: str = "") -> list[float]:
    response: InferResponse = await catalog.find(name).infer(InferRequest(name, (X,), version=version))
    found: list[float] = response.outputs[0].numpy().tolist()
    return found


async def test_requests_reach_the_models(server: Server) -> None:
    for each in server.front_ends:
        assert await ask(each, "neg") == [-1, 2]
        assert await ask(each, "both") == [1, 2]
        assert await ask(each, "both", "01") == [-1, 2]
        with pytest.raises(InferenceError) as raised:
            await ask(each, "both", "7")
        assert raised.value.code is ErrorCode.NOT_FOUND


NAMES = ("neg", "both", "broken", "unknown")


async def test_front_ends_know_what_the_catalog_knows(server: Server) -> None:
    catalog = server.catalog
    for each in server.front_ends:
        assert each.names() == catalog.names()
        assert set(each.models) == set(catalog.models)
        assert each.is_empty == catalog.is_empty
        assert each.reports_all_changes
        assert await each.statuses() == await catalog.statuses()
        assert await each.index() == await catalog.index()
        for name in NAMES:
            assert each.absence(name) == catalog.absence(name)
            assert await each.status(name) == await catalog.status(name)
            assert await each.readiness([name]) == await catalog.readiness([name])
            assert await each.joined(f"{name}-1") == await catalog.joined(f"{name}-1")
            for version in ("", "1", "01", "9", "-1", "x"):
                assert str(each.missing(name, version)) == str(catalog.missing(name, version))
                assert each.standing(name, version) == catalog.standing(name, version)


async def test_targets_describe_themselves_as_the_models(server: Server) -> None:
    for each in server.front_ends:
        for name, model in server.catalog.models.items():
            target = each.models[name]
            for version in ("", "1", "01"):
                assert await target.signature(version) == await model.signature(version)
                assert await target.metadata(version) == await model.metadata(version)
                assert await target.decoupled(version) == await model.decoupled(version)
                assert await target.ready(version) == await model.ready(version)
            assert await target.status() == await model.status()
            with pytest.raises(InferenceError) as raised:
                await target.signature("77")
            assert raised.value.code is ErrorCode.NOT_FOUND


async def test_a_list_of_models_takes_effect_everywhere(server: Server) -> None:
    listed = [ListedModel("both", str(server.folder / "both"), VersionPolicy(specific=(1,)))]
    await server.front_ends[0].serve_only(listed)
    for each in server.front_ends:
        assert set(each.models) == {"both"}
        assert await ask(each, "both") == [-1, 2]
    with pytest.raises(InferenceError, match="Could not find base path /none for servable neg"):
        await server.front_ends[0].serve_only([ListedModel("neg", "/none")])


async def test_no_request_overtakes_those_that_wait_for_a_signature(server: Server) -> None:
    """Requests of a sequence that arrive while the first one waits, and just after it."""
    target = server.front_ends[0].models["neg"]
    order: list[int] = []

    async def arrive(number: int) -> None:
        await target.signature()
        order.append(number)

    arrived = [asyncio.ensure_future(arrive(number)) for number in range(3)]
    while len(arrived) < 500 and not all(each.done() for each in arrived[:3]):
        arrived.append(asyncio.ensure_future(arrive(len(arrived))))
        await asyncio.sleep(0)
    await asyncio.gather(*arrived)
    assert order == list(range(len(arrived)))


async def test_a_load_by_one_is_seen_by_all_when_it_returns(server: Server) -> None:
    one, other = server.front_ends
    write_model(server.folder, "new", "Abs")
    await one.load("new")
    assert await ask(other, "new") == [1, 2]
    assert other.requested_models == {"new"}
    before = other.models["new"]
    write_model(server.folder, "new", "Neg", version=2)
    await other.load("new")
    assert await ask(one, "new") == [-1, 2]
    # what was remembered of the replaced model is not that of the new one
    assert other.models["new"] is not before
    assert (await one.models["new"].metadata()).versions == ("2",)
    await one.unload("new")
    assert "new" not in other.models
    assert other.absence("new") == "it is unloaded"
    with pytest.raises(InferenceError, match="has no available versions"):
        other.find("new")


async def test_failed_loads_raise_the_errors_of_the_catalog(server: Server) -> None:
    one, other = server.front_ends
    for name, control in (("broken", ModelControl()), ("neg", ModelControl(repository="other"))):
        with pytest.raises(InferenceError) as expected:
            await server.catalog.load(name, control)
        with pytest.raises(InferenceError) as raised:
            await one.load(name, control)
        assert (raised.value.code, raised.value.message) == (expected.value.code, expected.value.message)
        assert other.absence(name) == server.catalog.absence(name)


async def test_a_change_without_a_front_end_reaches_all(server: Server) -> None:
    counts = [each.changes.count for each in server.front_ends]
    await server.catalog.unload("neg")
    for each, count in zip(server.front_ends, counts, strict=True):
        await each.changes.since(count, 5)
        assert "neg" not in each.models


async def test_a_model_whose_files_are_gone_is_forgotten(server: Server) -> None:
    one = server.front_ends[0]
    await server.catalog.follow("neg", None)
    async with asyncio.timeout(30):
        while "neg" in one.names():
            await one.changes.since(one.changes.count, 1)
    assert one.names() == server.catalog.names() == ["both", "broken"]
    assert one.absence("neg") == server.catalog.absence("neg")


async def test_a_stopped_front_end_does_not_hold_a_load(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlingua.runtime.front_end.hub._PATIENCE_SECS", 0.05)
    one, other = server.front_ends
    monkeypatch.setattr(other.link.client, "acknowledge", lambda _: None)
    await one.unload("neg")
    assert "neg" not in one.models


async def test_without_a_runtime_process_models_are_known_but_not_ready(server: Server) -> None:
    one, _ = server.front_ends
    target = one.models["neg"]
    count = one.changes.count
    await server.hub.close()
    await one.changes.since(count, 5)
    assert await one.readiness(["neg"]) == Readiness(
        False, "model 'neg' is not ready: the runtime process is being started"
    )
    for failing in (ask(one, "neg"), one.statuses(), one.load("neg")):
        with pytest.raises(InferenceError) as raised:
            await failing
        assert raised.value.code is ErrorCode.UNAVAILABLE
    again = Hub(server.catalog)
    await connect(one, again)
    assert await ask(one, "neg") == [-1, 2]
    # it may not be the same model
    assert one.models["neg"] is not target
    await again.close()


async def test_a_runtime_process_that_exits_at_once_is_no_connection() -> None:
    front_end = FrontEndCatalog({})
    here, there = create(ARENA_BYTES)
    connecting = asyncio.create_task(front_end.link.connect(here))
    await asyncio.sleep(0)
    for descriptor in there:
        os.close(descriptor)
    with pytest.raises(InferenceError, match="is being started"):
        await connecting
    assert not front_end.link.connected


async def test_large_messages_are_received_where_the_runtime_process_reads_them(server: Server) -> None:
    front_end = server.front_ends[0]
    arena = front_end.link.client._channel.arena

    def is_shared(view: memoryview) -> bool:
        place = arena.send(view)
        if place is not None:
            arena.withdraw(place.ticket)
        return place is not None

    data = front_end.allocate(100_000)
    assert is_shared(data)
    assert not is_shared(front_end.allocate(1000))
    data[:] = np.arange(25_000, dtype=np.float32).tobytes()
    request = InferRequest("neg", (Tensor("x", Datatype.FP32, (25_000,), data.toreadonly()),))
    response = await front_end.find("neg").infer(request)
    assert np.array_equal(response.outputs[0].numpy(), -np.arange(25_000, dtype=np.float32))
    # half of the arena is for copies
    more = [front_end.allocate(100_000) for _ in range(10)]
    assert [is_shared(each) for each in more] == [True] * 4 + [False] * 6
    own = Tensor("x", Datatype.FP32, (25_000,), more[-1].toreadonly())
    await front_end.find("neg").infer(InferRequest("neg", (own,)))
    # they come back when they are released, which the runtime process may do after its answer
    del more, data, request
    await until(lambda: is_shared(front_end.allocate(ARENA_BYTES // 2)))


async def test_messages_are_received_without_a_runtime_process(server: Server) -> None:
    await server.hub.close()
    for each in server.front_ends:
        await until(lambda each=each: not each.link.connected)
        assert len(each.allocate(1 << 20)) == 1 << 20
    assert len(FrontEndCatalog({}).allocate(1 << 20)) == 1 << 20


@pytest.mark.parametrize("first", ["front end", "runtime process"])
async def test_memory_is_unmapped_when_a_process_exits(server: Server, first: str) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:interlingua-channel")

    gc.collect()
    gc.disable()
    try:
        before = mapped()
        front_end, hub = FrontEndCatalog({}), Hub(server.catalog)
        await connect(front_end, hub)
        data = front_end.allocate(100_000)
        request = InferRequest("neg", (Tensor("x", Datatype.FP32, (25_000,), data.toreadonly()),))
        response = await front_end.find("neg").infer(request)
        both = mapped()
        assert both > before
        if first == "front end":
            await front_end.close()
        else:
            await hub.close()
            # this process still has the memory of the hub
            before += (both - before) // 2
        # what was received is still readable
        assert response.outputs[0].numpy().shape == (25_000,)
        del data, request, response
        await until(lambda: mapped() <= before)
        await hub.close()
        await front_end.close()
    finally:
        gc.enable()
