"""A process that the supervisor starts, watches and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from interlingua.translator.workers.control import ControlChannel, Receive

_PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from interlingua.translator.workers.{module} import main
sys.path.pop(0)
main({descriptor})
"""
_ROOT = str(Path(__file__).parents[3])


class Process:
    """A fresh interpreter that runs ``main`` of ``translator.workers.MODULE`` with its end of the control
    socket. Calls ``exited`` with the reason once. Use on one event loop. Raises ``OSError``."""

    def __init__(self, module: str, receive: Receive, exited: Callable[[str], None]) -> None:
        ours, theirs = socket.socketpair()
        program = _PROGRAM.format(root=_ROOT, module=module, descriptor=theirs.fileno())
        with theirs:
            self._popen = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-c", program], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        self.pid = self._popen.pid
        self.control = ControlChannel(ours, receive, lambda: None)
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._exited = exited
        # unlike SIGCHLD, it is of this process alone
        self._descriptor = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._ended)

    def kill(self) -> None:
        """End it now."""
        self._popen.kill()

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        code = self._popen.wait()
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self.control.close()
        self.over.set_result(reason)
        self._exited(reason)
