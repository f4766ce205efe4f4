"""The options of the admin address."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from interlingua.protocols.section import Section, Text
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.admin.connections import MAX_CONNECTIONS
from interlingua.translator.config.callers import PermittedCaller, ProxyAddress
from interlingua.translator.config.references import ListenAddress
from interlingua.translator.config.tls import ListenerTlsOptions


class AdminOptions(Section):
    """The address for operators. It shows the names of models and servers and the mistakes of
    clients, so it should not be on the Internet."""

    listen: ListenAddress
    """The address, as for a listener."""
    allow: dict[OperationClass, tuple[PermittedCaller, ...]] = Field(default={})
    """The callers, as for a listener: `health` for the probes, `control` for a reload, `logging` for the
    level of the log, `inference` for the form of the dashboard (the default is `[local]`), `statistics` for
    all other pages."""
    max_connections: Annotated[int, Field(ge=1)] = MAX_CONNECTIONS
    """The maximum number of connections. A further one closes the oldest that has no request, so that probes
    are answered whatever other clients do."""
    trusted_proxies: tuple[ProxyAddress, ...] = ()
    """Proxies in front of the address, as for a listener."""
    tls: ListenerTlsOptions | None = None
    """TLS, as for a listener."""
    hosts: tuple[Text, ...] = ()
    """Further names that the `Host` of a request may have, against DNS rebinding; `"*"` is any. Addresses,
    names without a dot, loopback names and the name of this machine are always permitted, and probes answer
    under any name."""
