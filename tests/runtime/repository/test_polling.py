"""Models that follow their files."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interlingua.runtime.repository import polling
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import Repository, find_models, load_models
from interlingua.runtime.repository.polling import Poller
from interlingua.schemas import ErrorCode, InferenceError, ModelState
from tests.runtime.repository.test_catalog import ALL, ask, settled, states, write_broken, write_model
from tests.waiting import until


def polled(*folders: Path, load: Any = "*", others: tuple[Repository, ...] = ()) -> ModelCatalog:
    """A catalog whose repositories are watched, beside ``others``."""
    sources = {source.name: source for folder in folders for source in find_models(folder, load)}
    loaded = load_models(list(sources.values()))
    watched = "*" if load == "*" else frozenset(load)
    repositories = [Repository(folder, watched=watched) for folder in folders]
    return ModelCatalog(loaded.models, loaded.failed, [*repositories, *others])


def started(catalog: ModelCatalog) -> Poller:
    """A poller that looks when it is told to."""
    poller = Poller(catalog, 3600.0)
    poller.start()
    return poller


async def seen(poller: Poller) -> None:
    """Look until nothing has changed."""
    for _ in range(10):
        if not await poller.poll():
            return
    raise AssertionError("it never settles")


async def close(catalog: ModelCatalog, poller: Poller) -> None:
    await poller.stop()
    await catalog.close()


async def test_models_and_versions_come_change_and_go(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = polled(tmp_path)
    poller = started(catalog)
    served = catalog.models["m"]
    await seen(poller)
    assert catalog.models["m"] is served, "nothing has changed"

    write_model(tmp_path, "new", "Neg")
    write_model(tmp_path, "m", "Neg", version=2)
    await seen(poller)
    assert await ask(catalog, "new") == [-1, -2]
    assert await ask(catalog) == [-1, -2]
    await settled(catalog)
    gone = (ModelState.UNAVAILABLE, "unloaded")
    ready = (ModelState.READY, "")
    assert states(await catalog.status("m")) == [("1", *gone), ("2", *ready)]

    shutil.rmtree(tmp_path / "m" / "2")
    shutil.rmtree(tmp_path / "new")
    await seen(poller)
    await settled(catalog)
    assert await ask(catalog) == [1, 2]
    assert catalog.names() == ["m"], "what has gone is not listed"
    assert [each.name for each in await catalog.index()] == ["m"]
    assert states(await catalog.status("new")) == [("1", *gone)]
    assert list(await catalog.statuses()) == ["new", "m"]
    with pytest.raises(InferenceError, match="unknown model: 'new' has no available versions"):
        await ask(catalog, "new")
    assert states(await catalog.status("m")) == [("1", *ready), ("2", *gone)]

    (tmp_path / "m" / "config.pbtxt").write_text(ALL)
    write_model(tmp_path, "m", "Abs", version=3)
    await seen(poller)
    assert states(await catalog.status("m")) == [("1", *ready), ("2", *gone), ("3", *ready)]
    await close(catalog, poller)


async def test_what_is_being_written_is_left_alone(tmp_path: Path) -> None:
    whole = write_model(tmp_path / "elsewhere", "m", "Neg") / "1" / "model.onnx"
    repository = tmp_path / "models"
    write_model(repository, "m")
    catalog = polled(repository)
    poller = started(catalog)
    served, content = catalog.models["m"], whole.read_bytes()
    file = repository / "m" / "1" / "model.onnx"
    for end in range(0, len(content), 20):
        file.write_bytes(content[:end])
        assert await poller.poll()
        assert catalog.models["m"] is served
    file.write_bytes(content)
    await seen(poller)
    assert await ask(catalog) == [-1, -2]
    assert states(await catalog.status("m")) == [("1", ModelState.READY, "")]
    await close(catalog, poller)


async def test_a_folder_that_is_swapped_is_not_unloaded_meanwhile(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = polled(tmp_path)
    poller = started(catalog)
    (tmp_path / "m").rename(tmp_path / ".old")
    assert await poller.poll()
    write_model(tmp_path, "m", "Neg")
    assert await poller.poll()
    assert await ask(catalog) == [1, 2]
    await poller.poll()
    assert await ask(catalog) == [-1, -2]
    await close(catalog, poller)


async def test_a_failure_is_logged_once_and_tried_again_when_files_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path, "good")
    write_broken(tmp_path, "bad")
    catalog = polled(tmp_path)
    poller = started(catalog)
    for _ in range(5):
        await seen(poller)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING], "it was told at start"
    write_broken(tmp_path, "good")
    for _ in range(5):
        await seen(poller)
    (told,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert (told.msg, told.facts["model"]) == ("model failed to load", "good")  # type: ignore[attr-defined]
    assert await ask(catalog, "good") == [1, 2], "the old one goes on"
    assert states(await catalog.status("good"))[0][2].startswith("not loaded again: ")
    assert not (await catalog.readiness(["bad"])).ready

    for name in ("good", "bad"):
        write_model(tmp_path, name, "Neg")
    await seen(poller)
    for name in ("good", "bad"):
        assert await ask(catalog, name) == [-1, -2]
    assert (await catalog.readiness(catalog.requested_models)).ready
    await close(catalog, poller)


async def test_a_new_model_that_cannot_be_loaded_keeps_the_server_from_being_ready(tmp_path: Path) -> None:
    catalog = polled(tmp_path)
    poller = started(catalog)
    write_broken(tmp_path, "bad")
    await seen(poller)
    assert not (await catalog.readiness(catalog.requested_models)).ready
    shutil.rmtree(tmp_path / "bad")
    await seen(poller)
    assert (await catalog.readiness(catalog.requested_models)).ready
    assert catalog.names() == []
    await close(catalog, poller)


async def test_a_repository_that_cannot_be_read_keeps_its_models(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path / "a", "m")
    write_model(tmp_path / "b", "n")
    catalog = polled(tmp_path / "a", tmp_path / "b")
    poller = started(catalog)
    (tmp_path / "a").rename(tmp_path / "gone")
    write_model(tmp_path / "b", "n", "Neg")
    for _ in range(4):
        await poller.poll()
    assert await ask(catalog) == [1, 2]
    assert await ask(catalog, "n") == [-1, -2], "the other is looked at all the same"
    (told,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert told.msg == "repository unreadable"
    (tmp_path / "gone").rename(tmp_path / "a")
    served = catalog.models["m"]
    await seen(poller)
    assert catalog.models["m"] is served
    await close(catalog, poller)


async def test_only_the_models_that_are_named_are_watched(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = polled(tmp_path, load=["m"])
    poller = started(catalog)
    write_model(tmp_path, "other")
    write_model(tmp_path, "m", "Neg")
    await seen(poller)
    assert list(catalog.models) == ["m"]
    assert await ask(catalog) == [-1, -2]
    await close(catalog, poller)


async def test_of_two_repositories_the_later_counts(tmp_path: Path) -> None:
    write_model(tmp_path / "a", "m")
    (tmp_path / "b").mkdir()
    catalog = polled(tmp_path / "a", tmp_path / "b")
    poller = started(catalog)
    write_model(tmp_path / "b", "m", "Neg")
    await seen(poller)
    assert await ask(catalog) == [-1, -2]
    shutil.rmtree(tmp_path / "b" / "m")
    await seen(poller)
    assert await ask(catalog) == [1, 2]
    await close(catalog, poller)


async def test_models_of_other_repositories_are_let_be(tmp_path: Path) -> None:
    write_model(tmp_path / "theirs", "m", "Neg")
    (tmp_path / "watched").mkdir()
    catalog = polled(tmp_path / "watched", others=(Repository(tmp_path / "theirs", True),))
    poller = started(catalog)
    await catalog.load("m")
    for name in ("m", "mine"):
        write_model(tmp_path / "watched", name)
    await seen(poller)
    assert await ask(catalog) == [-1, -2]
    assert await ask(catalog, "mine") == [1, 2]
    await catalog.unload("m")
    await seen(poller)
    assert list(catalog.models) == ["mine"]
    await close(catalog, poller)


async def test_clients_have_no_say(tmp_path: Path) -> None:
    write_model(tmp_path, "m")
    catalog = polled(tmp_path)
    acts: tuple[Callable[[str], Awaitable[None]], ...] = (catalog.load, catalog.unload)
    for act in acts:
        with pytest.raises(
            InferenceError, match="^explicit model load / unload is not allowed if polling is enabled"
        ) as caught:
            await act("m")
        assert caught.value.code is ErrorCode.UNAVAILABLE
    await catalog.close()


async def test_it_looks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "SETTLE_SECS", 0.01)
    write_model(tmp_path, "m")
    catalog = polled(tmp_path)
    poller = Poller(catalog, 0.02)
    assert poller.is_needed
    assert not Poller(ModelCatalog(), 1.0).is_needed
    poller.start()
    write_model(tmp_path, "m", "Neg")
    async with asyncio.timeout(20):
        while await ask(catalog) != [-1, -2]:
            await asyncio.sleep(0.01)
    await close(catalog, poller)


async def test_whatever_goes_wrong_it_looks_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path, "m")
    catalog = polled(tmp_path)
    poller = Poller(catalog, 0.01)
    follow, failing = catalog.follow, True

    async def fails_at_first(name: str, repository: Repository | None) -> None:
        nonlocal failing
        if failing:
            failing = False
            raise MemoryError("no room")
        await follow(name, repository)

    monkeypatch.setattr(catalog, "follow", fails_at_first)
    poller.start()
    async with asyncio.timeout(20):
        write_model(tmp_path, "m", "Neg")
        await until(lambda: not failing)
        write_model(tmp_path, "new")
        await until(lambda: "new" in catalog.models)
    assert "repository poll failed" in caplog.text
    await close(catalog, poller)
