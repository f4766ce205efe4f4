"""Ports for servers that cannot ask for port 0, safe between test processes that run side by side."""

from __future__ import annotations

import atexit
import random
import socket
from contextlib import ExitStack

OWN_PORTS = (20_000, 32_000)
"""Where ports are taken from, as a range: below those that Linux assigns to clients and to port 0."""

_reserved = ExitStack()
atexit.register(_reserved.close)


def free_port() -> int:
    """A port of 127.0.0.1 that is free, and that no other caller gets until this process ends."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of ``count`` such ports in a row.

    A socket in Linux' abstract namespace marks a port as reserved: only one process can bind its name, and
    the kernel removes it with the process.
    """
    while True:
        first = random.randrange(*OWN_PORTS)
        marks = [socket.socket(socket.AF_UNIX) for _ in range(count)]
        try:
            for port, mark in enumerate(marks, first):
                mark.bind(f"\0interlingua-test-port-{port}")
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            for mark in marks:
                mark.close()
            continue
        for mark in marks:
            _reserved.enter_context(mark)
        return first
