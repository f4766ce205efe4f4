"""What the service manager is notified of: sd_notify(3), sd_watchdog_enabled(3)."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

_log = logging.getLogger(__name__)


class Notifier:
    """Sends notifications to the socket in ``environment``, whose variables are removed: no child of this
    process notifies. Does nothing without one."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        # an abstract address is written with "@" (sd_notify(3))
        self._address = "\0" + address[1:] if address.startswith("@") else address
        usec, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        mine = pid in ("", str(os.getpid()))
        self.watchdog_secs = int(usec) / 1e6 if usec.isdecimal() and mine else 0.0

    def ready(self, status: str) -> None:
        """The service is up, or a reload is over."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """A reload begins; :meth:`ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")

    def status(self, text: str) -> None:
        """What the service does, for people."""
        self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """The service stops."""
        self._send("STOPPING=1", "STATUS=stopping")

    def succeeded_by(self, pid: int) -> None:
        """Another process is the service from now on. With ``NotifyAccess=main`` only this one may say so."""
        self._send(f"MAINPID={pid}", "STATUS=handed over")

    async def feed_watchdog(self, live: Callable[[], bool]) -> None:
        """Report the service as well while this event loop turns and ``live()`` holds, until cancelled."""
        while self.watchdog_secs:
            if live():
                self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_secs / 2)

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            facts = {"notification": assignments[0], "reason": error.strerror}
            _log.warning("systemd not notified", extra={"facts": facts})
