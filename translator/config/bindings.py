"""Bindings by the names that a person writes."""

from __future__ import annotations

from interlingua.protocols.dialect import Binding
from interlingua.protocols.registry import DIALECTS
from interlingua.translator.config.wording import unknown


def binding_of(dialect: str, transport: str) -> Binding:
    """The binding of ``dialect`` over ``transport``. Raises ``ValueError`` where there is none."""
    if dialect not in DIALECTS:
        raise ValueError(unknown("dialect", dialect, DIALECTS))
    bindings = DIALECTS[dialect].bindings
    if transport not in bindings:
        raise ValueError(unknown(f"transport of {dialect}", transport, bindings))
    return bindings[transport]


def binding_named(name: str) -> Binding:
    """The binding that is written as `dialect/transport`. Raises as :func:`binding_of`."""
    dialect, _, transport = name.partition("/")
    return binding_of(dialect, transport)
