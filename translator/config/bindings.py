"""Bindings by their names, and bindings under the options of the file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.registry import DIALECTS
from interlingua.translator.config.options import Config, ListenerOptions
from interlingua.translator.config.values import carried
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


def bindings_of(config: Config, listener: ListenerOptions) -> tuple[Binding, ...]:
    return tuple(
        chain.from_iterable(_configured(config, listener, DIALECTS[name]) for name in listener.dialects)
    )


def _configured(config: Config, listener: ListenerOptions, dialect: Dialect) -> Iterator[Binding]:
    if dialect.configure is not None:
        dialect = dialect.configure(getattr(config, dialect.name, None), listener)
    for transport in carried(listener.transport):
        binding = dialect.bindings.get(transport)
        if binding is not None and binding.endpoints:
            yield binding.flavored(listener.flavors.get(dialect.name, ""))
