"""Listening sockets: bind one, with a clear error, and clean up after it.

A used address is an error everywhere (no SO_REUSEPORT), so that two daemons never share a port by accident.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

from interlingua.protocols.transport.address import Address

BACKLOG = 65535
"""How many connections the kernel queues until they are accepted. It caps this at the system's maximum
(net.core.somaxconn on Linux, listen(2)). An event loop that serves a listening socket calls listen again, so
the value must go there too."""

_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


def listen(address: Address, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A bound, listening socket; ``kind`` is that of a unix socket. Raises ``OSError`` that names the
    address."""
    try:
        if address.path:
            claim(address, kind)
            sock = socket.socket(socket.AF_UNIX, kind)
            try:
                sock.bind(address.path)
                sock.listen(BACKLOG)
            except OSError:
                sock.close()
                raise
            return sock
        if address.host:
            family, place = _resolved(address)
            return socket.create_server(place, family=family, backlog=BACKLOG)
        return _every_interface(address.port)
    except OSError as error:
        raise cannot_listen(address, error) from error


def place_of(address: Address) -> Address:
    """Where :func:`listen` would bind, the same for every spelling of ``address``. Raises ``OSError`` if the
    host is unknown."""
    if address.path:
        return Address(path=os.path.abspath(address.path))
    if address.host:
        return Address(*_resolved(address)[1])
    return address if socket.has_dualstack_ipv6() else Address("0.0.0.0", address.port)


def _resolved(address: Address) -> tuple[socket.AddressFamily, tuple[str, int]]:
    family, _, _, _, place = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return family, (str(place[0]), int(place[1]))


def cannot_listen(address: Address, error: OSError) -> OSError:
    """The same error, its text naming the address once."""
    reason = str(error.strerror or error).partition(" (while attempting to bind")[0]
    return type(error)(error.errno, f"cannot listen at {address}: {reason}")


def bound(sock: socket.socket) -> Address:
    """Where ``sock`` listens, its port filled in."""
    name = sock.getsockname()
    return Address(path=name) if sock.family == socket.AF_UNIX else Address(name[0], name[1])


def claim(address: Address, kind: int = socket.SOCK_STREAM) -> None:
    """Prepare the path of a unix socket: create its folder, and remove the file of a dead server.

    Raises ``OSError`` if a server listens there, or if the file is not a socket.
    """
    path = Path(address.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "a file that is no socket is there")
    with socket.socket(socket.AF_UNIX, kind) as probe:
        try:
            probe.connect(address.path)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def accepted(sock: socket.socket, most: int, wait: Callable[[], object]) -> Iterator[socket.socket]:
    """The connections that wait at the listening socket ``sock``, ``most`` of them. Calls ``wait`` if no file
    descriptor is free: the others wait in the kernel."""
    for _ in range(most):
        try:
            connection, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
            _log.error("connection not accepted", extra={"facts": {"reason": error.strerror}})
            wait()
            return
        yield connection


def send_at_once(transport: asyncio.BaseTransport) -> None:
    """Set TCP_NODELAY. asyncio sets it only on sockets that know their protocol number, which sockets
    accepted from ours do not."""
    sock = transport.get_extra_info("socket")
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def half_closes(transport: asyncio.BaseTransport) -> bool:
    """Whether one direction can end before the other: not with TLS, whose transports in asyncio do not even
    answer ``can_write_eof``."""
    return transport.get_extra_info("sslcontext") is None


def has_gone(transport: asyncio.BaseTransport | None) -> bool:
    """Whether a half-closed client has stopped reading too. A TCP socket reports it only after a write:
    False there. With TLS it has."""
    return transport is None or not half_closes(transport) or hung_up(transport)


def hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the connection of ``transport`` has ended both ways, as by a reset. A transport whose reading
    is paused does not report it."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def has_input(transport: asyncio.BaseTransport) -> bool:
    """Whether bytes, or their end, wait in the socket of ``transport``."""
    if transport.is_closing():
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


_CLIENTS: WeakKeyDictionary[object, tuple[str, int]] = WeakKeyDictionary()
"""The clients that proxies have reported for their connections."""


def _connection(transport: asyncio.BaseTransport) -> object:
    """What there is one of for each connection. uvloop's transports of TLS have no weak references."""
    return transport.get_extra_info("ssl_object") or transport


def set_client(transport: asyncio.BaseTransport, client: tuple[str, int]) -> None:
    """Note that the connection is that of a proxy, and its client at the host and port ``client``."""
    _CLIENTS[_connection(transport)] = client


def reported_client(transport: asyncio.BaseTransport) -> tuple[str, int] | None:
    """The client that the proxy has reported whose connection it is; None without a proxy."""
    return _CLIENTS.get(_connection(transport))


def client_name(transport: asyncio.BaseTransport) -> object:
    """The name of the client's socket: a tuple of host and port, or something else on a unix socket."""
    return _CLIENTS.get(_connection(transport)) or transport.get_extra_info("peername")


def client_host(transport: asyncio.BaseTransport) -> str:
    """The numeric address of the client, empty on a unix socket."""
    peer = client_name(transport)
    return str(peer[0]) if isinstance(peer, tuple) else ""


class SocketFile:
    """The file of a unix socket that we bound; removed at the end unless another server has replaced it."""

    def __init__(self, address: Address) -> None:
        self._path = Path(address.path) if address.path else None
        self._identity = self._stat()

    def remove(self) -> None:
        """Unlink the file if it is still ours."""
        if self._path is not None and self._identity is not None and self._stat() == self._identity:
            self._path.unlink(missing_ok=True)

    def _stat(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


def _every_interface(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG
            )
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # IPv6 is compiled in and switched off
                raise
    return socket.create_server(("0.0.0.0", port), backlog=BACKLOG)
