"""What clients have changed, on its way to another process."""

from __future__ import annotations

import orjson
import pytest

from interlingua.schemas import ModelControl, Operation, SharedMemoryRegion
from interlingua.translator.serving.changes import StateChange
from interlingua.translator.takeover.state import document, later, offline_in, read


def region(name: str, size: int = 8) -> StateChange:
    found = SharedMemoryRegion(name, f"/{name}", 4, size)
    return StateChange(Operation.SHARED_MEMORY_REGISTER, "", found, "")


def model(operation: Operation, name: str) -> StateChange:
    return StateChange(operation, name, ModelControl(), "")


LOADED, UNLOADED = model(Operation.MODEL_LOAD, "m"), model(Operation.MODEL_UNLOAD, "m")


def test_changes_are_the_same_at_the_other_end() -> None:
    changes = [region("a"), *offline_in(("grps",)), LOADED, model(Operation.MODEL_UNLOAD, "n")]
    assert read(orjson.loads(orjson.dumps(document(changes)))) == changes


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
