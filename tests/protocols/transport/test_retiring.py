"""Servers that retire in favor of a successor with the same listening socket: no request that is sent is lost."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from interlingua.protocols.transport.address import Address, parse_address, parse_url
from interlingua.protocols.transport.any.server import AnyServer
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.transport.framed.server import FramedServer
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.frames import Code, goaway
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.listener import Listener
from interlingua.protocols.transport.listening_socket import ListeningSocket, assign
from interlingua.protocols.transport.tls import ServerTls, TlsContext
from interlingua.protocols.wire import BrpcRequest, GrpcRequest
from tests.certificates import Authority
from tests.protocols.transport.brpc.test_server import BrpcEcho
from tests.protocols.transport.framed.test_server import FramedEcho
from tests.protocols.transport.h2.peer import ACK, GOAWAY, PING, RawH2, call, frame, message, settings
from tests.protocols.transport.peers import LOOPBACK, GrpcEcho, HttpEcho, RawHttp
from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.brpc_frames import SERVICE, request_frame
from tests.standins.framed import FramedClient

REQUEST = b"POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi"


def passed(opened: ListeningSocket) -> ListeningSocket:
    """The same socket as another process gets it: one queue, another descriptor."""
    return ListeningSocket(socket.socket(fileno=os.dup(opened.sock.fileno())), opened.configured)


@asynccontextmanager
async def both(
    make: Callable[[Listener], Any], address: Address = LOOPBACK
) -> AsyncIterator[tuple[Any, Any]]:
    """A server, and its successor, which has not started."""
    opened = ListeningSocket.open(address)
    old, new = (make(Listener(address, socket=each)) for each in (opened, passed(opened)))
    await old.start()
    try:
        yield old, new
    finally:
        await old.stop(0)
        await new.stop(0)


@pytest.mark.parametrize("engine", ["native", "library"])
async def test_http_says_close(engine: Literal["native", "library"]) -> None:
    echoes = [HttpEcho(), HttpEcho()]
    waiting = iter(echoes)
    async with both(lambda place: HttpServer(next(waiting), place, engine=engine)) as (old, new):
        async with RawHttp.to(old.address) as used, RawHttp.to(old.address) as unused:
            assert (await used.post("/echo", b"hi")).headers.get("connection") != "close"
            assert await new.start() == old.address
            old.retire()
            for client in (used, unused):
                # the unused one is of either server
                reply = await client.post("/echo", b"hi")
                assert (reply.status, reply.body) == (200, b"hi")
            assert await used.reader.read() == b""
        async with RawHttp.to(old.address) as fresh:
            assert (await fresh.post("/echo", b"hi")).headers.get("connection") != "close"
        assert await asyncio.wait_for(old.stop(10), 5) == 0
    assert [len(echo.served) for echo in echoes] in ([3, 1], [2, 2])


async def test_grpc_sends_goaway_once() -> None:
    async with both(lambda place: GrpcServer(GrpcEcho(), place)) as (old, new):
        async with RawH2.to(old.address) as client:
            await client.send(call(1, b"x"))
            await client.answer()
            await new.start()
            old.retire()
            assert (await client.kind(GOAWAY)).payload[:4] == b"\x7f\xff\xff\xff"
            ping = await client.kind(PING)
            # on its way before the client has acknowledged
            await client.send(call(3, b"y"))
            assert (await client.answer(3)).body == message(b"y")
            await client.send(frame(PING, ACK, 0, ping.payload))
            assert (await client.kind(GOAWAY)).payload[:4] == b"\0\0\0\3"
            stopping = asyncio.create_task(old.stop(10))
            assert await client.ended()
        assert await stopping == 0
        async with RawH2.to(old.address) as client:
            await client.send(call(1, b"z"))
            assert (await client.answer()).body == message(b"z")


async def what_has_arrived_is_read() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def _brpc(place: Listener) -> BrpcServer:
    return BrpcServer(BrpcEcho(), HttpEcho(), GrpcEcho(), place)


@pytest.mark.parametrize("make", [_brpc, lambda place: AnyServer(_brpc(place), place)], ids=["brpc", "any"])
async def test_brpc_refuses_with_logoff(make: Callable[[Listener], Any]) -> None:
    async with both(make) as (old, new):
        address = old.address
        async with BrpcStandinClient.to(address.host, address.port) as client:
            assert (await client.call("Predict", b"x")).payload == b"x"
            await new.start()
            old.retire()
            await what_has_arrived_is_read()
            refused = await client.call("Predict", b"y")
            assert refused.error[0] == 2003
        async with BrpcStandinClient.to(address.host, address.port) as client:
            assert (await client.call("Predict", b"z")).payload == b"z"
        async with RawHttp.to(address) as http:
            assert (await http.post("/echo", b"hi")).status == 200


async def test_brpc_calls_that_have_begun_to_arrive_are_answered() -> None:
    """One is in the socket when the server retires, of another one a part."""
    async with both(_brpc) as (old, new):
        address = old.address
        async with (
            BrpcStandinClient.to(address.host, address.port) as whole,
            BrpcStandinClient.to(address.host, address.port) as cut,
        ):
            large = request_frame("Predict", bytes(1 << 20), 3)
            await cut.send(request_frame("Predict", b"x", 2) + large[:-1])
            assert (await cut.receive()).payload == b"x"
            await new.start()
            await whole.send(request_frame("Predict", b"y", 1))
            old.retire()
            assert (await whole.receive()).payload == b"y"
            assert (await whole.call("Predict", b"z")).error[0] == 2003
            stopping = asyncio.create_task(old.stop(10))
            await what_has_arrived_is_read()
            await cut.send(large[-1:] + request_frame("Predict", b"late", 4))
            answers = {each.correlation_id: each for each in (await cut.receive(), await cut.receive())}
            assert answers[3].payload == bytes(1 << 20)
            assert answers[4].error[0] == 2003
            assert await cut.ended() and await stopping == 0


async def test_a_brpc_client_leaves_after_logoff() -> None:
    """The server refuses its next call, which goes to the successor, over a new connection."""
    echoes = [BrpcEcho(), BrpcEcho()]
    waiting = iter(echoes)
    async with both(lambda place: BrpcServer(next(waiting), HttpEcho(), GrpcEcho(), place)) as (old, new):
        client = CLIENTS["brpc", "native"](parse_url(str(old.address), "brpc"))
        try:
            assert (await client.send(BrpcRequest(SERVICE, "Predict", b"x"))).message == b"x"
            await new.start()
            old.retire()
            await what_has_arrived_is_read()
            assert (await client.send(BrpcRequest(SERVICE, "Predict", b"y"))).message == b"y"
            assert [[bytes(each.message) for each in echo.served] for echo in echoes] == [[b"x"], [b"y"]]
        finally:
            await client.close()


async def test_a_grpc_client_that_is_turned_away_connects_again() -> None:
    """GOAWAY before the first call is no failure: the address may have another server next."""
    turned_away = []

    async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turned_away.append(await reader.read(1))
        writer.write(settings() + goaway(0, Code.NO_ERROR, "the server is stopping"))
        listening.close()
        server = GrpcServer(GrpcEcho(), Listener(LOOPBACK, socket=shared))
        await server.start()
        servers.append(server)
        writer.close()

    opened = ListeningSocket.open(LOOPBACK)
    shared, servers = passed(opened), list[GrpcServer]()
    listening = await asyncio.start_server(turn_away, sock=opened.sock)
    client = CLIENTS["grpc", "native"](parse_url(str(opened.address), "grpc"))
    try:
        answer = await client.send(GrpcRequest("/test.Echo/Call", b"x"))
        assert (answer.message, len(turned_away)) == (b"x", 1)
    finally:
        await client.close()
        for server in servers:
            await server.stop(0)


async def test_framed_messages_are_answered_before_the_end() -> None:
    async with both(lambda place: FramedServer(FramedEcho(), place)) as (old, new):
        address = old.address
        async with FramedClient.to(address) as client, FramedClient.to(address) as slow:
            assert await client.ask(b"x") == b"x"
            assert await slow.ask(b"x") == b"x"
            slow.writer.write(b"\x02\0")
            await new.start()
            old.retire()
            assert await client.ask(b"y") == b"y"
            assert await client.receive() is None
            slow.writer.write(b"\0\0yy")
            assert await slow.receive() == b"yy"
            assert await slow.receive() is None
        async with FramedClient.to(address) as client:
            assert await client.ask(b"z") == b"z"
            assert await client.ask(b"z") == b"z"


async def test_a_handshake_goes_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("127.0.0.1")
    client_side = ssl.create_default_context(cafile=authority.ca)

    def make(place: Listener) -> HttpServer:
        place.tls = TlsContext(ServerTls(issued.cert, issued.key))
        return HttpServer(HttpEcho(), place)

    async with both(make) as (old, new):
        sock = socket.create_connection((old.address.host, old.address.port))
        sock.setblocking(False)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        machine = client_side.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            machine.do_handshake()
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, outgoing.read())
        incoming.write(await loop.sock_recv(sock, 1 << 16))
        await new.start()
        old.retire()
        machine.do_handshake()
        machine.write(REQUEST)
        await loop.sock_sendall(sock, outgoing.read())
        answer = b""
        while not answer.endswith(b"hi"):
            incoming.write(await loop.sock_recv(sock, 1 << 16))
            with suppress(ssl.SSLWantReadError):
                answer += machine.read(1 << 16)
        sock.close()
        assert answer.startswith(b"HTTP/1.1 200") and b"connection: close" in answer.lower()


async def test_the_file_of_a_socket_that_is_passed_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    address = parse_address(f"unix:{path}")
    async with both(lambda place: HttpServer(HttpEcho(), place), address) as (old, new):
        await new.start()
        old.retire()
        old._listener.socket.removes = False
        await old.stop(1)
        async with RawHttp.to(address) as client:
            assert (await client.post("/echo", b"hi")).status == 200
    assert not path.exists()


# --- which socket is for which listener


def _sockets(*wanted: tuple[str, str | None, str]) -> list[ListeningSocket]:
    """A socket for each bound address, configured address and name; ports of 0 are filled in."""
    found = []
    for place, configured, name in wanted:
        opened = ListeningSocket.open(parse_address(place))
        opened.configured = None if configured is None else parse_address(configured)
        opened.name = name
        found.append(opened)
    return found


def test_the_address_of_the_configuration_decides_first() -> None:
    sockets = _sockets(("127.0.0.1:0", "127.0.0.1:0", ""), ("127.0.0.1:0", "127.0.0.1:0", ""))
    wanted = [(parse_address("127.0.0.1:0"), "http")] * 2
    assert assign(wanted, sockets) == (sockets, [])
    for each in sockets:
        each.close()


def test_then_the_bound_address_then_the_name() -> None:
    sockets = _sockets(("127.0.0.1:0", None, "grpc"), (":0", None, ""), ("127.0.0.1:0", None, "http"))
    ports = [each.address.port for each in sockets]
    wanted = [
        (Address("127.0.0.1", 1), "grpc"),
        (Address("localhost", ports[0]), "http"),
        (Address("", ports[1]), "http"),
        (Address("127.0.0.1", 2), "http"),
        (Address("127.0.0.1", ports[1]), "tcp"),
    ]
    found, left = assign(wanted, sockets)
    assert found == [None, sockets[0], sockets[1], sockets[2], None]
    assert left == []
    for each in sockets:
        each.close()


def test_what_no_listener_has_is_left(tmp_path: Path) -> None:
    sockets = _sockets((f"unix:{tmp_path}/a", None, "x"), ("127.0.0.1:0", None, "x"))
    assert assign([(Address(path=f"{tmp_path}/./a"), "http")], sockets) == ([sockets[0]], [sockets[1]])
    for each in sockets:
        each.close()
        each.remove_file()
