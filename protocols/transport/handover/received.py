"""The other end: takes over connections that another process has accepted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.handover.acceptor import NUMBER
from interlingua.protocols.transport.handover.beats import BEAT_SECS, Beats
from interlingua.protocols.transport.listener import Listener
from interlingua.protocols.transport.tls_server import TlsServer

_TURN_CONNECTIONS = 32


class RemoteListener(Listener):
    """A listener whose socket is in another process, bound to ``address``."""

    async def start(self, accept: Callable[[], asyncio.BaseProtocol]) -> Address:
        """Take connections from now on; ``accept`` makes the protocol of each."""
        self._accept = self._protocol(accept)
        if self.tls is not None:
            self._tls_server = TlsServer(self.tls, accept, self.trusts)
        return self.address

    async def take(self, connection: socket.socket) -> None:
        """Serve an accepted connection. Raises ``OSError`` and closes it if it has ended meanwhile."""
        if self._tls_server is not None:
            await self._tls_server.serve(connection)
            return
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._accept, connection)
        except OSError:
            connection.close()
            raise


class Takeover:
    """Takes connections from ``sock`` for ``listeners``, by number, which have started. ``connections``
    returns how many are open. Calls ``lost`` when the other process has exited. Use on one event loop."""

    def __init__(
        self,
        sock: socket.socket,
        listeners: Sequence[RemoteListener] | Mapping[int, RemoteListener],
        beats: Beats,
        connections: Callable[[], int],
        lost: Callable[[], object],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._listeners = listeners
        self._beats = beats
        self._connections = connections
        self._lost = lost
        self._received = 0
        self._taking: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._take)
        self._beat()

    def stop(self) -> None:
        """Take nothing more."""
        if self._sock.fileno() == -1:
            return
        self._timer.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def _beat(self) -> None:
        # a connection that opens now counts twice: as one that is taken, and as open
        self._beats.beat(max(0, self._received - len(self._taking) - self._connections()))
        self._timer = self._loop.call_later(BEAT_SECS, self._beat)

    def _take(self) -> None:
        for _ in range(_TURN_CONNECTIONS):
            try:
                data, descriptors, _, _ = socket.recv_fds(self._sock, NUMBER.size, 1)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self.stop()
                self._lost()
                return
            self._received += 1
            for descriptor in descriptors:
                listener = self._listeners[NUMBER.unpack(data)[0]]
                task = self._loop.create_task(listener.take(socket.socket(fileno=descriptor)))
                self._taking.add(task)
                task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._taking.discard(task)
        if not task.cancelled():
            # retrieved: a connection that has ended is no error
            task.exception()
