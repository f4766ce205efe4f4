"""An HTTP/1.1 listener for an ``HttpHandler``, on one of two engines.

The handler decides everything that a dialect could: paths, statuses, content codings, the texts of errors.
The listener decides how much is read, how long it waits and when a connection ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.http.engine import Engine, Settings
from interlingua.protocols.transport.http.native import NativeEngine
from interlingua.protocols.transport.listener import (
    HALF_CLOSED_SECS,
    LINGER_SECS,
    Listener,
    listener_at,
)
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Timeouts
from interlingua.protocols.wire import HttpHandler


def _library(settings: Settings) -> Engine:
    # aiohttp takes a fifth of a second to import
    from interlingua.protocols.transport.http.library import LibraryEngine

    return LibraryEngine(settings)


ENGINES: Mapping[str, Callable[[Settings], Engine]] = {"native": NativeEngine, "library": _library}
"""Our own, and aiohttp's."""


class HttpServer:
    """Listens at one address. Start it once, stop it once. The options are those of ``Settings``."""

    def __init__(
        self,
        handler: HttpHandler,
        address: Address | Listener,
        *,
        engine: Literal["native", "library"] = "native",
        max_response_bytes: int | None = None,
        load: ListenerLoad | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        half_closed_secs: float = HALF_CLOSED_SECS,
        linger_secs: float = LINGER_SECS,
        accept_te_with_length: bool = False,
    ) -> None:
        self._listener = listener_at(address)
        self._create = ENGINES[engine]
        self._settings = Settings(
            handler,
            max_response_bytes,
            timeouts,
            half_closed_secs,
            linger_secs,
            accept_te_with_length,
            ListenerLoad() if load is None else load,
        )

    async def start(self) -> Address:
        """Listen. Returns the bound address, port filled in. Raises ``OSError``."""
        self._engine = self._create(self._settings)
        return await self._listener.start(self._engine.connection)

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    @property
    def at_work(self) -> int:
        """The number of requests in flight."""
        return self._engine.at_work

    def retire(self) -> None:
        """Accept nothing more. The next answer of a connection has ``Connection: close`` (RFC 9112, 9.6)."""
        self._listener.retire()
        self._engine.retire()

    async def stop(self, grace_secs: float) -> int:
        """Stop; returns how many requests were cut. See ``ConnectionSet.drain``."""
        return await self._listener.stop(self._engine.stop(grace_secs))
