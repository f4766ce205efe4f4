"""What clients have changed, on its way to another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from interlingua.schemas import (
    ListedModel,
    ModelControl,
    Operation,
    ServerMetadata,
    SharedMemoryRegion,
    VersionPolicy,
)
from interlingua.translator.serving.changes import StateChange
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.router import Router
from interlingua.translator.takeover.state import carry_out, document, later, models_of, offline_in, read
from tests.runtime.repository.test_catalog import catalog_of, write_model


def region(name: str, size: int = 8) -> StateChange:
    found = SharedMemoryRegion(name, f"/{name}", 4, size)
    return StateChange(Operation.SHARED_MEMORY_REGISTER, "", found, "")


def model(operation: Operation, name: str) -> StateChange:
    return StateChange(operation, name, ModelControl(), "")


LOADED, UNLOADED = model(Operation.MODEL_LOAD, "m"), model(Operation.MODEL_UNLOAD, "m")


def test_changes_are_the_same_at_the_other_end() -> None:
    changes = [region("a"), *offline_in(("grps",)), LOADED, model(Operation.MODEL_UNLOAD, "n")]
    chosen = ModelControl(versions=VersionPolicy(specific=(1, 3)))
    changes.append(StateChange(Operation.MODEL_LOAD, "chosen", chosen, ""))
    assert read(orjson.loads(orjson.dumps(document(changes)))) == changes


async def test_the_versions_that_a_client_has_chosen_are_those_of_the_successor(tmp_path: Path) -> None:
    for version in (1, 2):
        write_model(tmp_path, "m", version=version)
    here, there = (catalog_of(tmp_path) for _ in range(2))
    await here.serve_only([ListedModel("m", str(tmp_path / "m"), VersionPolicy(specific=(1,)))])
    changes = read(orjson.loads(orjson.dumps(document(models_of(here)))))
    await carry_out(changes, Service(Router(there), ServerMetadata("s", "1")))
    assert list(there.models["m"].loaded) == ["1"]
    await asyncio.gather(here.close(), there.close())


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ([region("a"), LOADED], [region("a"), LOADED], []),
        ([], [region("a")], [("shared_memory_register", "a")]),
        ([region("a")], [], [("shared_memory_unregister", "a")]),
        (
            [region("a")],
            [region("a", 16)],
            [("shared_memory_unregister", "a"), ("shared_memory_register", "a")],
        ),
        (offline_in(()), offline_in(("grps",)), [("set_online", ""), ("set_offline", "grps")]),
        (offline_in(("grps",)), offline_in(()), [("set_online", "")]),
        (offline_in(("grps",)), offline_in(("grps",)), []),
        ([LOADED], [UNLOADED], [("model_unload", "m")]),
    ],
)
def test_what_has_changed_since(
    before: list[StateChange], now: list[StateChange], found: list[tuple[str, str]]
) -> None:
    def name(change: StateChange) -> str:
        argument = change.argument
        named = argument.name if isinstance(argument, SharedMemoryRegion) else argument
        return named if isinstance(named, str) else change.model or change.dialect.strip("*")

    assert [(each.operation.value, name(each)) for each in later(before, now)] == found
