"""The end of connections over TLS: clients have closed their sockets when ``close`` returns."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from interlingua.protocols.transport.address import Address, parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.http.client import PooledHttpClient
from interlingua.protocols.transport.reach import unreachable
from interlingua.protocols.transport.tls import ClientTls, TlsContext
from interlingua.protocols.wire import GrpcRequest, HttpCall
from interlingua.schemas import Context, InferenceError
from tests.certificates import Authority
from tests.protocols.transport.h2.peer import settings

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


async def http(address: Address, tls: TlsContext) -> None:
    client = PooledHttpClient(parse_url(f"https://{address}"), ClientOptions(tls=tls))
    with pytest.raises(InferenceError):
        await client.send(HttpCall("GET", "/", context=Context(deadline=time.monotonic() + 0.3)))
    await client.close()


async def grpc(address: Address, tls: TlsContext) -> None:
    client = GrpcChannelClient(parse_url(str(address)), ClientOptions(tls=tls))
    with pytest.raises(InferenceError):
        await client.send(GrpcRequest("/s/m", b"", context=Context(deadline=time.monotonic() + 0.3)))
    await client.close()


async def probe(address: Address, tls: TlsContext) -> None:
    assert await unreachable(address, 5, tls) == ""


def sockets() -> set[str]:
    """The sockets of this process."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.add(os.readlink(each))
        except FileNotFoundError:  # the descriptor of this look
            continue
    return {each for each in found if each.startswith("socket:")}


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("use", [http, grpc, probe])
def test_a_server_that_does_not_answer_the_end_of_tls(
    use: Callable[[Address, TlsContext], Awaitable[None]],
    loop: Callable[[], asyncio.AbstractEventLoop],
    tmp_path: Path,
) -> None:
    """Event loops wait 30 seconds for the server's close_notify."""
    authority = Authority(tmp_path)
    issued = authority.issue("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert, issued.key)
    over = threading.Event()

    def serve() -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            if use is grpc:
                connection.sendall(settings())
            over.wait(60)

    async def main() -> set[str]:
        before = sockets()
        await asyncio.wait_for(use(address, TlsContext(ClientTls(ca=authority.ca))), 20)
        return sockets() - before

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with asyncio.Runner(loop_factory=loop) as runner:
                assert len(runner.run(main())) <= 1  # the server's
        finally:
            over.set()
            thread.join()
