"""What is written in one turn of the event loop leaves together, in order, and stops where the socket is full."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from interlingua.protocols.transport.writes import WriteBatch


class _Peer(asyncio.Protocol):
    paused = False

    def pause_writing(self) -> None:
        self.paused = True


async def test_pieces_leave_in_order_and_together() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.setblocking(False)
        transport, _ = await loop.create_connection(_Peer, sock=ours)
        batch = WriteBatch(loop, cast("asyncio.Transport", transport))
        batch.write(b"a", memoryview(b"b"))
        batch.write(b"c")
        with pytest.raises(BlockingIOError):  # nothing yet
            theirs.recv(10)
        assert await loop.sock_recv(theirs, 10) == b"abc"
        large = [bytes((index,)) * 50_000 for index in range(10)]
        batch.write(*large)
        batch.write(b"end")
        batch.flush()
        came = b""
        while not came.endswith(b"end"):
            came += await loop.sock_recv(theirs, 1 << 20)
        assert came == b"".join(large) + b"end"
        transport.close()
        batch.write(b"late")
        await asyncio.sleep(0)


async def test_a_full_socket_pauses_the_protocol() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        transport, peer = await loop.create_connection(_Peer, sock=ours)
        batch = WriteBatch(loop, cast("asyncio.Transport", transport))
        batch.write(*[bytes(100_000)] * 40)  # flushed at once: more than is held back
        await asyncio.sleep(0)
        assert peer.paused
        transport.abort()
        await asyncio.sleep(0)
