"""Listening sockets that systemd has opened: sd_listen_fds(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from interlingua.protocols.transport.listening_socket import ListeningSocket

_FIRST = 3
"""The first descriptor (``SD_LISTEN_FDS_START``)."""


def activated_sockets(environment: MutableMapping[str, str]) -> list[ListeningSocket]:
    """The sockets in ``environment``, whose variables are removed: no child of this process has the sockets.
    Raises ``OSError`` for a descriptor that is no listening stream socket."""
    pid = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    names += [""] * int(count)
    # the files of unix sockets belong to systemd
    return [
        ListeningSocket(_socket(_FIRST + number), name=names[number], removes=False)
        for number in range(int(count))
    ]


def _socket(descriptor: int) -> socket.socket:
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise OSError(error.errno, f"descriptor {descriptor} of systemd: {error.strerror}") from error
    sock.set_inheritable(False)
    if sock.type != socket.SOCK_STREAM or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise OSError(f"descriptor {descriptor} of systemd: not a listening stream socket (Accept=no)")
    return sock
