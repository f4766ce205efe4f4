"""A process that serves connections which another accepts: every line is answered with the process's number.

``stall`` blocks the event loop until SIGUSR1, ``exit`` ends the process at once.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import sys
from typing import cast

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.handover.beats import Beats
from interlingua.protocols.transport.handover.received import RemoteListener, Takeover

LISTENERS = 301

connections = 0


class Numbered(asyncio.Protocol):
    def __init__(self, listener: int) -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        global connections
        connections += 1
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        global connections
        connections -= 1

    def data_received(self, data: bytes) -> None:
        if data == b"stall\n":
            signal.sigwait({signal.SIGUSR1})
        elif data == b"exit\n":
            os._exit(3)
        self._transport.write(b"%d %d\n" % (self._listener, NUMBER))


async def serve(sock: socket.socket, page: mmap.mmap) -> None:
    listeners = [RemoteListener(Address("127.0.0.1", number)) for number in range(LISTENERS)]
    for number, listener in enumerate(listeners):
        await listener.start(lambda number=number: Numbered(number))  # type: ignore[misc]
    lost = asyncio.Event()
    Takeover(sock, listeners, Beats(page), lambda: connections, lost.set)
    await lost.wait()


NUMBER, _SOCK, _PAGE = map(int, sys.argv[1:])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
asyncio.run(serve(socket.socket(fileno=_SOCK), mmap.mmap(_PAGE, mmap.PAGESIZE)))
