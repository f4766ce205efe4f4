"""The simulation against queueing theory, and what the plans of fleets say."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from xml.etree import ElementTree

import pytest
import simpy

from benchmarks import scale_model as model
from benchmarks.scale_model import (
    SCENARIOS,
    SIZES,
    TOLERANCE,
    Costs,
    Draw,
    Site,
    Station,
    capacity,
    closed,
    demands,
    loaded,
    opened,
    planned,
)
from benchmarks.scale_plot import svg
from tests.e2e.daemon import ROOT

COSTS = Costs(
    "a case",
    100.0,
    90.0,
    20.0,
    60.0,
    {"10": 1.0, "10000": 500.0},
    {"0": 10_100.0, "1": 11_000.0, "2": 22_500.0},
)
PAGE = (ROOT / "docs" / "scaling.md").read_text()


def wait(draw: Draw, utilization: float, servers: int = 1) -> float:
    """The mean time in the queue, in service times."""
    env = simpy.Environment()
    station = Station(env, servers)
    outcome = opened(env, lambda: [(station, 1.0)], utilization * servers, 20_000, draw, seed=5)
    assert station.utilization() == pytest.approx(utilization, rel=0.05)
    # Little's law, of the requests in service
    assert station.busy / env.now == pytest.approx(outcome.rate * 1.0, rel=0.05)
    return statistics.mean(outcome.latencies) - 1.0


def test_one_server_with_random_service() -> None:
    """M/M/1: the wait is u / (1 - u) service times."""
    assert wait(model.exponential, 0.5) == pytest.approx(1.0, rel=0.1)
    assert wait(model.exponential, 0.8) == pytest.approx(4.0, rel=0.15)


def test_one_server_with_fixed_service() -> None:
    """M/D/1: half of that (Pollaczek-Khinchine)."""
    assert wait(model.fixed, 0.5) == pytest.approx(0.5, rel=0.1)
    assert wait(model.fixed, 0.8) == pytest.approx(2.0, rel=0.15)


def test_several_servers_with_one_queue() -> None:
    """M/M/2: the wait is u² / (1 - u²) service times (Erlang C)."""
    assert wait(model.exponential, 0.7, servers=2) == pytest.approx(0.49 / 0.51, rel=0.15)


def test_the_slowest_station_limits_a_closed_loop() -> None:
    env = simpy.Environment()
    fast, slow = Station(env), Station(env, 2)
    outcome = closed(env, [lambda: [(fast, 0.1), (slow, 1.0)]] * 8, 2000, model.fixed)
    assert outcome.rate == pytest.approx(2.0, rel=0.01)
    assert slow.utilization() == pytest.approx(1.0, abs=0.01)
    # Little's law: as many requests as clients
    assert statistics.mean(outcome.latencies) * outcome.rate == pytest.approx(8, rel=0.02)


def test_front_ends_add_up_until_the_runtime_process_is_full() -> None:
    assert capacity(COSTS, 0) == pytest.approx(1e6 / 100, rel=0.01)
    assert capacity(COSTS, 1) == pytest.approx(1e6 / 90, rel=0.01)
    assert capacity(COSTS, 2) == pytest.approx(2e6 / 90, rel=0.01)
    assert capacity(COSTS, 8) == pytest.approx(1e6 / 20, rel=0.01)


def test_replicas_add_up_until_the_daemon_is_full() -> None:
    rates = [model.replicas(100.0, 350.0, count, 16) for count in (1, 2, 4)]
    assert rates == pytest.approx([1e6 / 350, 2e6 / 350, 1e6 / 100], rel=0.02)


def test_the_bottleneck_moves() -> None:
    def bottleneck(site: Site, nodes: int) -> str:
        found = demands(COSTS, site, nodes)
        return max(found, key=lambda name: found[name])

    one = Site(fronts=3, balancers=1, balancer_cores=16, balancer_us=20.0)
    assert bottleneck(one, 1) == "front ends" and bottleneck(one, 1000) == "balancer"
    assert bottleneck(Site(fronts=16, balancers=0), 10) == "runtime process"
    assert bottleneck(Site(balancers=0, model_us=1000.0), 10) == "model"
    # what daemons do for each other grows with the square of their number, unless they are in cells
    mesh, cells = Site(balancers=0, sequences=1.0), Site(balancers=0, sequences=1.0, known=99)
    rates = {
        site: [1 / max(demands(COSTS, site, nodes).values()) / nodes for nodes in (100, 10_000)]
        for site in (mesh, cells)
    }
    assert rates[mesh][1] < 0.3 * rates[mesh][0]
    assert rates[cells][1] == pytest.approx(rates[cells][0], rel=0.02)


def test_a_plan_is_of_a_fleet_at_seventy_percent() -> None:
    site = Site(fronts=2, balancers=0, node_price=0.36)
    plan, outcome = planned(COSTS, site, 3), loaded(COSTS, site, 3, 3000)
    assert plan.rate == pytest.approx(3 * 2e6 / 90, rel=1e-3) and plan.bottleneck == "front ends"
    assert plan.dollars == pytest.approx(3 * 0.36 / 3600 / (0.7 * plan.rate) * 1e6)
    assert outcome.rate == pytest.approx(0.7 * plan.rate, rel=0.05)
    assert 90e-6 < outcome.quantile(0.5) < outcome.quantile(0.99) < 5e-3
    # nodes do not share a queue, so that many of them are as a few
    assert planned(COSTS, site, 1000).rate == pytest.approx(planned(COSTS, site, 64).rate / 64 * 1000)
    many, few = (loaded(COSTS, site, nodes, 4000).quantile(0.5) for nodes in (1000, 64))
    assert many == pytest.approx(few, rel=0.15)


def test_check_fails_on_a_wrong_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, ray = tmp_path / "costs.json", tmp_path / "ray.json"
    file.write_text(json.dumps([model.asdict(COSTS)]))
    check = ["--costs", str(file), "--ray", str(ray), "check"]
    rates = {1: 40.0, 2: 78.0, 4: 100.0}
    scales = [
        {"replicas": count, "clients": 4 * count, "per_sec": rate, "daemon_cpu_ms": 1.0}
        for count, rate in rates.items()
    ]
    ray.write_text(json.dumps({"scales": scales[:2]}))
    assert model.main(check) == 0
    ray.write_text(json.dumps({"scales": scales}))
    assert model.main(check) == 1
    assert "| 4 replicas on Ray | 160 | 100 | +60% |" in capsys.readouterr().out


# --- docs/scaling.md, from what has been measured


def test_the_page_has_the_predictions() -> None:
    scales = model.load_scales(model.RAY)
    found = model.checks(model.load_costs(model.COSTS), scales)
    assert "\n".join(model.checks_table(found)) in PAGE
    assert all(abs(each.off) <= TOLERANCE for each in found)
    assert [each["replicas"] for each in scales] == [1, 2, 3, 4]


def test_the_page_has_the_fleets() -> None:
    costs = model.load_costs(model.COSTS)[0]
    for name, site in SCENARIOS.items():
        for nodes in SIZES:
            row = model.plan_row(name if nodes == SIZES[0] else "", planned(costs, site, nodes))
            assert row in PAGE
    # the times of the others take seconds
    row = model.plan_row("", planned(costs, site, nodes))
    assert f"{row} {model.times(loaded(costs, site, nodes))} |" in PAGE
    assert model.PLOT.read_text() == model.plot(costs)


def test_what_the_page_says_of_the_fleets() -> None:
    costs = model.load_costs(model.COSTS)
    short = costs[0]
    fleets = {
        name: {nodes: planned(short, site, nodes).rate for nodes in SIZES} for name, site in SCENARIOS.items()
    }
    gpu = demands(short, SCENARIOS["the same, a model of 1 ms on a GPU"], 1)
    few, one_list, lists = (list(fleets)[place] for place in (1, 3, 4))
    ratios = {
        "{:.0f} times the front ends that it needs": gpu["model"] / gpu["front ends"],
        "requests of about {:.0f} nodes": fleets["one balancer"][10_000] / fleets["one balancer"][1],
        "{:.0f} % less at ten nodes": 100 * (1 - fleets[one_list][10] / fleets[few][10]),
        "1,000 daemons with one list carry {:.0f} % less": 100
        * (1 - fleets[one_list][1000] / fleets[lists][1000]),
        "10,000 carry {:.0f} % less": 100 * (1 - fleets[one_list][10_000] / fleets[lists][10_000]),
        "{:.0f} to": short.runtime_us,
        "to {:.0f} µs per request to a local model": costs[1].runtime_us,
    }
    for text, ratio in ratios.items():
        assert text.format(ratio) in PAGE


def test_the_plot_has_a_line_for_each_fleet() -> None:
    curves = {"a": [(1, 10.0), (10_000, 1e6)], "b & c": [(1, 20.0), (10_000, 2e6)]}
    root = ElementTree.fromstring(svg("Requests", curves))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2 and all(len(each.attrib["points"].split()) == 2 for each in lines)
    assert "b & c" in [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
