"""A relay before a server, through which everything can go wrong, whatever is spoken."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any

JUNK = b"\x00\xffneither\r\n\r\n" * 50

FAULTS = ("killed", "refusing", "restarted", "hung", "garbage", "half-closing", "resetting")


class Relay:
    """Relays connections to the server at ``target``, as long as no fault is set. ``port`` stays the same."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._fault = ""
        self.port = 0

    async def start(self) -> None:
        """Listen, at the same port as before."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def fail(self, fault: str) -> None:
        """Go wrong from now on."""
        self._fault = fault
        if fault == "hung":
            self._flowing.clear()
        elif fault in ("killed", "restarted"):
            await self.stop()
            if fault == "restarted":
                await self.start()
        elif fault == "refusing":
            await self._stop_listening()
            for writer in list(self._writers):
                writer.close()

    async def recover(self) -> None:
        """Be as before; what hung goes on."""
        self._fault = ""
        self._flowing.set()
        if self._server is None:
            await self.start()

    async def stop(self) -> None:
        """As a killed process: nothing listens, connections are reset."""
        await self._stop_listening()
        # a task that has not begun closes nothing
        for writer in self._writers:
            reset(writer)
        self._writers.clear()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it was accepted just before
            reset(writer)
            return
        self._writers.add(writer)
        task = asyncio.ensure_future(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind: asyncio.StreamWriter | None = None
        try:
            answers, behind = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(behind)
            ways = (self._requests(reader, writer, behind), self._answers(answers, writer))
            running = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in running:
                    each.cancel()
                await asyncio.wait(running)
        finally:
            both = [writer] if behind is None else [writer, behind]
            for each in both:
                each.close()
            # one that does not read stays, until it reads or all stops
            await asyncio.gather(*(each.wait_closed() for each in both), return_exceptions=True)
            self._writers.difference_update(both)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(1 << 16):
                await self._flowing.wait()
                behind.write(chunk)
                await behind.drain()
                if self._fault == "garbage":
                    writer.write(JUNK)
                    await writer.drain()
                    return
                if self._fault == "half-closing":
                    writer.write_eof()
                    await asyncio.sleep(1)
                    return

    async def _answers(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await answers.read(1 << 16):
                await self._flowing.wait()
                if self._fault in ("garbage", "half-closing"):
                    continue
                if self._fault == "resetting":
                    writer.write(chunk[: len(chunk) // 2])
                    await writer.drain()
                    reset(writer)
                    return
                writer.write(chunk)
                await writer.drain()


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection without a word."""
    end: Any = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
