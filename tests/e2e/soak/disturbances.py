"""What happens to a daemon besides honest requests: errors, cancelled calls, loads and unloads, shared memory, reloads
of the configuration, hostile connections."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests
import yaml

from benchmarks.hostile.attack import Target
from benchmarks.hostile.table import ATTACKS
from tests.e2e.bad_inputs import graphpipe, grps, oip_grpc, oip_http, trtis
from tests.e2e.bad_inputs.wires import TRANSPORTS, connections
from tests.e2e.daemon import Daemon
from tests.e2e.soak.samples import Gate
from tests.waiting import eventually

Done = Counter[str]
"""How often each has happened."""

_PACE_SECS = 0.02

BAD_INPUTS: list[Any] = [
    each for module in (oip_http, oip_grpc, trtis, graphpipe, grps) for each in module.inputs().values()
]

_WARM_CYCLES = 3

_KINDS = {"models", "upstreams", "routes", "listeners", "options"}
"""What each reload with another file changes."""

_RELOADED = {
    "backend": "identity",
    "signature": {side: [{"name": "X", "datatype": "FP32", "shape": [-1]}] for side in ("inputs", "outputs")},
}

ATTACKED = (
    "connect and close, HTTP",
    "connect and close, gRPC",
    "chunks of 1 byte",
    "WINDOW_UPDATE",
    "PING",
    "SETTINGS",
    "DATA of 1 byte",
    "empty gRPC messages",
    "rapid reset",
    "refused heads",
    "CONTINUATION",
    "half a preface",
    "empty frames, bRPC",
    "messages of 1 byte, TCP",
)
"""The attacks of ``benchmarks.hostile`` that one connection makes."""


def errors(daemon: Daemon, pace_secs: float, gate: Gate, done: Done) -> None:
    """Send every bad input, over and over; those over HTTP to the last listener, which keeps idle connections."""
    open_ = {**connections(daemon), "http": http.client.HTTPConnection(daemon.addresses[-1], timeout=60)}
    try:
        while not gate.over:
            for each in BAD_INPUTS:
                if gate.over:
                    break
                with gate.work():
                    each.send(open_[each.transport])
                done["errors"] += 1
                time.sleep(pace_secs)
    finally:
        for connection in open_.values():
            connection.close()


async def cancels(callers: Sequence[Callable[[], Awaitable[None]]], gate: Gate, done: Done) -> None:
    """Begin calls and cancel them after a moment."""
    chance = random.Random(1)
    while not gate.over:
        await gate.opened()
        with gate.work():
            call = asyncio.ensure_future(chance.choice(callers)())
            await asyncio.wait((call,), timeout=chance.uniform(0, 0.01))
            if call.cancel():
                done["cancels"] += 1
            with suppress(asyncio.CancelledError):
                await call
        await asyncio.sleep(_PACE_SECS)


def loads(address: str, model: str, gate: Gate, done: Done) -> None:
    """Load a model, call it, reload it, call it and unload it, over and over."""
    tensor = {"name": "INPUT0", "datatype": "FP64", "shape": [2], "data": [1.0, 2.0]}
    with requests.Session() as session:

        def post(path: str, body: Any = None) -> Any:
            reply = session.post(f"http://{address}/v2/{path}", json=body, timeout=30)
            assert reply.status_code == 200, reply.text
            return reply

        while not gate.over:
            with gate.work():
                for _ in range(2):
                    post(f"repository/models/{model}/load")
                    answer = post(f"models/{model}/infer", {"inputs": [tensor]}).json()
                    assert answer["outputs"][0]["data"] == tensor["data"], answer
                post(f"repository/models/{model}/unload")
            done["loads and unloads"] += 1
            time.sleep(5 * _PACE_SECS)


def shared_memory(address: str, model: str, gate: Gate, done: Done) -> None:
    """Register a region, let a model read its input there, and unregister it, over and over."""
    path = Path(f"/dev/shm/interlingua_soak_{os.getpid()}_{threading.get_ident()}")
    path.write_bytes(bytes(4096))
    region = {"shared_memory_region": "soak", "shared_memory_byte_size": 8}
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "parameters": region}
    steps: tuple[tuple[str, Any], ...] = (
        ("systemsharedmemory/region/soak/register", {"key": f"/{path.name}", "byte_size": 4096}),
        (f"models/{model}/infer", {"inputs": [tensor]}),
        ("systemsharedmemory/region/soak/unregister", None),
    )
    try:
        with requests.Session() as session:
            while not gate.over:
                with gate.work():
                    for step, body in steps:
                        reply = session.post(f"http://{address}/v2/{step}", json=body, timeout=30)
                        assert reply.status_code == 200, (step, reply.text)
                done["shared memory"] += 1
                time.sleep(_PACE_SECS)
    finally:
        path.unlink()


def reloads(daemon: Daemon, path: Path, pace_secs: float, secs: float, gate: Gate, done: Done) -> None:
    """For ``secs`` seconds, reload by SIGHUP and by ``POST /reload`` in turn, each time with the file at ``path`` as it
    is, and then with another one. No sample is taken until what was replaced has drained."""
    document = yaml.safe_load(path.read_text())
    drain_secs, end = document["server"]["drain_secs"] + 0.1, time.monotonic() + secs
    for number in itertools.count():
        if gate.over or time.monotonic() >= end:
            return
        changes = number % 2 == 1
        with gate.work():
            if changes:
                path.write_text(yaml.safe_dump(_changed(document, number)))
            kinds = _hang_up(daemon) if number % 4 < 2 else _post_reload(daemon)
            time.sleep(drain_secs if changes else 0)
        assert kinds == (_KINDS if changes else set()), (number, kinds)
        done["reloads"] += 1
        time.sleep(pace_secs)


def renewal(daemon: Daemon, path: Path) -> Callable[[], None]:
    """Replaces listeners, and returns when the connections of the old ones have closed: how many clients keep open says
    nothing about the server."""
    document = yaml.safe_load(path.read_text())
    # other files than those of ``reloads``
    numbers = itertools.count(1_000_000, 2)

    def renew() -> None:
        path.write_text(yaml.safe_dump(_changed(document, next(numbers))))
        assert _post_reload(daemon)
        time.sleep(document["server"]["drain_secs"] + 0.1)

    return renew


def _changed(document: Any, number: int) -> Any:
    """File ``number``: a model, a route, a limit of all listeners, the timeout of one upstream, and the first two listeners
    differ, which are over HTTP and gRPC, where clients learn that a connection ends."""
    upstreams, listeners = document["upstreams"], document["listeners"]
    slow = sorted(upstreams)[number % len(upstreams)]
    return {
        **document,
        "listeners": [{**each, "max_elements": 10_000_000 + number} for each in listeners[:2]]
        + listeners[2:],
        "models": {**document["models"], "reloaded": {**_RELOADED, "description": f"reload {number}"}},
        "upstreams": {**upstreams, slow: {**upstreams[slow], "request_timeout_secs": 50.0 + number % 2}},
        "routes": [{"match": {"model": f"reload-{number}"}, "to": "reloaded"}],
        "server": {**document["server"], "max_inflight_requests": 10_000 + number},
    }


def _hang_up(daemon: Daemon) -> set[str]:
    """Reload by a signal; the kinds of changes."""

    def reloaded() -> list[dict[str, Any]]:
        return [line for line in daemon.log if line["event"] == "configuration reloaded"]

    before = len(reloaded())
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: len(reloaded()) > before)
    return _KINDS & reloaded()[-1].keys()


def _post_reload(daemon: Daemon) -> set[str]:
    """Reload over HTTP; the kinds of changes."""
    answer = requests.post(f"{daemon.admin}/reload", timeout=60)
    assert answer.status_code == 200, answer.text
    return set(answer.json()["changes"])


def hostile(daemon: Daemon, secs: float, pause: float, gate: Gate, done: Done) -> None:
    """Each attack for ``secs`` seconds in turn, with a ``pause`` between."""
    addresses = dict(zip(TRANSPORTS, daemon.addresses, strict=False))
    attacks = [attack for attack in ATTACKS if attack.name in ATTACKED]
    assert len(attacks) == len(ATTACKED), "they are named as there"
    while not gate.over:
        for attack in attacks:
            if gate.over:
                return
            with gate.work(), suppress(OSError):  # the server may close the connection
                attack.run(Target(addresses[attack.transport], addresses, secs))
            done["attacks"] += 1
            time.sleep(pause)


async def warm_up(daemon: Daemon, secs: float) -> None:
    """Make every error and every attack some times, for what they leave in caches and the allocator."""
    gate, done = Gate(), Done()
    threads = asyncio.gather(
        asyncio.to_thread(errors, daemon, 0.0, gate, done),
        asyncio.to_thread(hostile, daemon, secs, 0.0, gate, done),
    )
    try:
        while done["errors"] < _WARM_CYCLES * len(BAD_INPUTS) or done["attacks"] < _WARM_CYCLES * len(
            ATTACKED
        ):
            await asyncio.wait((threads,), timeout=0.1)
    finally:
        gate.end()
        await threads
