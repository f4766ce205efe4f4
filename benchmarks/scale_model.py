"""What more processes, replicas and machines would carry: a simulation of queues, fed with measured costs.

``python -m benchmarks.scale_model measure`` measures the CPU time of each process for a request, with one and
two front ends (``scale_costs``), and writes scale_costs.json. ``check`` compares the capacity that the
simulation predicts for them, and for the replicas in scale_ray.json, with what was measured. ``plan`` prints
the fleets of docs/scaling.md, and draws their plot.

Contract: a station serves its requests in the order of their arrival. Costs are CPU time, so that the figures
are those of a machine with a core for each process. ``Costs`` is what is measured, ``Site`` what is assumed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import simpy

US = 1e-6

COSTS = Path(__file__).with_name("scale_costs.json")
"""What ``measure`` has written."""

RAY = Path(__file__).with_name("scale_ray.json")
"""The ``scales`` that ``benchmarks.ray --json`` has printed."""

PLOT = Path(__file__).parent.parent / "docs" / "plots" / "scaling.svg"

CLIENTS = 16
"""For each process that clients connect to: a loop with more of them finds more requests at once, and takes
less for each."""

SIZES = (1, 10, 100, 1000, 10_000)
"""The nodes of the tables; the plot has a point between each two."""

TOLERANCE = 0.15
"""How far a prediction may be from what was measured."""

Draw = Callable[[random.Random, float], float]
"""A service time with the given mean, in seconds."""


def fixed(_: random.Random, mean: float) -> float:
    return mean


def exponential(chance: random.Random, mean: float) -> float:
    return chance.expovariate(1 / mean) if mean else 0.0


class Station:
    """``servers`` equal servers with one queue. ``busy`` is the time that they have worked, together."""

    def __init__(self, env: simpy.Environment, servers: int = 1) -> None:
        self._env = env
        self._resource = simpy.Resource(env, servers)
        self.servers = servers
        self.busy = 0.0

    def serve(self, secs: float) -> Generator[Any, Any, None]:
        """Wait for a server, and take it for ``secs``."""
        with self._resource.request() as turn:
            yield turn
            yield self._env.timeout(secs)
            self.busy += secs

    @property
    def load(self) -> int:
        """The number of requests that wait or are served."""
        return self._resource.count + len(self._resource.queue)

    def utilization(self) -> float:
        return self.busy / self.servers / self._env.now if self._env.now else 0.0


Step = tuple[Station, float]
"""A station, and the mean time that a request takes there, in seconds."""

Route = Callable[[], Iterable[Step]]
"""The way of one request."""


@dataclass
class Outcome:
    """``rate`` is in requests per second, ``latencies`` in seconds, without those while the queues fill."""

    rate: float
    latencies: list[float]

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def closed(env: simpy.Environment, routes: Sequence[Route], count: int, draw: Draw, seed: int = 1) -> Outcome:
    """Each of ``routes`` is a client that sends its next request after the answer, ``count`` together."""
    chance, ended, took = random.Random(seed), [], list[float]()

    def client(route: Route) -> Generator[Any, Any, None]:
        while len(ended) < count:
            began = env.now
            for station, mean in route():
                yield from station.serve(draw(chance, mean))
            ended.append(env.now)
            took.append(env.now - began)

    for route in routes:
        env.process(client(route))
    env.run()
    warm = count // 10
    return Outcome((count - warm) / (ended[count - 1] - ended[warm - 1]), took[warm:count])


def opened(
    env: simpy.Environment, route: Route, rate: float, count: int, draw: Draw, seed: int = 1
) -> Outcome:
    """``count`` requests arrive at random, ``rate`` of them per second."""
    chance, took = random.Random(seed), list[float]()

    def request() -> Generator[Any, Any, None]:
        began = env.now
        for station, mean in route():
            yield from station.serve(draw(chance, mean))
        took.append(env.now - began)

    def arrivals() -> Generator[Any, Any, None]:
        for _ in range(count):
            yield env.timeout(chance.expovariate(rate))
            env.process(request())

    env.process(arrivals())
    env.run()
    return Outcome(count / env.now, took[count // 10 :])


# --- what is measured, and what is assumed


@dataclass(frozen=True)
class Costs:
    """CPU µs per request: of a daemon of one process, and with front ends of a front end and of the runtime
    process. ``forward_us`` is what a daemon takes to pass one on, ``owner_us`` to choose the owner of a
    sequence, by the number of peers, for a few and for many."""

    name: str
    one_us: float
    front_us: float
    runtime_us: float
    forward_us: float = 0.0
    owner_us: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    """Requests for a CPU second of the busiest kind of process, by the number of front ends."""

    def owner(self, peers: int) -> float:
        """What a process takes for the owner of a sequence that it has not seen, on a line through those."""
        if not self.owner_us:
            return 0.0
        (few, least), (many, most) = ((int(count), us) for count, us in self.owner_us.items())
        return least + (most - least) / (many - few) * (peers - few)


@dataclass(frozen=True)
class Site:
    """A fleet. ``model_us`` is the time of a model on one of the ``instances`` of a node, such as its GPU;
    ``sequences`` the share of requests with a sequence, whose owner no process has seen. A balancer machine
    has ``balancer_cores``, each for ``balancer_us`` per request; without ``balancers`` clients choose a node
    themselves. With sequences, every front end probes the ``known`` others every ``probe_secs``, for
    ``probe_us`` at either end. ``node_price`` is per hour."""

    fronts: int = 6
    instances: int = 1
    model_us: float = 0.0
    sequences: float = 0.0
    balancers: int = 1
    balancer_cores: int = 16
    balancer_us: float = 16.0
    probe_secs: float = 5.0
    probe_us: float = 60.0
    known: int | None = None
    node_price: float = 0.32


def node_way(
    env: simpy.Environment, costs: Costs, fronts: int
) -> tuple[list[Station], Station | None, Callable[[int], Iterable[Step]]]:
    """The front ends of a daemon, its runtime process, and the way of the requests of a client."""
    if not fronts:
        whole = Station(env)
        return [whole], None, lambda _: [(whole, costs.one_us * US)]
    stations, runtime = [Station(env) for _ in range(fronts)], Station(env)
    return (
        stations,
        runtime,
        lambda client: [
            (stations[client % fronts], costs.front_us * US),
            (runtime, costs.runtime_us * US),
        ],
    )


def capacity(costs: Costs, fronts: int, count: int = 4000) -> float:
    """Requests per second of one daemon with as many ``fronts``, 0 for one process."""
    env = simpy.Environment()
    _, _, way = node_way(env, costs, fronts)
    routes: list[Route] = [partial(way, client) for client in range(CLIENTS * max(fronts, 1))]
    return closed(env, routes, count, fixed).rate


def replicas(daemon_us: float, replica_us: float, count: int, clients: int, requests: int = 4000) -> float:
    """Requests per second of a daemon in front of ``count`` replicas, each with the fewest requests first."""
    env = simpy.Environment()
    daemon, workers = Station(env), [Station(env) for _ in range(count)]

    def way() -> Iterable[Step]:
        yield daemon, daemon_us * US
        yield min(workers, key=lambda each: each.load), replica_us * US

    return closed(env, [way] * clients, requests, fixed).rate


@dataclass(frozen=True)
class Capacity:
    """What a fleet of ``nodes`` carries: ``rate`` per second, the ``bottleneck``, its dollars per million
    requests at 70 % of that rate."""

    nodes: int
    rate: float
    bottleneck: str
    dollars: float


def demands(costs: Costs, site: Site, nodes: int) -> dict[str, float]:
    """The mean time in seconds that a request of the fleet takes of each kind of station, divided by how many
    there are: the largest is the bottleneck."""
    known = nodes - 1 if site.known is None else min(site.known, nodes - 1)
    # every front end probes all peers, and answers its part of the probes of theirs
    probing = min(2 * known * site.probe_us * US / site.probe_secs, 1.0) if site.sequences else 0.0
    moved = site.sequences * (nodes - 1) / nodes
    front = front_us(costs, site, moved, known) / max(1 - probing, 1e-9)
    found = {
        "front ends": front * US / (nodes * site.fronts),
        "runtime process": costs.runtime_us * US / nodes,
    }
    if site.model_us:
        found["model"] = site.model_us * US / (nodes * site.instances)
    if site.balancers:
        found["balancer"] = site.balancer_us * US / (site.balancers * site.balancer_cores)
    return found


_LOAD = 0.7

_SLICE = 64
"""More nodes than these are simulated as these with their share of requests: nodes do not share a queue."""


def planned(costs: Costs, site: Site, nodes: int) -> Capacity:
    """The capacity of the fleet."""
    limits = demands(costs, site, nodes)
    bottleneck = max(limits, key=lambda name: limits[name])
    rate = 1 / limits[bottleneck]
    dollars = (nodes + site.balancers) * site.node_price / 3600 / (_LOAD * rate) * 1e6
    return Capacity(nodes, rate, bottleneck, dollars)


def loaded(costs: Costs, site: Site, nodes: int, count: int = 10_000, seed: int = 1) -> Outcome:
    """Simulate the fleet at 70 % of the rate that its bottleneck allows."""
    limits = demands(costs, site, nodes)
    rate = 1 / max(limits.values())
    env, chance, shown = simpy.Environment(), random.Random(seed), min(nodes, _SLICE)
    # the cores of a balancer for more nodes hardly queue at 70 %: each request has its own
    queues = site.balancers and nodes == shown
    balancer = Station(env, site.balancers * site.balancer_cores if queues else count)
    fleet = [
        ([Station(env) for _ in range(site.fronts)], Station(env), Station(env, site.instances))
        for _ in range(shown)
    ]
    moved = site.sequences * (nodes - 1) / nodes
    # probes slow front ends down
    asked = costs.front_us + moved * (costs.forward_us + costs.front_us)
    slower = limits["front ends"] * nodes * site.fronts / asked

    def way() -> Iterable[Step]:
        if site.balancers:
            yield balancer, site.balancer_us * US
        # the one with fewer requests of two, as Envoy's LEAST_REQUEST
        fronts, runtime, model = min(chance.choices(fleet, k=2), key=lambda each: each[1].load + each[2].load)
        front = min(fronts, key=lambda each: each.load)
        if moved and chance.random() < moved:
            yield front, slower * (costs.front_us + costs.forward_us)
            fronts, runtime, model = chance.choice(fleet)
            front = chance.choice(fronts)
        yield front, slower * costs.front_us
        yield runtime, costs.runtime_us * US
        if site.model_us:
            yield model, site.model_us * US

    return opened(env, way, _LOAD * rate * shown / nodes, count, exponential, seed)


def front_us(costs: Costs, site: Site, moved: float, known: int) -> float:
    """What a request takes of front ends, if the share ``moved`` of them is forwarded: a second one then
    checks the owner."""
    choosing = (site.sequences + moved) * costs.owner(known + 1)
    return costs.front_us + moved * (costs.forward_us + costs.front_us) + choosing


@dataclass(frozen=True)
class Check:
    """What was predicted for ``name`` and what was measured, in requests per second."""

    name: str
    predicted: float
    measured: float

    @property
    def off(self) -> float:
        return self.predicted / self.measured - 1


def checks(costs: Sequence[Costs], scales: Sequence[dict[str, float]] = ()) -> list[Check]:
    """One process, and front ends from the costs with one. ``scales`` are those of ``benchmarks.ray``,
    whose replicas wait, so that they need no core each: the others from the rate of the first."""
    found = [
        Check(f"{each.name}, {_processes(fronts)}", capacity(each, fronts), each.measured[str(fronts)])
        for each in costs
        for fronts in (0, 1, 2)
    ]
    for each in scales[1:]:
        count, clients, daemon_us = int(each["replicas"]), int(each["clients"]), each["daemon_cpu_ms"] * 1e3
        replica_us = scales[0]["replicas"] / scales[0]["per_sec"] * 1e6
        predicted = replicas(daemon_us, replica_us, count, clients)
        found.append(Check(f"{count} replicas on Ray", predicted, each["per_sec"]))
    return found


def _processes(fronts: int) -> str:
    return "one process" if not fronts else "a front end" if fronts == 1 else f"{fronts} front ends"


def load_costs(path: Path) -> list[Costs]:
    """As ``measure`` wrote them."""
    return [Costs(**each) for each in json.loads(path.read_text())]


def load_scales(path: Path) -> list[dict[str, float]]:
    """As ``benchmarks.ray --json`` wrote them, the fewest replicas first."""
    found: list[dict[str, float]] = json.loads(path.read_text())["scales"]
    return found


CASES = (("GraphPipe HTTP", 64), ("OIP HTTP JSON, 16k floats", 64 << 10))

SCENARIOS = {
    "one balancer": Site(balancers=1),
    "clients that balance": Site(balancers=0),
    "the same, a model of 1 ms on a GPU": Site(balancers=0, model_us=1000.0, node_price=1.2),
    "sequences, one list of peers": Site(balancers=0, sequences=1.0),
    "sequences, lists of 100 peers": Site(balancers=0, sequences=1.0, known=99),
}


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_model")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("measure", help="measure the costs on this machine")
    command.add_argument("--rounds", type=int, default=8, help="half of them to predict from")
    command.add_argument("--secs", type=float, default=1.5)
    commands.add_parser("check", help="compare predictions with what was measured")
    commands.add_parser("plan", help="fleets of 1 to 10,000 nodes")
    parser.add_argument("--costs", type=Path, default=COSTS, help="another file for what is measured")
    parser.add_argument("--ray", type=Path, default=RAY, help="another file of benchmarks.ray --json")
    chosen = parser.parse_args(arguments)
    if chosen.command == "measure":
        from benchmarks.scale_costs import measure

        found = [asdict(measure(*case, chosen.rounds, chosen.secs)) for case in CASES]
        chosen.costs.write_text(json.dumps(found, indent=2) + "\n")
        return 0
    costs = load_costs(chosen.costs)
    if chosen.command == "check":
        found = checks(costs, load_scales(chosen.ray))
        print("\n".join(checks_table(found)))
        return int(any(abs(each.off) > TOLERANCE for each in found))
    print(f"{_HEADER}\n|---|---|---|---|---|---|---|")
    for name, site in SCENARIOS.items():
        for nodes in SIZES:
            row = plan_row(name if nodes == SIZES[0] else "", planned(costs[0], site, nodes))
            print(f"{row} {times(loaded(costs[0], site, nodes))} |", flush=True)
    PLOT.write_text(plot(costs[0]))
    return 0


def checks_table(found: Iterable[Check]) -> Iterable[str]:
    """The lines of a table in Markdown."""
    yield "| | predicted, 1/s | measured, 1/s | off |\n|---|---|---|---|"
    for each in found:
        yield f"| {each.name} | {each.predicted:,.0f} | {each.measured:,.0f} | {each.off:+.0%} |"


_HEADER = "| fleet | nodes | 1/s | bottleneck | $ per million | p50, ms | p99, ms |"


def plan_row(name: str, plan: Capacity) -> str:
    """A row without its times."""
    return f"| {name} | {plan.nodes:,} | {plan.rate:,.0f} | {plan.bottleneck} | {plan.dollars:.4f} |"


def times(outcome: Outcome) -> str:
    """The median and the 99th percentile, in milliseconds."""
    return f"{outcome.quantile(0.5) * 1e3:.2f} | {outcome.quantile(0.99) * 1e3:.2f}"


def plot(costs: Costs) -> str:
    """The rates of all fleets."""
    from benchmarks.scale_plot import svg

    sizes = sorted({*SIZES, *(3 * nodes for nodes in SIZES[1:-1])})
    curves = {
        name: [(nodes, planned(costs, site, nodes).rate) for nodes in sizes]
        for name, site in SCENARIOS.items()
    }
    return svg("Requests per second by nodes", curves)


if __name__ == "__main__":
    sys.exit(main())
