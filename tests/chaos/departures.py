"""Clients that leave just before a daemon stops: it has nothing to wait for.

The daemon has a local model and one on an upstream of every dialect and transport, all behind listeners of every
transport. A client is a connection that sends a part of a request or all of it, or breaks the rules, and leaves; every
third one resets the connection. Whatever they send repeats what others have sent, so that it takes every path that the
daemon has for such requests.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from interlingua.protocols.transport.address import parse_address
from tests.chaos.callers import PAIRS, Caller
from tests.chaos.world import IDENTITY, SIGNATURE, TRANSPORTS, Process, listener
from tests.e2e.relay import Relay

Pair = tuple[str, str]

PAUSE_SECS = 0.5
"""The daemon stops within this time after the last client has left."""

_WARM = 6
"""How many requests precede those of clients that leave."""

_CLIENTS = 30
"""How many of them there are at a time."""

_LARGE_ELEMENTS = 1 << 19
_JSON = {("grps", "http"), ("tfserving", "http")}
_JSON_SHARE = 32
"""By how much JSON of the same size has fewer elements, in time rather than bytes."""

_SMALL_TIMES = 3
"""How often clients with a small request come, in each of the ways."""

_LEAVE_SECS = 10.0
"""How long a client waits for a daemon that takes no more."""

LOCAL = ("local", "")
FIXED = "-fixed"
"""The end of the names of models that refuse large requests, which have the wrong size."""

WAYS = ("part", "whole", "whole", "half-closed", "broken")
"""How clients leave; every third one of each way resets its connection."""


@dataclass
class Row:
    """What ``count`` clients of ``name`` have left behind. ``violations``: what must not happen."""

    name: str
    count: int
    stop_secs: float
    violations: list[str] = field(default_factory=list)


class _Recorder(Relay):
    """Keeps what a client sends to the server at ``target``."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.sent = bytearray()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                self.sent += chunk
                behind.write(chunk)
                await behind.drain()


async def run(folder: Path) -> list[Row]:
    """Clients of each dialect and transport leave a daemon of their own, for models on each upstream."""
    upstream = await _upstream(folder)
    try:
        return [
            await _depart(folder, upstream, " ".join(pair), [(pair, target) for target in (LOCAL, *PAIRS)])
            for pair in PAIRS
        ]
    finally:
        await upstream.stop()


async def run_short(folder: Path) -> Row:
    """All of them leave one daemon, for models on two upstreams."""
    upstream = await _upstream(folder)
    try:
        chosen = [(pair, target) for pair in PAIRS for target in dict.fromkeys((pair, ("oip", "grpc")))]
        return await _depart(folder, upstream, "all", chosen)
    finally:
        await upstream.stop()


async def _upstream(folder: Path) -> Process:
    listeners = [listener(each, **({"default_model": "X"} if each == "tcp" else {})) for each in TRANSPORTS]
    config = {"server": {"log_format": "json", "drain_secs": 0.0}, "listeners": listeners}
    upstream = Process(folder / "upstream", {**config, "models": {"X": IDENTITY}})
    await upstream.start()
    return upstream


async def _depart(folder: Path, upstream: Process, name: str, chosen: Sequence[tuple[Pair, Pair]]) -> Row:
    """Start a daemon, have clients of the ``chosen`` pairs and targets leave it, and stop it."""
    names = {target: "-".join(filter(None, target)) for _, target in chosen}
    tcp = [f"{names[target]}{end}" for pair, target in chosen if pair[1] == "tcp" for end in ("", FIXED)]
    daemon = Process(folder / name.replace(" ", "-"), _config(upstream, names.values(), tcp))
    await daemon.start()
    try:
        addresses = dict(
            zip([each for each in TRANSPORTS if each != "tcp"] + tcp, daemon.addresses, strict=True)
        )
        rng, clients = random.Random(name), []
        for (dialect, transport), target in chosen:
            for end in ("", FIXED):
                model = names[target] + end
                address = addresses[model if transport == "tcp" else transport]
                clients += await _clients(Caller(dialect, transport, "local", model, address), rng)
        rng.shuffle(clients)
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(_CLIENTS) as threads:
            await asyncio.gather(*(loop.run_in_executor(threads, _leave, *each) for each in clients))
        await asyncio.sleep(rng.random() * PAUSE_SECS)
    finally:
        began = time.monotonic()
        await daemon.stop()
    row = Row(name, len(clients), time.monotonic() - began)
    row.violations = [
        str(line)[:2000]
        for line in daemon.lines()
        if line["event"].startswith("requests cut")
        or (line["level"] in ("error", "unparsed") and line["event"] != "request")
    ]
    if daemon.popen.returncode:
        row.violations.append(f"exit code {daemon.popen.returncode}")
    return row


