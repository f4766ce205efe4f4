"""A process that the supervisor starts, watches and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable

from interlingua.translator.workers.control import ControlChannel, Receive
from interlingua.translator.workers.forks import ForkServer, ForkServerError


class Process:
    """A process of ``forks`` that is called ``name`` and runs ``main`` of ``translator.workers.MODULE`` with
    its end of the control socket. Calls ``exited`` with the reason once. ``pid`` is 0 until it has started.
    Use on one event loop. Raises ``OSError``."""

    def __init__(
        self, forks: ForkServer, module: str, name: str, receive: Receive, exited: Callable[[str], None]
    ) -> None:
        ours, theirs = socket.socketpair()
        self.pid = 0
        self.control = ControlChannel(ours, receive, lambda: None)
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[str] = self._loop.create_future()
        self._forks = forks
        self._exited = exited
        self._descriptor = -1
        self._life = self._loop.create_task(self._live(module, name, theirs))

    def kill(self) -> None:
        """End it now."""
        if self._descriptor >= 0:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        else:
            # a process without its control socket exits
            self._life.cancel()

    async def _live(self, module: str, name: str, theirs: socket.socket) -> None:
        reason = "killed before its start"
        try:
            with theirs:
                self.pid = await self._forks.fork(module, name, theirs)
            # unlike SIGCHLD, it is of this process alone
            self._descriptor = os.pidfd_open(self.pid)
            await self._gone()
            code = await self._forks.reap(self.pid)
            reason = _reason(code)
        except (ForkServerError, OSError) as error:
            reason = str(error)
        finally:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
            self.control.close()
            self.over.set_result(reason)
            self._exited(reason)

    async def _gone(self) -> None:
        """Wait until it has exited."""
        gone = asyncio.Event()
        self._loop.add_reader(self._descriptor, gone.set)
        try:
            await gone.wait()
        finally:
            self._loop.remove_reader(self._descriptor)


def _reason(code: int | None) -> str:
    if code is None:
        return "exit code not known"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
