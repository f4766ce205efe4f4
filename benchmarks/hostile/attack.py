"""What an attack is: a function that runs in a process of its own against one listener, bounded in time.

A module of attacks has them in a table, ``ATTACKS``; ``benchmarks.hostile.table`` lists the modules.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_CONNECT_SECS = 30.0


@dataclass
class Target:
    """The listener to attack. ``addresses`` are those of all listeners by transport."""

    address: str
    addresses: dict[str, str]
    secs: float
    began: float = field(default_factory=time.monotonic)

    @property
    def going(self) -> bool:
        """Whether the attack goes on."""
        return time.monotonic() - self.began < self.secs

    def connect(self, transport: str = "") -> socket.socket:
        """A new blocking connection to the listener, or to that of ``transport``."""
        host, _, port = (self.addresses[transport] if transport else self.address).rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=_CONNECT_SECS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


Run = Callable[[Target], int]
"""Attacks, and returns how many of the requests that deserve an answer got none: 0 if there are none. It may
raise ``OSError`` when the server closes a connection, which ends the attack."""


@dataclass(frozen=True)
class Attack:
    """One row. ``transport`` is that of the listener (http, grpc, brpc or tcp). ``generic`` attacks consist
    of plain HTTP/2 frames, which any HTTP/2 server understands. ``memory_mib`` is how much the resident size
    of the daemon may grow: the sum of the configured bounds that apply."""

    name: str
    transport: str
    run: Run
    generic: bool = False
    memory_mib: int = 256
