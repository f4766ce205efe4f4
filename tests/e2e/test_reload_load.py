"""Reloads while clients of every dialect and transport call, each of which checks every answer."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.chaos.callers import PAIRS, Caller
from tests.chaos.world import IDENTITY, SIGNATURE, TRANSPORTS, listener
from tests.e2e.daemon import WAIT_SECS
from tests.e2e.reloading import Reloaded, reloaded
from tests.ports import free_port
from tests.waiting import eventually

RELOADS = int(os.environ.get("RELOADS", "20"))
"""``RELOADS=500 pytest tests/e2e/test_reload_load.py`` is the longer form."""

FIRST_RELOADS, SETTLED_SECS = 4, 1.5
"""What these reloads have taken by then may stay."""

SPARE_DESCRIPTORS = 12
"""Connections that come and go; sixteen reloads that each keep one take more."""

PAUSE_SECS = 0.02
SIDE = {"listen": "127.0.0.1:0", "transport": "http"}


OPTIONS: dict[str, dict[str, Any]] = {"tcp": {"default_model": "local"}}


def listeners(number: int) -> list[dict[str, Any]]:
    """One of each transport. Those over HTTP and gRPC, which can announce that a connection ends, get another server with
    each fifth reload."""
    announcing = {"max_elements": 300_000 + number // 5}
    return [
        listener(each, **OPTIONS.get(each, {}), **(announcing if each in ("http", "grpc") else {}))
        for each in TRANSPORTS
    ]


def changed(number: int, upstream: str, side: str) -> dict[str, Any]:
    """The file of reload ``number``: each time a model, an upstream, a route, a listener and a limit differ."""
    odd = number % 2 == 1
    far = {"upstream": "far", "remote_model": "local", "signature": SIGNATURE}
    urls = {"dialect": "oip", "transport": "http", "urls": [upstream], "request_timeout_secs": 20.0 + number}
    extra = [{"listen": side, "transport": "http"}] if odd else []
    return {
        "models": {"local": {**IDENTITY, "description": f"reload {number}"}, "far": far},
        "upstreams": {"far": urls},
        "routes": [{"match": {"model": f"r{number}"}, "to": "far"}],
        "listeners": [*listeners(number), *extra],
        "server": {"max_inflight_requests": 10_000 + number, "drain_secs": 0.5},
    }


@pytest.mark.parametrize("workers", [0, 2])
async def test_no_request_fails(workers: int, tmp_path: Path) -> None:
    config = {
        **changed(0, "127.0.0.1:1", ""),
        "server": {"workers": workers, "drain_secs": 0.5},
        "admin": {"listen": "127.0.0.1:0"},
    }
    with reloaded(tmp_path, config) as server:
        places = dict(zip(TRANSPORTS, server.daemon.addresses, strict=True))
        callers = [
            Caller(dialect, transport, "local", "local", places[transport], pause_secs=PAUSE_SECS)
            for dialect, transport in PAIRS
        ]
        far = Caller("oip", "grpc", "remote", "far", places["grpc"], pause_secs=PAUSE_SECS)
        running = [asyncio.create_task(each.run()) for each in (*callers, far)]
        upstream, side = places["http"], f"127.0.0.1:{free_port()}"
        for number in range(1, RELOADS + 1):
            await asyncio.to_thread(reload, server, changed(number, upstream, side))
            if number == FIRST_RELOADS:
                await asyncio.sleep(SETTLED_SECS)
                taken = descriptors(server)
        answered = [len(each.seen) for each in (*callers, far)]
        await asyncio.to_thread(
            eventually,
            lambda: all(len(each.seen) > n for each, n in zip((*callers, far), answered, strict=True)),
        )
        await asyncio.to_thread(eventually, lambda: descriptors(server) <= taken + SPARE_DESCRIPTORS)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    for each in callers:
        outcomes = Counter(seen.outcome for seen in each.seen)
        assert outcomes.keys() == {"ok"}, (each.dialect, each.transport, outcomes, each.faults[:3])
    # the upstream of the first file does not exist
    begun = next(place for place, seen in enumerate(far.seen) if seen.outcome == "ok")
    assert {seen.outcome for seen in far.seen[begun:]} == {"ok"}, far.faults


def descriptors(server: Reloaded) -> int:
    """The open descriptors of all processes of the server."""
    processes = requests.get(f"{server.daemon.admin}/processes", timeout=WAIT_SECS)
    pids = [server.daemon.process.pid]
    if processes.ok:
        pids = [each["pid"] for each in processes.json().values()]
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)


def reload(server: Reloaded, sections: dict[str, Any]) -> None:
    kinds = server.reload(**sections).keys()
    assert kinds >= {"models", "upstreams", "routes", "listeners", "options"}
