"""TLS on listeners and to upstreams, for every transport: what is accepted, what is refused and with what words."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import numpy as np
import pytest
import uvloop
import yaml

from interlingua.protocols import watched_files
from interlingua.protocols.transport.address import Address
from interlingua.runtime.repository.files import Loaded
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, Tensor
from interlingua.translator.assembly import Assembly, assemble, load_local
from interlingua.translator.config import ConfigError, parse
from interlingua.translator.daemon import _admin, _listen
from tests.certificates import Authority, Issued

SPEC = {"datatype": "FP32", "shape": [-1, 16]}
SIGNATURE = {"inputs": [{"name": "X", **SPEC}], "outputs": [{"name": "Y", **SPEC}]}
KINDS = (("oip", "http"), ("oip", "grpc"), ("trtis", "http"), ("grps", "brpc"), ("graphpipe", "tcp"))
SIZES = (1, 100_000)
"""In rows of 64 bytes: the larger one takes the paths of large bodies."""


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run ``test`` on asyncio's event loop and on uvloop, which have different implementations of TLS."""

    @functools.wraps(test)
    def run(loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(test(**fixtures))

    stated = inspect.signature(test)
    parameter = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = stated.replace(parameters=[*stated.parameters.values(), parameter])  # type: ignore[attr-defined]
    loops = [asyncio.new_event_loop, uvloop.new_event_loop]
    return pytest.mark.parametrize("loop", loops, ids=["asyncio", "uvloop"])(run)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that no server knows."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.issue("localhost", "127.0.0.1")


def files(issued: Issued) -> dict[str, Any]:
    return {"cert": issued.cert, "key": issued.key}


@asynccontextmanager
async def listening(
    tls: dict[str, Any] | None, *kinds: tuple[str, str], **options: Any
) -> AsyncIterator[list[Address]]:
    """Listeners of an identity, one of each kind."""
    listener = {"listen": "127.0.0.1:0", "default_model": "m", **({"tls": tls} if tls else {}), **options}
    listeners = [{**listener, "transport": transport, "dialects": [dialect]} for dialect, transport in kinds]
    models = {"m": {"backend": "identity", "signature": SIGNATURE}}
    config = parse(yaml.safe_dump({"listeners": listeners, "models": models}))
    assembly = assemble(config, load_local(config))
    bound = await _listen(assembly)
    try:
        yield [each.address for each in bound]
    finally:
        await asyncio.gather(*(each.server.stop(0) for each in bound))
        await assembly.close()


@asynccontextmanager
async def calling(kind: tuple[str, str], address: Address, tls: dict[str, Any] | None) -> AsyncIterator[Any]:
    """The model at ``address``."""
    dialect, transport = kind
    upstream = {
        "dialect": dialect,
        "transport": transport,
        "urls": [str(address)],
        **({"tls": tls} if tls else {}),
    }
    document = {
        "listeners": [{"listen": ":0", "transport": "http"}],
        "upstreams": {"there": {**upstream, "probe_interval_secs": 0.0}},
        "models": {"m": {"upstream": "there", "signature": SIGNATURE}},
    }
    assembly: Assembly = assemble(parse(yaml.safe_dump(document)), Loaded())
    try:
        yield assembly.service.router.models["m"]
    finally:
        await assembly.close()


async def echoed(model: Any, rows: int = 1) -> None:
    values = np.arange(rows * 16, dtype=np.float32).reshape(rows, 16)
    answer = await model.infer(InferRequest("m", (Tensor.from_numpy("X", values),), context=Context()))
    assert np.array_equal(answer.outputs[0].numpy(), values)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@on_both_loops
async def test_every_transport_carries_requests_of_every_size(
    kind: tuple[str, str], authority: Authority, own: Issued
) -> None:
    async with (
        listening(files(own), kind) as [address],
        calling(kind, address, {"ca": authority.ca}) as model,
    ):
        for rows in SIZES:
            await echoed(model, rows)
        await asyncio.gather(*(echoed(model, 100) for _ in range(20)))


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@on_both_loops
async def test_certificates_that_callers_refuse(
    kind: tuple[str, str], authority: Authority, stranger: Authority, own: Issued
) -> None:
    expired, other = authority.issue("127.0.0.1", expired=True), authority.issue("other.example")
    cases: list[tuple[Issued, dict[str, Any] | None, str]] = [
        (own, {"ca": stranger.ca}, "TLS: unable to get local issuer certificate"),
        (own, {"ca": authority.ca, "server_name": "other.example"}, "TLS: Hostname mismatch"),
        (other, {"ca": authority.ca}, "TLS: IP address mismatch"),
        (expired, {"ca": authority.ca}, "TLS: certificate has expired"),
        (own, None, "the upstream at"),
    ]
    for issued, options, words in cases:
        async with listening(files(issued), kind) as [address], calling(kind, address, options) as model:
            with pytest.raises(InferenceError, match=words) as refused:
                await echoed(model)
            assert refused.value.code in (ErrorCode.UNAVAILABLE, ErrorCode.BAD_UPSTREAM)
    named = {"ca": authority.ca, "server_name": "other.example"}
    async with listening(files(other), kind) as [address], calling(kind, address, named) as model:
        await echoed(model)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@on_both_loops
async def test_certificates_that_listeners_refuse(
    kind: tuple[str, str], authority: Authority, stranger: Authority, own: Issued
) -> None:
    good, bad = authority.issue("client.example"), stranger.issue("client.example")
    expired = authority.issue("client.example", expired=True)
    required = {**files(own), "client_ca": authority.ca, "client": "require"}
    accepted: dict[str, tuple[Issued | None, ...]] = {"require": (good,), "request": (good, None)}
    refused: dict[str, tuple[Issued | None, ...]] = {
        "require": (bad, expired, None),
        "request": (bad, expired),
    }
    for client in ("require", "request"):
        async with listening({**required, "client": client}, kind) as [address]:
            for issued in accepted[client]:
                options = {"ca": authority.ca, **(files(issued) if issued else {})}
                async with calling(kind, address, options) as model:
                    await echoed(model)
            for issued in refused[client]:
                options = {"ca": authority.ca, **(files(issued) if issued else {})}
                async with calling(kind, address, options) as model:
                    with pytest.raises(InferenceError) as error:
                        await echoed(model)
                    assert error.value.code in (ErrorCode.UNAVAILABLE, ErrorCode.BAD_UPSTREAM)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@on_both_loops
async def test_names_of_clients(kind: tuple[str, str], authority: Authority, own: Issued) -> None:
    trainer, other = authority.issue("trainer.example", common_name="t"), authority.issue("other.example")
    rules: list[dict[str, Any]] = [
        {"match_subject_alt_names": ["spiffe://*", "trainer.*"]},
        {"match_subjects": ["CN=t,*"]},
        {"match_subject_alt_names": ["*.example"], "match_subjects": ["CN=t,*"]},
    ]
    required = {**files(own), "client_ca": authority.ca, "client": "require"}
    for rule in rules:
        async with listening({**required, **rule}, kind) as [address]:
            async with calling(kind, address, {"ca": authority.ca, **files(trainer)}) as model:
                await echoed(model)
            async with calling(kind, address, {"ca": authority.ca, **files(other)}) as model:
                with pytest.raises(InferenceError) as error:
                    await echoed(model)
                assert error.value.code in (ErrorCode.UNAVAILABLE, ErrorCode.BAD_UPSTREAM)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@on_both_loops
async def test_a_plain_server_refuses_tls(kind: tuple[str, str], authority: Authority) -> None:
    async with listening(None, kind) as [address], calling(kind, address, {"ca": authority.ca}) as model:
        with pytest.raises(InferenceError, match="TLS: |cannot be reached|no connection") as refused:
            await echoed(model)
        assert refused.value.code == ErrorCode.UNAVAILABLE


@on_both_loops
async def test_clients_of_others(authority: Authority, own: Issued) -> None:
    """aiohttp and grpcio, which have their own TLS."""
    async with listening(files(own), ("oip", "http"), ("oip", "grpc")) as [http, grpc_address]:
        context = ssl.create_default_context(cafile=authority.ca)
        async with aiohttp.ClientSession() as client:
            answer = await client.get(f"https://{http}/v2/models/m", ssl=context)
            assert (await answer.json())["name"] == "m"
        credentials = grpc.ssl_channel_credentials(Path(authority.ca).read_bytes())
        async with grpc.aio.secure_channel(str(grpc_address), credentials) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            assert await call(b"") == b"\x08\x01"  # ServerLiveResponse(live=True)


@on_both_loops
async def test_alpn_and_versions(authority: Authority, own: Issued) -> None:
    both = ["http/1.1", "h2"]
    options = {**files(own), "min_version": "1.3"}
    async with listening(options, ("oip", "http"), ("oip", "grpc"), ("grps", "brpc")) as (http, rpc, brpc):
        for address, offered, chosen in (
            (http, both, "h2"),
            (http, both[:1], "http/1.1"),
            (rpc, both, "h2"),
            (brpc, both, "h2"),
            (brpc, both[:1], "http/1.1"),
        ):
            context = ssl.create_default_context(cafile=authority.ca)
            context.set_alpn_protocols(offered)
            _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
            found = writer.get_extra_info("ssl_object")
            assert (found.selected_alpn_protocol(), found.version()) == (chosen, "TLSv1.3")
            writer.close()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                await asyncio.open_connection(address.host, address.port, ssl=context)


@on_both_loops
async def test_ciphers(authority: Authority, own: Issued) -> None:
    """Those of TLS 1.2 that the listener states, and no other."""
    stated, other = "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"
    async with listening({**files(own), "ciphers": stated}, ("oip", "http")) as [address]:
        context = ssl.create_default_context(cafile=authority.ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        assert writer.get_extra_info("cipher")[0] == stated
        writer.close()
        context.set_ciphers(other)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await asyncio.open_connection(address.host, address.port, ssl=context)


@on_both_loops
async def test_silent_clients_hold_no_handshake(
    authority: Authority, own: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlingua.protocols.transport.tls_server.HANDSHAKE_SECS", 0.3)
    monkeypatch.setattr("interlingua.protocols.transport.tls_server.MAX_HANDSHAKES", 4)
    kind = ("oip", "http")
    async with listening(files(own), kind) as [address], AsyncExitStack() as stack:
        readers = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            stack.callback(writer.close)
            readers.append(reader)
        # the fifth waits in the kernel until the silent ones have been dropped
        model = await stack.enter_async_context(calling(kind, address, {"ca": authority.ca}))
        await echoed(model)
        assert [await reader.read() for reader in readers] == [b""] * 4


@on_both_loops
async def test_a_proxy_reports_its_client_before_the_handshake(authority: Authority, own: Issued) -> None:
    options = {
        "trusted_proxies": ["127.0.0.0/8"],
        "proxy_protocol": True,
        "allow": {"metadata": ["192.0.2.7"]},
    }
    context = ssl.create_default_context(cafile=authority.ca)
    async with listening(files(own), ("oip", "http"), **options) as [address]:
        for host, status in (("192.0.2.7", b"200"), ("192.0.2.8", b"403")):
            loop = asyncio.get_running_loop()
            sock = await asyncio.to_thread(_connected, address, host)
            reader = asyncio.StreamReader()
            transport, _ = await loop.create_connection(
                lambda reader=reader: asyncio.StreamReaderProtocol(reader),
                sock=sock,
                ssl=context,
                server_hostname="localhost",
            )
            transport.write(b"GET /v2/models/m HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await reader.readline()).split()[1] == status
            transport.abort()


def _connected(address: Address, client: str) -> Any:
    """A connection of a proxy, whose header comes in two pieces."""
    sock = socket.create_connection((address.host, address.port))
    header = f"PROXY TCP4 {client} 127.0.0.1 1 2\r\n".encode()
    sock.sendall(header[:9])
    time.sleep(0.05)
    sock.sendall(header[9:])
    return sock


@on_both_loops
async def test_a_stop_at_the_end_of_a_handshake(authority: Authority, own: Issued) -> None:
    """The task of the handshake is cancelled, and has closed its connection, when the server drains."""
    async with listening(files(own), ("oip", "http")) as [address]:
        context = ssl.create_default_context(cafile=authority.ca)
        reader, _ = await asyncio.open_connection(address.host, address.port, ssl=context)
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        assert await reader.read() == b""


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@on_both_loops
async def test_a_client_that_closes_leaves_no_record(
    kind: tuple[str, str], authority: Authority, own: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    """The event loops warn of a server that wants to go on writing: TLS has no half-closed connections."""
    context = ssl.create_default_context(cafile=authority.ca)

    def connect_and_close(address: Address) -> None:
        plain = socket.create_connection((address.host, address.port), timeout=20)
        with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
            if kind == ("grps", "brpc"):
                encrypted.sendall(b"PRPC")
            # returns when the server has closed its side too
            with contextlib.suppress(OSError), encrypted.unwrap():
                pass

    async with listening(files(own), kind) as [address]:
        await asyncio.to_thread(connect_and_close, address)
    assert caplog.records == []


@on_both_loops
async def test_new_certificates_are_used_without_a_lost_request(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fifty callers go on; new connections get the new certificate, those that are open stay."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(watched_files, "CHECK_SECS", 0.0)
    cert, key = tmp_path / "tls.pem", tmp_path / "tls.key"

    def rotate() -> None:
        issued = authority.issue("localhost", "127.0.0.1")
        # first half of the change: the key of another certificate
        shutil.copy(issued.key, key)
        shutil.copy(issued.cert, cert)

    rotate()
    kind = ("oip", "http")
    stop = asyncio.Event()

    async def caller(model: Any) -> int:
        count = 0
        while not stop.is_set():
            await echoed(model)
            count += 1
        return count

    async with listening({"cert": str(cert), "key": str(key)}, kind) as [address], AsyncExitStack() as stack:
        models = [
            await stack.enter_async_context(calling(kind, address, {"ca": authority.ca})) for _ in range(5)
        ]
        callers = [asyncio.create_task(caller(models[number % 5])) for number in range(50)]
        serials = set()
        for _ in range(5):
            shutil.copy(authority.issue("other.example").key, key)
            serials.add(await _serial(address, authority))  # a pair that does not match is not used
            rotate()
            serials.add(await _serial(address, authority))
        stop.set()
        assert all(await asyncio.gather(*callers))
        assert len(serials) == 6
    events = [record.getMessage() for record in caplog.records]
    assert events.count("certificate reloaded") >= 5
    assert "certificate not reloaded" in events


async def _serial(address: Address, authority: Authority) -> str:
    context = ssl.create_default_context(cafile=authority.ca)
    _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    found = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return str(found)


@on_both_loops
async def test_the_admin_address(authority: Authority, own: Issued) -> None:
    document = {
        "listeners": [{"listen": ":0", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0", "tls": files(own)},
        "models": {"m": {"backend": "identity", "signature": SIGNATURE}},
    }
    context = ssl.create_default_context(cafile=authority.ca)
    async with _admin(parse(yaml.safe_dump(document))) as admin, aiohttp.ClientSession() as client:
        answer = await client.get(f"https://{admin.address}/health/live", ssl=context)
        assert answer.status == 200


def test_mistakes_are_errors_of_the_file(authority: Authority, own: Issued, tmp_path: Path) -> None:
    other = authority.issue("localhost")
    (tmp_path / "empty.pem").write_text("")
    empty = str(tmp_path / "empty.pem")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cert": "none.pem", "key": own.key}, "listeners[0].tls: none.pem: No such file or directory"),
        (
            {"cert": own.cert, "key": other.key},
            f"listeners[0].tls: {own.cert} and {other.key} cannot be used: key values mismatch",
        ),
        ({"cert": empty, "key": own.key}, f"listeners[0].tls: {empty} and {own.key} cannot be used"),
        (
            {**files(own), "client": "require"},
            "listeners[0].tls: client_ca and client: request or require go together",
        ),
        (
            {**files(own), "client_ca": authority.ca},
            "listeners[0].tls: client_ca and client: request or require go together",
        ),
        (
            {**files(own), "match_subjects": ["CN=a"]},
            "listeners[0].tls: match_subject_alt_names and match_subjects need client_ca",
        ),
        ({**files(own), "ciphers": "NONE"}, "listeners[0].tls: No cipher can be selected."),
        ({"cert": own.cert}, "listeners[0].tls.key: is missing"),
    ]
    for options, words in cases:
        document = {"listeners": [{"listen": ":0", "transport": "http", "tls": options}]}
        with pytest.raises(ConfigError) as refused:
            parse(yaml.safe_dump(document))
        assert words in str(refused.value), words
    upstream = {"dialect": "oip", "transport": "http"}
    for more, words in (
        ({"urls": ["http://a:1"], "tls": {}}, "tls: contradicts the URL 'http://a:1': write https"),
        ({"urls": ["a:1"], "tls": {}, "engine": "library"}, "tls: needs engine: native"),
        ({"urls": ["a:1"], "tls": {"key": own.key}}, "tls: key needs cert"),
        ({"urls": ["a:1"], "tls": {"ca": "none.pem"}}, "tls: none.pem: No such file or directory"),
    ):
        document = {
            "listeners": [{"listen": ":0", "transport": "http"}],
            "upstreams": {"u": {**upstream, **more}},
        }
        with pytest.raises(ConfigError) as refused:
            parse(yaml.safe_dump(document))
        assert words in str(refused.value), str(refused.value)
