"""A caller that opens a connection for every request: its requests take the fast path that others have found,
and nothing tells them from the same ones on their usual path."""

from __future__ import annotations

import asyncio
import socket
import struct

from tests.translator.serving.test_fast_path import (
    USUAL,
    WARM,
    Standin,
    bridge,
    hang,
    request,
)
from tests.waiting import until


async def test_a_drain_after_a_caller_has_reset_its_first_request(sent: list[bool]) -> None:
    """Its connection has no task before it ends, and no request is left in flight."""
    async with bridge(Standin([USUAL] * WARM + [hang])) as here:
        await here.warm()
        _, writer = await asyncio.open_connection(here.address.host, here.address.port)
        writer.write(request(WARM))
        await until(lambda: len(here.there.seen) > WARM)
        assert sent[-1]
        linger = struct.pack("ii", 1, 0)  # a reset instead of an orderly end
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        await until(lambda: not here.counts["server"][1])  # the upstream's request has ended
        assert here.server.at_work == 0
        assert await here.server.stop(0) == 0
