"""What clients get of the configuration of an ensemble behind an upstream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http

from tests.e2e.daemon import Daemon
from tests.e2e.test_ensembles import ROWS, write_models
from tests.e2e.trtis_clients import clients_of

UPSTREAMS = [f"{dialect}_{transport}" for dialect in ("oip", "trtis") for transport in ("http", "grpc")]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Of the daemon with the ensemble, under ``here``, and of one before it."""
    folder = tmp_path_factory.mktemp("ensembles")
    listeners = [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc")]
    repository = {"path": str(write_models(folder / "models")), "load": ["double", "negate", "chain"]}
    with ExitStack() as stack:
        there = Daemon.start(folder, {"listeners": listeners, "model_repository": [repository]})
        stack.callback(there.kill)
        bridge = Daemon.start(
            tmp_path_factory.mktemp("bridge"),
            {
                "listeners": listeners,
                "models": {
                    f"chain.{name}": {"upstream": name, "remote_model": "chain"} for name in UPSTREAMS
                },
                "upstreams": {
                    name: {
                        "dialect": name.split("_")[0],
                        "transport": name.split("_")[1],
                        "urls": [there.addresses[name.endswith("grpc")]],
                    }
                    for name in UPSTREAMS
                },
            },
        )
        stack.callback(bridge.kill)
        here = stack.enter_context(clients_of(there))
        yield {**stack.enter_context(clients_of(bridge)), "here": here["http"], "bridge": bridge}
        assert bridge.stop() == there.stop() == 0


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_its_steps_are_not_reported_since_their_models_are_not_here(
    clients: dict[str, Any], transport: str, upstream: str
) -> None:
    """perf_client 1.15 looks up the statistics of every step, and stops where one is missing."""
    client, name = clients[transport], f"chain.{upstream}"
    answer = client.infer(name, {"IN": ROWS}, {"OUT": None})
    assert answer.outputs["OUT"].tolist() == (-2 * ROWS).tolist()
    told = client.status().model_status
    config = told[name].config
    assert (config.platform, config.HasField("ensemble_scheduling")) == ("ensemble", True)
    assert all(step.model_name in told for step in config.ensemble_scheduling.step)
    assert not config.ensemble_scheduling.step
    assert told[name].version_status[1].infer_stats[2].success.count >= 1


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("module", [triton_http, triton_grpc])
def test_its_configuration_over_oip_keeps_its_steps(
    clients: dict[str, Any], module: Any, upstream: str
) -> None:
    address = clients["bridge"].addresses[module is triton_grpc]
    with module.InferenceServerClient(address) as client:
        options = {"as_json": True} if module is triton_grpc else {}
        config = client.get_model_config(f"chain.{upstream}", **options)
    steps = config.get("config", config)["ensemble_scheduling"]["step"]
    assert sorted(step["model_name"] for step in steps) == ["double", "negate"]


def test_where_its_models_are_the_steps_have_their_statistics(clients: dict[str, Any]) -> None:
    clients["here"].infer("chain", {"IN": ROWS}, {"OUT": None})
    told = clients["here"].status().model_status
    steps = [step.model_name for step in told["chain"].config.ensemble_scheduling.step]
    assert sorted(steps) == ["double", "negate"]
    for model in ("chain", *steps):
        counted = told[model].version_status[1].infer_stats[2]
        assert counted.success.count == counted.queue.count == counted.compute.count >= 1
