"""The changes that a process needs that starts later: as few as possible, with the same effect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlingua.schemas import Operation, SharedMemoryRegion
from interlingua.translator.serving.changes import ChangeLog, StateChange, change_of
from interlingua.translator.serving.operations import OperationRequest, Service
from interlingua.translator.serving.router import Router


def region(name: str) -> SharedMemoryRegion:
    return SharedMemoryRegion(name, f"/{name}", 0, 8)


def change(
    operation: Operation, argument: object = None, model: str = "", dialect: str = "grps"
) -> StateChange:
    return StateChange(operation, model, argument, dialect)


_changes = st.one_of(
    st.sampled_from([Operation.SET_ONLINE, Operation.SET_OFFLINE]).map(change),
    st.sampled_from("ab").map(lambda name: change(Operation.SET_OFFLINE, dialect=name)),
    st.sampled_from("abc").map(lambda name: change(Operation.SHARED_MEMORY_REGISTER, region(name))),
    st.sampled_from(["a", "b", None]).map(lambda name: change(Operation.SHARED_MEMORY_UNREGISTER, name)),
    st.tuples(
        st.sampled_from(["", "m"]), st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3), min_size=1)
    ).map(lambda each: change(Operation.TRACE_SETTINGS, each[1], each[0])),
)


class State:
    """What the changes do, in short."""

    def __init__(self, changes: list[StateChange]) -> None:
        self.offline: set[str] = {"start"}
        self.regions: set[str] = set()
        self.settings: dict[str, dict[str, int]] = {}
        for each in changes:
            match each.operation:
                case Operation.SET_ONLINE:
                    self.offline.clear()
                case Operation.SET_OFFLINE:
                    self.offline.add(each.dialect)
                case Operation.SHARED_MEMORY_REGISTER:
                    self.regions.add(each.argument.name)
                case Operation.SHARED_MEMORY_UNREGISTER:
                    self.regions -= self.regions if each.argument is None else {each.argument}
                case _:
                    self.settings.setdefault(each.model, {}).update(each.argument)


@given(st.lists(_changes, max_size=30))
def test_a_log_has_the_effect_of_all_changes(changes: list[StateChange]) -> None:
    log = ChangeLog()
    for each in changes:
        log.add(each)
    assert vars(State(log.changes)) == vars(State(changes))
    # one per region, dialect and kind of settings
    assert len(log.changes) <= 3 + 4 + 2


@pytest.mark.parametrize(
    ("operation", "argument", "changes"),
    [
        (Operation.SET_ONLINE, None, True),
        (Operation.LOG_SETTINGS, {"log_info": False}, True),
        (Operation.LOG_SETTINGS, None, False),
        (Operation.TRACE_SETTINGS, {}, False),
        (Operation.SHARED_MEMORY_STATUS, None, False),
        (Operation.MODEL_LOAD, None, False),
    ],
)
def test_reading_changes_nothing(operation: Operation, argument: object, changes: bool) -> None:
    request = OperationRequest(Service(Router({}), None), "m", argument=argument)  # type: ignore[arg-type]
    assert (change_of(operation, request) is not None) == changes
