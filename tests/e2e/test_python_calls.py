"""A model written in Python that asks others: one here, one behind another server, an ensemble, itself."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon import Daemon
from tests.runtime.python_models import DECOUPLED, INT32, python_model

LISTENERS = [{"listen": "127.0.0.1:0", "transport": "http"}, {"listen": "127.0.0.1:0", "transport": "grpc"}]

TWICE = """
def execute(self, requests):
    return [answer(given(request) * 2) for request in requests]
"""

COUNTS = """
def execute(self, requests):
    for request in requests:
        for number in given(request):
            request.get_response_sender().send(answer([number]))
        request.get_response_sender().send(flags=FINAL)
"""

ASKS = """
def execute(self, requests):
    import json

    responses = []
    for request in requests:
        name = json.loads(request.parameters())["model"]
        tensor = pb.Tensor("IN", given(request))
        call = pb.InferenceRequest(model_name=name, inputs=[tensor], requested_output_names=["OUT"])
        found = []
        for response in call.exec(decoupled=True):
            if response.has_error():
                responses.append(pb.InferenceResponse(error=response.error()))
                break
            for output in response.output_tensors():
                found += output.as_numpy().tolist()
        else:
            responses.append(answer(found))
    return responses
"""

ENSEMBLE = """
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "twice" model_version: -1
    input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "between" } },
  { model_name: "NAME" model_version: -1
    input_map { key: "IN" value: "between" } output_map { key: "OUT" value: "OUT" } }
] }
"""


def ensemble(folder: Path, name: str, second: str) -> None:
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "config.pbtxt").write_text(ENSEMBLE.replace("NAME", second))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    """The server that the model runs on, and the one behind it."""
    far, near = tmp_path_factory.mktemp("far"), tmp_path_factory.mktemp("near")
    python_model(far / "models", TWICE, INT32, "twice")
    python_model(far / "models", COUNTS, DECOUPLED, "counts")
    python_model(near / "models", ASKS, INT32, "asks")
    python_model(near / "models", TWICE, INT32, "twice")
    python_model(near / "models", COUNTS, DECOUPLED, "counts")
    ensemble(near / "models", "four_times", "far")
    behind = Daemon.start(
        far,
        {
            # a signal stops all of it
            "server": {"workers": 0},
            "listeners": LISTENERS,
            "model_repository": [{"path": str(far / "models")}],
        },
    )
    upstream = {"dialect": "oip", "transport": "grpc", "urls": [behind.addresses[1]]}
    daemon = Daemon.start(
        near,
        {
            "listeners": LISTENERS,
            "model_repository": [{"path": str(near / "models")}],
            "upstreams": {"behind": upstream},
            "models": {
                "far": {"upstream": "behind", "remote_model": "twice"},
                "far_counts": {"upstream": "behind", "remote_model": "counts"},
            },
        },
    )
    try:
        yield daemon, behind
        assert daemon.stop() == 0
        assert behind.stop() == 0
        for each in (daemon, behind):
            assert not [line for line in each.log if "unexpected error" in line["event"]], each.log
    finally:
        daemon.kill()
        behind.kill()


def ask(daemon: Daemon, model: str, *numbers: int, secs: float = 30) -> tuple[int, object]:
    """The status, and the numbers or the error, when ``asks`` asks ``model``."""
    given = {"name": "IN", "datatype": "INT32", "shape": [len(numbers)], "data": numbers}
    body = json.dumps({"inputs": [given], "parameters": {"model": model}}).encode()
    url = f"http://{daemon.addresses[0]}/v2/models/asks/infer"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=secs) as answer:
            return answer.status, json.load(answer)["outputs"][0]["data"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]


@pytest.mark.parametrize(
    ("model", "answered"),
    [
        ("twice", [2, 4, 6]),
        ("far", [2, 4, 6]),
        ("four_times", [4, 8, 12]),
        ("counts", [1, 2, 3]),
        ("far_counts", [1, 2, 3]),
    ],
)
def test_which_models_it_calls(servers: tuple[Daemon, Daemon], model: str, answered: list[int]) -> None:
    for _ in range(2):
        assert ask(servers[0], model, 1, 2, 3) == (200, answered)


def test_which_models_it_cannot_call(servers: tuple[Daemon, Daemon]) -> None:
    assert ask(servers[0], "nobody", 1) == (404, "Request for unknown model: 'nobody' is not found")
    status, said = ask(servers[0], "asks", 1)
    assert status == 503
    assert "each of its instances runs a request that waits for this call" in str(said)


def test_a_server_that_stops_during_a_request(servers: tuple[Daemon, Daemon]) -> None:
    _, behind = servers
    os.kill(behind.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            ask(servers[0], "far", 1, secs=0.5)
    finally:
        os.kill(behind.process.pid, signal.SIGCONT)
    assert ask(servers[0], "far", 5) == (200, [10])
