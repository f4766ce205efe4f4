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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from interlingua.protocols.wire import Buffer
from interlingua.translator.config.options import Config
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.judge import Told
from interlingua.translator.mirror.verdict import Copy
from interlingua.translator.mirror.wire import FindingsReader, Gathered, pack_copies

_log = logging.getLogger(__name__)

_PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from interlingua.translator.mirror.worker import main
sys.path.pop(0)
main({descriptor})
"""
_ROOT = str(Path(__file__).parents[3])

_AGAIN_SECS = 5.0
"""How long a process that has died is not started again."""

_END_SECS = 5.0


class JudgeProcess:
    """The process for the mirrors of ``config``. Use on one event loop."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._link: _Link | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._began = -_AGAIN_SECS
        self._early: list[tuple[int, Copy, Told]] = []
        self._users = 0
        self._headers: dict[int, Sequence[str]] = {}

    def judge_of(self, mirror: int) -> RemoteJudge:
        """The judge of the mirror of route number ``mirror``, from 0."""
        self._users += 1
        self._headers[mirror] = _forwarded(self._config, mirror)
        return RemoteJudge(self, mirror)

    async def start(self) -> None:
        """See ``Judge``."""
        self._start()
        if self._starting is not None:
            await self._starting

    def submit(self, mirror: int, copy: Copy, told: Told) -> None:
        """See ``Judge``; of the mirror of that number."""
        if self._link is not None and not self._link.lost:
            self._link.ask(mirror, copy, told)
            return
        self._start()
        if self._starting is None:
            told(Findings.of(copy, None))
        else:
            self._early.append((mirror, copy, told))

    async def leave(self) -> None:
        """One of those that it judges for has ended; it ends with the last."""
        self._users -= 1
        if self._users:
            return
        if self._starting is not None:
            await self._starting
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            await asyncio.to_thread(_end, self._process)

    def _start(self) -> None:
        """Begin to start the process, where it is not there and has not died just now."""
        if self._link is not None and not self._link.lost:
            return
        if self._starting is None and time.monotonic() - self._began >= _AGAIN_SECS:
            self._began = time.monotonic()
            self._starting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            if self._process is not None:
                await asyncio.to_thread(_end, self._process)
            ours, theirs = socket.socketpair()
            with theirs:
                self._process = await asyncio.to_thread(_start, theirs.fileno())
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            _, self._link = await loop.create_unix_connection(partial(_Link, self._headers), sock=ours)
            config = pickle.dumps(self._config)
            self._link.send([len(config).to_bytes(8, "little"), config])
        except OSError as error:
            _log.error("mirror process failed to start", extra={"facts": {"reason": str(error)}})
        self._starting = None
        early, self._early = self._early, []
        for mirror, copy, told in early:
            self.submit(mirror, copy, told)


class RemoteJudge:
    """A ``Judge`` in another process."""

    def __init__(self, process: JudgeProcess, mirror: int) -> None:
        self._process = process
        self._mirror = mirror

    async def start(self) -> None:
        """See ``Judge``."""
        await self._process.start()

    def submit(self, copy: Copy, told: Told) -> None:
        """See ``Judge``."""
        self._process.submit(self._mirror, copy, told)

    async def close(self) -> None:
        """See ``Judge``."""
        await self._process.leave()


@dataclass(slots=True)
class _Asked:
    """What the process has of one mirror: how many copies of how many bytes, of which sequences; whom to tell
    what became of them."""

    told: Told
    count: int = 0
    nbytes: int = 0
    sequences: set[int | str] = field(default_factory=set)


class _Link(asyncio.Protocol):
    """The connection to the process. ``headers`` are the names of those that go with copies, by mirror."""

    def __init__(self, headers: Mapping[int, Sequence[str]]) -> None:
        self.lost = self._closed = False
        self._reader = FindingsReader()
        self._asked: dict[int, _Asked] = {}
        self._outgoing: Gathered[tuple[int, Copy]] = Gathered(self._send_copies)
        self._headers = headers
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        for found in self._reader.feed(data):
            for mirror, findings in found.items():
                self._over(mirror, findings)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        asked, self._asked = self._asked, {}
        if self._closed:
            return
        _log.error("mirror process exited")
        for each in asked.values():
            sequences = [(id_, False) for id_ in each.sequences]
            each.told(Findings(count=each.count, nbytes=each.nbytes, lost=each.count, sequences=sequences))

    def send(self, parts: list[Buffer]) -> None:
        """Send ``parts`` as they are, unless nobody is there any more."""
        if not self.lost:
            self._transport.writelines(parts)

    def ask(self, mirror: int, copy: Copy, told: Told) -> None:
        """Have ``copy`` judged by the judge of ``mirror``, which has one that is told."""
        asked = self._asked.get(mirror)
        if asked is None:
            asked = self._asked[mirror] = _Asked(told)
        asked.count += 1
        asked.nbytes += copy.nbytes
        if copy.record.request.sequence is not None:
            asked.sequences.add(copy.record.request.sequence.id)
        self._outgoing.add((mirror, copy))

    def close(self) -> None:
        """Let the process end."""
        self._closed = True
        self._transport.close()

    def _send_copies(self, copies: list[tuple[int, Copy]]) -> None:
        if self.lost:
            return  # they have been told of
        try:
            self.send(pack_copies(copies, self._headers))
        except ValueError as error:
            if len(copies) > 1:
                for each in copies:
                    self._send_copies([each])
                return
            _log.error("mirror copy not sent", extra={"facts": {"reason": str(error)}})
            ((mirror, copy),) = copies
            self._over(mirror, Findings.of(copy, None))

    def _over(self, mirror: int, findings: Findings) -> None:
        asked = self._asked[mirror]
        asked.count -= findings.count
        asked.nbytes -= findings.nbytes
        asked.sequences.difference_update([id_ for id_, _ in findings.sequences])
        asked.told(findings)


def _forwarded(config: Config, route: int) -> Sequence[str]:
    """The names of callers' headers that the upstream of a route's mirror gets."""
    mirror = config.routes[route].mirror
    model = None if mirror is None else config.models.get(mirror.to)
    upstream = None if model is None or model.upstream is None else config.upstreams.get(model.upstream)
    return () if upstream is None else upstream.forward_headers


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
