"""A list of all models that clients want to be served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository, find_models, load_models
from interlingua.schemas import ErrorCode, InferenceError, ListedModel, VersionPolicy
from tests.runtime.repository.test_catalog import ask, catalog_of, write_broken, write_model
from tests.runtime.repository.test_catalog_reload import write_chain


def listed(folder: Path, *names: str, versions: VersionPolicy | None = None) -> list[ListedModel]:
    return [ListedModel(name, str(folder / name), versions) for name in names]


async def test_what_is_listed_is_served_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_model(tmp_path, name)
    catalog = catalog_of(tmp_path, load=["a", "b"])
    kept = catalog.models["b"]
    await catalog.serve_only(listed(tmp_path, "c", "b"))
    assert set(catalog.models) == {"b", "c"}
    assert catalog.models["b"] is kept, "a model that has not changed is not loaded again"
    assert catalog.absence("a") == "it is unloaded"
    assert await ask(catalog, "c") == [1, 2]
    await catalog.serve_only([])
    assert not catalog.models
    await catalog.close()


async def test_versions_are_chosen_and_those_that_stay_are_not_loaded_again(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        write_model(tmp_path, "m", version=version)
    catalog = catalog_of(tmp_path)
    assert list(catalog.models["m"].loaded) == ["3"]
    third = catalog.models["m"].loaded["3"]
    for policy, expected in (
        (VersionPolicy(specific=(1, 3)), ["1", "3"]),
        (VersionPolicy(latest=2), ["2", "3"]),
        (VersionPolicy(latest=0), ["1", "2", "3"]),
        (None, ["3"]),
    ):
        await catalog.serve_only(listed(tmp_path, "m", versions=policy))
        assert list(catalog.models["m"].loaded) == expected
        assert catalog.models["m"].loaded["3"] is third
    await catalog.close()


async def test_a_model_that_cannot_be_loaded_changes_nothing(tmp_path: Path) -> None:
    for name in ("a", "new"):
        write_model(tmp_path, name)
    write_broken(tmp_path, "broken")
    catalog = catalog_of(tmp_path, load=["a"])
    with pytest.raises(InferenceError, match="Some models did not become available: {broken}") as caught:
        await catalog.serve_only(listed(tmp_path, "new", "broken"))
    assert caught.value.code is ErrorCode.MODEL_FAILED
    assert set(catalog.models) == {"a"}
    assert (await catalog.readiness(["new", "broken", "a"])).ready, "what failed does not block the server"
    await catalog.close()


async def test_a_model_that_had_failed_is_unloaded_if_it_is_not_listed(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    write_broken(tmp_path, "broken")
    catalog = catalog_of(tmp_path)
    assert not (await catalog.readiness(catalog.names())).ready
    await catalog.serve_only(listed(tmp_path, "a"))
    assert (await catalog.readiness(catalog.names())).ready
    await catalog.close()


async def test_models_that_clients_cannot_control_stay(tmp_path: Path) -> None:
    fixed, free = tmp_path / "fixed", tmp_path / "free"
    write_model(fixed, "a")
    write_model(free, "b")
    loaded = load_models([*find_models(fixed), *find_models(free)])
    catalog = ModelCatalog(loaded.models, {}, [Repository(fixed), Repository(free, controlled=True)])
    await catalog.serve_only([])
    assert set(catalog.models) == {"a"}
    await catalog.serve_only([ListedModel("a", "/anywhere"), *listed(free, "b")])
    assert set(catalog.models) == {"a", "b"}
    await catalog.close()


async def test_what_a_listed_ensemble_needs_stays(tmp_path: Path) -> None:
    for name in ("first", "second", "other"):
        write_model(tmp_path, name)
    write_chain(tmp_path, "ensemble", "first", "second")
    catalog = catalog_of(tmp_path, load=["other"])
    await catalog.serve_only(listed(tmp_path, "ensemble"))
    assert set(catalog.models) == {"ensemble", "first", "second"}
    await catalog.close()


@pytest.mark.parametrize("path", ["/none", "/", "/" + "x" * 5000, "s3://bucket/a", "/a\0b"])
async def test_another_path_is_refused(tmp_path: Path, path: str) -> None:
    write_model(tmp_path, "a")
    catalog = catalog_of(tmp_path)
    with pytest.raises(InferenceError, match="Could not find base path .* for servable a") as caught:
        await catalog.serve_only([ListedModel("a", path)])
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert set(catalog.models) == {"a"}
    await catalog.close()


async def test_without_a_repository_that_clients_may_control(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    catalog = catalog_of(tmp_path, controlled=False)
    with pytest.raises(InferenceError, match="explicit model load / unload is not allowed") as caught:
        await catalog.serve_only(listed(tmp_path, "a"))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    await catalog.close()


async def test_lists_take_turns(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_model(tmp_path, name)
    catalog = catalog_of(tmp_path)
    for _ in range(5):
        await asyncio.gather(
            catalog.serve_only(listed(tmp_path, "a")), catalog.serve_only(listed(tmp_path, "b"))
        )
        assert set(catalog.models) == {"b"}
    await catalog.close()
