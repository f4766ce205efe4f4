"""Accepts the connections of several listening sockets, and hands each over to one of several processes.

A socket per process (SO_REUSEPORT) would reset the connections that the kernel has queued for a process that
exits, and go on queueing for one that is stopped. One socket that all processes accept from spreads
connections by who wakes first: a burst goes to one process. Here each connection goes to the process with the
fewest, among those whose event loops turn.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from struct import Struct

from interlingua.protocols.transport.handover.beats import Beats
from interlingua.protocols.transport.sockets import accepted

NUMBER = Struct("<I")
"""What comes with a connection: the number of its listening socket."""

SILENT_SECS = 0.5
"""A process that has not beaten for so long gets no connections. If all have not, connections wait: a process
whose event loop does not turn would not take them sooner."""

_TURN_CONNECTIONS = 32
"""How many connections of one socket are accepted in one turn of the event loop."""

_AGAIN_SECS = 0.01
"""When to try again: no process takes a connection, or no descriptor is free."""


class Receiver:
    """A process that takes connections over ``sock`` (SOCK_SEQPACKET) and reports in ``beats``."""

    def __init__(self, sock: socket.socket, beats: Beats) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._beats = beats
        self._sent = 0

    @property
    def turns(self) -> bool:
        """Whether its event loop turns."""
        return self._beats.silent_secs < SILENT_SECS

    @property
    def connections(self) -> int:
        """How many of the connections that it was given are open."""
        return self._sent - self._beats.ended

    def give(self, number: int, connection: socket.socket) -> bool:
        """Hand over a connection of the listening socket ``number``. Returns False if it takes none now, or
        has exited."""
        try:
            socket.send_fds(self._sock, [NUMBER.pack(number)], [connection.fileno()])
        except OSError:
            return False
        self._sent += 1
        return True

    def close(self) -> None:
        """Hand over nothing more."""
        self._sock.close()


class Acceptor:
    """Accepts from ``sockets``, by number, with None for numbers that are no longer used; their owner closes
    them. ``receivers`` may be changed at any time. Use on one event loop."""

    def __init__(self, sockets: Sequence[socket.socket | None]) -> None:
        self.receivers: list[Receiver] = []
        self._sockets = sockets
        self._waiting: deque[tuple[int, socket.socket]] = deque()
        self._again: asyncio.TimerHandle | None = None
        self._accepts = True
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Accept from now on."""
        for number, sock in enumerate(self._sockets):
            if sock is not None:
                sock.setblocking(False)
                self._loop.add_reader(sock.fileno(), self._accept, number)

    def change(self, sockets: Sequence[socket.socket | None]) -> None:
        """Accept from ``sockets`` instead, after what the kernel has queued at those that are not among
        them."""
        for number, sock in enumerate(self._sockets):
            if sock is not None and sock not in sockets:
                self._accept(number)
        self._pause()
        self._sockets = sockets
        if self._again is None:
            self.start()

    def retire(self) -> None:
        """Accept nothing more. Connections that wait go to the first process that takes them."""
        self._accepts = False
        self._pause()

    def stop(self) -> None:
        """Accept nothing more. Connections that no process has taken are closed."""
        self._pause()
        if self._again is not None:
            self._again.cancel()
        for _, connection in self._waiting:
            connection.close()
        self._waiting.clear()

    def _accept(self, number: int) -> None:
        sock = self._sockets[number]
        assert sock is not None, "its number is in use"  # noqa: S101
        for connection in accepted(sock, _TURN_CONNECTIONS, self._wait):
            self._waiting.append((number, connection))
            self._hand_over()
            if self._waiting:
                return

    def _hand_over(self) -> None:
        while self._waiting:
            number, connection = self._waiting[0]
            turning = [receiver for receiver in self.receivers if receiver.turns]
            turning.sort(key=lambda receiver: receiver.connections)
            if not any(receiver.give(number, connection) for receiver in turning):
                self._wait()
                return
            self._waiting.popleft()
            connection.close()

    def _wait(self) -> None:
        """Accept nothing for a moment: what is not accepted waits in the kernel."""
        if self._again is None:
            self._pause()
            self._again = self._loop.call_later(_AGAIN_SECS, self._resume)

    def _pause(self) -> None:
        for sock in self._sockets:
            if sock is not None:
                self._loop.remove_reader(sock.fileno())

    def _resume(self) -> None:
        self._again = None
        self._hand_over()
        if self._again is None and self._accepts:
            self.start()
