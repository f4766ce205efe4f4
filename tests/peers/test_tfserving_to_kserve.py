"""Version 1 of KServe's protocol with KServe on both ends: its client, the daemon, its server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import requests

from tests.conformance.oip_client import Server
from tests.e2e.daemon import Daemon

pytestmark = pytest.mark.peers

CLIENT = """
import asyncio, json, sys
from kserve import InferenceRESTClient
from kserve.inference_client import RESTConfig

async def main():
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        for url in sys.argv[1:]:
            event = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "test", "ce-type": "request"}
            headers = {}
            print(json.dumps([
                await client.is_server_live(url),
                await client.is_model_ready(url, "rows"),
                await client.infer(url, {"instances": [[1.5, -2.0], [0.1, 3e38]]}, "rows"),
                await client.infer(url, {"instances": [[1.0, 2.0]]}, "rows", event, headers),
                headers["ce-type"], headers["ce-source"], headers["ce-specversion"],
            ]))

asyncio.run(main())
"""
"""KServe's client before each of some servers, a line of answers for each."""


def floats(name: str) -> dict[str, Any]:
    return {"name": name, "datatype": "FP64", "shape": [-1, 2]}


SIGNATURES = {
    "rows": {"inputs": [floats("x")], "outputs": [floats("predictions")]},
    "named": {"inputs": [floats("a"), floats("b")], "outputs": [floats("same"), floats("other")]},
    "cls": {"inputs": [floats("x")], "outputs": [floats("y")]},
}


@pytest.fixture(scope="module", params=["kserve", "auto"])
def bridge(
    request: pytest.FixtureRequest, kserve: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    one = {"listen": "127.0.0.1:0", "transport": "http"}
    config = {
        "listeners": [
            {**one, "dialects": ["tfserving"], "flavors": {"tfserving": "kserve"}},
            {**one, "dialects": ["oip", "tfserving"]},
        ],
        "upstreams": {
            "there": {
                "dialect": "tfserving",
                "transport": "http",
                "urls": [kserve.http],
                "flavor": request.param,
            }
        },
        "models": {name: {"upstream": "there", "signature": each} for name, each in SIGNATURES.items()},
    }
    running = Daemon.start(tmp_path_factory.mktemp("bridge"), config)
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


def test_its_client_gets_the_same_answers(bridge: Daemon, kserve: Server) -> None:
    urls = [f"http://{address}" for address in (kserve.http, bridge.addresses[0])]
    done = subprocess.run([sys.executable, "-c", CLIENT, *urls], capture_output=True, text=True, timeout=90)
    assert not done.returncode, done.stderr
    theirs, ours = map(json.loads, done.stdout.splitlines())
    assert ours == theirs
    assert ours[2] == {"predictions": [[1.5, -2.0], [0.1, 3e38]]}


def test_values_survive_bit_for_bit(bridge: Daemon) -> None:
    values = np.random.default_rng(0).standard_normal((5, 2)) * 10.0 ** np.arange(-100, 101, 50)[:, None]
    data = values.ravel().tolist()
    tensor = {"name": "x", "datatype": "FP64", "shape": list(values.shape), "data": data}
    answer = requests.post(
        f"http://{bridge.addresses[1]}/v2/models/rows/infer", json={"inputs": [tensor]}, timeout=30
    )
    (output,) = answer.json()["outputs"]
    assert np.array(output["data"]).tobytes() == values.tobytes()


def test_several_inputs_and_outputs(bridge: Daemon) -> None:
    body = {"inputs": {"a": [[1, 2]], "b": [[3, 4]]}}
    path = f"http://{bridge.addresses[1]}/v1/models/named:predict"
    assert requests.post(path, json=body, timeout=30).json() == {
        "outputs": {"same": [[1.0, 2.0]], "other": [[3.0, 4.0]]}
    }


def test_its_errors_reach_the_caller(bridge: Daemon, kserve: Server) -> None:
    path = "/v1/models/cls:predict"  # a model of version 2, which fails on these
    body = {"instances": [[1.0, 2.0]]}
    theirs, ours = (
        requests.post(f"http://{address}{path}", json=body, timeout=30)
        for address in (kserve.http, bridge.addresses[0])
    )
    assert ours.status_code == theirs.status_code == 500
    assert theirs.json()["error"] in ours.json()["error"]
