"""Hands an open connection from one protocol of asyncio to another."""

from __future__ import annotations

import asyncio


def hand_over(transport: asyncio.Transport, connection: asyncio.BaseProtocol, data: bytes) -> None:
    """Give ``connection`` an open transport on which ``data`` has already arrived."""
    transport.pause_reading()  # uvloop reads for a new protocol only after it has stopped
    transport.set_protocol(connection)
    transport.resume_reading()
    connection.connection_made(transport)
    if not data:
        return
    if not isinstance(connection, asyncio.BufferedProtocol):
        assert isinstance(connection, asyncio.Protocol), "a protocol of streams"  # noqa: S101
        connection.data_received(data)
        return
    left = memoryview(data)
    while left and not transport.is_closing():
        space = memoryview(connection.get_buffer(len(left)))
        count = min(len(space), len(left))
        space[:count] = left[:count]
        connection.buffer_updated(count)
        left = left[count:]
