"""The supervisor: accepts connections, and keeps the front ends and the runtime process alive.

It loads no model and decodes no request, so nothing that a client sends can stop it. When a front end exits,
its callers see a closed connection, and others take new ones. When the runtime process exits, requests to its
models fail until it has started again.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from interlingua.protocols.transport.handover.acceptor import Acceptor, Receiver
from interlingua.protocols.transport.handover.beats import PAGE_BYTES, Beats
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.runtime.ring import channel, memory
from interlingua.runtime.upstream.notices import Notice
from interlingua.schemas import Operation
from interlingua.translator.config.options import Config
from interlingua.translator.logs import setup as logs
from interlingua.translator.serving.changes import ChangeLog, StateChange
from interlingua.translator.serving.settings import LogBook
from interlingua.translator.takeover.socket_plan import SocketPlan
from interlingua.translator.workers import request_numbers
from interlingua.translator.workers.child import WorkerOrder
from interlingua.translator.workers.control import ControlLostError
from interlingua.translator.workers.forks import ForkServer
from interlingua.translator.workers.limits import LimitsOwner
from interlingua.translator.workers.mirrors import MirrorsOwner, Slots
from interlingua.translator.workers.notice_log import NoticeLog
from interlingua.translator.workers.parts import parts_of
from interlingua.translator.workers.process import Process
from interlingua.translator.workers.reports import Kind, LastReports

ARENA_BYTES = 1 << 30
"""The large tensors in flight between a front end and the runtime process, in each direction. Pages that are
not used cost nothing."""

_RESTART_SECS = 0.5
"""The least interval between two starts of a process that exits."""

_REPLY_SECS = 1.0
"""How long a process that is stopped delays a report of all."""

_CUT_SECS = 5.0
"""How long processes may take to end after the requests that they cut."""

_log = logging.getLogger(__name__)


class StartupError(Exception):
    """A process cannot start; the message says why."""


class ServerProcess:
    """A process in one place, and its successors: started again whenever it exits. Use on one event loop."""

    role: ClassVar[str]

    def __init__(self, name: str, module: str, order: WorkerOrder, group: Supervisor) -> None:
        self.name = name
        self.process: Process | None = None
        self.ready = asyncio.Event()
        self.value: Any = None
        self.cut = 0
        self.reports = LastReports()
        self._group = group
        self._module = module
        self.order = order
        self._stopping = False
        self._starts = 0
        self._answer_secs = 0.0
        self._restarting: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Start it. Raises ``OSError``."""
        self._started = self._loop.time()
        self._starts += 1
        self.process = Process(self._group.forks, self._module, self.name, self._receive, self._exited)
        for descriptors in self._group.limits.descriptors():
            self.process.control.send("limits", None, descriptors)
        self.process.control.send("start", replace(self.order, role=self.name))
        self.process.control.send("notices", self._group.notices.all)
        self.begun(self.process)

    def begun(self, process: Process) -> None:
        """A process has been started."""

    def ended(self) -> None:
        """The process has exited."""

    def report(self) -> dict[str, Any]:
        """The process for operators."""
        process = self.process
        return {
            "pid": None if process is None else process.pid or None,
            "role": self.role,
            "ready": self.ready.is_set(),
            "uptime_secs": 0.0 if process is None else round(self._loop.time() - self._started, 1),
            "restarts": max(0, self._starts - 1),
            "answer_ms": round(1e3 * self._answer_secs, 1),
        }

    async def collect(self, kind: Kind) -> list[Any]:
        """What this process and those that it has replaced add to a report."""
        return self.reports.take(kind, await self.request("report", kind))

    async def request(self, kind: str, value: object = None) -> Any:
        """The reply of the process to a message; None if it does not answer in time."""
        if self.process is None or not self.ready.is_set():
            return None
        began = self._loop.time()
        try:
            async with asyncio.timeout(_REPLY_SECS):
                return await self.process.control.request(kind, value)
        except (TimeoutError, ControlLostError):
            return None
        finally:
            self._answer_secs = self._loop.time() - began

    async def carry_out(self, kind: str, value: object, secs: float | None) -> Any:
        """The reply of the process to a message, as :meth:`request`; it may take ``secs``."""
        if self.process is None or not self.ready.is_set():
            return None
        try:
            async with asyncio.timeout(secs):
                return await self.process.control.request(kind, value)
        except (TimeoutError, ControlLostError):
            return None

    async def stop(self, grace_secs: float) -> None:
        """Have it end after its running requests, ``grace_secs`` at most; kill it if it does not."""
        self._stopping = True
        if self._restarting is not None:
            self._restarting.cancel()
        process = self.process
        if process is None:
            return
        process.control.send("stop", grace_secs)
        await asyncio.wait((process.over,), timeout=grace_secs + _CUT_SECS)
        if not process.over.done():
            _log.error("process killed", extra={"facts": {"process": self.name, "pid": process.pid}})
            process.kill()
            await process.over

    def _receive(self, kind: str, value: Any, descriptors: list[int], reply: Any) -> None:
        if kind == "ready":
            self.value = value
            self.ready.set()
            facts = {"process": self.name, "pid": self.process.pid if self.process else 0}
            _log.info("process ready", extra={"facts": facts})
        elif kind == "failed":
            self._group.failed(self, value)
        elif kind == "cut":
            self.cut = value
        elif kind == "notice":
            self._group.spread(self, value)

    def _exited(self, reason: str) -> None:
        self.process = None
        self.ready.clear()
        self.reports.exited()
        self._group.limits.exited(self.order.number)
        self.ended()
        if self._stopping or self._group.failure.done():
            return
        _log.error("process exited", extra={"facts": {"process": self.name, "reason": reason}})
        self._restarting = self._loop.create_task(self._restart())

    async def _restart(self) -> None:
        await asyncio.sleep(max(0, _RESTART_SECS - (self._loop.time() - self._started)))
        try:
            self.start()
        except OSError as error:
            facts = {"process": self.name, "reason": str(error)}
            _log.error("process not started", extra={"facts": facts})
            self._exited(str(error))


