"""How this process follows another daemon, and another one follows it; the service manager is notified."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.translator.config.options import Config
from interlingua.translator.signals import Signals
from interlingua.translator.systemd.activation import activated_sockets
from interlingua.translator.systemd.notify import Notifier
from interlingua.translator.takeover.handover_socket import NAME, HandoverSocket, open_handover_socket
from interlingua.translator.takeover.messages import TakeoverError
from interlingua.translator.takeover.predecessor import Predecessor
from interlingua.translator.takeover.socket_plan import SocketPlan
from interlingua.translator.takeover.state import Changes

READY_SECS = 30.0
"""How long the successor of a ready daemon may take to be ready after its models are loaded: upstreams are
probed meanwhile. Peers may settle for longer."""

Readiness = Callable[[], Awaitable[dict[str, Any]]]
"""Whether the server is ready, and all reasons against it."""

_log = logging.getLogger(__name__)


class ClientState(Protocol):
    """What clients change in this server."""

    async def changes(self) -> Changes:
        """The changes that make another server the same."""

    async def carry_out(self, changes: Changes) -> None:
        """Change this server so."""


class Handover:
    """Takes the sockets of systemd; with ``take_over`` those of the daemon at ``server.handover_socket`` too.
    Raises ``TakeoverError``, ``OSError``."""

    def __init__(self, config: Config, take_over: bool) -> None:
        self._path = config.server.handover_socket
        self._ready_secs = READY_SECS + (0.0 if config.peers is None else config.peers.settle_secs)
        self.notifier = Notifier(os.environ)
        activated = activated_sockets(os.environ)
        self.predecessor: Predecessor | None = None
        if take_over:
            if self._path is None:
                raise TakeoverError("server.handover_socket is not configured")
            self.predecessor = Predecessor(self._path)
            self.notifier.watchdog_secs = self.notifier.watchdog_secs or self.predecessor.watchdog_secs
        inherited = [] if self.predecessor is None else self.predecessor.sockets
        self._own = next((each for each in inherited if each.name == NAME), None)
        self.plan = SocketPlan(config, activated, [each for each in inherited if each is not self._own])
        self.changes: Changes = () if self.predecessor is None else self.predecessor.changes
        self._socket: HandoverSocket | None = None
        self._watchdog: asyncio.Task[None] | None = None

    async def prepare(self, readiness: Readiness, failed: Sequence[str]) -> None:
        """Return when the successor of a ready daemon is ready. Raises ``TakeoverError`` if it is not, at
        once if required models have ``failed`` to load, and ``OSError`` for the handover socket."""
        if self._path is not None and self._own is None:
            self._own = open_handover_socket(self._path)
        if self.predecessor is not None:
            await self.predecessor.until_matched(readiness, failed, self._ready_secs)

    async def serving(
        self,
        status: str,
        stop: Signals,
        sockets: Callable[[], Sequence[ListeningSocket]],
        readiness: Readiness,
        state: ClientState,
        live: Callable[[], bool] = lambda: True,
    ) -> None:
        """This process accepts: have its predecessor drain, and let a successor stop it. ``state`` is what
        clients change; ``live`` as long as the watchdog of systemd may see it."""
        if self.predecessor is not None:
            await state.carry_out(await self.predecessor.release())
            self.plan.close_rest()
        if self._own is not None:
            ready, secs = partial(_is_ready, readiness), self.notifier.watchdog_secs
            self._socket = HandoverSocket(self._own, sockets, ready, secs, stop.hand_over, state.changes)
        self.notifier.ready(status)
        self._watchdog = asyncio.create_task(self.notifier.feed_watchdog(live))

    def reloading(self, begins: bool, status: str) -> None:
        """Note that a reload begins, or is over."""
        if begins:
            self.notifier.reloading()
        else:
            self.notifier.ready(status)

    def stopping(self, successor: int | None) -> None:
        """Note that the server stops, in favor of the process ``successor`` if it is not None, which accepts
        alone from now on."""
        if successor is None:
            self.notifier.stopping()
            return
        self.notifier.succeeded_by(successor)
        _log.info("handed over", extra={"facts": {"pid": successor}})
        assert self._socket is not None, "it had the successor"  # noqa: S101
        self._socket.release()

    async def close(self) -> None:
        """Nothing is handed over from now on."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._socket is not None:
            await self._socket.close()
        elif self._own is not None:
            self._own.close()
            self._own.remove_file()


async def _is_ready(readiness: Readiness) -> bool:
    return bool((await readiness())["ready"])
