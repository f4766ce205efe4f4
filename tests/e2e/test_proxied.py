"""Clients behind a proxy that speaks the PROXY protocol, over every transport and on both event loops."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
import yaml
from graphpipe import convert

from interlingua.protocols.transport import proxied
from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.proxy_protocol import SIGNATURE
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config import parse
from interlingua.translator.daemon import _listen
from tests.standins.brpc_client import BrpcStandinClient
from tests.standins.framed import FramedClient
from tests.standins.grps_contract import GrpsMessage

SPEC = {"datatype": "FP32", "shape": [-1, 4]}
ECHO = {
    "backend": "identity",
    "signature": {"inputs": [{"name": "X", **SPEC}], "outputs": [{"name": "Y", **SPEC}]},
}
INSIDE, OUTSIDE = "203.0.113.9", "198.51.100.7"

LINE = b"PROXY TCP4 203.0.113.9 127.0.0.1 4711 80\r\n"
BINARY = (
    SIGNATURE + b"\x21\x11\x00\x13" + bytes([203, 0, 113, 9]) * 2 + b"\x12\x67\x00\x50" + b"\x04\x00\x04abcd"
)
OTHERS = [
    LINE.replace(INSIDE.encode(), OUTSIDE.encode()),
    b"PROXY TCP6 2001:db8::9 ::1 4711 80\r\n",
    b"PROXY UNKNOWN\r\n",
    SIGNATURE + b"\x21\x00\x00\x00",
    SIGNATURE + b"\x20\x00\x00\x00",
    SIGNATURE + b"\x21\x31\x00\xd8" + bytes(216),
]


@asynccontextmanager
async def listening(folder: Path | None = None, **options: Any) -> AsyncIterator[list[Address]]:
    """Listeners of all transports that permit everything to callers of one network; their addresses."""
    allow = {name: ["203.0.113.0/24"] for name in ("inference", "metadata", "health", "server")}
    proxies = {"trusted_proxies": ["127.0.0.1", "unix"], "proxy_protocol": True, "allow": allow, **options}
    listeners = [
        {
            "listen": f"unix:{folder}/{transport}" if folder else "127.0.0.1:0",
            "transport": transport,
            "default_model": "echo",
            **proxies,
        }
        for transport in ("http", "grpc", "brpc", "tcp")
    ]
    config = parse(yaml.safe_dump({"listeners": listeners, "models": {"echo": ECHO}}))
    assembly = assemble(config, load_local(config))
    bound = await _listen(assembly)
    try:
        yield [each.address for each in bound]
    finally:
        await asyncio.gather(*(each.server.stop(0) for each in bound))
        await assembly.close()


async def connect(to: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if to.path:
        return await asyncio.open_unix_connection(to.path)
    return await asyncio.open_connection(to.host, to.port)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the connection is closed without another byte."""
    try:
        return await asyncio.wait_for(reader.read(), 30) == b""
    except ConnectionResetError:
        return True


