"""What is written in one turn of the event loop leaves together, in order, and stops where the socket is full."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import partial
from typing import cast

import pytest

from interlingua.protocols.transport import writes
from interlingua.protocols.transport.writes import WriteBatch, flushes_of, shared_writes_of, write_pieces
from tests.e2e.daemon import ROOT


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


@pytest.mark.parametrize("plain", [True, False], ids=["descriptor", "transport"])
async def test_pieces_of_a_shared_buffer_may_change_afterwards(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    local, remote = socket.socketpair()
    with remote:
        remote.setblocking(False)
        transport, peer = await loop.create_connection(_Peer, sock=local)
        batch = WriteBatch(loop, cast("asyncio.Transport", transport))
        if not plain:
            monkeypatch.setattr(batch, "_descriptor", -1)
        sent, came, buffer = b"", b"", bytearray(300_000)
        for turn in range(20):  # more than the socket takes
            batch.write(b"head")
            buffer[:] = bytes((turn,)) * len(buffer)
            view = memoryview(buffer)
            batch.write_shared(view[:100_000], view[100_000:])
            batch.write(b"tail")
            sent += b"head" + buffer + b"tail"
            shared_writes_of(loop).flush()
        assert not shared_writes_of(loop).batches
        buffer[:] = bytes(len(buffer))
        assert cast("_Peer", peer).paused
        while len(came) < len(sent):
            came += await loop.sock_recv(remote, 1 << 20)
        assert came == sent
        transport.close()
        batch.write_shared(memoryview(buffer))  # to nobody
        shared_writes_of(loop).flush()


async def test_large_messages_over_tls_come_whole() -> None:
    loop = asyncio.get_running_loop()
    files = ROOT / "examples" / "tls"
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=files / "localhost.pem"),
    )
    server.load_cert_chain(files / "localhost.pem", files / "localhost.key")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    (transport, _), (reader, writer) = await asyncio.gather(
        loop.connect_accepted_socket(_Peer, ours, ssl=server),
        asyncio.open_connection(sock=theirs, ssl=client, server_hostname="localhost"),
    )
    pieces = [os.urandom(size) for size in (9, 16_384, 9, 300_000, 100, 65_536, 65_535, 1, 1 << 20, 3)]
    write_pieces(
        cast("asyncio.Transport", transport), [memoryview(each) for each in pieces], sum(map(len, pieces))
    )
    async with asyncio.timeout(20):
        assert await reader.readexactly(sum(map(len, pieces))) == b"".join(pieces)
    for each in (transport, writer):
        each.close()
    await asyncio.sleep(0.01)


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


async def test_connections_flush_together_at_the_end_of_a_turn_or_once_they_are_many() -> None:
    flushes, flushed = flushes_of(asyncio.get_running_loop()), list[int]()
    for number in range(3):
        flushes.add(partial(flushed.append, number))
        assert not flushed
    await asyncio.sleep(0)
    assert flushed == [0, 1, 2]
    for number in range(100):
        flushes.add(partial(flushed.append, number))
    assert 3 < len(flushed) < 103
    await asyncio.sleep(0)
    assert flushed == [0, 1, 2, *range(100)]


async def test_connections_flush_together_once_the_first_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    monkeypatch.setattr(writes, "monotonic", lambda: now)
    flushes, flushed = flushes_of(asyncio.get_running_loop()), list[int]()
    flushes.add(partial(flushed.append, 0))
    now += 0.0001
    flushes.add(partial(flushed.append, 1))
    assert not flushed
    now += 0.001
    flushes.add(partial(flushed.append, 2))
    assert flushed == [0, 1, 2]
    flushes.add(partial(flushed.append, 3))
    assert len(flushed) == 3
    await asyncio.sleep(0)
    assert flushed == [0, 1, 2, 3]
