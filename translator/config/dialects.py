"""The dialects as a listener speaks them, under the options of the file."""

from __future__ import annotations

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.registry import DIALECTS
from interlingua.translator.config.options import Config, ListenerOptions


def spoken(config: Config, listener: ListenerOptions) -> tuple[Binding, ...]:
    """The bindings of ``listener``, in the order of its dialects."""
    return tuple(_configured(config, listener, DIALECTS[name]) for name in listener.dialects)


def _configured(config: Config, listener: ListenerOptions, dialect: Dialect) -> Binding:
    if dialect.configure is not None:
        dialect = dialect.configure(getattr(config, dialect.name, None), listener)
    return dialect.bindings[listener.transport].flavored(listener.flavors.get(dialect.name, ""))
