"""Hands an open connection from one protocol of asyncio to another."""

from __future__ import annotations

import asyncio
from typing import cast


def hand_over(transport: asyncio.Transport, connection: asyncio.BaseProtocol, data: bytes) -> None:
    """Give ``connection`` an open transport on which ``data`` has already arrived."""
    transport.pause_reading()  # uvloop reads for a new protocol only after it has stopped
    transport.set_protocol(connection)
    transport.resume_reading()
    connection.connection_made(transport)
    if data:
        feed(transport, connection, data)


def feed(transport: asyncio.Transport, connection: asyncio.BaseProtocol, data: bytes) -> None:
    """Give ``connection``, the protocol of ``transport``, the ``data`` that have arrived, at least a byte."""
    if isinstance(connection, asyncio.Protocol):
        connection.data_received(data)
        return
    # uvloop's protocol of TLS has the methods of this class, and not the class
    buffered, left = cast("asyncio.BufferedProtocol", connection), memoryview(data)
    while left and not transport.is_closing():
        space = memoryview(buffered.get_buffer(len(left)))
        count = min(len(space), len(left))
        space[:count] = left[:count]
        buffered.buffer_updated(count)
        left = left[count:]
