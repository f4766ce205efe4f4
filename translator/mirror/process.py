"""The process that sends copies to upstream models and compares the answers.

Sending a request costs about as much as serving one. On the daemon's event loop, callers would wait for it; a
separate process of low priority uses idle time. It starts with the daemon or the first copy, and is restarted
after it exits."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, cast

from interlingua.protocols.wire import Buffer
from interlingua.runtime import interpreter
from interlingua.runtime.upstream.forwarding import BAGGAGE
from interlingua.translator.config.options import Config
from interlingua.translator.mirror.comparison import Copy
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.judge import OnFindings
from interlingua.translator.mirror.shared import MirrorSlots
from interlingua.translator.mirror.wire import FindingsReader, Gathered, pack_copies

_log = logging.getLogger(__name__)

_WORKER = "interlingua.translator.mirror.worker"

_RESTART_SECS = 5.0
"""The minimum time between two starts of the process."""

_END_SECS = 5.0

_GATHER_SECS, _MOST_COPIES = 0.002, 128
"""Copies of one message: a mirror submits those of some milliseconds at once."""


class JudgeProcess:
    """The process for the mirrors of ``config``. ``slots``: other front ends have such a process, too. Use on
    one event loop."""

    def __init__(self, config: Config, slots: MirrorSlots | None = None) -> None:
        self._config = config
        self._slots = slots
        self._link: _Link | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._began = -_RESTART_SECS
        self._early: list[tuple[int, Copy, OnFindings]] = []
        self._users = 0
        self._headers: dict[int, Sequence[str]] = {}

    def judge_of(self, mirror: int) -> RemoteJudge:
        """The judge for the mirror of route ``mirror``, counted from 0."""
        self._users += 1
        self._headers[mirror] = _forwarded(self._config, mirror)
        return RemoteJudge(self, mirror)

    async def start(self) -> None:
        self._start()
        if self._starting is not None:
            await self._starting

    def submit(self, mirror: int, copy: Copy, on_findings: OnFindings) -> None:
        """See ``Judge``; ``mirror`` is the route number."""
        if self._link is not None and not self._link.lost:
            self._link.submit(mirror, copy, on_findings)
            return
        self._start()
        if self._starting is None:
            on_findings(Findings.of(copy, None))
        else:
            self._early.append((mirror, copy, on_findings))

    async def leave(self) -> None:
        """Release the process for one mirror; the last one ends it."""
        self._users -= 1
        if self._users:
            return
        if self._starting is not None:
            await self._starting
        if self._link is not None:
            self._link.close()
        if self._process is not None:
            await asyncio.to_thread(interpreter.end, self._process, _END_SECS)

    def _exited(self) -> None:
        if self._slots is not None:
            self._slots.shared.mirror_process_exited()

    def _start(self) -> None:
        """Start the process unless it runs, starts, or was started a moment ago."""
        if self._link is not None and not self._link.lost:
            return
        if self._starting is None and time.monotonic() - self._began >= _RESTART_SECS:
            self._began = time.monotonic()
            self._starting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            if self._process is not None:
                await asyncio.to_thread(interpreter.end, self._process, _END_SECS)
            slots = self._slots
            places = None if slots is None else (slots.shared.mirror_process, slots.slots)
            config = pickle.dumps((self._config, places))
            link = await self._run(() if slots is None else slots.shared.descriptors)
            link.send([len(config).to_bytes(8, "little"), config])
            self._link = link
        except Exception as error:  # of any kind: the next copies start it again
            unexpected = None if isinstance(error, OSError) else error
            facts = {"reason": str(error) or type(error).__name__}
            _log.error("mirror process failed to start", exc_info=unexpected, extra={"facts": facts})
        self._starting = None
        early, self._early = self._early, []
        for mirror, copy, on_findings in early:
            self.submit(mirror, copy, on_findings)

    async def _run(self, shared: Sequence[int]) -> _Link:
        """Run the process with ``shared`` descriptors, and connect to it."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                descriptors = theirs.fileno(), *shared
                self._process = await asyncio.to_thread(interpreter.start, _WORKER, descriptors)
            ours.setblocking(False)
            make = partial(_Link, self._headers, self._exited)
            _, link = await asyncio.get_running_loop().create_unix_connection(make, sock=ours)
        except BaseException:
            ours.close()
            raise
        return link


@dataclass(frozen=True, slots=True)
class RemoteJudge:
    """A ``Judge`` in another process."""

    gather_secs: ClassVar[float] = 0.02

    _process: JudgeProcess
    _mirror: int

    async def start(self) -> None:
        await self._process.start()

    def submit(self, copy: Copy, on_findings: OnFindings) -> None:
        self._process.submit(self._mirror, copy, on_findings)

    async def close(self) -> None:
        await self._process.leave()


@dataclass(slots=True)
class _InFlight:
    """The copies of one mirror that the process holds: their count, bytes and sequence ids, and the callback
    for their results."""

    on_findings: OnFindings
    count: int = 0
    nbytes: int = 0
    sequences: set[int | str] = field(default_factory=set)


class _Link(asyncio.Protocol):
    """The connection to the process. ``headers`` names the headers to send with copies, by mirror; ``exited``
    is called when the process has exited."""

    def __init__(self, headers: Mapping[int, Sequence[str]], exited: Callable[[], None]) -> None:
        self._exited = exited
        self.lost = self._closed = False
        self._reader = FindingsReader()
        self._in_flight: dict[int, _InFlight] = {}
        self._outgoing: Gathered[tuple[int, Copy]] = Gathered(self._send_copies, _GATHER_SECS, _MOST_COPIES)
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
        self._exited()
        lost, self._in_flight = self._in_flight, {}
        if self._closed:
            return
        _log.error("mirror process exited")
        for each in lost.values():
            sequences = [(id_, False) for id_ in each.sequences]
            each.on_findings(
                Findings(count=each.count, nbytes=each.nbytes, lost=each.count, sequences=sequences)
            )

    def send(self, parts: list[Buffer]) -> None:
        if not self.lost:
            self._transport.writelines(parts)

    def submit(self, mirror: int, copy: Copy, on_findings: OnFindings) -> None:
        """Send ``copy`` to the judge of ``mirror``. A mirror passes the same ``on_findings`` every time."""
        flight = self._in_flight.get(mirror)
        if flight is None:
            flight = self._in_flight[mirror] = _InFlight(on_findings)
        flight.count += 1
        flight.nbytes += copy.nbytes
        if copy.record.request.sequence is not None:
            flight.sequences.add(copy.record.request.sequence.id)
        self._outgoing.add((mirror, copy))

    def close(self) -> None:
        """Close the connection, which ends the process."""
        self._closed = True
        self._transport.close()

    def _send_copies(self, copies: list[tuple[int, Copy]]) -> None:
        if self.lost:
            return  # connection_lost has reported them
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
        flight = self._in_flight[mirror]
        flight.count -= findings.count
        flight.nbytes -= findings.nbytes
        flight.sequences.difference_update([id_ for id_, _ in findings.sequences])
        flight.on_findings(findings)


def _forwarded(config: Config, route: int) -> Sequence[str]:
    """The names of the callers' headers that the mirror's upstream forwards."""
    mirror = config.routes[route].mirror
    model = None if mirror is None else config.models.get(mirror.to)
    upstream = None if model is None or model.upstream is None else config.upstreams.get(model.upstream)
    return () if upstream is None else (BAGGAGE, *upstream.forward_headers)