@asynccontextmanager
async def proxy(to: Address, pieces: Sequence[bytes]) -> AsyncIterator[Address]:
    """A proxy that begins every connection with ``pieces``; its address."""
    tasks: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except ConnectionError:
            pass
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await connect(to)
        writers.update((ours, writer))
        for piece in pieces[:-1]:
            ours.write(piece)
            await asyncio.sleep(0.001)
        # the last piece goes out with the first bytes of the client
        ours.write(pieces[-1] + await reader.read(1 << 16))
        tasks.update((asyncio.create_task(pump(reader, ours)), asyncio.create_task(pump(theirs, writer))))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield Address(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in writers:
            each.transport.abort()


# one question of each protocol, and whether its answer is that of a permitted caller


async def over_http(at: Address) -> bool:
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(b"GET /grps/v1/health/live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    status = json.loads(answer.partition(b"\r\n\r\n")[2])["status"]["code"]
    assert status in (200, 403), answer
    return bool(status == 200)


async def over_grpc(at: Address, service: str = "GrpsService") -> bool:
    async with grpc.aio.insecure_channel(f"{at.host}:{at.port}") as channel:
        method = channel.unary_unary(f"/grps.protos.v1.{service}/CheckLiveness")
        answer = GrpsMessage.FromString(await method(b"", timeout=10))
    assert answer.status.code in (200, 403)
    return bool(answer.status.code == 200)


async def over_brpc(at: Address) -> bool:
    async with BrpcStandinClient.to(at.host, at.port) as client:
        received = await client.call("CheckLiveness")
    answer = GrpsMessage.FromString(received.payload)
    assert answer.status.code in (200, 403)
    return bool(answer.status.code == 200)


async def over_tcp(at: Address) -> bool:
    async with FramedClient.to(at) as client:
        answer = await client.ask(bytes(convert.serialize_metadata_request()))
    assert answer is not None
    return b"does not permit" not in answer


async def http_beside_brpc(at: Address) -> bool:
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(b"GET /GrpsBrpcService/CheckLiveness HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return bool(json.loads(answer.partition(b"\r\n\r\n")[2])["status"]["code"] == 200)


async def grpc_beside_brpc(at: Address) -> bool:
    return await over_grpc(at, "GrpsBrpcService")


WAYS: list[tuple[int, Callable[[Address], Awaitable[bool]]]] = [
    (0, over_http),
    (1, over_grpc),
    (2, over_brpc),
    (2, http_beside_brpc),
    (2, grpc_beside_brpc),
    (3, over_tcp),
]
LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def run(work: Any, loop: Any) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


@LOOPS
def test_every_transport(loop: Any) -> None:
    async def main() -> None:
        async with listening() as addresses:
            for place, ask in WAYS:
                for pieces in ([LINE], [BINARY], [bytes([byte]) for byte in BINARY], [LINE[:1], LINE[1:]]):
                    async with proxy(addresses[place], pieces) as at:
                        assert await ask(at), (ask, pieces)
                for other in OTHERS:
                    async with proxy(addresses[place], [other]) as at:
                        assert not await ask(at), (ask, other)

    run(main(), loop)


@LOOPS
def test_unix_sockets(loop: Any, tmp_path: Path) -> None:
    async def main() -> None:
        local = {name: ["local"] for name in ("metadata", "health")}
        async with listening(tmp_path, allow=local) as addresses:
            for place, ask in WAYS:
                # a local command and a unix socket are of this machine, as is the proxy
                for header, permitted in (
                    (OTHERS[4], True),
                    (OTHERS[5], True),
                    (LINE, False),
                    (OTHERS[3], False),
                ):
                    async with proxy(addresses[place], [header]) as at:
                        assert await ask(at) is permitted, (ask, header)

    run(main(), loop)


@LOOPS
def test_addresses_that_are_not_trusted(loop: Any) -> None:
    """They have no header; the header of a client that pretends to be a proxy is not one of the protocol."""

    async def main() -> None:
        allow = {name: ["local"] for name in ("inference", "metadata", "health")}
        async with listening(trusted_proxies=["203.0.113.1"], allow=allow) as addresses:
            for place, ask in WAYS:
                assert await ask(addresses[place]), ask
            for address in addresses:
                reader, writer = await connect(address)
                writer.write(LINE + b"GET /grps/v1/health/live HTTP/1.1\r\nHost: h\r\n\r\n")
                answer = await reader.read()
                assert b"200 OK" not in answer and b"SUCCESS" not in answer
                writer.close()

    run(main(), loop)


@LOOPS
def test_malformed_headers_close_the_connection(loop: Any) -> None:
    async def main() -> None:
        async with listening() as addresses:
            for address in addresses:
                for data in (
                    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                    b"PRPC" * 9,
                ):
                    reader, writer = await connect(address)
                    writer.write(data)
                    assert await ended(reader)
                    writer.close()

    run(main(), loop)


@LOOPS
def test_headers_that_do_not_come(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent proxies are cut after a time, and do not delay a stop."""

    async def main() -> None:
        monkeypatch.setattr(proxied, "HEADER_SECS", 0.05)
        async with listening() as addresses:
            for address in addresses:
                reader, writer = await connect(address)
                writer.write(LINE[:9])
                assert await ended(reader)
                writer.close()
            monkeypatch.setattr(proxied, "HEADER_SECS", 60.0)
            waiting = [await connect(address) for address in addresses]
            await asyncio.sleep(0.05)
        for reader, writer in waiting:
            assert await ended(reader)
            writer.close()

    run(main(), loop)


@LOOPS
def test_connections_are_limited_by_client(loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The limit of an address is that of the client, not of the proxy; what follows the header of a refused
    connection is dropped."""

    async def main() -> None:
        async with listening(max_connections_per_address=1) as addresses:
            for place, ask in WAYS:
                held = await connect(addresses[place])
                held[1].write(LINE)
                await asyncio.sleep(0.02)
                refused = await connect(addresses[place])
                refused[1].write(LINE + b"GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n")
                assert b"SUCCESS" not in await asyncio.wait_for(whole(refused[0]), 30)
                async with proxy(addresses[place], [LINE.replace(b"203.0.113.9", b"203.0.113.8")]) as at:
                    assert await ask(at)
                for _, writer in (held, refused):
                    writer.transport.abort()
                await asyncio.sleep(0.02)

    run(main(), loop)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def whole(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_what_follows_the_header_may_be_large() -> None:
    """Several messages, more than any buffer has, in the same bytes as the header."""

    async def main() -> None:
        async with listening() as addresses:
            reader, writer = await connect(addresses[3])
            message = bytes(convert.serialize_metadata_request())
            frame = struct.pack("<I", len(message)) + message
            writer.write(LINE + frame * 500)
            for _ in range(500):
                (size,) = struct.unpack("<I", await reader.readexactly(4))
                assert b"echo" in await reader.readexactly(size)
            writer.close()

    run(main(), uvloop.new_event_loop)
