"""An HTTP/1.1 listener for an ``HttpHandler``.

It decides nothing that a dialect could decide: paths, statuses, content codings and the words of an
error are the handler's. What it does decide is how much is read, how long it waits and when a
connection ends; an engine does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Literal

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.http.engine import Engine, Settings
from interlingua.protocols.transport.http.library import LibraryEngine
from interlingua.protocols.transport.http.native import NativeEngine
from interlingua.protocols.transport.sockets import SocketFile, bound, listen
from interlingua.protocols.wire import HttpHandler

IDLE_SECS = 300.0
"""How long a connection may stay without a complete request head, its first or its next."""

STALL_SECS = 60.0
"""How long a body, or a client that takes its answer, may stand still."""

HALF_CLOSED_SECS = 5.0
"""How long a request goes on whose client has closed its side of a TCP connection: it may only have said that
it sends no more, and read on; but most have gone, and TCP does not tell one from the other before something
is written. A streamed answer ends at the first write that fails; a unix socket tells at once."""

LINGER_SECS = 2.0
"""How long what still comes is thrown away after an early answer. Closing at once would reset the
connection, and most clients would lose the answer that says why."""

ENGINES: Mapping[str, Callable[[Settings], Engine]] = {"native": NativeEngine, "library": LibraryEngine}
"""Our own, and aiohttp's."""

_log = logging.getLogger(__name__)


class HttpServer:
    """Listens at one address. Start it once, stop it once. ``accept_te_with_length`` is for the native
    engine: it takes requests with a Transfer-Encoding and a Content-Length, which servers on the way may cut
    at another place."""

    def __init__(
        self,
        handler: HttpHandler,
        address: Address,
        *,
        engine: Literal["native", "library"] = "native",
        max_response_bytes: int | None = None,
        idle_secs: float = IDLE_SECS,
        stall_secs: float = STALL_SECS,
        half_closed_secs: float = HALF_CLOSED_SECS,
        linger_secs: float = LINGER_SECS,
        accept_te_with_length: bool = False,
    ) -> None:
        self.address = address
        self._create = ENGINES[engine]
        self._settings = Settings(
            handler,
            max_response_bytes,
            idle_secs,
            stall_secs,
            half_closed_secs,
            linger_secs,
            accept_te_with_length,
        )
        self._listener: asyncio.AbstractServer | None = None
        self._file: SocketFile | None = None

    async def start(self) -> Address:
        """Listen. The bound address, port filled in; ``OSError`` where that cannot be."""
        sock = listen(self.address)
        self.address = bound(sock)
        self._file = SocketFile(self.address)
        self.open()
        loop = asyncio.get_running_loop()
        create = loop.create_unix_server if self.address.path else loop.create_server
        self._listener = await create(self._engine.connection, sock=sock)
        return self.address

    @property
    def at_work(self) -> int:
        """How many requests are not answered yet."""
        return self._engine.at_work

    def open(self) -> None:
        """Be ready for connections that another server hands over, without an address of one's own."""
        self._engine = self._create(self._settings)

    def adopt(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection on which ``data`` has arrived already."""
        connection = self._engine.connection()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)

    async def stop(self, grace_secs: float) -> int:
        """Accept nothing more, let running requests end for ``grace_secs``, then cut the rest.

        How many requests were cut. Answers on the way say ``Connection: close``; idle connections are
        closed at once.
        """
        if self._listener is not None:
            self._listener.close()
        cut = await self._engine.stop(grace_secs)
        if cut:
            _log.warning(
                "requests cut on listener", extra={"facts": {"address": str(self.address), "count": cut}}
            )
        if self._file is not None:
            self._file.remove()
        return cut
