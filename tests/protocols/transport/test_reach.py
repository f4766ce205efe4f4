from __future__ import annotations

import asyncio
from pathlib import Path

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.reach import unreachable


async def _take_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()
    await writer.wait_closed()


async def test_a_server_listens(tmp_path: Path) -> None:
    server = await asyncio.start_server(_take_leave, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    unix = await asyncio.start_unix_server(_take_leave, tmp_path / "s")
    async with server, unix:
        assert await unreachable(Address(host, port), 5) == ""
        assert await unreachable(Address(path=str(tmp_path / "s")), 5) == ""
        await asyncio.sleep(0.05)  # the servers see that their clients have left


async def test_no_server_listens(tmp_path: Path, unused_tcp_port: int) -> None:
    assert await unreachable(Address("127.0.0.1", unused_tcp_port), 5) == "Connection refused"
    assert await unreachable(Address(path=str(tmp_path / "none")), 5) == "No such file or directory"


async def test_a_name_that_there_is_not() -> None:
    reason = await unreachable(Address("no-such-host.invalid", 80), 5)
    assert reason
    assert "Errno" not in reason


async def test_a_time_that_has_passed() -> None:
    assert await unreachable(Address("127.0.0.1", 9), 0) == "no connection within 0 seconds"
