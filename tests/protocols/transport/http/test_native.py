"""Our own HTTP engine when it stops: what its clients have not taken yet."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.protocols.wire import HttpAnswer
from tests.protocols.transport.peers import LOOPBACK, HttpEcho, RawHttp, post, serving, stalling

MIB = 1 << 20


@asynccontextmanager
async def requested(handler: HttpEcho, *requests: bytes) -> AsyncIterator[tuple[HttpServer, socket.socket]]:
    """A server, and a client that has sent ``requests`` and reads nothing yet. The kernel holds little of what
    is sent."""
    server = HttpServer(handler, LOOPBACK)
    await server.start()
    for sock in server._listener.sockets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((server.address.host, server.address.port))
        client.sendall(b"".join(requests))
        await asyncio.wait_for(handler.entered.wait(), 30)
        await asyncio.sleep(0.05)
        yield server, client
    await server.stop(0)


def answering(size: int) -> HttpEcho:
    answer = HttpAnswer(200, (), (bytes(size),))
    return HttpEcho(answers={"/": answer, "/wait": answer})


def everything(client: socket.socket) -> bytes:
    """What comes until the server closes."""
    client.settimeout(20)
    with client.makefile("rb") as reader:
        return reader.read()


@pytest.mark.parametrize("size", [60_000, MIB])
async def test_an_answer_that_is_taken_slowly_is_taken_whole(size: int) -> None:
    async with requested(answering(size), post("/")) as (server, client):
        stopping = asyncio.create_task(server.stop(30))
        await asyncio.sleep(1.5)  # longer than a request has that was cut
        assert not stopping.done()
        assert (await asyncio.to_thread(everything, client)).endswith(b"\r\n\r\n" + bytes(size))
        assert await stopping == 0


@pytest.mark.parametrize("size", [60_000, MIB])
async def test_one_that_is_not_taken_is_counted(size: int) -> None:
    async with requested(answering(size), post("/")) as (server, _):
        assert await server.stop(0.1) == 1


async def test_what_follows_the_last_request_does_not_reset_its_answer() -> None:
    handler = answering(MIB)
    async with requested(handler, post("/wait"), post("/")) as (server, client):
        client.sendall(post("/"))
        stopping = asyncio.create_task(server.stop(30))
        await asyncio.sleep(0.05)
        handler.release.set()
        await asyncio.sleep(0.05)
        client.sendall(post("/"))
        assert (await asyncio.to_thread(everything, client)).endswith(b"\r\n\r\n" + bytes(MIB))
        client.close()
        assert await stopping == 0
    assert [request.path for request in handler.served] == ["/wait"]


async def test_an_early_answer_may_still_be_read() -> None:
    handler = HttpEcho()
    handler.entered.set()
    async with requested(handler, b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n") as (
        server,
        client,
    ):
        stopping = asyncio.create_task(server.stop(30))
        await asyncio.sleep(0.05)
        client.sendall(b"x" * 50)
        await asyncio.sleep(0.05)
        client.sendall(b"x" * 49)
        assert (await asyncio.to_thread(everything, client)).endswith(b"no such path")
        client.close()
        assert await stopping == 0


async def test_a_request_whose_client_has_gone_may_come_to_its_end() -> None:
    class Tidy(HttpEcho):
        tidied = False

        async def serve(self, request):  # type: ignore[no-untyped-def]
            try:
                return await super().serve(request)
            finally:
                await asyncio.sleep(0.1)
                self.tidied = True

    handler = Tidy()
    async with requested(handler, post("/wait")) as (server, client):
        client.close()
        await asyncio.wait_for(handler.cancelled.wait(), 30)
        assert await server.stop(10) == 0
        assert handler.tidied


class TestLargeBodies:
    """Received by another protocol of the connection, which goes back to its own afterwards."""

    BODY = bytes(range(256)) * (3 * MIB // 256)

    async def test_what_follows_in_the_same_piece(self) -> None:
        sent = post("/", self.BODY)
        async with serving(HttpEcho()) as server, RawHttp.to(server.address) as client:
            await client.send(sent[:1000])
            await asyncio.sleep(0.02)
            await client.send(sent[1000:] + sent + post("/", b"x"))
            for body in (self.BODY, self.BODY, b"x"):
                assert (await client.reply()).body == body

    async def test_one_that_stalls_is_refused_and_what_follows_is_no_request(self) -> None:
        handler = HttpEcho()
        async with serving(handler, timeouts=stalling(0.2)) as server, RawHttp.to(server.address) as client:
            await client.send(post("/", self.BODY)[:MIB])
            assert (await client.reply()).headers["x-code"] == "DEADLINE_EXCEEDED"
            with contextlib.suppress(ConnectionError):
                await client.send(post("/", b"x") * 100)
            assert await client.ended()
        assert not handler.served

    async def test_headers_that_drip_are_cut_off_by_a_timeout_of_their_own(self) -> None:
        timeouts = Timeouts(header_secs=0.2)
        async with serving(HttpEcho(), timeouts=timeouts) as server, RawHttp.to(server.address) as client:
            await asyncio.sleep(0.3)
            assert (await client.post("/", b"x")).body == b"x"
            await asyncio.sleep(0.3)
            await client.send(b"POST / HTTP/1.1\r\n")
            with pytest.raises((ConnectionError, RuntimeError)):  # noqa: PT012
                async with asyncio.timeout(30):
                    while True:
                        await client.send(b"A: b\r\n")
                        await asyncio.sleep(0.02)

    async def test_a_client_that_leaves(self) -> None:
        handler = HttpEcho()
        async with serving(handler) as server:
            async with RawHttp.to(server.address) as client:
                await client.send(post("/", self.BODY)[:MIB])
                await asyncio.sleep(0.05)
            await asyncio.wait_for(handler.cancelled.wait(), 30)
            assert server.at_work == 0
