"""The two ends of a path: whoever calls a listener, and whatever answers.

An end is a dialect over a transport, or a backend. What it carries is declared where it is written; here it
only gets a name.
"""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.protocols.dialect import Binding, Capability
from interlingua.protocols.registry import bindings
from interlingua.runtime.backends import BACKENDS
from interlingua.schemas import ErrorCode


@dataclass(frozen=True)
class End:
    """``name`` is as on the command line: `oip/http`, `python`. A backend has no dialect and no transport."""

    name: str
    capability: Capability
    dialect: str = ""
    transport: str = ""

    @property
    def refusal(self) -> ErrorCode:
        """The code of a value that this end has no form for; to a backend it is a tensor that it cannot
        take."""
        return ErrorCode.UNREPRESENTABLE if self.dialect else ErrorCode.INVALID_TENSOR

    def told(self, code: ErrorCode) -> ErrorCode:
        """What a client of this end makes of ``code``; for a backend it stays what it is."""
        return self.capability.told.get(code, code)


def callers() -> dict[str, End]:
    """Every dialect over every transport that a listener offers it on, by name."""
    return {name: _end(binding) for name, binding in bindings().items() if binding.endpoints}


def targets() -> dict[str, End]:
    """Every backend that loads models, and every dialect over every transport that an upstream is asked by,
    by name."""
    found = {name: End(name, BACKENDS[name].capability) for name in _ENGINES}
    found.update({name: _end(binding) for name, binding in bindings().items() if binding.calls})
    return found


def _end(binding: Binding) -> End:
    return End(binding.name, binding.capability, binding.dialect, binding.transport)


_ENGINES = tuple(
    name for name, backend in BACKENDS.items() if backend.filename and backend.module.endswith(f".{name}")
)
"""The backends that load a file, each under one name: what only echoes, or is made of other models, has no
fidelity of its own."""
