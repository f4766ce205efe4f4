"""How many Python calls of ours one request takes: ``python -m benchmarks.calls [--names]``.

A walk begins with the bytes on the server's socket and ends with those of the answer. Every call of a Python
function of this package counts, and every resumption of a coroutine or a generator, and every named tuple; C
functions, libraries and the event loop do not. The number is the same on every machine: a test can hold it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from benchmarks import processes
from benchmarks.cases import CASES, CONFIG, MODEL, Case, over
from benchmarks.tfserving import GRPC, REST
from benchmarks.wire import Http1, Http2, Wire
from interlingua.protocols.transport.address import Address, parse_address
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.translator.assembly import assemble, load_local
from interlingua.translator.config.loader import parse

Calls = Counter[str]
"""Calls by function, as ``module.function``."""

_WARM_UP, _WALKS = 20, 11


@dataclass(frozen=True)
class Walk:
    """A request, ``case``, to a daemon with ``config``; ``target`` is how many calls it may take."""

    name: str
    case: Case
    target: int
    upstream: str = ""


def _case(name: str) -> Case:
    return next(case for case in CASES if case.name == name and case.size == 64)


WALKS = (
    Walk("OIP gRPC to a local model", _case("OIP gRPC raw"), 61),
    Walk("OIP HTTP to a local model", _case("OIP HTTP binary"), 42),
    Walk("OIP gRPC passed to an OIP upstream", _case("OIP gRPC raw"), 75, "grpc"),
    Walk("OIP HTTP passed to an OIP upstream", _case("OIP HTTP binary"), 31, "http"),
    Walk("TF Serving gRPC to a local model", GRPC, 61),
    Walk("TF Serving REST to a local model", REST, 72),
    Walk("GraphPipe HTTP to an OIP upstream", _case("GraphPipe HTTP"), 33, "http"),
)


class Counting:
    """Counts calls of ours in all threads while it is ``on``."""

    def __init__(self) -> None:
        self.on = False
        self.calls: Calls = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self.on and event == "call":
            # the functions that dataclasses generate have no file, but they have the module
            module: str = frame.f_globals.get("__name__", "")
            if module.startswith(("interlingua.", "namedtuple_")):
                self.calls[f"{module}.{frame.f_code.co_qualname}"] += 1


@contextmanager
def profiled() -> Iterator[Counting]:
    """Count the calls of this thread and of those that it starts, while ``on``."""
    counting = Counting()
    threading.setprofile(counting)
    sys.setprofile(counting)
    try:
        yield counting
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def _walk(walk: Walk, config: dict[str, Any], counting: Counting) -> Calls:
    options = parse(yaml.safe_dump(config))
    assembly = assemble(options, load_local(options))
    (listener,) = options.listeners
    pipeline, address = assembly.pipeline(listener), parse_address(listener.listen)
    server: GrpcServer | HttpServer = (
        GrpcServer(pipeline.handlers["grpc"], address)
        if listener.transport == "grpc"
        else HttpServer(pipeline.handlers["http"], address)
    )
    bound = await server.start()
    try:
        request, _ = walk.case.request()
        wire = Http2(walk.case.method, request) if listener.transport == "grpc" else Http1(request)
        return await _drive(wire, bound, counting)
    finally:
        await server.stop(0)
        await assembly.close()


async def _drive(wire: Wire, address: Address, counting: Counting) -> Calls:
    """The fewest calls of several walks: now and then one has to look after a connection as well."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    found: list[Calls] = []
    try:
        for number in range(_WARM_UP + _WALKS):
            counting.calls, counting.on = Counter(), number >= _WARM_UP
            wire.begin()
            answer = None
            while answer is None:
                while wire.outgoing:
                    writer.write(wire.outgoing.popleft())
                data = await reader.read(1 << 20)
                if not data:
                    raise RuntimeError("the server closed the connection")
                answer = wire.feed(data)
            # what comes after the answer is part of the walk
            await asyncio.sleep(0.02)
            counting.on = False
            if number >= _WARM_UP:
                found.append(counting.calls)
    finally:
        writer.close()
    return min(found, key=Counter.total)


def count(walk: Walk) -> Calls:
    """The calls of one ``walk``."""
    transport = walk.case.transport
    listeners = [{"listen": "127.0.0.1:0", "transport": transport, "dialects": over(transport)}]
    config = {**CONFIG, "listeners": listeners}
    with tempfile.TemporaryDirectory() as folder:
        if not walk.upstream:
            with profiled() as counting:
                return asyncio.run(_walk(walk, config, counting))
        with processes.daemon(Path(folder), CONFIG) as there:
            upstream = {
                "dialect": "oip",
                "transport": walk.upstream,
                "urls": [there.addresses[walk.upstream]],
            }
            config |= {"models": {MODEL: {"upstream": "there"}}, "upstreams": {"there": upstream}}
            with profiled() as counting:
                return asyncio.run(_walk(walk, config, counting))


def main() -> int:
    """Print a line for each walk; 1 where one takes more calls than it may."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--names", action="store_true", help="list the functions too")
    names = parser.parse_args().names
    over = False
    for walk in WALKS:
        calls = count(walk)
        over = over or calls.total() > walk.target
        print(f"{walk.name + ':':36} {calls.total():4} calls (target <= {walk.target})")
        for name, number in sorted(calls.items()) if names else ():
            print(f"    {number:4}  {name}")
    return int(over)


if __name__ == "__main__":
    raise SystemExit(main())
