"""Limits that hold over all processes of a server: connections of a listener, requests to an upstream,
requests of a client.

The supervisor makes the memory and the doorbells, and clears what a process has left that exits.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from interlingua.protocols.shared_counts import SharedCounts, page_bytes
from interlingua.protocols.transport.load import ListenerLoad, SharedLoad
from interlingua.runtime.python_worker.channel import MAX_DESCRIPTORS
from interlingua.runtime.ring import memory
from interlingua.runtime.upstream.pool.shared_gate import COLUMNS, Doorbells, SharedGate
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.translator.access.clients import Clients, SharedClients
from interlingua.translator.config.options import Config

_CLIENT_TABLES = 2
"""Tables of names of clients with identities."""


def _shape(config: Config) -> tuple[int, int]:
    """How many counts and tables of names each process has."""
    tables = len(config.listeners) + (_CLIENT_TABLES if _limits_clients(config) else 0)
    return len(config.listeners) + COLUMNS * len(config.upstreams), tables


def _limits_clients(config: Config) -> bool:
    return config.auth is not None and bool(config.auth.limits)


class CountsOwner:
    """Shared counts of ``rows`` processes, with a doorbell for each. Raises ``OSError``."""

    def __init__(self, name: str, rows: int, counts: int, tables: int) -> None:
        self._page = memory.create(name, page_bytes(rows, counts, tables))
        self._bells = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(rows)]
        self._counts = SharedCounts(mmap.mmap(self._page, 0), 0, rows, counts, tables)

    def descriptors(self) -> Iterator[list[int]]:
        """Copies for a process, as many as one message carries: of the memory, then of each doorbell."""
        descriptors = self._page, *self._bells
        for first in range(0, len(descriptors), MAX_DESCRIPTORS):
            yield [os.dup(each) for each in descriptors[first : first + MAX_DESCRIPTORS]]

    def exited(self, row: int) -> None:
        """The process of ``row`` has exited: release its share."""
        self._counts.clear(row)
        for bell in self._bells:
            os.eventfd_write(bell, 1)

    def close(self) -> None:
        for each in (self._page, *self._bells):
            os.close(each)


class LimitsOwner(CountsOwner):
    """Those of the limits of ``config``."""

    def __init__(self, config: Config, rows: int) -> None:
        super().__init__("limits", rows, *_shape(config))


class SharedLimits:
    """The limits of ``config`` in the process of ``row``, with the ``descriptors`` of their owner. Use on one
    event loop."""

    def __init__(self, config: Config, descriptors: Sequence[int], row: int) -> None:
        page, *bells = descriptors
        self._config = config
        self._counts = SharedCounts(mmap.mmap(page, 0), row, len(bells), *_shape(config))
        os.close(page)
        self._bells = Doorbells(bells, row)
        asyncio.get_running_loop().add_reader(self._bells.own, self._bells.answer)

    def share_gates(self, upstreams: Mapping[str, Upstream]) -> None:
        """Have ``upstreams`` hold their limits together with other processes."""
        for number, name in enumerate(self._config.upstreams):
            gate = upstreams[name].gate
            if gate is not None:
                first = len(self._config.listeners) + COLUMNS * number
                running, nbytes, since = map(self._counts.count, range(first, first + COLUMNS))
                gate.share(SharedGate(running, nbytes, since, self._bells))

    def share_loads(self, loads: Iterable[ListenerLoad]) -> None:
        """The same for the listeners, in the order of the configuration."""
        for number, load in enumerate(loads):
            load.share(SharedLoad(self._counts.count(number), self._counts.names(number)))

    def share_clients(self, clients: Clients) -> None:
        """The same for clients that are known by name."""
        if _limits_clients(self._config):
            first = len(self._config.listeners)
            tables = range(first, first + _CLIENT_TABLES)
            clients.share(SharedClients(*map(self._counts.names, tables)))

    def close(self) -> None:
        """Others have taken their place, also where requests were in flight."""
        asyncio.get_running_loop().remove_reader(self._bells.own)
        self._bells.close()
