"""The two parties of a path: the caller of a listener, and the target that answers.

A party is a binding or a backend. Each declares its own capability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from interlingua.protocols.dialect import Binding, Capability
from interlingua.protocols.registry import bindings
from interlingua.runtime.backends import BACKENDS
from interlingua.schemas import ErrorCode


@dataclass(frozen=True)
class LocalBackend:
    """A backend, by its name on the command line. It has no dialect and no transport."""

    name: str
    capability: Capability
    dialect: ClassVar[str] = ""
    transport: ClassVar[str] = ""


Party = Binding | LocalBackend


def refusal(party: Party) -> ErrorCode:
    """The code of a value that ``party`` cannot carry; for a backend it is an invalid tensor."""
    return ErrorCode.UNREPRESENTABLE if party.dialect else ErrorCode.INVALID_TENSOR


def reported(party: Party, code: ErrorCode) -> ErrorCode:
    """The code that a client of ``party`` reads if the server reports ``code``."""
    return party.capability.reported_as.get(code, code)


def callers() -> dict[str, Party]:
    """Every binding that a listener can have, by name."""
    return {name: binding for name, binding in bindings().items() if binding.endpoints}


def targets() -> dict[str, Party]:
    """Backends that load models of any tensors, and every binding that an upstream can have, by name."""
    local = {name: LocalBackend(name, BACKENDS[name].capability) for name in _ENGINES}
    return {**local, **{name: binding for name, binding in bindings().items() if binding.calls}}


_ENGINES = tuple(
    name
    for name, backend in BACKENDS.items()
    if backend.filenames and not backend.tables and backend.module.endswith(f".{name}")
)
"""The backends that load a file, each under one name. Echo and ensemble models have no fidelity of their
own; models of tables convert numbers to those that they compute with."""
