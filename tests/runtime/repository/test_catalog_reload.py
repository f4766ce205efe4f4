"""Models that are loaded again: what stays, what is replaced, and what a failure leaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import weakref
from collections import Counter
from pathlib import Path

import pytest

from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository, find_models
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, ModelControl, ModelState
from tests.runtime.python_models import ECHO, python_model, request
from tests.runtime.repository.test_catalog import (
    ALL,
    X,
    ask,
    catalog_of,
    settled,
    states,
    write_broken,
    write_model,
)


def versions(catalog: ModelCatalog, name: str = "m") -> dict[str, object]:
    model = catalog.models[name]
    assert isinstance(model, LocalModel)
    return dict(model.loaded)


async def test_what_has_not_changed_is_not_loaded_again(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    served = catalog.models["m"]
    await catalog.load("m")
    assert catalog.models["m"] is served
    assert await ask(catalog) == [1, 2]
    (tmp_path / "m" / "1" / ".hidden").write_text("")
    (tmp_path / "m" / "1" / "__pycache__").mkdir()
    await catalog.load("m")
    assert catalog.models["m"] is served
    os.utime(tmp_path / "m" / "1" / "model.onnx", ns=(1, 1))
    await catalog.load("m")
    assert catalog.models["m"] is not served
    await catalog.close()


async def test_only_versions_that_have_changed_are_loaded_again(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_model(tmp_path, "m", version=number).joinpath("config.pbtxt").write_text(ALL)
    catalog = catalog_of(tmp_path)
    old = versions(catalog)
    write_model(tmp_path, "m", "Neg", version=2)
    write_model(tmp_path, "m", "Abs", version=4)
    (tmp_path / "m" / "1" / "model.onnx").unlink()
    (tmp_path / "m" / "1").rmdir()
    await catalog.load("m")
    new = versions(catalog)
    assert list(new) == ["2", "3", "4"]
    assert new["3"] is old["3"]
    assert new["2"] is not old["2"]
    await settled(catalog)
    assert await ask(catalog) == [1, 2]
    assert states(await catalog.status("m")) == [
        ("1", ModelState.UNAVAILABLE, "unloaded"),
        *((number, ModelState.READY, "") for number in "234"),
    ]
    with pytest.raises(InferenceError, match="'m' version 1 is not at ready state"):
        await catalog.models["m"].infer(InferRequest("m", (X,), version="1"))

    (tmp_path / "m" / "config.pbtxt").write_text(f"{ALL} max_batch_size: 0")
    await catalog.load("m")
    assert versions(catalog)["3"] is not new["3"], "the configuration is of all versions"
    await catalog.close()


async def test_versions_that_no_longer_count_go(tmp_path: Path) -> None:
    """The policy is to serve the latest two."""
    policy = "version_policy { latest { num_versions: 2 } }"
    for number in (1, 2):
        write_model(tmp_path, "m", version=number).joinpath("config.pbtxt").write_text(policy)
    catalog = catalog_of(tmp_path)
    old = versions(catalog)
    write_model(tmp_path, "m", "Neg", version=3)
    await catalog.load("m")
    assert list(versions(catalog)) == ["2", "3"]
    assert versions(catalog)["2"] is old["2"]
    assert await ask(catalog) == [-1, -2]
    await settled(catalog)
    assert old["1"].threads._shutdown, "what is not served any more is freed"
    assert not old["2"].threads._shutdown
    await catalog.close()
    assert old["2"].threads._shutdown


async def test_a_failed_load_is_reported_with_what_is_served(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    write_broken(tmp_path, "m")
    with pytest.raises(InferenceError, match="no version is available"):
        await catalog.load("m")
    ((number, state, reason),) = states(await catalog.status("m"))
    assert (number, state) == ("1", ModelState.READY)
    assert reason.startswith("not loaded again: ")
    assert "INVALID_PROTOBUF" in reason
    assert reason in [each.reason for each in (await catalog.index())[0].versions]
    (tmp_path / "m" / "config.pbtxt").write_text("no configuration")
    with pytest.raises(InferenceError, match="no version is available"):
        await catalog.load("m")
    ((_, _, reason),) = states(await catalog.status("m"))
    assert "config.pbtxt" in reason
    (tmp_path / "m" / "config.pbtxt").unlink()
    write_model(tmp_path, "m")
    await catalog.load("m")
    assert states(await catalog.status("m")) == [("1", ModelState.READY, "")]
    await catalog.close()


async def test_a_load_that_would_take_versions_away_is_none(tmp_path: Path) -> None:
    """A new version that is broken does not push out the one that works."""
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    served = catalog.models["m"]
    write_broken(tmp_path, "m", 2)
    with pytest.raises(InferenceError, match="no version is available"):
        await catalog.load("m")
    assert catalog.models["m"] is served
    told = states(await catalog.status("m"))
    assert [(number, state) for number, state, _ in told] == [
        ("1", ModelState.READY),
        ("2", ModelState.UNAVAILABLE),
    ]
    assert told[0][2] == ""
    assert "INVALID_PROTOBUF" in told[1][2]
    (tmp_path / "m" / "config.pbtxt").write_text(ALL)
    write_broken(tmp_path, "m", 1)
    write_model(tmp_path, "m", "Neg", 3)
    with pytest.raises(InferenceError, match="failed to load 'm', versions that are not available: 1,2$"):
        await catalog.load("m")
    assert catalog.models["m"] is served
    assert await ask(catalog) == [1, 2]
    assert [number for number, _, _ in states(await catalog.status("m"))] == ["1", "2"]
    await settled(catalog)
    write_model(tmp_path, "m", version=1)
    with pytest.raises(InferenceError, match="versions that are not available: 2$"):
        await catalog.load("m")
    assert list(versions(catalog)) == ["1", "3"], "nothing is lost, something is won"
    assert await ask(catalog) == [-1, -2]
    assert not (await catalog.readiness(["m"])).ready
    await catalog.close()


async def test_holders_of_the_old_model_are_answered_by_the_new(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    old = catalog.models["m"]
    for operator in ("Neg", "Abs"):
        write_model(tmp_path, "m", operator)
        await catalog.load("m")
    await settled(catalog)
    asked = InferRequest("m", (X,))
    assert (await old.infer(asked)).outputs[0].numpy().tolist() == [1, 2]
    assert (await old.ready()).ready
    assert await old.signature() == await catalog.models["m"].signature()
    await catalog.unload("m")
    with pytest.raises(InferenceError, match="has no available versions") as caught:
        await old.metadata()
    assert caught.value.code is ErrorCode.NOT_FOUND
    await settled(catalog)


async def test_models_that_were_replaced_are_forgotten(tmp_path: Path) -> None:
    """Even while somebody keeps the first of them."""
    write_model(tmp_path, "m")
    catalog = catalog_of(tmp_path)
    first = catalog.models["m"]
    write_model(tmp_path, "m", "Neg")
    await catalog.load("m")
    second = weakref.ref(catalog.models["m"])
    write_model(tmp_path, "m", "Abs")
    await catalog.load("m")
    await settled(catalog)
    gc.collect()
    assert second() is None
    assert (await first.ready()).ready
    await catalog.close()


async def test_a_python_model_whose_process_has_ended_is_loaded_again(tmp_path: Path) -> None:
    body = "def execute(self, requests):\n    if given(requests[0])[0] == 13: os._exit(1)\n" + ECHO.replace(
        "def execute(self, requests):", ""
    )
    source = python_model(tmp_path, body)
    catalog = ModelCatalog(repositories=[Repository(tmp_path, True)])
    await catalog.load("m")
    served = catalog.models["m"]
    await catalog.load("m")
    assert catalog.models["m"] is served
    with pytest.raises(InferenceError):
        await served.infer(request(13))
    assert not (await served.ready()).ready
    await catalog.load("m")
    assert catalog.models["m"] is not served
    assert (await catalog.models["m"].infer(request(1))).outputs
    await catalog.close()
    assert source.path is not None


# --- what a model needs


def write_chain(repository: Path, name: str, *steps: str) -> None:
    """An ensemble that sends ``x`` through ``steps`` one after the other."""
    (repository / name / "1").mkdir(parents=True)
    tensors = ["x", *(f"t{index}" for index in range(len(steps) - 1)), "y"]
    written = ", ".join(
        f'{{ model_name: "{step}" input_map {{ key: "x" value: "{tensors[index]}" }} '
        f'output_map {{ key: "y" value: "{tensors[index + 1]}" }} }}'
        for index, step in enumerate(steps)
    )
    (repository / name / "config.pbtxt").write_text(
        'platform: "ensemble" input { name: "x" data_type: TYPE_FP32 dims: -1 } '
        'output { name: "y" data_type: TYPE_FP32 dims: -1 } '
        f"ensemble_scheduling {{ step [ {written} ] }}"
    )


async def test_an_ensemble_is_loaded_with_what_it_needs(tmp_path: Path) -> None:
    write_model(tmp_path, "neg", "Neg")
    write_model(tmp_path, "abs", "Abs")
    write_model(tmp_path, "other", "Abs")
    write_chain(tmp_path, "inner", "neg", "abs")
    write_chain(tmp_path, "outer", "inner", "neg")
    catalog = catalog_of(tmp_path, load=["abs", "other"])
    await catalog.load("outer")
    assert sorted(catalog.models) == ["abs", "inner", "neg", "other", "outer"]
    assert await ask(catalog, "outer") == [-1, -2]
    assert catalog.requested_models == {"outer"}

    await catalog.unload("outer")
    assert sorted(catalog.models) == ["abs", "inner", "neg", "other"]
    await catalog.load("outer")
    await catalog.load("inner")
    await catalog.unload("outer", ModelControl(dependents=True))
    assert sorted(catalog.models) == ["abs", "inner", "neg", "other"], "inner was asked for and needs neg"
    await catalog.unload("inner", ModelControl(dependents=True))
    assert sorted(catalog.models) == ["abs", "other"], "abs was loaded before"
    await settled(catalog)
    await catalog.close()


async def test_a_list_of_models_brings_what_they_need(tmp_path: Path) -> None:
    for name in ("neg", "other"):
        write_model(tmp_path, name, "Neg")
    write_chain(tmp_path, "inner", "neg", "elsewhere")
    write_chain(tmp_path, "outer", "inner", "neg")
    assert [each.name for each in find_models(tmp_path, ["outer"])] == ["outer", "inner", "neg"]
    assert [each.name for each in find_models(tmp_path, ["other", "absent"])] == ["other", "absent"]


async def test_an_ensemble_whose_model_cannot_be_loaded(tmp_path: Path) -> None:
    write_broken(tmp_path, "bad")
    write_chain(tmp_path, "chain", "bad")
    catalog = catalog_of(tmp_path, load=[])
    said = "failed to load 'chain', it needs model 'bad': failed to load 'bad', no version is available"
    with pytest.raises(InferenceError, match=said) as caught:
        await catalog.load("chain")
    assert caught.value.code is ErrorCode.MODEL_FAILED
    assert not catalog.models
    await catalog.close()


async def test_ensembles_that_need_each_other_are_loaded(tmp_path: Path) -> None:
    write_chain(tmp_path, "a", "b")
    write_chain(tmp_path, "b", "a")
    catalog = catalog_of(tmp_path, load=[])
    async with asyncio.timeout(20):
        await asyncio.gather(catalog.load("a"), catalog.load("b"))
    assert sorted(catalog.models) == ["a", "b"]
    with pytest.raises(InferenceError, match="is a step of itself"):
        await ask(catalog, "a")
    await catalog.close()


def shared_files() -> Counter[str]:
    """The memory that this process shares with others and has open, by name."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        # the one that listed them has gone
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return Counter(link for link in links if link.startswith("/memfd:interlingua"))


async def test_a_python_model_leaves_no_files_open(tmp_path: Path) -> None:
    """Not even until the garbage collector comes by."""
    source = python_model(tmp_path, ECHO)
    assert source.path is not None
    catalog = ModelCatalog(repositories=[Repository(tmp_path, True)])
    opened = []
    # what other tests have left may go meanwhile
    gc.collect()
    gc.disable()
    try:
        for turn in range(3):
            os.utime(source.path / "1" / "model.py", ns=(turn, turn))
            await catalog.load("m")
            await catalog.models["m"].infer(request(*range(50_000)))
            await settled(catalog)
            opened.append(shared_files())
    finally:
        gc.enable()
    assert opened[2] <= opened[0], opened
    await catalog.close()
