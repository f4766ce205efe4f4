"""The mirror process: reads copies, compares, writes findings, until the daemon closes the connection."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
from collections.abc import Mapping, Sequence
from functools import partial

from interlingua.protocols.transport import loop
from interlingua.runtime.allocator import tune_allocator
from interlingua.translator.config.options import Config
from interlingua.translator.logs import setup as logs
from interlingua.translator.mirror.build import by_callers_names
from interlingua.translator.mirror.findings import Findings
from interlingua.translator.mirror.judge import Judge, LocalJudge
from interlingua.translator.mirror.shared import MirrorSlots, SharedMirrors
from interlingua.translator.mirror.wire import COPIES, Gathered, pack_findings, read_copies
from interlingua.translator.upstream_assembly import upstream_models

_log = logging.getLogger(__name__)

_NICE = 10
"""On a saturated machine the process gets about a tenth of a normal process's share."""

_GATHER_SECS, _MOST_FINDINGS = 0.05, 128
"""Reading findings costs the daemon about as much as a request, whatever their number."""


def main(descriptor: int, *shared: int) -> None:
    """Serve the socket ``descriptor``, whose first message is the configuration. ``shared`` are the
    descriptors of ``SharedMirrors``, if several processes share the mirrors."""
    # the daemon ends this process by closing the socket; a terminal sends its signals to both
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    tune_allocator()
    loop.run(_serve(socket.socket(fileno=descriptor), shared))


async def _serve(sock: socket.socket, shared: Sequence[int]) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=sock)
    try:
        size = int.from_bytes(await reader.readexactly(8), "little")
        # sent by the parent process
        config, places = pickle.loads(await reader.readexactly(size))  # noqa: S301
        role = "mirror" if config.server.several_processes else ""
        logs.set_up(config.server.log_level, config.server.log_format, role)
        slots = None if places is None else MirrorSlots(SharedMirrors(shared, places[0]), places[1])
        await _judge_all(config, slots, reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        _log.debug("daemon connection closed")
    finally:
        writer.close()


async def _judge_all(
    config: Config, slots: MirrorSlots | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Submit copies as they arrive. Raises when the connection ends."""
    # only now: starting at low priority would take long on a busy machine
    os.nice(_NICE)
    upstreams, models = upstream_models(config)
    judges: Mapping[int, Judge] = {
        number: LocalJudge(
            route.mirror,
            by_callers_names(route, models.__getitem__),
            config.server.shares_files,
            None if slots is None else slots.of(number),
        )
        for number, route in enumerate(config.routes)
        if route.mirror is not None and route.mirror.to in models
    }
    found: Gathered[tuple[int, Findings]] = Gathered(partial(_send, writer), _GATHER_SECS, _MOST_FINDINGS)
    try:
        while True:
            marshalled, large = COPIES.unpack(await reader.readexactly(COPIES.size))
            for mirror, copy in read_copies(await reader.readexactly(marshalled + large), marshalled):
                judges[mirror].submit(copy, partial(_gather, found, mirror))
    finally:
        for judge in judges.values():
            await judge.close()
        for upstream in upstreams.values():
            await upstream.close()


def _gather(found: Gathered[tuple[int, Findings]], mirror: int, findings: Findings) -> None:
    # the next copy of a sequence waits for the result
    found.add((mirror, findings), soon=bool(findings.sequences))


def _send(writer: asyncio.StreamWriter, found: list[tuple[int, Findings]]) -> None:
    merged: dict[int, Findings] = {}
    for mirror, findings in found:
        merged.setdefault(mirror, Findings()).merge(findings)
    writer.write(pack_findings(merged))
