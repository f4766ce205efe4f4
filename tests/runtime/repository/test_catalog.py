"""Models that come and go while others ask for them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.repository import catalog as catalog_module
from interlingua.runtime.repository import renewal
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository, find_models, load_model, load_models
from interlingua.runtime.repository.joined_names import JoinedNames
from interlingua.runtime.upstream.model import UpstreamModel
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    ModelControl,
    ModelMetadata,
    ModelRef,
    ModelState,
    ModelStatus,
    Readiness,
    Signature,
    Tensor,
)
from tests.runtime.onnx_models import node, value, write, write_identity
from tests.waiting import until

X = Tensor.from_numpy("x", np.array([1, 2], np.float32))
ALL = "version_policy { all { } }"


def write_model(repository: Path, name: str, operator: str = "Identity", version: int = 1) -> Path:
    """A model whose ``y`` is ``operator`` of ``x``."""
    write(
        repository / name / str(version) / "model.onnx",
        [node(operator, ["x"], ["y"])],
        [value("x", Datatype.FP32, ["n"])],
        [value("y", Datatype.FP32, ["n"])],
    )
    return repository / name


def write_broken(repository: Path, name: str, version: int = 1) -> None:
    folder = repository / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(b"broken")


def catalog_of(
    *folders: Path, controlled: bool = True, load: list[str] | None = None, **more
) -> ModelCatalog:
    """A catalog over repositories with ``load`` (default: everything) loaded."""
    names = "*" if load is None else load
    sources = {source.name: source for folder in folders for source in find_models(folder, names)}
    loaded = load_models(list(sources.values()))
    repositories = [Repository(folder, controlled) for folder in folders]
    return ModelCatalog(loaded.models, loaded.failed, repositories, **more)


async def ask(catalog: ModelCatalog, name: str = "m") -> list[float]:
    target = catalog.models.get(name)
    if target is None:
        raise catalog.missing(name)
    response = await target.infer(InferRequest(name, (X,)))
    return response.outputs[0].numpy().tolist()


def states(status: ModelStatus | None) -> list[tuple[str, ModelState, str]]:
    assert status is not None
    return [(each.version, each.state, each.reason) for each in status.versions]


async def settled(catalog: ModelCatalog) -> None:
    await until(lambda: not catalog._tasks._running)


async def test_a_model_is_loaded_and_unloaded(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    write_model(tmp_path, "other")
    catalog = catalog_of(tmp_path, load=["other"])
    assert [(each.name, len(each.versions)) for each in await catalog.index()] == [("m", 0), ("other", 1)]
    assert await catalog.status("m") is None
    with pytest.raises(InferenceError, match="Request for unknown model: 'm' is not found") as caught:
        await ask(catalog)
    assert (caught.value.code, caught.value.origin) == (ErrorCode.NOT_FOUND, "m")

    await catalog.load("m")
    assert await ask(catalog) == [1, 2]
    assert states(await catalog.status("m")) == [("1", ModelState.READY, "")]
    assert set(await catalog.statuses()) == {"m", "other"}

    await catalog.unload("m")
    await settled(catalog)
    assert states(await catalog.status("m")) == [("1", ModelState.UNAVAILABLE, "unloaded")]
    with pytest.raises(InferenceError, match="Request for unknown model: 'm' has no available versions"):
        await ask(catalog)
    assert catalog.missing("m", "1").message.endswith("'m' version 1 is not at ready state")
    assert catalog.missing("m", "2").message.endswith("'m' version 2 is not found")
    assert catalog.absence("m") == "it is unloaded"
    assert catalog.absence("nobody") == "it is not known here"
    assert (await catalog.status("m")).config, "what it was is still told"

    await catalog.load("m")
    assert await ask(catalog) == [1, 2]
    await catalog.close()


async def test_names_and_versions_joined_by_a_dash(tmp_path: Path) -> None:
    for name, versions in (("a", (1, 2)), ("a-b", (1,)), ("a-1", (3,))):
        for version in versions:
            write_model(tmp_path, name, version=version)
        (tmp_path / name / "config.pbtxt").write_text(ALL)
    catalog = catalog_of(tmp_path)
    for text, named in {
        "a": ModelRef("a"),
        "a-2": ModelRef("a", "2"),
        "a-b-1": ModelRef("a-b", "1"),
        "a-1": ModelRef("a-1"),  # a model's own name comes first
        "a-1-3": ModelRef("a-1", "3"),
        "a-3": ModelRef("a-3"),
        "a-02": ModelRef("a-02"),  # compared as text
        "a-": ModelRef("a-"),
        "nobody-1": ModelRef("nobody-1"),
    }.items():
        assert [await catalog.joined(text) for _ in range(2)] == [named] * 2, text
    shutil.rmtree(tmp_path / "a" / "2")
    await catalog.load("a")
    assert await catalog.joined("a-2") == ModelRef("a-2"), "that version has gone"
    await catalog.close()


async def test_a_version_of_an_upstream_that_lists_only_the_requested_one() -> None:
    there = UpstreamModel("m", Upstream("there", {}, [], 1.0), "m")

    async def metadata(version: str = "") -> ModelMetadata:
        if version not in ("", "1", "2"):
            raise InferenceError(ErrorCode.NOT_FOUND, version)
        return ModelMetadata("m", Signature((), ()), (version or "2",))

    there.metadata = metadata  # type: ignore[method-assign]
    names = JoinedNames({"m": there})
    for version in ("1", "2"):
        assert await names.resolve(f"m-{version}") == ModelRef("m", version)
    assert await names.resolve("m-3") == ModelRef("m-3")


async def test_a_version_of_an_unreachable_upstream(tmp_path: Path) -> None:
    write_model(tmp_path, "m-1", version=2)
    catalog = catalog_of(tmp_path)
    upstream = Upstream("away", {}, [], 1.0)
    away = UpstreamModel("m", upstream, "m")
    gone = InferenceError(ErrorCode.UNAVAILABLE, "nobody answers")

    async def metadata(version: str = "") -> ModelMetadata:
        raise gone

    away.metadata = metadata  # type: ignore[method-assign]
    names = JoinedNames({"m": away, **catalog.models})
    assert await names.resolve("m-1-2") == ModelRef("m-1", "2")
    with pytest.raises(InferenceError) as caught:
        await names.resolve("m-7")
    assert caught.value is gone
    gone.retryable = False
    assert await names.resolve("m-7") == ModelRef("m-7")
    await catalog.models["m-1"].close()


async def test_statistics_go_on_when_a_model_is_loaded_again(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    for act in (catalog.load, catalog.unload, catalog.load):
        if "m" in catalog.models:
            await ask(catalog)
        await act("m")
    await ask(catalog)
    status = await catalog.status("m")
    assert status.versions[0].statistics.execution_count == 3
    await catalog.close()


async def test_the_new_model_is_there_before_the_old_one_goes(tmp_path: Path) -> None:
    """A load under traffic: every request is answered, by the old or by the new."""
    write_model(tmp_path, "m", "Neg")
    catalog = catalog_of(tmp_path)
    answers: list[list[float]] = []
    stop = False

    async def traffic() -> None:
        while not stop:
            answers.append(await ask(catalog))

    askers = [asyncio.ensure_future(traffic()) for _ in range(4)]
    for operator in ("Identity", "Neg", "Identity"):
        write_model(tmp_path, "m", operator)
        await catalog.load("m")
        await asyncio.sleep(0.02)
    stop = True
    await asyncio.gather(*askers)
    assert await ask(catalog) == [1, 2]
    assert {tuple(answer) for answer in answers} == {(1, 2), (-1, -2)}
    await settled(catalog)
    await catalog.close()


async def test_requests_in_flight_end_before_a_model_is_freed(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    running = [asyncio.ensure_future(ask(catalog)) for _ in range(20)]
    await asyncio.sleep(0)
    await catalog.unload("m")
    assert states(await catalog.status("m")) in (
        [("1", ModelState.UNLOADING, "")],
        [("1", ModelState.UNAVAILABLE, "unloaded")],
    )
    assert await asyncio.gather(*running) == [[1, 2]] * 20
    await settled(catalog)
    assert states(await catalog.status("m")) == [("1", ModelState.UNAVAILABLE, "unloaded")]
    await catalog.close()


async def test_a_model_that_is_not_served_can_be_unloaded_unless_it_must_be_served(tmp_path: Path) -> None:
    """Triton says that all is well, KServe and MLServer that there is no such model."""
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    strict = ModelControl(served=True)
    await catalog.unload("nope")
    for name in ("nope", "m"):
        if name == "m":
            await catalog.unload(name, strict)
            await catalog.unload(name)
        with pytest.raises(InferenceError, match=f"Request for unknown model: '{name}'") as caught:
            await catalog.unload(name, strict)
        assert caught.value.code is ErrorCode.NOT_FOUND
    await catalog.close()


async def test_loads_and_unloads_of_one_model_take_turns(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path, load=[])
    acts = [catalog.load("m") if turn % 3 else catalog.unload("m") for turn in range(12)]
    await asyncio.gather(*acts)
    assert await ask(catalog) == [1, 2]
    await settled(catalog)
    assert states(await catalog.status("m")) == [("1", ModelState.READY, "")]
    await catalog.close()


async def test_a_load_goes_on_without_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path, load=[])
    loading = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow_load(source, before):
        loop.call_soon_threadsafe(loading.set)
        return load_model(source, before)

    monkeypatch.setattr(renewal, "load_model", slow_load)
    call = asyncio.ensure_future(catalog.load("m"))
    await loading.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await settled(catalog)
    assert await ask(catalog) == [1, 2]
    await catalog.close()


async def test_what_is_being_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    await catalog.unload("m")
    seen: list[ModelStatus | None] = []
    blocked: list[Readiness] = []
    loop = asyncio.get_running_loop()

    def watched(source, before):
        seen.append(asyncio.run_coroutine_threadsafe(catalog.status("m"), loop).result(10))
        blocked.append(asyncio.run_coroutine_threadsafe(catalog.readiness(["m"]), loop).result(10))
        return load_model(source, before)

    monkeypatch.setattr(renewal, "load_model", watched)
    await catalog.load("m")
    await catalog.load("m")
    assert [states(each) for each in seen] == [[("1", ModelState.LOADING, "")], [("1", ModelState.READY, "")]]
    assert blocked == [Readiness(False, "model 'm' is being loaded"), Readiness(True)]
    await catalog.close()


# --- what goes wrong


async def test_a_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    write_broken(tmp_path, "m")
    (tmp_path / "empty").mkdir()
    catalog = catalog_of(tmp_path, load=[])
    for name in ("m", "empty"):
        with pytest.raises(
            InferenceError, match=f"failed to load '{name}', no version is available"
        ) as caught:
            await catalog.load(name)
        assert caught.value.code is ErrorCode.MODEL_FAILED
    ((version, state, reason),) = states(await catalog.status("m"))
    assert (version, state) == ("1", ModelState.UNAVAILABLE)
    assert "INVALID_PROTOBUF" in reason
    assert states(await catalog.status("empty")) == []
    assert catalog.requested_models == {"m", "empty"}
    readiness = await catalog.readiness(["m"])
    assert not readiness.ready
    assert "model 'm' could not be loaded: " in readiness.reason
    await catalog.unload("m")
    assert (await catalog.readiness(["m"])).ready
    write_model(tmp_path, "m")
    await catalog.load("m")
    assert await ask(catalog) == [1, 2]
    await catalog.close()


async def test_a_failed_load_leaves_what_is_served(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    write_broken(tmp_path, "m")
    with pytest.raises(InferenceError, match="failed to load 'm', no version is available"):
        await catalog.load("m")
    assert await ask(catalog) == [1, 2]
    assert (await catalog.readiness(["m"])).ready
    await catalog.close()


async def test_a_version_that_cannot_be_loaded(tmp_path: Path) -> None:
    write_model(tmp_path, "m", version=2).joinpath("config.pbtxt").write_text(ALL)
    write_broken(tmp_path, "m", 10)
    write_broken(tmp_path, "m", 9)
    catalog = catalog_of(tmp_path, load=[])
    with pytest.raises(InferenceError, match="failed to load 'm', versions that are not available: 9,10$"):
        await catalog.load("m")
    assert await ask(catalog) == [1, 2]
    assert [(version, state) for version, state, _ in states(await catalog.status("m"))] == [
        ("2", ModelState.READY),
        ("9", ModelState.UNAVAILABLE),
        ("10", ModelState.UNAVAILABLE),
    ]
    readiness = await catalog.readiness(["m"])
    assert not readiness.ready
    assert readiness.reason.startswith("model 'm' version 9 is not ready: ")
    await catalog.close()


@pytest.mark.parametrize(
    "name", ["nobody", "", ".", "..", "../m", "a/b", "/etc", ".hidden", "file", "m\0", "\ud800", "n" * 300]
)
async def test_names_that_no_repository_has(tmp_path: Path, name: str) -> None:
    write_model(tmp_path, "m")
    write_model(tmp_path, ".hidden")
    write_model(tmp_path, "sub/deeper")
    (tmp_path / "file").write_text("no folder")
    catalog = catalog_of(tmp_path / "sub", tmp_path, load=[])
    said = f"failed to load '{name}', failed to poll from model repository"
    with pytest.raises(InferenceError) as caught:
        await catalog.load(name)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INTERNAL, said)
    await catalog.unload(name)
    assert catalog.names() == []
    assert not catalog.requested_models


async def test_models_that_clients_may_not_control(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, names in ((ours, ("a", "both")), (theirs, ("b", "both", "defined"))):
        for name in names:
            write_model(folder, name)
    loaded = load_models([*find_models(ours), *find_models(theirs, ["b", "defined"])])
    catalog = ModelCatalog(
        loaded.models, loaded.failed, [Repository(theirs, True), Repository(ours)], fixed=["defined"]
    )
    for act in (catalog.load, catalog.unload):
        for name in ("a", "both", "defined"):
            with pytest.raises(InferenceError, match="explicit model load / unload is not allowed") as caught:
                await act(name)
            assert caught.value.code is ErrorCode.UNAVAILABLE
            assert not caught.value.retryable
        await act("b")
    assert set(catalog.models) == {"a", "both", "defined"}
    await catalog.close()


async def test_no_control_at_all(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path, controlled=False)
    for act in (catalog.load, catalog.unload):
        for name in ("m", "nobody"):
            with pytest.raises(InferenceError, match="explicit model load / unload is not allowed"):
                await act(name)
    await catalog.close()


async def test_a_model_whose_folder_has_gone_can_be_unloaded(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    shutil.rmtree(tmp_path)
    assert [each.name for each in await catalog.index()] == ["m"]
    await catalog.unload("m")
    assert not catalog.models
    with pytest.raises(InferenceError, match="failed to poll from model repository"):
        await catalog.load("m")
    await catalog.close()


# --- readiness and what is known


async def test_models_that_failed_at_start(tmp_path: Path) -> None:
    write_broken(tmp_path, "bad")
    write_model(tmp_path, "good")
    catalog = catalog_of(tmp_path)
    assert catalog.names() == ["bad", "good"]
    assert [state for _, state, _ in states(await catalog.status("bad"))] == [ModelState.UNAVAILABLE]
    assert not (await catalog.readiness(catalog.names())).ready
    assert (await catalog.readiness(["good", "unknown"])).ready
    assert "INVALID_PROTOBUF" in catalog.absence("bad")
    await catalog.close()


async def test_a_model_that_failed_keeps_its_configuration(tmp_path: Path) -> None:
    write_broken(tmp_path, "m")
    (tmp_path / "m" / "config.pbtxt").write_text(
        'max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: 2 }'
    )
    catalog = catalog_of(tmp_path)
    told = model_config_pb2.ModelConfig.FromString((await catalog.status("m")).config)
    assert (told.name, told.max_batch_size, list(told.input[0].dims)) == ("m", 4, [2])

    shutil.rmtree(tmp_path / "m")
    write_model(tmp_path, "m")
    await catalog.load("m")
    known = (await catalog.status("m")).config
    await catalog.unload("m")
    (tmp_path / "m" / "config.pbtxt").write_text("no configuration")
    with pytest.raises(InferenceError, match="failed to load 'm'"):
        await catalog.load("m")
    assert (await catalog.status("m")).config == known
    await catalog.close()


async def test_empty_is_a_catalog_before_its_models_are_unloaded(tmp_path: Path) -> None:
    assert ModelCatalog().is_empty
    assert ModelCatalog(failed={"m": LoadError("broken")}).is_empty
    write_identity(tmp_path / "m" / "1" / "model.onnx")
    catalog = catalog_of(tmp_path)
    assert not catalog.is_empty
    await catalog.unload("m")
    assert not catalog.models
    assert not catalog.is_empty
    await catalog.close()


class Down(Upstream):
    """An upstream that cannot be reached, or that takes long to answer."""

    def __init__(self, secs: float = 0.0) -> None:
        super().__init__("down", {}, (), 1.0)
        self.secs = secs

    async def call(self, operation, argument=None, signature=None, context=None, **more):
        await asyncio.sleep(self.secs)
        raise InferenceError(ErrorCode.UNAVAILABLE, "nobody is there")


async def test_an_upstream_that_is_down(tmp_path: Path) -> None:
    catalog = ModelCatalog({"far": UpstreamModel("far", Down(), "far")})
    with pytest.raises(InferenceError, match="nobody is there"):
        await catalog.status("far")
    assert await catalog.statuses() == {"far": ModelStatus("far")}
    assert await catalog.index() == (ModelStatus("far"),)
    readiness = await catalog.readiness(["far"])
    assert not readiness.ready
    assert "nobody is there" in readiness.reason
    with pytest.raises(InferenceError, match="not allowed"):
        await catalog.unload("far")
    await catalog.close()


async def test_a_slow_upstream_delays_no_other_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "_STATUS_SECS", 0.02)
    catalog = ModelCatalog({"far": UpstreamModel("far", Down(60.0), "far")})
    assert await asyncio.wait_for(catalog.statuses(), 30) == {"far": ModelStatus("far")}


async def test_an_engine_that_breaks_its_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path, load=[])

    def broken(source, before):
        raise MemoryError("too much")

    monkeypatch.setattr(renewal, "load_model", broken)
    with pytest.raises(InferenceError, match="no version is available: MemoryError: too much"):
        await catalog.load("m")
    assert catalog.absence("m") == "model 'm' could not be loaded: MemoryError: too much"


# --- what a client gives with a load


INT32 = model_config_pb2.ModelConfig(
    backend="identity",
    input=[{"name": "x", "data_type": "TYPE_INT32", "dims": [-1]}],
    output=[{"name": "y", "data_type": "TYPE_INT32", "dims": [-1]}],
).SerializeToString()


def overridable(folder: Path, overrides: str, name: str = "") -> ModelCatalog:
    return ModelCatalog(repositories=[Repository(folder, True, name, overrides)])


async def test_a_given_configuration_counts_until_the_next_load(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = overridable(tmp_path, "config")
    await catalog.load("m", ModelControl(config=INT32))
    signature = await catalog.models["m"].signature()
    assert signature.inputs[0].datatype is Datatype.INT32
    await catalog.load("m")
    assert (await catalog.models["m"].signature()).inputs[0].datatype is Datatype.FP32
    await catalog.close()


@pytest.mark.parametrize(
    ("overrides", "control", "said"),
    [
        ("none", ModelControl(config=INT32), "does not allow clients to give a model's config"),
        ("none", ModelControl(config=INT32, files={"1/model.onnx": b""}), "to give a model's files"),
        ("config", ModelControl(config=INT32, files={"1/model.onnx": b""}), "to give a model's files"),
    ],
)
async def test_what_may_not_be_given(
    tmp_path: Path, overrides: str, control: ModelControl, said: str
) -> None:
    write_model(tmp_path, "m")
    catalog = overridable(tmp_path, overrides)
    with pytest.raises(InferenceError, match=said) as caught:
        await catalog.load("m", control)
    assert caught.value.code is ErrorCode.FORBIDDEN
    assert not catalog.models


async def test_files_live_as_long_as_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sent").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "sent"))
    (tmp_path / "models").mkdir()
    model = write_model(tmp_path, "elsewhere", "Neg") / "1" / "model.onnx"
    catalog = overridable(tmp_path / "models", "files")
    control = ModelControl(config=b"", files={"1/model.onnx": model.read_bytes()})
    await catalog.load("new", control)
    assert await ask(catalog, "new") == [-1, -2]
    (folder,) = (tmp_path / "sent").iterdir()
    assert (folder / "1" / "model.onnx").is_file()
    await catalog.load("new", control)
    await settled(catalog)
    assert await ask(catalog, "new") == [-1, -2]
    (second,) = (tmp_path / "sent").iterdir()
    assert second != folder
    await catalog.unload("new")
    await settled(catalog)
    assert not list((tmp_path / "sent").iterdir())
    with pytest.raises(InferenceError, match="failed to poll from model repository"):
        await catalog.load("new")


@pytest.mark.parametrize("path", ["../model.onnx", "/tmp/model.onnx", "1/../../x", "", "1/\0"])
async def test_files_that_would_be_outside_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "sent").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "sent"))
    catalog = overridable(tmp_path, "files")
    with pytest.raises(InferenceError, match="is not in the model's folder") as caught:
        await catalog.load("new", ModelControl(config=b"", files={path: b"x"}))
    assert caught.value.code is ErrorCode.MODEL_FAILED
    assert not list((tmp_path / "sent").iterdir())


async def test_a_configuration_in_a_request_reads_no_other_files(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    secret = model_config_pb2.ModelConfig.FromString(INT32)
    secret.output[0].label_filename = "../../etc/passwd"
    with pytest.raises(InferenceError, match="is not in the model's folder"):
        await overridable(tmp_path, "config").load("m", ModelControl(config=secret.SerializeToString()))
    with pytest.raises(InferenceError, match="the configuration that was given is none"):
        await overridable(tmp_path, "config").load("m", ModelControl(config=b"\xff"))


async def test_files_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="requires the override of its config"):
        await overridable(write_model(tmp_path, "m").parent, "files").load(
            "m", ModelControl(files={"1/x": b""})
        )


async def test_repositories_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "a", "m", "Identity")
    write_model(tmp_path / "a", "only_a")
    write_model(tmp_path / "b", "m", "Neg")
    catalog = ModelCatalog(
        repositories=[Repository(tmp_path / "a", True, "a"), Repository(tmp_path / "b", True, "b")]
    )
    await catalog.load("m", ModelControl("a"))
    assert await ask(catalog) == [1, 2]
    assert [each.name for each in await catalog.index("a")] == ["m", "only_a"]
    assert [each.name for each in await catalog.index("b")] == []
    await catalog.unload("m", ModelControl("b"))
    assert "m" in catalog.models
    await catalog.load("m", ModelControl("b"))
    await settled(catalog)
    assert await ask(catalog) == [-1, -2]
    assert [each.name for each in await catalog.index("a")] == ["only_a"]
    assert [each.name for each in await catalog.index("b")] == ["m"]
    assert [each.name for each in await catalog.index()] == ["m", "only_a"]
    with pytest.raises(InferenceError, match="failed to load 'only_a', failed to poll"):
        await catalog.load("only_a", ModelControl("b"))
    for asked in (
        catalog.index("c"),
        catalog.load("m", ModelControl("c")),
        catalog.unload("m", ModelControl("c")),
    ):
        with pytest.raises(
            InferenceError, match="'repository_name' specification is not supported"
        ) as caught:
            await asked
        assert caught.value.code is ErrorCode.UNSUPPORTED
    await catalog.close()


async def test_clients_load_no_more_models_than_permitted(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_model(tmp_path, name)
    write_broken(tmp_path, "broken")
    catalog = catalog_of(tmp_path, load=["a"], max_models=2)
    try:
        await catalog.load("a")  # served already: not counted
        with pytest.raises(InferenceError):
            await catalog.load("broken")  # its status is kept
        await catalog.load("b")
        with pytest.raises(InferenceError, match="as many as max_models permits") as refused:
            await catalog.load("c")
        assert refused.value.code is ErrorCode.FORBIDDEN
        assert await catalog.status("c") is None and "c" not in catalog.requested_models
        await catalog.load("b")
        await catalog.unload("broken")
        await catalog.load("c")
        assert sorted(catalog.models) == ["a", "b", "c"]
    finally:
        await catalog.close()


async def test_needed_models_count_as_loaded(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    write_model(tmp_path, "b")
    ensemble = tmp_path / "e"
    (ensemble / "1").mkdir(parents=True)
    step = 'step {{ model_name: "{0}" model_version: -1 input_map {{ key: "x" value: "{1}" }} output_map {{ key: "y" value: "{2}" }} }}'
    (ensemble / "config.pbtxt").write_text(
        'platform: "ensemble" max_batch_size: 0\n'
        'input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }\n'
        'output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }\n'
        f"ensemble_scheduling {{ {step.format('a', 'X', 'T')} {step.format('b', 'T', 'Y')} }}\n"
    )
    catalog = catalog_of(tmp_path, load=[], max_models=2)
    try:
        with pytest.raises(InferenceError, match="it needs model 'b': .*as many as max_models permits"):
            await catalog.load("e")
        assert list(catalog.models) == ["a"]
        await catalog.load("b")  # the ensemble is not loaded, so it does not count
    finally:
        await catalog.close()
