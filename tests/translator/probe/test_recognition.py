"""Recognition of servers that speak one thing alone, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from interlingua.schemas import Operation
from interlingua.translator.probe.recognition import recognize


class OipServer(BaseHTTPRequestHandler):
    """The metadata of a server of the Open Inference Protocol, by a library that waits for whole lines."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        known = self.path == "/v2"
        body = json.dumps(
            {"name": "server", "version": "1", "extensions": []} if known else {"error": "?"}
        ).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def http_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OipServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["", "http://"])
async def test_a_server_of_http_alone(http_server: str, scheme: str) -> None:
    binding = await recognize(f"{scheme}{http_server}", 30)
    assert binding is not None
    assert binding.name == "oip/http"


async def test_a_server_sees_no_request_of_other_dialects(http_server: str) -> None:
    """Each of them could be a line in its log."""
    OipServer.paths.clear()
    assert await recognize(http_server, 30) is not None
    assert set(OipServer.paths) == {"/v2", "/interlingua/probe/of/nothing"}


async def test_what_is_stated_and_needed(http_server: str) -> None:
    assert await recognize(http_server, 30, dialect="graphpipe", transport="http") is None
    found = await recognize(http_server, 30, operation=Operation.REPOSITORY_INDEX)
    assert found is not None and Operation.REPOSITORY_INDEX in found.calls
    with pytest.raises(ValueError, match="is not a URL"):
        await recognize("nowhere", 30)


async def test_a_server_that_says_nothing() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await recognize(f"127.0.0.1:{port}", 0.1) is None
