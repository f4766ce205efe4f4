"""What the kit must know of each dialect: a module by the dialect's name, with ``WIRES`` by transport."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from interlingua.protocols.dialect import Binding
from interlingua.protocols.registry import bindings
from interlingua.translator.conformance.wire import Wire

REGISTERED: dict[str, Mapping[str, Wire]] = {}
"""The wires by transport of dialects that have no module here, by dialect."""


def wire_of(binding: Binding) -> Wire | None:
    """The wire of ``binding``; None where the kit has none."""
    return _wires_of(binding.dialect).get(binding.transport)


def wires() -> dict[str, Wire]:
    """Every wire that the kit can judge, by the name of its binding."""
    found = {name: wire_of(binding) for name, binding in bindings().items()}
    return {name: wire for name, wire in found.items() if wire is not None}


def _wires_of(dialect: str) -> Mapping[str, Wire]:
    if dialect in REGISTERED:
        return REGISTERED[dialect]
    module = f"{__name__}.{dialect}"
    try:
        found: Mapping[str, Wire] = import_module(module).WIRES
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return {}
    return found
