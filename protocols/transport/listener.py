"""The core of every listener: a socket that accepts, the set of connections, and the way they end.

Stopping has three phases. Drain: nothing more is accepted, running requests are answered, and idle
connections close. Cut: what still runs after the grace period ends. Abort: sockets that are still open close.

A server whose successor accepts from the same socket retires first: nothing more is accepted, and clients
move to new connections, without losing a request that is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.proxied import ProxiedConnection, Trusts
from interlingua.protocols.transport.sockets import BACKLOG, has_input
from interlingua.protocols.transport.tls import TlsContext
from interlingua.protocols.transport.tls_server import TlsServer

HALF_CLOSED_SECS = 5.0
"""How long a request goes on after its client has closed its side of a TCP connection. The client may still
read, but most are gone, and TCP distinguishes the two only after a write. A streamed answer ends at the
first write that fails; a unix socket reports it at once."""

LINGER_SECS = 2.0
"""How long input is read and thrown away after an early answer. Closing at once would reset the connection,
and most clients would lose the answer (RFC 9112, 9.6)."""

CUT_SECS = 1.0
"""How long a request that was cut may take to end."""

_READING_TURNS = 2
"""In how many turns of the event loop the bytes that have arrived are read."""

_LATE_TURNS = 2
"""In how many more turns the bytes are read that have arrived in those."""

_log = logging.getLogger(__name__)


class Accepted(Protocol):
    """A connection in a ``ConnectionSet``."""

    def drain(self) -> None:
        """Close once the running requests are answered."""

    @property
    def unsent(self) -> bool:
        """Whether no request runs, but part of an answer has not been read by the client."""

    def cut(self) -> None:
        """End the running requests, and close."""

    def abort(self) -> None:
        """Close the socket now."""


C = TypeVar("C", bound=Accepted)


class ConnectionSet(Generic[C]):
    """The open connections of a listener that speak ``protocol``, and the requests in flight. Connections add
    and remove both, and call :meth:`changed` after removing a request."""

    def __init__(self, load: ListenerLoad | None = None, protocol: str = "") -> None:
        self.load = ListenerLoad() if load is None else load
        self._protocol = protocol
        self.open: dict[C, asyncio.BaseTransport] = {}
        """The connections with their transports, the oldest first."""
        self.in_flight: set[object] = set()
        """One member for each request in flight; a request may outlive its connection."""
        self.stopping = self.retiring = False
        self._empty = asyncio.Event()

    def add(self, connection: C, transport: asyncio.BaseTransport) -> None:
        """Add an accepted connection, or abort it or another if the listener has too many."""
        if self.load.evicts:
            self._make_room()
        if self.load.admit(transport):
            self.load.protocols[self._protocol] += 1
            self.open[connection] = transport

    def remove(self, connection: C, transport: asyncio.BaseTransport) -> None:
        """A connection has ended, or belongs to another set."""
        if self.open.pop(connection, None) is not None:
            self.load.protocols[self._protocol] -= 1
            self.load.release(transport)
        self.changed()

    def _make_room(self) -> None:
        """If no more connections are permitted, abort the oldest one without a request in flight."""
        if self.load.connections < self.load.max_connections:
            return
        idle = (each for each in self.open if each not in self.in_flight)
        victim = next(idle, None) or next(iter(self.open))
        self.load.count_refusal("max_connections")
        self.remove(victim, self.open[victim])
        victim.abort()

    def changed(self) -> None:
        """Note that a connection or a request has ended."""
        if self.stopping and not self.open and not self.in_flight:
            self._empty.set()

    def retire(self) -> None:
        """Have clients open new connections, to a successor. Idle connections stay open until :meth:`drain`:
        where a protocol cannot announce their end, a request may be on its way."""
        self.stopping = self.retiring = True

    async def drain(self, grace_secs: float) -> int:
        """Drain for ``grace_secs``, cut, abort. Returns the number of requests cut; an answer that its client
        has not read counts as one."""
        self.stopping, self.retiring = True, False
        for _ in range(_READING_TURNS):
            await asyncio.sleep(0)
        unread = self._drain_read()
        if unread:  # it came while others were read, which takes long under load
            for _ in range(_LATE_TURNS):
                await asyncio.sleep(0)
            for connection in unread:
                if connection in self.open:
                    connection.drain()
        await self._wait(grace_secs)
        cut = len(self.in_flight) + sum(connection.unsent for connection in self.open)
        for connection in tuple(self.open):
            connection.cut()
        await self._wait(CUT_SECS)
        for connection in tuple(self.open):
            connection.abort()
        await asyncio.sleep(0)  # aborted connections are notified in the next turn
        return cut

    def _drain_read(self) -> list[C]:
        """Drain the connections whose input is read, and return the others: to close those would cut their
        requests."""
        unread = []
        for connection, transport in tuple(self.open.items()):
            if has_input(transport):
                unread.append(connection)
            else:
                connection.drain()
        return unread

    async def _wait(self, secs: float) -> None:
        """Wait until everything has ended, ``secs`` at most."""
        self._empty.clear()
        self.changed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(secs):
                await self._empty.wait()


class Listener:
    """A listening socket. Start it once, stop it once. Connections of proxies that ``trusts`` trusts begin
    with a header of the PROXY protocol; without ``trusts`` none does. With ``tls`` all of them go on with
    TLS. ``socket`` listens already."""

    def __init__(
        self,
        address: Address,
        trusts: Trusts | None = None,
        tls: TlsContext | None = None,
        socket: ListeningSocket | None = None,
    ) -> None:
        self.address = address
        self.trusts = trusts
        self.tls = tls
        self._tls_server: TlsServer | None = None
        self._waiting: set[ProxiedConnection] = set()
        self._server: asyncio.Server | None = None
        self.socket = socket

    async def start(self, accept: Callable[[], asyncio.BaseProtocol]) -> Address:
        """Listen; ``accept`` makes the protocol of a connection. Returns the bound address, port filled in.
        Raises ``OSError``."""
        if self.socket is None:
            self.socket = ListeningSocket.open(self.address)
        self.address, sock = self.socket.address, self.socket.sock
        if self.tls is not None:
            self._tls_server = TlsServer(self.tls, accept, self.trusts)
            self._tls_server.listen(sock)
            return self.address
        accept = self._protocol(accept)
        loop = asyncio.get_running_loop()
        create = loop.create_unix_server if self.address.path else loop.create_server
        self._server = await create(accept, sock=sock, backlog=BACKLOG)
        return self.address

    def _protocol(self, accept: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.BaseProtocol]:
        """What makes the protocol of a connection, the header of a proxy included."""
        if self.trusts is None:
            return accept
        return partial(ProxiedConnection, self.address, accept, self.trusts, self._waiting)

    @property
    def sockets(self) -> Sequence[object]:
        """The listening sockets."""
        return () if self._server is None else self._server.sockets

    def retire(self) -> None:
        """Accept nothing more; connections whose TLS handshake or header of a proxy is not complete go on."""
        if self._server is not None:
            self._server.close()
        if self._tls_server is not None:
            self._tls_server.retire()

    async def stop(self, *draining: Awaitable[int]) -> int:
        """Accept nothing more, and await ``draining``, each of which returns how many requests it cut.
        Returns their sum."""
        self.retire()
        if self._tls_server is not None:
            self._tls_server.stop()
        for connection in tuple(self._waiting):
            connection.abort()
        cut = sum(await asyncio.gather(*draining))
        if cut and self._server is not None:
            _log.warning(
                "requests cut on listener", extra={"facts": {"address": str(self.address), "count": cut}}
            )
        if self.socket is not None:
            self.socket.remove_file()
        return cut


def listener_at(place: Address | Listener) -> Listener:
    """A plain listener at an address, or the one that a caller has made."""
    return place if isinstance(place, Listener) else Listener(place)
