"""A listener of any transport: which server gets a connection, by its first bytes, with and without TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from interlingua.protocols.transport.proxy_protocol import SIGNATURE
from interlingua.translator.admin.load import families as families_of_load
from interlingua.translator.admin.metrics import Family
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config import ConfigError, parse
from interlingua.translator.daemon import Listening, _listen
from interlingua.translator.serving.request_metrics import families as families_of_requests
from tests.certificates import Authority, Issued
from tests.translator.test_tls import SIGNATURE as MODEL
from tests.translator.test_tls import SIZES, calling, echoed, on_both_loops
from tests.waiting import until

KINDS = (
    ("oip", "http"),
    ("oip", "grpc"),
    ("trtis", "http"),
    ("trtis", "grpc"),
    ("grps", "brpc"),
    ("graphpipe", "http"),
)
GET = b"GET /v2/models/m HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
PREFACE, SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\4\0\0\0\0\0"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.issue("localhost", "127.0.0.1")


@asynccontextmanager
async def port(**options: Any) -> AsyncIterator[tuple[Listening, Assembly]]:
    """A listener of any transport in front of an identity."""
    listener = {"listen": "127.0.0.1:0", "transport": "any", "default_model": "m", **options}
    models = {"m": {"backend": "identity", "signature": MODEL}}
    config = parse(yaml.safe_dump({"listeners": [listener], "models": models}))
    assembly = assemble(config, load_local(config))
    (bound,) = await _listen(assembly)
    try:
        yield bound, assembly
    finally:
        await bound.server.stop(0)
        await assembly.close()


def tls(own: Issued, **options: Any) -> dict[str, Any]:
    return {"cert": own.cert, "key": own.key, **options}


async def exchange(
    bound: Listening, *pieces: bytes, context: ssl.SSLContext | None = None, count: int = -1
) -> bytes:
    """What the server sends to a client that sends ``pieces``: ``count`` bytes, or all until it closes."""
    host = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection(
        bound.address.host, bound.address.port, ssl=context, server_hostname=host
    )
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        async with asyncio.timeout(20):
            return await reader.read(count)
    except OSError:  # that of TLS as well
        return b""
    finally:
        writer.close()


def values(families: Any, name: str) -> dict[str, float]:
    """The samples of a metric that are not 0, by transport."""
    found: list[Family] = [family for family in families if family.name == name]
    return {
        sample.labels["transport"]: sample.value
        for family in found
        for sample in family.samples
        if sample.value
    }


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
@on_both_loops
async def test_every_dialect_on_one_port(encrypted: bool, authority: Authority, own: Issued) -> None:
    options = {"tls": tls(own)}
    async with port(**options) as (bound, _):
        for kind in KINDS:
            async with calling(kind, bound.address, {"ca": authority.ca} if encrypted else None) as model:
                for rows in SIZES:
                    await echoed(model, rows)


@on_both_loops
async def test_metrics_have_the_detected_transport() -> None:
    async with port() as (bound, assembly):
        reader, writer = await asyncio.open_connection(bound.address.host, bound.address.port)
        for kind in (("oip", "http"), ("oip", "grpc"), ("grps", "brpc")):
            async with calling(kind, bound.address, None) as model:
                await echoed(model)
                here = assembly.service.listeners
                open_now = values(
                    families_of_load(list(zip(here, assembly.loads, strict=True))), "interlingua_connections"
                )
                assert open_now == {"any": 1, {"grpc": "h2"}.get(kind[1], kind[1]): 1}
        counted = values(
            families_of_requests(list(zip(here, assembly.request_metrics, strict=True))),
            "interlingua_requests_total",
        )
        assert counted == {"http": 1, "grpc": 1, "brpc": 1}
        writer.close()
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("pieces", "begins"),
    [
        ([GET], b"HTTP/1.1 200"),
        ([GET[:1], GET[1:3], GET[3:]], b"HTTP/1.1 200"),
        ([PREFACE[:2], PREFACE[2:] + SETTINGS], b"\0\0\x18\4\0"),
        ([b"\x16\x03\x01"], b""),  # TLS where there is none
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], b""),
        ([b"\0"], b""),
        ([b"P", b"ROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n"], b""),  # of nobody that is trusted
    ],
    ids=["http", "drips", "h2", "tls", "ssh", "zero", "proxy"],
)
@on_both_loops
async def test_the_first_bytes_decide(pieces: list[bytes], begins: bytes) -> None:
    async with port(http2={"max_header_list_bytes": 8192}) as (bound, assembly):
        answer = await exchange(bound, *pieces, count=len(begins) or -1)
        assert answer == begins
        await until(lambda: not assembly.loads[0].connections)


@on_both_loops
async def test_silent_clients_are_cut_at_the_header_timeout(own: Issued) -> None:
    async with port(header_timeout_secs=0.2, tls=tls(own)) as (bound, assembly):
        assert (
            await asyncio.gather(exchange(bound), exchange(bound, b"G"), exchange(bound, b"PR")) == [b""] * 3
        )
        assert assembly.loads[0].connections == 0


@on_both_loops
async def test_connections_count_before_their_first_byte(own: Issued) -> None:
    async with port(max_connections=2, tls=tls(own)) as (bound, assembly):
        silent = [await asyncio.open_connection(bound.address.host, bound.address.port) for _ in range(2)]
        await until(lambda: assembly.loads[0].connections == 2)
        assert await exchange(bound, GET) == b""
        assert assembly.loads[0].refused == {"max_connections": 1}
        for _, writer in silent:
            writer.close()
        await until(lambda: not assembly.loads[0].connections)
        assert (await exchange(bound, GET)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("offered", "sent"), [("h2", PREFACE), ("http/1.1", GET), (None, GET), (None, PREFACE)]
)
@on_both_loops
async def test_alpn_decides_with_tls(
    offered: str | None, sent: bytes, authority: Authority, own: Issued
) -> None:
    context = ssl.create_default_context(cafile=authority.ca)
    if offered is not None:
        context.set_alpn_protocols([offered])
    async with port(tls=tls(own)) as (bound, _):
        begins = b"HTTP/1.1 200" if sent is GET else b"\0\0\x18\4\0"
        assert await exchange(bound, sent + SETTINGS, context=context, count=len(begins)) == begins


@on_both_loops
async def test_what_alpn_has_chosen_must_follow(authority: Authority, own: Issued) -> None:
    context = ssl.create_default_context(cafile=authority.ca)
    context.set_alpn_protocols(["http/1.1"])
    async with port(tls=tls(own)) as (bound, _):
        assert not (await exchange(bound, b"PRPC" + bytes(8), context=context)).startswith(b"PRPC")


@on_both_loops
async def test_required_certificates_are_required_of_all(authority: Authority, own: Issued) -> None:
    mutual = tls(own, client_ca=authority.ca, client="require")
    context = ssl.create_default_context(cafile=authority.ca)
    async with port(tls=mutual) as (bound, assembly):
        assert await exchange(bound, GET) == b""
        assert await exchange(bound, GET, context=context) == b""
        client = authority.issue("client")
        context.load_cert_chain(client.cert, client.key)
        assert (await exchange(bound, GET, context=context)).startswith(b"HTTP/1.1 200")
        async with port(tls={**mutual, "match_subject_alt_names": ["other*"]}) as (strict, _):
            assert await exchange(strict, GET, context=context) == b""
        await until(lambda: not assembly.loads[0].connections)


@pytest.mark.parametrize(
    "header",
    [b"PROXY TCP4 %s 127.0.0.1 1 2\r\n", SIGNATURE + b"\x21\x11\x00\x0c%s\x7f\0\0\1\0\1\0\2"],
    ids=["v1", "v2"],
)
@on_both_loops
async def test_a_proxy_reports_its_client_before_everything(
    header: bytes, authority: Authority, own: Issued
) -> None:
    def of(host: str) -> bytes:
        return header % (host.encode() if b"TCP4" in header else bytes(map(int, host.split("."))))

    options = {
        "trusted_proxies": ["127.0.0.0/8"],
        "proxy_protocol": True,
        "allow": {"metadata": ["192.0.2.7"]},
    }
    context = ssl.create_default_context(cafile=authority.ca)
    async with port(tls=tls(own), **options) as (bound, _):
        for host, status in (("192.0.2.7", b"200"), ("192.0.2.8", b"403")):
            assert (await exchange(bound, of(host) + GET)).split()[1] == status
            assert (await exchange(bound, of(host)[:9], of(host)[9:] + GET[:2], GET[2:])).split()[1] == status
            assert await _over_tls(bound, of(host), context) == status


async def _over_tls(bound: Listening, header: bytes, context: ssl.SSLContext) -> bytes:
    """The status for a client with TLS behind a proxy."""
    import socket

    sock = socket.create_connection((bound.address.host, bound.address.port))
    sock.sendall(header)
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: asyncio.StreamReaderProtocol(reader), sock=sock, ssl=context, server_hostname="localhost"
    )
    transport.write(GET)
    async with asyncio.timeout(20):
        status = (await reader.readline()).split()[1]
    transport.abort()
    return status


@on_both_loops
async def test_a_stop_ends_connections_that_have_sent_nothing(own: Issued) -> None:
    async with port(tls=tls(own)) as (bound, assembly):
        clients = [asyncio.create_task(exchange(bound, *sent)) for sent in ((), (b"P",), (b"\x16\x03\x01",))]
        await until(lambda: assembly.loads[0].connections == 3)
        await asyncio.sleep(0.05)
        assert await bound.server.stop(20) == 0
        assert await asyncio.gather(*clients) == [b""] * 3
        await until(lambda: not assembly.loads[0].connections)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "library"}, "listeners[0].engine: is for transport http or grpc, not any"),
        (
            {"accept_te_with_length": True},
            "listeners[0].accept_te_with_length: is for transport http, not any",
        ),
    ],
)
def test_options_that_it_lacks(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(yaml.safe_dump({"listeners": [{"listen": ":0", "transport": "any", **options}]}))
    assert message in str(caught.value)
