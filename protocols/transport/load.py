"""What a listener carries at a time, and how much it may: connections, requests in flight, bytes of their
bodies.

What exceeds a limit is refused and may be tried again; what was accepted before is not delayed. The words are
those of Envoy (``max_connections``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, cast

from interlingua.protocols.shared_counts import SharedCount, SharedNames
from interlingua.protocols.transport.descriptors import UNLIMITED
from interlingua.protocols.transport.memory import Allocate, unfilled
from interlingua.protocols.transport.sockets import client_host
from interlingua.schemas import ErrorCode, InferenceError

SMALL_BYTES = 1 << 14
"""Bodies up to this size are never refused for their bytes: the number of requests bounds them, and a client
that sends large ones must not keep out the small ones of others."""

_LOG_SECS = 60.0
"""The interval between log lines of one reason."""

DESCRIPTORS = "descriptors"

_log = logging.getLogger(__name__)


class RefusedRequest(NamedTuple):
    """A request that a transport refuses by itself: no handler sees it. ``name`` is its method, empty if that
    is unknown, ``status`` that of the transport, ``size`` that of its message."""

    transport: str
    name: str
    peer: str
    status: int | str
    error: InferenceError
    size: int = 0


def _unrecorded(refused: RefusedRequest) -> None:
    """A listener without an access log."""


class Load:
    """Requests in flight and the bytes of their bodies: of a listener, or of all together. Their owners add
    and subtract. ``allocate`` gets memory for large bodies."""

    __slots__ = ("allocate", "body_bytes", "max_bytes", "max_requests", "requests")

    def __init__(self, max_requests: int | None = None, max_bytes: int | None = None) -> None:
        self.max_requests = UNLIMITED if max_requests is None else max_requests
        self.max_bytes = UNLIMITED if max_bytes is None else max_bytes
        self.requests = self.body_bytes = 0
        self.allocate: Allocate = unfilled


class ListenerLoad(Load):
    """The load of one listener, a part of ``total``. ``protocols`` counts its open connections by protocol,
    ``any`` before that is known. ``refused`` counts what was refused by reason: the name
    of the option, or ``descriptors`` for connections whose file descriptor is ``ceiling`` or above.
    ``record`` takes the requests that the transport refuses by itself.
    ``evicts``: above ``max_connections`` the oldest connection is closed instead of the new one."""

    __slots__ = (
        "_addresses",
        "_ceiling",
        "_hosts",
        "_logged",
        "_shared",
        "connections",
        "evicts",
        "listener",
        "max_connections",
        "max_connections_per_address",
        "protocols",
        "record",
        "refused",
        "total",
    )

    def __init__(
        self,
        listener: str = "",
        total: Load | None = None,
        *,
        max_connections: int | None = None,
        max_connections_per_address: int | None = None,
        max_requests: int | None = None,
        max_bytes: int | None = None,
        ceiling: int = UNLIMITED,
        evicts: bool = False,
    ) -> None:
        super().__init__(max_requests, max_bytes)
        self.listener = listener
        self.total = Load() if total is None else total
        self.max_connections = UNLIMITED if max_connections is None else max_connections
        self.max_connections_per_address = max_connections_per_address
        self.evicts = evicts
        self.connections = 0
        self.allocate = self.total.allocate
        self.protocols: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.record: Callable[[RefusedRequest], None] = _unrecorded
        self._addresses: Counter[str] = Counter()
        self._ceiling = ceiling
        self._hosts: dict[asyncio.BaseTransport, str] = {}
        self._logged: dict[str, float] = {}
        self._shared: SharedLoad | None = None

    def limit_as(self, other: ListenerLoad) -> None:
        """Have the limits of ``other`` from now on. Connections are counted by address only from then on, if
        they were not before."""
        self.max_connections = other.max_connections
        self.max_connections_per_address = other.max_connections_per_address
        self.max_requests, self.max_bytes = other.max_requests, other.max_bytes

    def share(self, shared: SharedLoad) -> None:
        """Hold the limits on connections together with the same listener of other processes."""
        self._shared = shared
        shared.publish(self.connections, "", 0)
        for host, count in self._addresses.items():
            shared.publish(self.connections, host, count)

    def admit(self, transport: asyncio.BaseTransport) -> bool:
        """Count an accepted connection, which :meth:`release` ends, or abort it: clients of every protocol
        try again after a connection that closes at once."""
        reason = self._excess(transport)
        if not reason:
            self.connections += 1
            if self._shared is None or not (reason := self._excess_of_all(self._shared, transport)):
                return True
            self.release(transport)
        self.count_refusal(reason)
        cast("asyncio.Transport", transport).abort()
        return False

    @property
    def most_connections(self) -> int:
        """The limit of an engine that counts connections itself; grpcio takes 32 bits, less the largest."""
        return min(self.max_connections, self._ceiling, 2**31 - 2)

    def release(self, transport: asyncio.BaseTransport) -> None:
        """An admitted connection has ended."""
        self.connections -= 1
        host = self._hosts.pop(transport, "")
        if host:
            self._addresses[host] -= 1
            if not self._addresses[host]:
                del self._addresses[host]
        if self._shared is not None:
            self._shared.publish(self.connections, host, self._addresses.get(host, 0))

    def overloaded(self) -> InferenceError:
        """The refusal of a request above ``max_inflight_requests``, counted; it is in flight itself."""
        limit, whose = self.max_requests, "listener"
        if self.requests <= limit:
            limit, whose = self.total.max_requests, "server"
        reason = "max_inflight_requests"
        self.count_refusal(reason)
        text = f"the {whose} has {limit} requests in flight, as many as its {reason} allows; try again"
        return InferenceError(ErrorCode.OVERLOADED, text)

    def overloaded_bytes(self, whose: str, load: Load) -> InferenceError:
        """The refusal of a body above the ``max_inflight_bytes`` of ``load``, counted."""
        reason = "max_inflight_bytes"
        self.count_refusal(reason)
        held, limit = load.body_bytes, load.max_bytes
        text = f"the {whose} holds {held} bytes of requests in flight, its {reason} is {limit}; try again"
        return InferenceError(ErrorCode.OVERLOADED, text)

    def count_refusal(self, reason: str) -> None:
        """Count a refusal, and log it now and then."""
        self.refused[reason] += 1
        now = monotonic()
        if now - self._logged.get(reason, -_LOG_SECS) >= _LOG_SECS:
            self._logged[reason] = now
            facts = {"listener": self.listener, "reason": reason, "count": self.refused[reason]}
            _log.warning("listener overloaded", extra={"facts": facts})

    def _excess(self, transport: asyncio.BaseTransport) -> str:
        """Why a connection is not accepted, empty if it is."""
        if self.connections >= self.max_connections:
            return "max_connections"
        if self._ceiling < UNLIMITED and transport.get_extra_info("socket").fileno() >= self._ceiling:
            return DESCRIPTORS
        if self.max_connections_per_address is not None and (host := client_host(transport)):
            if self._addresses[host] >= self.max_connections_per_address:
                return "max_connections_per_address"
            self._addresses[host] += 1
            self._hosts[transport] = host
        return ""

    def _excess_of_all(self, shared: SharedLoad, transport: asyncio.BaseTransport) -> str:
        """Why an admitted connection is one too many of all processes, empty if it is not."""
        host = self._hosts.get(transport, "")
        shared.publish(self.connections, host, self._addresses.get(host, 0))
        if shared.connections.total() > self.max_connections:
            return "max_connections"
        most = self.max_connections_per_address
        if host and most is not None and shared.addresses.total(host) > most:
            return "max_connections_per_address"
        return ""


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """The connections of a listener in several processes, those of each client address too."""

    connections: SharedCount
    addresses: SharedNames

    def publish(self, connections: int, host: str, of_host: int) -> None:
        """What this process has: its ``connections``, and those ``of_host``, if that is counted."""
        self.connections.set(connections)
        if host:
            self.addresses.set(host, of_host)


class BodyLoad:
    """The bytes of one request's body that are here. ``size`` of them are counted in ``load``, and ``others``
    bytes of the same request that another counts."""

    __slots__ = ("_load", "_others", "size")

    def __init__(self, load: ListenerLoad, others: int = 0) -> None:
        self._load = load
        self._others = others
        self.size = 0

    def grow(self, size: int) -> InferenceError | None:
        """``size`` bytes are here, more or fewer than before: count them, or refuse them. A body is accepted
        alone however large it is: ``max_request_bytes`` bounds that."""
        load, total, more = self._load, self._load.total, size - self.size
        if more > 0 and size > SMALL_BYTES:
            own = self.size + self._others
            if load.body_bytes > own and load.body_bytes + more > load.max_bytes:
                return load.overloaded_bytes("listener", load)
            if total.body_bytes > own and total.body_bytes + more > total.max_bytes:
                return load.overloaded_bytes("server", total)
        self.size = size
        load.body_bytes += more
        total.body_bytes += more
        return None

    def fits(self, size: int) -> bool:
        """Whether :meth:`grow` to ``size`` bytes, the first of this request, would be accepted."""
        load, total, others = self._load, self._load.total, self._others
        return (load.body_bytes <= others or load.body_bytes + size <= load.max_bytes) and (
            total.body_bytes <= others or total.body_bytes + size <= total.max_bytes
        )

    def release(self) -> None:
        """They are here no longer."""
        self._load.body_bytes -= self.size
        self._load.total.body_bytes -= self.size
        self.size = 0
