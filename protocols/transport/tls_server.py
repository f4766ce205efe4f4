"""Connections that begin with TLS: the handshake, and before it the header of a proxy.

Until the handshake is done a connection is a bare socket, so that what precedes TLS is read without reading
any of it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from interlingua.protocols.transport.certificates import alternative_names, certificate_of, subject_of
from interlingua.protocols.transport.proxied import Trusts, client_of
from interlingua.protocols.transport.proxy_protocol import (
    MAX_HEADER_BYTES,
    ProxyHeaderError,
    read_proxy_header,
)
from interlingua.protocols.transport.sockets import accepted, client_host, set_client
from interlingua.protocols.transport.tls import ServerTls, TlsContext, reason

HANDSHAKE_SECS = 15.0
"""How long a handshake may take, the header of a proxy included: Envoy's default."""

MAX_HANDSHAKES = 1024
"""How many connections may be at it. Further ones wait in the kernel."""

_TURN_CONNECTIONS = 16
"""How many are accepted in one turn of the event loop: each costs a millisecond or so."""

_AGAIN_SECS = 0.01
"""When to look again: for the rest of a proxy's header, or for a free descriptor."""

_log = logging.getLogger(__name__)


class TlsServer:
    """Serves accepted sockets over TLS with the protocols that ``accept`` makes; ``trusts`` as in
    ``Listener``. Use on one event loop."""

    def __init__(
        self, tls: TlsContext, accept: Callable[[], asyncio.BaseProtocol], trusts: Trusts | None
    ) -> None:
        self._tls = tls
        self._accept = accept
        self._trusts = trusts
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sock: socket.socket | None = None
        self._again: asyncio.TimerHandle | None = None

    def listen(self, sock: socket.socket) -> None:
        """Accept from ``sock`` from now on, and close it in the end."""
        sock.setblocking(False)
        self._sock = sock
        self._loop.add_reader(sock, self._take)

    def retire(self) -> None:
        """Accept nothing more; handshakes go on."""
        if self._again is not None:
            self._again.cancel()
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._sock.close()
            self._sock = None

    def stop(self) -> None:
        """Accept nothing more; handshakes end."""
        self.retire()
        for task in self._tasks:
            task.cancel()

    async def serve(self, sock: socket.socket) -> None:
        """Serve a connection once its handshake is done, which takes ``HANDSHAKE_SECS`` at most. A connection
        without one closes."""
        sock.setblocking(False)
        try:
            async with asyncio.timeout(HANDSHAKE_SECS):
                client = await self._client(sock)
                accepted = _Accepted(self._accept, client, self._tls)
                await self._loop.connect_accepted_socket(
                    lambda: accepted, sock, ssl=self._tls.current(), ssl_handshake_timeout=HANDSHAKE_SECS
                )
        except (OSError, TimeoutError, ProxyHeaderError) as error:
            # a client that does not know the authority, a port scan, a client without TLS
            facts = {"peer": _peer(sock), "reason": reason(error) or type(error).__name__}
            _log.debug("TLS handshake failed", extra={"facts": facts})
            sock.close()
        except BaseException:
            sock.close()
            raise

    async def _client(self, sock: socket.socket) -> tuple[str, int] | None:
        """The client that a proxy has reported for its connection. Raises ``ProxyHeaderError``, and
        ``ConnectionError`` for one that ends."""
        peer = _peer(sock)
        if self._trusts is None or not self._trusts(peer):
            return None
        while True:
            with suppress(BlockingIOError):
                data = sock.recv(MAX_HEADER_BYTES, socket.MSG_PEEK)
                if not data:
                    raise ConnectionAbortedError("ended before its PROXY header")
                header = read_proxy_header(data)
                if header is not None:
                    sock.recv(header.size)
                    return None if header.own else client_of(header, peer)
            await asyncio.sleep(_AGAIN_SECS)

    def _take(self) -> None:
        assert self._sock is not None, "it listens"  # noqa: S101
        free = MAX_HANDSHAKES - len(self._tasks)
        if free <= 0:
            self._wait()
            return
        for connection in accepted(self._sock, min(free, _TURN_CONNECTIONS), self._wait):
            task = self._loop.create_task(self.serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _wait(self) -> None:
        """Accept nothing for a moment."""
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._again = self._loop.call_later(_AGAIN_SECS, self.listen, self._sock)


class _Accepted(asyncio.Protocol):
    """A connection whose handshake is done: it gets its protocol with what is known of its client, unless the
    names in the certificate are not those of a client that the listener accepts."""

    def __init__(
        self, accept: Callable[[], asyncio.BaseProtocol], client: tuple[str, int] | None, tls: TlsContext
    ) -> None:
        self._accept = accept
        self._client = client
        self._tls = tls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over, or close it."""
        if self._client is not None:
            set_client(transport, self._client)
        if not accepts(self._tls, transport):
            cast("asyncio.Transport", transport).abort()
            return
        connection = self._accept()
        cast("asyncio.Transport", transport).set_protocol(connection)
        connection.connection_made(transport)


def accepts(tls: TlsContext, transport: asyncio.BaseTransport) -> bool:
    """Whether the certificate of a client is that of one that the listener accepts."""
    certificate, options = certificate_of(transport), tls.options
    if not isinstance(options, ServerTls) or options.accepts(certificate):
        return True
    facts = {
        "peer": client_host(transport),
        "subject": subject_of(certificate),
        "names": ", ".join(alternative_names(certificate)),
    }
    _log.warning("client certificate refused", extra={"facts": facts})
    return False


def _peer(sock: socket.socket) -> str:
    """The address of the other end; empty on a unix socket, or if it is closed."""
    try:
        name = sock.getpeername()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""
