"""Clients of other projects never meet the limits on small frames and windows."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from interlingua.protocols.wire import GrpcAnswer
from tests.protocols.transport.grpc.test_server import serving
from tests.protocols.transport.h2.peer import message
from tests.protocols.transport.peers import GrpcEcho

HEADERS = ("-H", "content-type: application/grpc", "-H", "te: trailers")


async def run(*command: str) -> str:
    """What ``command`` prints; its status must be 0."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode(errors="replace")[-2000:]
    return printed.decode(errors="replace")


@pytest.mark.parametrize("bits", ["6", "12"])
async def test_nghttp_with_tiny_windows(tmp_path: Path, bits: str) -> None:
    body = tmp_path / "body"
    body.write_bytes(message(bytes(200_000)))
    handler = GrpcEcho(GrpcAnswer(bytes(300_000)))
    async with serving(handler) as server:
        url = f"http://{server.address}/test.Echo/Call"
        printed = await run("nghttp", "-nv", "-w", bits, "-W", bits, *HEADERS, "-d", str(body), url)
    assert "grpc-status: 0" in printed
    assert "ENHANCE_YOUR_CALM" not in printed


async def test_h2load_with_many_streams(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(message(b"x" * 50))
    async with serving() as server:
        url = f"http://{server.address}/test.Echo/Call"
        printed = await run("h2load", "-n3000", "-c2", "-m200", "-w10", *HEADERS, "-d", str(body), url)
    assert "3000 succeeded, 0 failed, 0 errored" in printed


async def test_curl_that_sends_a_large_body_in_pieces(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(message(bytes(30_000_000)))
    async with serving(GrpcEcho(GrpcAnswer(b"well"))) as server:
        printed = await run(
            *("curl", "-sv", "--http2-prior-knowledge", *HEADERS, "--output", "-"),
            *("--data-binary", f"@{body}", f"http://{server.address}/test.Echo/Call"),
        )
    assert "grpc-status: 0" in printed and "well" in printed
