"""The offload threads of an event loop, each with a process of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from interlingua.runtime.offload.lanes import Lanes
from interlingua.runtime.offload.process import OffloadProcess
from interlingua.schemas.offload import CLIENT, DecodingLimits, OffloadRole

T = TypeVar("T")

_MOST = 4


def client_address(peer: str) -> str:
    """The address in ``peer``, which gRPC has with a port: a client may have many connections."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer


def default_size() -> int:
    """One thread for every two CPUs, since a server has other work too."""
    return max(1, min(_MOST, (os.cpu_count() or 1) // 2))


class OffloadPool:
    """An ``Offloader`` with ``size`` threads, for the event loop in whose thread it is entered: a context
    manager. Processes start with the first long message."""

    def __init__(self, size: int | None = None) -> None:
        self._size = size or default_size()
        self._executor = ThreadPoolExecutor(self._size, "offload")
        self._role = OffloadRole(offloader=self)
        self._idle = [OffloadProcess() for _ in range(self._size)]
        self._lanes = Lanes(self._size)

    async def __aenter__(self) -> OffloadPool:
        self._role.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._role.__exit__()
        await asyncio.to_thread(self._close)

    async def run(self, limits: DecodingLimits, function: Callable[..., T], *arguments: Any) -> T:
        """See ``Offloader``. If the caller is cancelled, the work ends. Clients take turns."""
        await self._lanes.enter(client_address(CLIENT.get()))
        try:
            job = _Job(self._idle)
            future: asyncio.Future[T] = asyncio.get_running_loop().run_in_executor(
                self._executor, job.run, limits, function, arguments
            )
            try:
                return await future
            except asyncio.CancelledError:
                job.cancel()
                raise
        finally:
            self._lanes.leave()

    def _close(self) -> None:
        self._executor.shutdown(cancel_futures=True)
        for process in self._idle:
            process.close()


class _Job:
    """One message in a thread. Processes are taken from ``idle`` and put back."""

    def __init__(self, idle: list[OffloadProcess]) -> None:
        self._idle = idle
        self._process: OffloadProcess | None = None
        self._lock = threading.Lock()

    def run(self, limits: DecodingLimits, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        process = self._process = self._idle.pop()
        try:
            with OffloadRole(limits=limits, process=process):
                return function(*arguments)
        finally:
            with self._lock:
                self._process = None
            self._idle.append(process)

    def cancel(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()