def _config(upstream: Process, names: Iterable[str], tcp: Sequence[str]) -> dict[str, Any]:
    places = dict(zip(TRANSPORTS, upstream.addresses, strict=True))
    upstreams = {
        f"{dialect}-{transport}": {"dialect": dialect, "transport": transport, "urls": [places[transport]]}
        for dialect, transport in PAIRS
        if f"{dialect}-{transport}" in names
    }
    fixed = {side: [{**tensor, "shape": [16]} for tensor in tensors] for side, tensors in SIGNATURE.items()}
    models: dict[str, Any] = {}
    for name in names:
        for end, signature in (("", SIGNATURE), (FIXED, fixed)):
            on = upstreams.get(name)
            remote = {"upstream": name, "remote_model": "" if on and on["transport"] == "tcp" else "X"}
            models[name + end] = {"signature": signature, **(remote if on else {"backend": "identity"})}
    listeners = [listener(transport) for transport in TRANSPORTS if transport != "tcp"]
    return {
        "server": {"log_format": "json", "drain_secs": 0.0},
        "listeners": listeners + [listener("tcp", default_model=model) for model in tcp],
        "models": models,
        "upstreams": upstreams,
    }


async def _clients(caller: Caller, rng: random.Random) -> list[tuple[str, list[bytes], str, bool]]:
    """The arguments of :func:`_leave` for clients like ``caller``."""
    json = (caller.dialect, caller.transport) in _JSON
    large = replace(caller, elements=_LARGE_ELEMENTS // (_JSON_SHARE if json else 1))
    found = []
    for each, before, times in ((caller, _WARM, _SMALL_TIMES), (large, 1, 1)):
        message = await _recorded(each, before)
        for number, way in enumerate(WAYS * times):
            found.append((caller.address, _pieces(message, way, caller.transport, rng), way, number % 3 == 0))
    return found


async def _recorded(caller: Caller, times: int) -> bytes:
    """What ``caller`` sends for a request, which it sends so many ``times``."""
    recorder = _Recorder(int(caller.address.rpartition(":")[2]))
    await recorder.start()
    client = replace(caller, address=f"127.0.0.1:{recorder.port}")._client()
    try:
        outcomes = {await caller._call(client, 0)}
        message = bytes(recorder.sent)
        outcomes |= {await caller._call(client, number) for number in range(1, times)}
    finally:
        await client.close()
        await recorder.stop()
    fits = times > 1 or not caller.model.endswith(FIXED)
    assert fits == (outcomes == {"ok"}), (caller, outcomes)
    return message


def _pieces(message: bytes, way: str, transport: str, rng: random.Random) -> list[bytes]:
    """What a client sends that leaves in this ``way``."""
    if way == "part":
        return [message[: rng.randrange(1, len(message))]]
    if way != "broken":
        return [message]
    if transport == "http":
        return [re.sub(rb"(?i)content-length: *\d+", b"transfer-encoding: chunked", message)]
    middle = rng.randrange(len(message))
    return [message[:middle], rng.randbytes(16), message[middle:]]


def _leave(address: str, pieces: Sequence[bytes], way: str, resets: bool) -> None:
    """Be a client that sends ``pieces`` and leaves."""
    place = parse_address(address)
    with socket.create_connection((place.host, place.port), _LEAVE_SECS) as client, suppress(OSError):
        for piece in pieces:
            client.sendall(piece)
        if way in ("half-closed", "broken"):
            client.shutdown(socket.SHUT_WR)
        if resets:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def table(rows: Sequence[Row]) -> str:
    """A line for each dialect and transport."""
    lines = ["| clients that left | connections | violations | seconds to stop |", "|---|--:|--:|--:|"]
    lines += [f"| {row.name} | {row.count} | {len(row.violations)} | {row.stop_secs:.1f} |" for row in rows]
    return "\n".join(lines)
