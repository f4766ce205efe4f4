"""What is asked of servers that may be anything."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.transport.address import parse_url
from interlingua.schemas import InferenceError
from interlingua.translator.probe import conversation
from interlingua.translator.probe.conversation import Conversation


async def test_a_server_that_never_ends_is_not_heard_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "_LARGEST_ANSWER", 1 << 16)

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(bytes(4096))
                await writer.drain()
        writer.close()

    async with asyncio.timeout(30), await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Conversation(
            parse_url(f"127.0.0.1:{port}"), DIALECTS["oip"].bindings["http"], 60.0
        ) as there:
            with pytest.raises(InferenceError, match="more than"):
                await there.introduce()
