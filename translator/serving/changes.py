"""Changes that clients make to the state of the server, for servers of several processes: a change of one
process is repeated in all others before its caller gets the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from interlingua.schemas import Operation
from interlingua.translator.serving.operations import OPERATIONS, OperationRequest, Service

_SETTINGS = frozenset({Operation.TRACE_SETTINGS, Operation.LOG_SETTINGS})

_CHANGING = _SETTINGS | {
    Operation.SET_ONLINE,
    Operation.SET_OFFLINE,
    Operation.SHARED_MEMORY_REGISTER,
    Operation.SHARED_MEMORY_UNREGISTER,
}
"""The operations whose effect is in the process. Loads and unloads are in the runtime process."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """The arguments of an operation; see ``OperationRequest``."""

    operation: Operation
    model: str
    argument: Any
    dialect: str


Share = Callable[[StateChange], Awaitable[None]]
"""Repeats a change in all other processes. Returns when they have carried it out."""


def change_of(operation: Operation, request: OperationRequest) -> StateChange | None:
    """The change that ``request`` makes; None if it only reads."""
    if operation not in _CHANGING or (operation in _SETTINGS and not request.argument):
        return None
    return StateChange(operation, request.model, request.argument, request.dialect)


async def repeat(change: StateChange, service: Service) -> None:
    """Carry out a change of another process. Raises ``InferenceError``."""
    request = OperationRequest(
        service,
        change.model,
        name=change.model,
        target=service.router.models.get(change.model),
        argument=change.argument,
        dialect=change.dialect,
    )
    await OPERATIONS[change.operation].perform(request)


class ChangeLog:
    """The changes that make the state of a process that starts now, in order; as few as possible."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str, object], StateChange] = {}

    @property
    def changes(self) -> list[StateChange]:
        """The oldest first."""
        return list(self._changes.values())

    def add(self, change: StateChange) -> None:
        """Add a change, and forget those that it replaces."""
        operation, argument = change.operation, change.argument
        if operation in _SETTINGS:
            key = operation.value, change.model
            before = self._changes.get(key)
            if before is not None:
                argument = {**before.argument, **argument}
            self._changes[key] = StateChange(operation, change.model, argument, change.dialect)
        elif operation is Operation.SHARED_MEMORY_REGISTER:
            self._changes["region", argument.name] = change
        elif operation is Operation.SHARED_MEMORY_UNREGISTER:
            self._forget("region", argument)
        elif operation is Operation.SET_OFFLINE:
            self._changes["offline", change.dialect] = change
        else:
            # also ends what the configuration says
            self._forget("offline", None)
            self._changes["online", ""] = change

    def _forget(self, kind: str, name: object) -> None:
        """Forget the changes of ``kind`` with ``name``, all for None."""
        for key in list(self._changes):
            if key[0] == kind and name in (None, key[1]):
                del self._changes[key]
