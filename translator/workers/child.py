"""What front ends and the runtime process have in common: they obey the supervisor, and end with it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from interlingua.protocols.transport import loop
from interlingua.runtime.allocator import tune_allocator
from interlingua.runtime.offload.pool import OffloadPool
from interlingua.runtime.ray_serve.leaving import leave
from interlingua.runtime.upstream import notices
from interlingua.runtime.upstream.notices import Notice
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.translator.config.options import Config
from interlingua.translator.logs import setup as logs
from interlingua.translator.tuning import tune
from interlingua.translator.workers.control import ControlChannel
from interlingua.translator.workers.limits import SharedLimits

_END_SECS = 10.0
"""How long a process may take to end in order after the supervisor has exited."""

_log = logging.getLogger(__name__)

Handle = Callable[[Any, list[int]], Any]
"""Carries out a message: its value and descriptors, which it owns. Returns the reply, perhaps awaitable."""


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """The first message of the supervisor: the configuration, and for a front end its ``number`` of all
    ``front_ends``, from 0, the bound ``addresses`` of the listeners, and the ``numbers`` of their sockets.
    The runtime process has the number after theirs. ``mirrors`` are the slots of the mirrors in their memory,
    by route. ``role`` names the process in the log. The server has run since ``started_ns``, a
    ``time.monotonic_ns()``."""

    config: Config
    number: int = 0
    front_ends: int = 1
    addresses: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    mirrors: tuple[int, ...] = ()
    role: str = ""
    started_ns: int = field(default_factory=time.monotonic_ns)


def main(descriptor: int, run: Callable[[Child], Awaitable[None]]) -> None:
    """Carry out ``run`` for the supervisor at the other end of the socket ``descriptor``."""
    # the supervisor ends this process; a terminal sends its signals to all
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    tune()
    loop.run(_main(descriptor, run))
    leave(0)


async def _main(descriptor: int, run: Callable[[Child], Awaitable[None]]) -> None:
    # upstreams of both kinds of processes may send what takes long to decode
    async with OffloadPool():
        await run(Child(socket.socket(fileno=descriptor)))


class Child:
    """The process as its supervisor sees it. Messages wait until :meth:`handle` names their handler.
    ``hurry`` is done when running requests must end at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._handlers: dict[str, Handle] = {}
        self._early: list[tuple[str, Any, list[int], Callable[[Any], None]]] = []
        self._control = ControlChannel(sock, self._receive, self._lost)
        self._loop = asyncio.get_running_loop()
        self._stop: asyncio.Future[float] = self._loop.create_future()
        self.hurry: asyncio.Future[None] = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._descriptors: list[int] = []
        self.handle("stop", lambda grace, _: self._stopping(grace))

    async def start(self) -> tuple[WorkerOrder, SharedLimits]:
        """The first message. Applies what the configuration says of every process."""
        first: asyncio.Future[WorkerOrder] = self._loop.create_future()
        self.handle("limits", lambda _, descriptors: self._descriptors.extend(descriptors))
        self.handle("start", lambda order, _: first.set_result(order))
        order = await first
        server = order.config.server
        logs.set_up(server.log_level, server.log_format, order.role)
        logs.add_audit_file(server.audit_log)
        if server.tune_allocator:
            tune_allocator()
        return order, self.limits(order)

    def limits(self, order: WorkerOrder) -> SharedLimits:
        """The limits of ``order``, whose descriptors have come before it."""
        descriptors, self._descriptors = self._descriptors, []
        return SharedLimits(order.config, descriptors, order.number)

    def share_upstreams(self, upstreams: Mapping[str, Upstream]) -> None:
        """Have ``upstreams`` know what those of other processes learn."""

        def take(found: Iterable[Notice], _: list[int]) -> None:
            for notice in found:
                # a reload may have removed the upstream
                if notice.upstream in upstreams:
                    notices.take(upstreams[notice.upstream], notice)

        for each in upstreams.values():
            notices.share(each, partial(self.send, "notice"))
        self.handle("notices", take)

    def send(self, kind: str, value: object = None) -> None:
        """Send a message to the supervisor."""
        self._control.send(kind, value)

    async def request(self, kind: str, value: object = None) -> Any:
        """The supervisor's reply. Raises ``ControlLostError``."""
        return await self._control.request(kind, value)

    def handle(self, kind: str, handle: Handle) -> None:
        """Have ``handle`` carry out the messages of ``kind``, those that have arrived too."""
        self._handlers[kind] = handle
        early, self._early = self._early, []
        for message in early:
            self._receive(*message)

    async def stopped(self) -> float:
        """Wait for the end. Returns the seconds that running requests may take."""
        return await asyncio.shield(self._stop)

    def _receive(self, kind: str, value: Any, descriptors: list[int], reply: Callable[[Any], None]) -> None:
        handle = self._handlers.get(kind)
        if handle is None:
            self._early.append((kind, value, descriptors, reply))
            return
        task = self._loop.create_task(_carry_out(handle, value, descriptors, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stopping(self, grace: float) -> None:
        if not self._stop.done():
            self._stop.set_result(grace)
        elif not self.hurry.done():
            self.hurry.set_result(None)

    def _lost(self) -> None:
        # without a supervisor no connections come, and no process would end this one
        self._stopping(0)
        self._loop.call_later(_END_SECS, os._exit, 1)


async def _carry_out(
    handle: Handle, value: Any, descriptors: list[int], reply: Callable[[Any], None]
) -> None:
    found = None
    try:
        found = handle(value, descriptors)
        if inspect.isawaitable(found):
            found = await found
    except Exception:
        found = None
        _log.exception("message of the supervisor not carried out")
    reply(found)
