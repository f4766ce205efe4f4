"""Our HTTP client beside aiohttp's, on aiohttp's server, on our own and behind nginx: the same answers."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import subprocess
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from interlingua.protocols.transport.address import parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.wire import ConnectionFailedError, HttpCall, HttpReply
from interlingua.schemas.offload import DecodingLimits
from tests.ports import free_port
from tests.protocols.transport.peers import HttpEcho, serving

SIZES = (0, 1, 65_535, 65_536, 65_537, 1 << 20, (4 << 20) + 1)
PATTERN = bytes(range(256)) * (1 << 16)
HOP_BY_HOP = ("date", "server", "connection", "keep-alive", "transfer-encoding")


async def answers(url: str, call: HttpCall) -> tuple[HttpReply, HttpReply]:
    """What our own client and aiohttp's make of the second answer to ``call``, on a kept connection."""
    found = []
    for engine in ("native", "library"):
        client: Any = CLIENTS["http", engine](
            parse_url(url),
            ClientOptions(
                max_response_bytes=64 << 20,
                # the pattern that is sent repeats itself
                limits=DecodingLimits(max_compression_ratio=2000),
            ),
        )
        try:
            await client.send(call)
            found.append(await client.send(call))
            pieces = [piece async for piece in client.stream(call)]
            assert b"".join(bytes(piece.body) for piece in pieces) == bytes(found[-1].body)
            assert not pieces[-1].body and pieces[-1].status == found[-1].status
        finally:
            await client.close()
    ours, theirs = found
    return ours, theirs


def assert_alike(ours: HttpReply, theirs: HttpReply) -> None:
    assert (ours.status, bytes(ours.body)) == (theirs.status, bytes(theirs.body))
    theirs_by_name = {name.lower(): value for name, value in theirs.headers.items()}
    for name in (ours.headers.keys() | theirs_by_name.keys()) - set(HOP_BY_HOP):
        assert ours.headers.get(name) == theirs_by_name.get(name), name


async def _answer(request: web.Request) -> web.StreamResponse:
    """The body that came, framed as the path says."""
    body, kind = await request.read(), request.path.strip("/")
    if kind in ("chunked", "close"):
        answer = web.StreamResponse(headers={"X-Kind": kind})
        if kind == "chunked":
            answer.enable_chunked_encoding()
        else:
            answer.force_close()
        await answer.prepare(request)
        for at in range(0, len(body), 50_000):
            await answer.write(body[at : at + 50_000])
        await answer.write_eof()
        return answer
    codings = {"gzip": gzip.compress, "deflate": zlib.compress}
    if kind in codings:
        return web.Response(body=codings[kind](body), headers={"Content-Encoding": kind})
    if kind.isdigit():
        return web.Response(status=int(kind), body=None if kind in ("204", "304") else body)
    return web.Response(body=body, headers={"X-Method": request.method, "X-Query": request.query_string})


@asynccontextmanager
async def aiohttp_server() -> AsyncIterator[str]:
    application = web.Application(client_max_size=64 << 20)
    application.router.add_route("*", "/{kind:.*}", _answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield "{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()


@contextmanager
def nginx(upstream: str, folder: Path) -> Iterator[str]:
    """nginx in front of ``upstream``."""
    port = free_port()
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; user root; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;"
        "events { worker_connections 64; } http { access_log off; client_max_body_size 0;"
        f"{temporary} server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{upstream};"
        "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_request_buffering off; } } }"
    )
    process = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("kind", ["plain", "chunked", "close", "gzip", "deflate", "201", "404", "500"])
@pytest.mark.parametrize("size", SIZES)
async def test_aiohttps_server(kind: str, size: int) -> None:
    parts = (PATTERN[: size // 3], memoryview(PATTERN)[size // 3 : size])
    async with aiohttp_server() as url:
        call = HttpCall("POST", f"/{kind}", "a=b%20c", {"X-Some": "Value"}, parts)
        ours, theirs = await answers(url, call)
    assert bytes(ours.body) == PATTERN[:size]
    assert_alike(ours, theirs)


@pytest.mark.parametrize(("method", "kind"), [("GET", "plain"), ("HEAD", "plain"), ("GET", "204")])
async def test_answers_without_bodies(method: str, kind: str) -> None:
    async with aiohttp_server() as url:
        assert_alike(*await answers(url, HttpCall(method, f"/{kind}")))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("size", SIZES)
async def test_our_own_server(size: int) -> None:
    async with serving(HttpEcho()) as server:
        call = HttpCall("POST", "/v2/models/m/infer", parts=(PATTERN[:size],))
        ours, theirs = await answers(str(server.address), call)
    assert bytes(ours.body) == PATTERN[:size]
    assert_alike(ours, theirs)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
@pytest.mark.parametrize("size", SIZES)
async def test_behind_nginx(size: int, tmp_path: Path) -> None:
    async with serving(HttpEcho()) as server:
        with nginx(str(server.address), tmp_path) as url:
            call = HttpCall("POST", "/", parts=(PATTERN[:size],))
            ours, theirs = await answered(url, call)
    assert bytes(ours.body) == PATTERN[:size]
    assert_alike(ours, theirs)


async def answered(url: str, call: HttpCall) -> tuple[HttpReply, HttpReply]:
    """The same, when nginx has started."""
    for _ in range(100):
        try:
            return await answers(url, call)
        except ConnectionFailedError as fault:
            if fault.sent:
                raise
            await asyncio.sleep(0.05)
    raise AssertionError("nginx does not start")
