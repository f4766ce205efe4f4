"""The unix socket at which a successor receives the listening sockets of this daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.runtime.repository.background_tasks import BackgroundTasks
from interlingua.translator.takeover.messages import (
    MAX_DESCRIPTORS,
    REPLY_SECS,
    VERSION,
    peer_of,
    receive,
    send,
    send_state,
)
from interlingua.translator.takeover.state import Changes, document

NAME = "handover"
"""The name of its own socket among those that are passed."""

_log = logging.getLogger(__name__)


def open_handover_socket(path: str) -> ListeningSocket:
    """Listen at ``path``, for processes of this user. Raises ``OSError``."""
    opened = ListeningSocket.open(Address(path=path), socket.SOCK_SEQPACKET)
    os.chmod(path, 0o600)
    opened.name = NAME
    return opened


class HandoverSocket:
    """Accepts successors, one at a time, at ``own``. They get the ``sockets``, whether the server is ready,
    and the ``changes`` that clients have made. ``taken`` is called with the process id of one that has begun
    to accept; call :meth:`release` then. Use on one event loop."""

    def __init__(
        self,
        own: ListeningSocket,
        sockets: Callable[[], Sequence[ListeningSocket]],
        ready: Callable[[], Awaitable[bool]],
        watchdog_secs: float,
        taken: Callable[[int], None],
        changes: Callable[[], Awaitable[Changes]],
    ) -> None:
        self._own = own
        self._sockets = sockets
        self._ready = ready
        self._watchdog_secs = watchdog_secs
        self._taken = taken
        self._changes = changes
        self._loop = asyncio.get_running_loop()
        self._released: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None
        self._refusals = BackgroundTasks()
        own.sock.setblocking(False)
        self._loop.add_reader(own.sock.fileno(), self._accept)

    def release(self) -> None:
        """Confirm that this process accepts nothing more. Its successor has the files of unix sockets."""
        self._forget()
        self._released.set_result(None)

    async def close(self) -> None:
        """Hand nothing over from now on. A successor that still starts keeps the sockets that it has."""
        self._forget()
        if self._task is not None and not self._released.done():
            self._task.cancel()
        if self._task is not None:
            await asyncio.wait((self._task,))
        await self._refusals.finish()
        self._own.remove_file()

    def _forget(self) -> None:
        if self._own.sock.fileno() != -1:
            self._loop.remove_reader(self._own.sock.fileno())
            self._own.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._own.sock.accept()
        except OSError:
            return
        try:
            pid = peer_of(connection)
        except OSError as error:
            _log.warning("hand-over refused", extra={"facts": {"reason": str(error)}})
            connection.close()
            return
        connection.setblocking(False)
        if self._task is not None and not self._task.done():
            self._refusals.start(self._refuse(connection, "another process is taking over"))
        else:
            self._task = self._loop.create_task(self._hand_over(connection, pid))

    async def _refuse(self, connection: socket.socket, reason: str) -> None:
        _log.warning("hand-over refused", extra={"facts": {"reason": reason}})
        with connection, suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(REPLY_SECS):
                # what is unread when this end closes would take the reply with it
                await self._next(connection)
                send(connection, {"refused": reason})

    async def _hand_over(self, connection: socket.socket, pid: int) -> None:
        passed: list[ListeningSocket] = []
        try:
            with connection:
                async with asyncio.timeout(REPLY_SECS):
                    passed = await self._pass(connection, pid)
                # its models load
                await self._next(connection)
                self._taken(pid)
                await self._released
                send_state(connection, {"released": True}, document(await self._changes()))
        except (OSError, ValueError, TimeoutError) as error:
            if not self._released.done():
                for each in passed:
                    each.removes = True
                _log.warning("hand-over failed", extra={"facts": {"pid": pid, "reason": str(error)}})

    async def _pass(self, connection: socket.socket, pid: int) -> list[ListeningSocket]:
        """Send the sockets. Returns those whose files are the successor's to remove from now on."""
        hello = await self._next(connection)
        if hello != {"version": VERSION}:
            send(connection, {"refused": f"it speaks version {VERSION} of the hand-over"})
            raise ValueError(f"another version of the hand-over: {hello}")
        ready = await self._ready()
        sockets = [*self._sockets(), self._own]
        described = [
            {"configured": str(each.configured or each.address), "name": each.name, "removes": each.removes}
            for each in sockets
        ]
        state = {"pid": os.getpid(), "ready": ready, "watchdog_secs": self._watchdog_secs}
        send(connection, {**state, "sockets": described})
        for first in range(0, len(sockets), MAX_DESCRIPTORS):
            send(connection, {}, [each.sock.fileno() for each in sockets[first : first + MAX_DESCRIPTORS]])
        send_state(connection, {}, document(await self._changes()))
        _log.info("hand-over began", extra={"facts": {"pid": pid, "sockets": len(sockets)}})
        passed = [each for each in sockets if each.removes]
        for each in passed:
            each.removes = False
        return passed

    async def _next(self, connection: socket.socket) -> Any:
        """The next message. Raises as :func:`receive`."""
        while True:
            try:
                return receive(connection)[0]
            except BlockingIOError:
                readable = asyncio.Event()
                self._loop.add_reader(connection.fileno(), readable.set)
                try:
                    await readable.wait()
                finally:
                    self._loop.remove_reader(connection.fileno())