class Runtime(ServerProcess):
    """The runtime process of ``group``."""

    role = "runtime"

    def __init__(self, config: Config, group: Supervisor) -> None:
        number = group.workers
        super().__init__("runtime", "runtime_process", WorkerOrder(config, number, number), group)

    def begun(self, process: Process) -> None:
        for change in self._group.changes.changes:
            if change.operation is Operation.LOG_SETTINGS:
                process.control.send("log", change.argument)
        for each in self._group.front_ends:
            connect(each, self)


class FrontEnd(ServerProcess):
    """A front end of ``group``, to which its acceptor hands connections over."""

    role = "front end"

    def __init__(self, order: WorkerOrder, group: Supervisor) -> None:
        super().__init__(f"front end {order.number}", "front_end", order, group)
        self.beats: Beats | None = None
        self._receiver: Receiver | None = None

    @property
    def silent_secs(self) -> float:
        """How long its event loop has not turned; 0 while it starts."""
        if self.beats is None or not (self.ready.is_set() and self.beats.begun):
            return 0.0
        return self.beats.silent_secs

    def report(self) -> dict[str, Any]:
        connections = 0 if self._receiver is None else self._receiver.connections
        return {
            **super().report(),
            "silent_secs": round(self.silent_secs, 1),
            "connections": connections,
        }

    def begun(self, process: Process) -> None:
        for descriptors in self._group.mirrors.descriptors():
            process.control.send("mirrors", None, descriptors)
        connect(self, self._group.runtime)
        process.control.send("repeat", self._group.changes.changes)
        process.control.send("numbers", None, [os.dup(self._group.request_numbers)])
        page = memory.create("beats", PAGE_BYTES)
        self.beats = Beats(mmap.mmap(page, PAGE_BYTES))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process.control.send("take", None, [theirs.detach(), page])
        self._receiver = Receiver(ours, self.beats)

    async def repeat(self, change: StateChange) -> None:
        """Have it repeat what a client has changed in another front end."""
        if self.ready.is_set():
            await self.request("repeat", [change])
        elif self.process is not None:
            # it is carried out before the process is ready
            self.process.control.send("repeat", [change])

    def ended(self) -> None:
        self._group.mirrors.exited(self.order.number)
        if self._receiver is not None:
            receivers = self._group.acceptor.receivers
            if self._receiver in receivers:
                receivers.remove(self._receiver)
            self._receiver.close()
            self._receiver = None

    def _receive(self, kind: str, value: Any, descriptors: list[int], reply: Any) -> None:
        super()._receive(kind, value, descriptors, reply)
        if kind == "ready" and self._receiver is not None:
            self._group.acceptor.receivers.append(self._receiver)
        elif kind == "share":
            self._group.do(self._group.share(self, value), reply)
        elif kind == "others":
            of, own = value
            self.reports.take(of, own)
            self._group.do(self._group.collect(of, self), reply)


