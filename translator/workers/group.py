"""Another configuration for a server of several processes: every step in all of them, or in none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.translator.config.options import Config
from interlingua.translator.recording.begin import begin_recordings
from interlingua.translator.reload.differences import Difference, Differences, binds_itself, pairs
from interlingua.translator.reload.listeners import stays
from interlingua.translator.reload.outcome import ReloadRefusedError
from interlingua.translator.workers.child import WorkerOrder
from interlingua.translator.workers.children import Prepared
from interlingua.translator.workers.limits import LimitsOwner
from interlingua.translator.workers.mirrors import Slots
from interlingua.translator.workers.parts import parts_of
from interlingua.translator.workers.supervisor import ServerProcess, Supervisor

_PREPARE_SECS = 30.0
"""How long a front end may take to prepare. The runtime process takes as long as the models need to load."""

_STEP_SECS = 10.0
"""How long a process may take for each later step. It is started again with the new configuration then."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class GroupSuccession:
    """See ``ServerSuccession``; for the processes of ``group``."""

    group: Supervisor
    config: Config
    _listening: list[ListeningSocket] = field(default_factory=list)
    _opened: list[ListeningSocket] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _sockets: list[ListeningSocket | None] = field(default_factory=list)
    _limits: LimitsOwner | None = None
    _mirrors: Slots = field(default_factory=dict)
    _orders: dict[str, WorkerOrder] = field(default_factory=dict)
    _models: Difference = field(default_factory=Difference)

    async def prepare(self) -> None:
        """Bind new addresses and prepare all processes. Raises ``OSError``, ``ReloadRefusedError``."""
        group = self.group
        away = [each.name for each in group.processes if not each.ready.is_set()]
        if away:
            raise ReloadRefusedError(*(f"process '{name}' is being started; try again" for name in away))
        for options in self.config.listeners:
            if binds_itself(options):
                text = f"listener {options.listen}: engine library over grpc needs workers: 0"
                raise ReloadRefusedError(text)
        self._plan()
        begin_recordings(self.config, group.config)
        self._limits = LimitsOwner(self.config, group.workers + 1)
        addresses, numbers = tuple(str(each.address) for each in self._listening), tuple(self._numbers)
        self._mirrors = group.mirrors.slots_of(self.config)
        mirrors = tuple(self._mirrors.values())
        for each, config in zip(group.front_ends, parts_of(self.config, group.workers), strict=True):
            self._orders[each.name] = replace(
                each.order, config=config, addresses=addresses, numbers=numbers, mirrors=mirrors
            )
        self._orders[group.runtime.name] = replace(group.runtime.order, config=self.config)
        self._models = await self._prepare(group.runtime, None)
        preparing = (self._prepare(each, _PREPARE_SECS) for each in group.front_ends)
        for result in await asyncio.gather(*preparing, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def commit(self) -> None:
        """Serve by the new configuration: models first, then front ends, then new connections."""
        group = self.group
        assert self._limits is not None, "it has been prepared"  # noqa: S101
        group.configure(self.config, self._orders, self._limits, self._mirrors)
        await self._step([group.runtime], "commit")
        await self._step(group.front_ends, "commit")
        group.accept_from(self._sockets)

    async def finish(self) -> None:
        """Forget what is removed."""
        group = self.group
        await self._step(group.front_ends, "finish")
        await self._step([group.runtime], "finish")
        old, group.listening = group.listening, self._listening
        for each in old:
            if each not in self._listening:
                each.remove_file()
                each.close()
        for each in self._opened:
            _log.info("listening", extra={"facts": {"address": str(each.address)}})

    async def retire(self, hurry: asyncio.Future[None]) -> None:
        """Every process frees what it has replaced."""

    async def abort(self) -> None:
        """Everything is as it was."""
        for each in self.group.processes:
            if each.process is not None:
                each.process.control.send("abort")
        if self._limits is not None:
            self._limits.close()
        for opened in self._opened:
            opened.remove_file()
            opened.close()

    def describe(self, found: Differences) -> None:
        """See ``ServerSuccession``."""
        found["models"] = self._models

    def _plan(self) -> None:
        """A socket and its number for each listener. One that changes has another number, so that connections
        that are on their way find the old one."""
        group = self.group
        before = group.config
        self._sockets = [None] * len(group.sockets)
        for old, new in pairs(before.listeners, self.config.listeners):
            if new is None:
                continue
            options = self.config.listeners[new]
            if old is None:
                socket = ListeningSocket.open(parse_address(options.listen))
                socket.name = options.transport
                self._opened.append(socket)
            else:
                socket = group.listening[old]
            if old is not None and stays(before, self.config, before.listeners[old], options):
                number = group.numbers[old]
                self._sockets[number] = socket
            else:
                number = len(self._sockets)
                self._sockets.append(socket)
            self._listening.append(socket)
            self._numbers.append(number)

    async def _prepare(self, process: ServerProcess, secs: float | None) -> Difference:
        """Prepare one process; the models that differ there. Raises ``ReloadRefusedError``."""
        if self._limits is not None and process.process is not None:
            for descriptors in self._limits.descriptors():
                process.process.control.send("limits", None, descriptors)
        reply: Prepared | None = await process.carry_out("prepare", self._orders[process.name], secs)
        if reply is None:
            raise ReloadRefusedError(f"process '{process.name}' does not answer")
        if reply.errors:
            raise ReloadRefusedError(*reply.errors)
        return reply.models

    async def _step(self, processes: Sequence[ServerProcess], step: str) -> None:
        """One that does not carry it out starts again, by its new order."""

        async def carry_out(process: ServerProcess) -> None:
            if not await process.carry_out(step, None, _STEP_SECS) and process.process is not None:
                facts = {"process": process.name, "step": step}
                _log.error("reload not carried out, process killed", extra={"facts": facts})
                process.process.kill()

        await asyncio.gather(*map(carry_out, processes))
