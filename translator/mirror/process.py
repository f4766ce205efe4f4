"""The process that asks mirrors' models behind upstreams, and compares: beside the daemon, not within it.

To ask a server costs about what it costs to be asked. Done on the daemon's event loop, callers would wait for
that; done in a process of low priority, it takes what they leave. The process starts with the daemon or the
first copy, and again when it has died.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import cast

from protocols.wire import Buffer
from translator.config.options import Config
from translator.mirror.judge import JudgeError, Verdict
from translator.mirror.wire import VerdictReader, record_frame
from translator.recording.record import Record

_log = logging.getLogger(__name__)

_PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from translator.mirror.worker import main
sys.path.pop(0)
main({descriptor})
"""
_ROOT = str(Path(__file__).parents[2])

_AGAIN_SECS = 5.0
"""How long a process that has died is not started again."""

_END_SECS = 5.0


class JudgeProcess:
    """The process for the mirrors of ``config``. Use on one event loop; ``close`` it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._numbers = count(1)
        self._link: _Link | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()
        self._began = -_AGAIN_SECS
        self._users = 0

    def judge_of(self, mirror: int) -> RemoteJudge:
        """The judge of the mirror of route number ``mirror``, from 0."""
        self._users += 1
        return RemoteJudge(self, mirror)

    async def start(self) -> None:
        """Start the process, where it is not there. Raises ``JudgeError``."""
        async with self._starting:
            if self._link is not None and not self._link.lost:
                return
            if time.monotonic() - self._began < _AGAIN_SECS:
                raise JudgeError("the process of mirrors has died")
            self._began = time.monotonic()
            if self._process is not None:
                await asyncio.to_thread(_end, self._process)
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = await asyncio.to_thread(_start, theirs.fileno())
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            _, self._link = await loop.create_unix_connection(_Link, sock=ours)
            config = pickle.dumps(self._config)
            self._link.send([len(config).to_bytes(8, "little"), config])

    async def judge(self, mirror: int, record: Record, secs: float) -> Verdict:
        """Have ``record`` judged. Raises ``JudgeError``, and ``ValueError`` for one that has no form in a
        recording."""
        link = self._link
        if link is None or link.lost:
            await self.start()
            link = self._link
        assert link is not None, "it has been started"  # noqa: S101
        number = next(self._numbers)
        return await link.ask(number, record_frame(number, mirror, record, secs))

    async def leave(self) -> None:
        """One of those that it judges for has ended; it ends with the last."""
        self._users -= 1
        if self._users or self._link is None:
            return
        self._link.close()
        if self._process is not None:
            await asyncio.to_thread(_end, self._process)


class RemoteJudge:
    """A ``Judge`` in another process."""

    def __init__(self, process: JudgeProcess, mirror: int) -> None:
        self._process = process
        self._mirror = mirror

    async def start(self) -> None:
        """See ``Judge``."""
        await self._process.start()

    async def judge(self, record: Record, secs: float) -> Verdict:
        """See ``Judge``."""
        return await self._process.judge(self._mirror, record, secs)

    async def close(self) -> None:
        """See ``Judge``."""
        await self._process.leave()


class _Link(asyncio.Protocol):
    """The connection to the process: verdicts by the numbers of their records."""

    def __init__(self) -> None:
        self.lost = self._closed = False
        self._reader = VerdictReader()
        self._asked: dict[int, asyncio.Future[Verdict]] = {}
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        for number, verdict in self._reader.feed(data):
            future = self._asked.pop(number, None)
            if future is None or future.done():  # nobody waits any more
                continue
            if verdict is None:
                future.set_exception(JudgeError("a fault in the process of mirrors"))
            else:
                future.set_result(verdict)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self._closed:
            _log.error("the process of mirrors has died; it is started again when it is needed")
        for future in self._asked.values():
            if not future.done():
                future.set_exception(JudgeError("the process of mirrors has died"))
        self._asked.clear()

    def send(self, parts: list[Buffer]) -> None:
        """Send ``parts`` as they are."""
        self._transport.writelines(parts)

    async def ask(self, number: int, parts: list[Buffer]) -> Verdict:
        """The verdict on record ``number``, which is sent in ``parts``."""
        if self.lost:
            raise JudgeError("the process of mirrors has died")
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self.send(parts)
        return await future

    def close(self) -> None:
        """Let the process end."""
        self._closed = True
        self._transport.close()


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    program = _PROGRAM.format(root=_ROOT, descriptor=descriptor)
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-c", program], stdin=subprocess.DEVNULL, pass_fds=[descriptor]
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process, whose connection is closed, has ended; make it end."""
    try:
        process.wait(_END_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