def connect(front_end: FrontEnd, runtime: Runtime) -> None:
    """Give both ends of a new channel to two processes, if both run. Raises ``OSError``."""
    if front_end.process is None or runtime.process is None:
        return
    here, there = channel.create(ARENA_BYTES)
    front_end.process.control.send("channel", None, here)
    runtime.process.control.send("channel", None, there)


class Supervisor:
    """The processes of ``config``, with ``workers`` front ends. Use on one event loop."""

    def __init__(self, config: Config, workers: int) -> None:
        self.config = config
        self.workers = workers
        self.sockets: list[socket.socket | None] = []
        self.listening: list[ListeningSocket] = []
        self.front_ends: list[FrontEnd] = []
        self.forks = ForkServer()
        self.limits = LimitsOwner(config, workers + 1)
        self.mirrors = MirrorsOwner(workers, config)
        self.request_numbers = request_numbers.create()
        self.runtime = Runtime(config, self)
        self.acceptor = Acceptor(self.sockets)
        self.changes = ChangeLog()
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._started = False
        self.notices = NoticeLog()
        self._log = LogBook(logs.settings(config.server.log_level), logs.apply)
        self._doing: set[asyncio.Task[None]] = set()

    async def start(self, plan: SocketPlan) -> None:
        """Bind the listeners, and start the processes. Returns when all are ready; :meth:`accept` then.
        Raises ``OSError`` for an address, ``StartupError``."""
        self.listening = [each for each in plan.listeners() if each is not None]
        self.sockets += [each.sock for each in self.listening]
        addresses = tuple(str(each.address) for each in self.listening)
        parts, numbers = enumerate(parts_of(self.config, self.workers)), tuple(range(len(self.listening)))
        mirrors = tuple(self.mirrors.slots.values())
        orders = (
            WorkerOrder(part, number, self.workers, addresses, numbers, mirrors) for number, part in parts
        )
        self.front_ends += [FrontEnd(order, self) for order in orders]
        self.runtime.start()
        for each in self.front_ends:
            each.start()
        await self._or_failure(self.runtime.ready.wait())
        await self._or_failure(asyncio.gather(*(each.ready.wait() for each in self.front_ends)))
        self._started = True

    def accept(self) -> None:
        """Accept from now on."""
        self.acceptor.start()

    def retire(self) -> None:
        """Accept nothing more, and have clients move to a successor."""
        self.acceptor.retire()
        for each in self.front_ends:
            if each.process is not None:
                each.process.control.send("retire")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of their sockets."""
        return self.front_ends[0].order.numbers

    def configure(
        self, config: Config, orders: Mapping[str, WorkerOrder], limits: LimitsOwner, mirrors: Slots
    ) -> None:
        """Start processes by ``orders`` from now on, by the name of the process, with ``limits`` and the
        slots of ``mirrors``."""
        if config.server.log_level != self.config.server.log_level:
            self._log.change(logs.settings(config.server.log_level))
        self.config = config
        self.mirrors.slots = mirrors
        self.limits, old = limits, self.limits
        old.close()
        for each in self.processes:
            each.order = orders[each.name]

    def accept_from(self, sockets: Sequence[ListeningSocket | None]) -> None:
        """Accept from ``sockets`` instead, by number."""
        self.sockets = [None if each is None else each.sock for each in sockets]
        self.acceptor.change(self.sockets)

    def spread(self, source: ServerProcess, notice: Notice) -> None:
        """Have all others know what ``source`` has learned."""
        self.notices.add(notice)
        for each in self.processes:
            if each is not source and each.process is not None:
                each.process.control.send("notices", [notice])

    def do(self, work: Coroutine[Any, Any, Any], done: Callable[[Any], None]) -> None:
        """Have ``work`` done, and call ``done`` with its result."""

        async def finish() -> None:
            done(await work)

        task = asyncio.get_running_loop().create_task(finish())
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)

    def failed(self, process: ServerProcess, reason: str) -> None:
        """A process has found that it cannot start. It ends the server only while that starts."""
        if self._started:
            facts = {"process": process.name, "reason": reason}
            _log.error("process not started", extra={"facts": facts})
        elif not self.failure.done():
            self.failure.set_result(reason)

    async def share(self, source: FrontEnd | None, change: StateChange) -> None:
        """Repeat the change that a client has made in ``source`` in all others, one of an operator in all."""
        self.changes.add(change)
        others = (each for each in self.front_ends if each is not source)
        await asyncio.gather(*(each.repeat(change) for each in others))
        if change.operation is Operation.LOG_SETTINGS:
            self._log.change(change.argument)
            await self.runtime.request("log", change.argument)

    async def collect(self, kind: Kind, source: ServerProcess | None = None) -> list[Any]:
        """What the processes add to a report, the runtime process first; without ``source``, which adds its
        own."""
        others = [each for each in self.processes if each is not source]
        found = await asyncio.gather(*(each.collect(kind) for each in others))
        ended = [] if source is None else source.reports.of_exited(kind)
        return [*(each for reports in found for each in reports), *ended]

    async def leave(self) -> None:
        """Report not ready from now on."""
        await asyncio.gather(*(each.request("leave") for each in self.front_ends))

    @property
    def models(self) -> tuple[list[str], list[str]]:
        """The models that were served at the start, and all that were known."""
        found: tuple[list[str], list[str]] = self.runtime.value
        return found

    @property
    def processes(self) -> list[ServerProcess]:
        """All but this one."""
        return [self.runtime, *self.front_ends]

    def report(self) -> dict[str, Any]:
        """The processes by name."""
        return {each.name: each.report() for each in self.processes}

    async def stop(self, grace_secs: float, hurry: asyncio.Future[None]) -> int:
        """Accept nothing more, and let running requests end within ``grace_secs``, or until ``hurry``.
        Returns how many were cut."""
        self.acceptor.stop()
        for opened in self.listening:
            opened.close()
            opened.remove_file()
        stopping = asyncio.gather(*(each.stop(grace_secs) for each in self.front_ends))
        await asyncio.wait((stopping, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            await asyncio.gather(*(each.stop(0) for each in self.front_ends))
        await stopping
        await self.runtime.stop(0)
        self.limits.close()
        self.mirrors.close()
        os.close(self.request_numbers)
        self.forks.close()
        return sum(each.cut for each in self.front_ends)

    async def _or_failure(self, waiting: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> None:
        task = asyncio.ensure_future(waiting)
        await asyncio.wait((task, self.failure), return_when=asyncio.FIRST_COMPLETED)
        if self.failure.done():
            task.cancel()
            raise StartupError(self.failure.result())
