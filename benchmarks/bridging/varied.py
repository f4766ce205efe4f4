"""Rows of traffic in production: each variant next to the same request again and again, in turns.

``varied`` are four pairs with all variants, ``equal`` the pairs of equal dialects and transports with
everything together, ``local`` a model that the daemon runs itself. Four connections have one request in
flight each.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks import processes, progress
from benchmarks.bridging.pairs import CONFIGS, PAIRS, Pair, between, identities
from benchmarks.bridging.requests import ModelUse, Request, numbers, request
from benchmarks.bridging.sender import PLACE, packed
from benchmarks.bridging.turns import QUICK_ROUNDS, ROUNDS, Cost, Found, in_turns
from benchmarks.bridging.variants import EVERYTHING, HEADERS, SAME, SHAPES, VARIANTS, Variant
from benchmarks.processes import Server
from benchmarks.tracing import collector

CONNECTIONS = 4
_SIZE = 64
_COUNT, _QUICK_COUNT = 1200, 320


@dataclass(frozen=True)
class VariedRow:
    """A variant of a pair."""

    pair: Pair
    variant: Variant

    @property
    def title(self) -> str:
        """With the kind of the pair."""
        return f"{self.pair.name}, {self.pair.kind}: {self.variant.name}"

    @property
    def targets(self) -> tuple[float | None, float | None]:
        """The largest ratio, and what may be added."""
        if self.pair.kind == "local":
            return self.variant.local, None
        return self.variant.ratio, self.variant.more_us


def _rows(pair: Pair) -> Iterator[VariedRow]:
    """The same, and what is measured next to it."""
    yield VariedRow(pair, SAME)
    for variant in VARIANTS:
        if variant is EVERYTHING:
            yield VariedRow(pair, replace(variant, parts=variant.parts & pair.parts))
        elif variant.parts <= pair.parts and (
            pair.kind == "varied" or (pair.kind == "local" and variant.local is not None)
        ):
            yield VariedRow(pair, variant)


VARIED = tuple(row for pair in PAIRS for row in _rows(pair))


def requests(pair: Pair, parts: frozenset[str], model: str) -> list[Request]:
    """What callers send in turn."""
    sizes = range(4, 4 * SHAPES + 4, 4) if "shapes" in parts else (_SIZE,)
    name = PLACE if "id" in parts else ""
    found = [request(pair.caller, pair.over, size, ModelUse(model), name) for size in sizes]
    if "JSON" in parts:
        found = [_as_json(each) for each in found]
    more = {name: value for part in parts & HEADERS.keys() for name, value in HEADERS[part].items()}
    return [replace(each, headers={**each.headers, **more}) for each in found]


def _as_json(sent: Request) -> Request:
    """A request of OIP over HTTP with its numbers as text."""
    tensor: dict[str, Any] = orjson.loads(sent.body[: -len(sent.echoed)])["inputs"][0]
    del tensor["parameters"]
    tensor["data"] = memoryview(sent.echoed).cast("f").tolist()
    body = orjson.dumps({"inputs": [tensor]})
    return replace(sent, headers={"Content-Type": "application/json"}, body=body, echoed=numbers(body))


class Bench:
    """Starts what rows need, when one first needs it; all of it ends with ``running``."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._folder = folder
        self._running = running
        self._clients = running.enter_context(processes.clients("benchmarks.bridging.sender"))
        self._collector = running.enter_context(collector())
        self._serving = running.enter_context(processes.daemon(self._own("serving"), identities()))
        self._daemon = cache(self._start)

    def contenders(self, row: VariedRow) -> tuple[str, Cost, Cost]:
        """The name of the peer, and the costs of the row and of the peer."""
        pair, parts = row.pair, row.variant.parts
        same = requests(pair, SAME.parts, pair.model)
        relays = ("numbered", "relay") if "answers" in parts else ("", "")
        config = parts & frozenset(CONFIGS)
        here = self._cost(self._daemon(config, relays[0]), requests(pair, parts, pair.model))
        if row.variant is SAME:
            return "serving", here, self._cost(self._serving, requests(pair, parts, pair.remote))
        return "same", here, self._cost(self._daemon(SAME.parts, relays[1]), same)

    def _own(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True)
        return folder

    def _start(self, parts: frozenset[str], relay: str) -> Server:
        """The daemon with those parts in its configuration. ``relay`` is the kind of those between it and its
        upstream: bare ones, or those that number answers."""
        folder = self._own("-".join((*sorted(parts), relay)).replace("/", "") or "same")
        addresses = {**self._serving.addresses, **(self._relays(relay) if relay else {})}
        config = between(folder, addresses)
        for part in sorted(parts):
            CONFIGS[part](config, folder, self._collector)
        return self._running.enter_context(processes.daemon(folder, config))

    def _relays(self, kind: str) -> Mapping[str, str]:
        found = {}
        for transport, bare in (("http", "http1_relay"), ("grpc", "http2_relay")):
            module, more = ("numbered", (transport,)) if kind == "numbered" else (bare, ())
            relay = processes.relay(module, transport, self._serving.addresses[transport], *more)
            found |= self._running.enter_context(relay).addresses
        return found

    def _cost(self, server: Server, sent: Sequence[Request]) -> Cost:
        return partial(self._cost_us, server, [packed(each) for each in sent])

    def _cost_us(self, server: Server, sent: list[dict[str, Any]], count: int) -> float:
        address = server.addresses[sent[0]["transport"]]
        self._clients.connect({"address": address, "requests": sent, "clients": CONNECTIONS, "count": count})
        before = server.cpu_secs()
        done = self._clients.go()
        return (server.cpu_secs() - before) / done["count"] * 1e6


def measure(rows: Sequence[VariedRow], folder: Path, quick: bool) -> Iterator[Found]:
    """Every row as it is measured."""
    if not rows:
        return
    count, rounds = (_QUICK_COUNT, QUICK_ROUNDS) if quick else (_COUNT, ROUNDS)
    with ExitStack() as running:
        bench = Bench(folder / "varied", running)
        for row in progress.each(rows, lambda row: row.title):
            peer, *costs = bench.contenders(row)
            yield _found(row, peer, in_turns(costs, count, rounds))


def _found(row: VariedRow, peer: str, costs: Sequence[Sequence[float]]) -> Found:
    us, peer_us = (round(statistics.median(cost), 1) for cost in costs)
    turns = list(zip(*costs, strict=True))
    ratio = round(statistics.median(one / other for one, other in turns), 2)
    added_us = round(statistics.median(one - other for one, other in turns), 1)
    target, target_us = row.targets
    return Found(row.title, us, peer, peer_us, ratio, target, added_us, target_us)
