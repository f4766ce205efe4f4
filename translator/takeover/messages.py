"""Messages between a daemon and its successor, over a unix socket: JSON, and with it descriptors.

    successor                     daemon
    {"version": 1}          ->
                            <-    {"pid": …, "ready": …, "watchdog_secs": …, "sockets": […]}
                            <-    {}, with descriptors, as often as needed
                            <-    {}, with the state that clients have made, in memory
    {"serving": true}       ->    after it has begun to accept
                            <-    {"released": true}, after it has ceased to, and the state as it is then

A daemon that does not hand over sends ``{"refused": reason}``. If the connection ends before ``serving``, the
daemon goes on as before.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

import orjson

VERSION = 1

REPLY_SECS = 10.0
"""How long a reply of a daemon may take whose event loop turns."""

MAX_DESCRIPTORS = 64
"""How many descriptors a message carries; the kernel's limit is 253 (``SCM_MAX_FD``)."""

_MAX_BYTES = 1 << 18
_CREDENTIALS = struct.Struct("3i")


class TakeoverError(Exception):
    """The daemon cannot be taken over; the message says why."""


def send(sock: socket.socket, message: Any, descriptors: Sequence[int] = ()) -> None:
    """Send ``message``. Raises ``OSError``."""
    socket.send_fds(sock, [orjson.dumps(message)], descriptors)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """The next message, and its descriptors. Raises ``ConnectionError`` at the end, ``OSError``,
    ``ValueError`` for a malformed message."""
    data, descriptors, _, _ = socket.recv_fds(sock, _MAX_BYTES, MAX_DESCRIPTORS)
    for each in descriptors:
        # recv_fds of CPython 3.11 ignores MSG_CMSG_CLOEXEC
        os.set_inheritable(each, False)
    if not data:
        raise ConnectionResetError("the other process has ended the hand-over")
    return orjson.loads(data), descriptors


def send_state(sock: socket.socket, message: Any, state: Any) -> None:
    """Send ``message``, and ``state``, which may be longer than a message. Raises ``OSError``."""
    with open(os.memfd_create("state"), "w+b") as memory:
        memory.write(orjson.dumps(state))
        memory.seek(0)
        send(sock, message, [memory.fileno()])


def receive_state(sock: socket.socket) -> Any:
    """The state that :func:`send_state` sends. Raises as :func:`receive`."""
    _, descriptors = receive(sock)
    if len(descriptors) != 1:
        raise ValueError("a state is one descriptor")
    with open(descriptors[0], "rb") as memory:
        return orjson.loads(memory.read())


def peer_of(sock: socket.socket) -> int:
    """The id of the process at the other end. Raises ``PermissionError`` if it is of another user."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    if uid != os.geteuid():
        raise PermissionError(f"process {pid} is of user {uid}, not {os.geteuid()}")
    return int(pid)
