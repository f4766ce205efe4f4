"""Opens connections to an upstream. Errors leave its address to the caller."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Any, TypeVar

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.descriptors import require_for_upstream
from interlingua.protocols.transport.resolve import is_name
from interlingua.protocols.transport.tls import ClientTls, TlsContext, reason

Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)
Endpoint = tuple[int, int, int, Any]
"""Family, type and protocol of a socket, and the socket address."""

ATTEMPT_DELAY_SECS = 0.25
"""The Connection Attempt Delay that RFC 8305, 8 recommends."""

_QUEUE_SECS = 0.01
"""How often to try a unix socket whose server has as many connections to accept as it lets wait."""


class UnsentError(ConnectionError):
    """The connection failed before anything of a request was written to it."""


async def connect(
    address: Address,
    host: str,
    make: Callable[[], Protocol],
    within_secs: float,
    tls: TlsContext | None = None,
) -> Protocol:
    """Connect to ``address`` with the protocol that ``make`` returns; ``host`` is its name or a numeric form
    of it. With ``tls`` the handshake is part of it. Raises ``UnsentError``."""
    try:
        async with asyncio.timeout(within_secs):
            transport, protocol = await open_connection(address, host, make, tls)
    except TimeoutError as late:
        raise UnsentError(f"gave no connection within {within_secs:g} seconds") from late
    except OSError as fault:
        raise UnsentError(f"cannot be reached: {reason_of(fault)}") from fault
    if transport.is_closing():
        # reset in the turns since it was accepted: uvloop raises RuntimeError for a write
        raise UnsentError(f"cannot be reached: {os.strerror(errno.ECONNRESET)}")
    return protocol


async def open_connection(
    address: Address, host: str, make: Callable[[], Protocol], tls: TlsContext | None = None
) -> tuple[asyncio.Transport, Protocol]:
    """As :func:`connect`, without a limit; the server may have ended the connection already. A name is
    connected at the first of its addresses that accepts (Happy Eyeballs, RFC 8305). Raises ``OSError``."""
    require_for_upstream()
    loop = asyncio.get_running_loop()
    sock = await _first_connected(loop, await _endpoints(loop, address, host))
    opening = loop.create_task(_over(sock, make, _tls_options(address, tls)))
    try:
        # without TLS it is a matter of turns of the loop, and uvloop never calls ``connection_lost`` of a
        # protocol whose connection is cancelled in these
        return await (opening if tls else asyncio.shield(opening))
    except asyncio.CancelledError:
        opening.add_done_callback(_abort)
        raise


async def _endpoints(loop: asyncio.AbstractEventLoop, address: Address, host: str) -> Sequence[Endpoint]:
    """Where a server may be reached, in the order to try. Raises ``OSError``."""
    if address.path:
        return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, address.path)]
    if host and not is_name(host) and "%" not in host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 0, (host, address.port))]
    found = await loop.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)
    return interleaved([(family, kind, proto, at) for family, kind, proto, _, at in found])


async def _over(
    sock: socket.socket, make: Callable[[], Protocol], options: dict[str, Any]
) -> tuple[asyncio.Transport, Protocol]:
    """A transport for a connected socket, with the protocol that ``make`` returns."""
    loop = asyncio.get_running_loop()
    create = loop.create_unix_connection if sock.family == socket.AF_UNIX else loop.create_connection
    try:
        return await create(make, sock=sock, **options)
    except BaseException:
        sock.close()
        raise


def _tls_options(address: Address, tls: TlsContext | None) -> dict[str, Any]:
    """The options of a connection with TLS: its certificate is for the name of ``address``, or for the one
    that the options state."""
    if tls is None:
        return {}
    stated = tls.options.server_name if isinstance(tls.options, ClientTls) else ""
    return {"ssl": tls.current(), "server_hostname": stated or address.host or "localhost"}


def interleaved(endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """``endpoints`` with alternating address families, the preferred one first (RFC 8305, 4)."""
    families: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        families.setdefault(endpoint[0], []).append(endpoint)
    return [each for each in chain.from_iterable(zip_longest(*families.values())) if each is not None]


async def _first_connected(loop: asyncio.AbstractEventLoop, endpoints: Sequence[Endpoint]) -> socket.socket:
    """The socket that connects first. An attempt starts when the previous one has failed, or has taken
    ``ATTEMPT_DELAY_SECS`` (RFC 8305, 5). Raises ``OSError``."""
    waiting, faults = deque(endpoints), list[OSError]()
    running: list[asyncio.Task[socket.socket]] = []
    try:
        while waiting or running:
            if waiting:
                running.append(loop.create_task(_attempt(loop, waiting.popleft())))
            delay = ATTEMPT_DELAY_SECS if waiting else None
            await asyncio.wait(running, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for attempt in [each for each in running if each.done()]:
                running.remove(attempt)
                fault = attempt.exception()
                if fault is None:
                    return attempt.result()
                if not isinstance(fault, OSError):
                    raise fault
                faults.append(fault)
    finally:
        for attempt in running:
            attempt.add_done_callback(_close)
            attempt.cancel()
    reasons = dict.fromkeys(map(reason_of, faults))
    raise OSError("; ".join(reasons) or "the name has no address")


async def _attempt(loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> socket.socket:
    family, kind, proto, at = endpoint
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        if family == socket.AF_UNIX:
            await _connect_unix(sock, at)
        else:
            await loop.sock_connect(sock, at)
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect_unix(sock: socket.socket, path: str) -> None:
    """Connect at once, or when the server accepts connections again: the system says EAGAIN meanwhile
    (connect(2)), which event loops take for an attempt under way."""
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            await asyncio.sleep(_QUEUE_SECS)
        else:
            return


def _abort(opening: asyncio.Task[tuple[asyncio.Transport, Any]]) -> None:
    """End a connection that no request waits for any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].abort()


def _close(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that came second."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def reason_of(fault: OSError) -> str:
    """The system's text alone: asyncio's names the address too."""
    if isinstance(fault, ssl.SSLError):
        return f"TLS: {getattr(fault, 'verify_message', '') or reason(fault)}"
    return os.strerror(fault.errno) if fault.errno and fault.errno > 0 else fault.strerror or str(fault)
