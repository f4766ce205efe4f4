"""Probes the servers of a pool, at intervals, and at once on suspicion.

Any answer shows that the server is there; the answer itself says whether it is ready. No answer counts as a
failed request, except from a server that answers no probes at all: for that one a connection is enough.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable

from interlingua.protocols.wire import ConnectionFailedError
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.pool.unanswered import UnansweredError
from interlingua.schemas import ErrorCode, InferenceError, Readiness
from interlingua.schemas.errors import release_frames

Probe = Callable[[Member, float], Awaitable[Readiness]]
"""Requests whether a server is ready, within a number of seconds. Raises ``InferenceError``."""

_AT_LEAST = 0.2
"""The shortest time between two probes, as a part of the interval."""


class Probes:
    """Probes each server every ``interval_secs``; an answer may take ``timeout_secs``."""

    def __init__(self, interval_secs: float, timeout_secs: float) -> None:
        self._interval = interval_secs
        self._timeout = min(timeout_secs, interval_secs)
        self._tasks: dict[Member, asyncio.Task[None]] = {}

    def start(self, members: Iterable[Member], query: Probe) -> None:
        for member in members:
            self._tasks[member] = asyncio.create_task(self._watch(member, query))

    async def stop(self, members: Iterable[Member]) -> None:
        tasks = [self._tasks.pop(member) for member in members if member in self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def now(self, members: Iterable[Member], query: Probe) -> None:
        """Probe each of ``members`` once, whenever its next probe is due."""
        await asyncio.gather(*(probe(member, query, self._timeout) for member in members))

    async def _watch(self, member: Member, query: Probe) -> None:
        while True:
            await asyncio.sleep(self._interval * _AT_LEAST)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval * (1 - _AT_LEAST)):
                    await member.suspected.wait()
            member.suspected.clear()
            await probe(member, query, self._timeout)


async def probe(member: Member, query: Probe, timeout_secs: float) -> None:
    """Probe ``member`` once, and note the result."""
    try:
        readiness = await query(member, timeout_secs)
    except UnansweredError:
        member.reached()
    except InferenceError as error:
        release_frames(error)
        if isinstance(error, ConnectionFailedError):
            member.failed(error.message, unreachable=not error.sent)
        elif error.code in (ErrorCode.DEADLINE_EXCEEDED, ErrorCode.BAD_UPSTREAM):
            member.failed(error.message)
        elif error.code is ErrorCode.UNAVAILABLE:
            member.said(False)  # TRTIS and Triton over gRPC while they stop
        else:
            member.answered()
    else:
        member.said(readiness.ready)
