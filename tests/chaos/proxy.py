"""A TCP proxy that delays, splits, breaks or stops what passes through it."""

from __future__ import annotations

import asyncio
import contextlib
import random

from tests.e2e.relay import reset

DELAY_SECS = 0.1
_BROKEN_SHARE = 0.05
"""The share of pieces in whose middle a connection is reset."""


class Proxy:
    """Passes connections to ``target``, a port of 127.0.0.1 (0: none yet), through ``mode``: empty for no fault, ``delay``,
    ``split`` (pieces of up to 7 bytes), ``drop`` (connections are reset at random) or ``partition`` (no byte and no
    new connection passes; those that wait go on afterwards)."""

    def __init__(self) -> None:
        self.target = 0
        self.port = 0
        self.mode = ""
        self._random = random.Random(0)
        self._passing = asyncio.Event()
        self._passing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def set(self, mode: str) -> None:
        """Change the mode of connections, those that are open too."""
        self.mode = mode
        if mode == "partition":
            self._passing.clear()
        else:
            self._passing.set()

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        # a task that has not begun closes nothing, and what does not read keeps a closing connection
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.ensure_future(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        both = [writer]
        ways: list[asyncio.Task[None]] = []
        try:
            await self._passing.wait()
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
            both.append(forth)
            self._writers.add(forth)
            ways += [asyncio.ensure_future(self._pass(*way)) for way in ((reader, forth), (back, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            reset(writer)
        finally:
            for way in ways:
                way.cancel()
            for each in both:
                each.close()
            await asyncio.gather(*(each.wait_closed() for each in both), return_exceptions=True)
            self._writers.difference_update(both)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(1 << 16):
                await self._passing.wait()
                if self.mode == "delay":
                    await asyncio.sleep(DELAY_SECS)
                if self.mode == "drop" and self._random.random() < _BROKEN_SHARE:
                    writer.write(piece[: len(piece) // 2])
                    reset(writer)
                    return
                for part in self._parts(piece):
                    writer.write(part)
                    await writer.drain()

    def _parts(self, piece: bytes) -> list[bytes]:
        if self.mode != "split":
            return [piece]
        parts, at = [], 0
        while at < len(piece):
            size = self._random.randint(1, 7)
            parts.append(piece[at : at + size])
            at += size
        return parts
