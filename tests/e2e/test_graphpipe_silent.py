"""GraphPipe servers that know inference alone, as graphpipe-py's examples: a MetadataRequest gets no answer. With a
declared signature such a server is as good as any other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import requests
import yaml
from graphpipe import remote

from interlingua.translator.cli import main
from tests.e2e.daemon import Daemon
from tests.standins.graphpipe_py_server import PyServer
from tests.waiting import eventually

PROBE_SECS = 0.1
HABITS = ["closes", "fails", "empty"]
SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
}
PAIR = {
    "inputs": [{"name": name, "datatype": "FP32", "shape": [-1], "optional": name == "b"} for name in "ab"],
    "outputs": [{"name": name, "datatype": "FP32", "shape": [-1]} for name in "xy"],
}
"""Of a server that doubles the inputs at each position."""


@dataclass
class World:
    """The daemon's address, and the servers by what they do about metadata."""

    http: str
    admin: str
    servers: dict[str, PyServer]


def upstream(url: str) -> dict[str, Any]:
    return {"dialect": "graphpipe", "transport": "http", "urls": [url], "probe_interval_secs": PROBE_SECS}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        servers: dict[str, PyServer] = {habit: PyServer(habit) for habit in HABITS}  # type: ignore[arg-type]
        urls = {habit: stack.enter_context(server.running()) for habit, server in servers.items()}
        daemon = Daemon.start(
            tmp_path_factory.mktemp("silent"),
            {
                "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
                "admin": {"listen": "127.0.0.1:0"},
                "models": {
                    **{habit: {"upstream": habit, "signature": SIGNATURE} for habit in HABITS},
                    "pair": {"upstream": "closes", "signature": PAIR},
                    "undeclared": {"upstream": "closes", "required": False},
                },
                "upstreams": {habit: upstream(url) for habit, url in urls.items()},
            },
        )
        try:
            admin = f"http://{daemon.until('admin listening')['address']}"
            yield World(daemon.addresses[0], admin, servers)
            assert daemon.stop() == 0
        finally:
            daemon.kill()


def infer(world: World, model: str) -> int:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, -2]}
    reply = requests.post(
        f"http://{world.http}/v2/models/{model}/infer", json={"inputs": [tensor]}, timeout=10
    )
    if reply.status_code == 200:
        [output] = reply.json()["outputs"]
        assert (output["name"], output["data"]) == ("y", [3, -4])
    return reply.status_code


@pytest.mark.parametrize("habit", HABITS)
def test_the_model_is_ready(world: World, habit: str) -> None:
    for _ in range(4):
        assert requests.get(f"http://{world.http}/v2/models/{habit}/ready", timeout=10).status_code == 200
    assert requests.get(f"http://{world.http}/v2/health/ready", timeout=10).status_code == 200


@pytest.mark.parametrize("habit", HABITS)
def test_metadata_come_from_the_declaration(world: World, habit: str) -> None:
    reply = requests.get(f"http://{world.http}/v2/models/{habit}", timeout=10)
    assert reply.status_code == 200, reply.text
    told = reply.json()
    assert told["name"] == habit
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    assert [(output["name"], output["datatype"]) for output in told["outputs"]] == [("y", "FP32")]
    assert (
        requests.get(f"http://{world.http}/graphpipe/{habit}", timeout=10).json()["Inputs"][0]["Name"] == "x"
    )


@pytest.mark.parametrize("habit", HABITS)
def test_questions_for_metadata_never_cost_a_request(world: World, habit: str) -> None:
    """Of a server that closes the connection, four such questions are more than it takes to leave it out."""
    for _ in range(4):
        requests.get(f"http://{world.http}/v2/models/{habit}", timeout=10)
        requests.get(f"http://{world.http}/v2/models/{habit}/ready", timeout=10)
        if habit == "closes":
            assert requests.get(f"http://{world.http}/v2/models/undeclared", timeout=10).status_code == 503
        assert infer(world, habit) == 200


@pytest.mark.parametrize("habit", HABITS)
def test_probes_leave_the_server_in_and_ask_it_once(world: World, habit: str) -> None:
    server = world.servers[habit]
    assert infer(world, habit) == 200  # from now on it is probed
    time.sleep(5 * PROBE_SECS)
    asked = server.questions
    time.sleep(10 * PROBE_SECS)
    assert server.questions == asked
    for _ in range(5):
        assert infer(world, habit) == 200
    metrics = requests.get(f"{world.admin}/metrics", timeout=10).text
    ejections = [line for line in metrics.splitlines() if "ejection" in line and f'"{habit}"' in line]
    assert ejections and all(line.endswith(" 0") for line in ejections), ejections


def test_without_a_signature_the_error_says_what_is_missing(world: World) -> None:
    reply = requests.get(f"http://{world.http}/v2/models/undeclared", timeout=10)
    assert reply.status_code == 503
    assert "closed the connection without an answer; " in reply.json()["error"]
    assert reply.json()["error"].endswith("declare its signature")
    assert requests.get(f"http://{world.http}/v2/models/undeclared/ready", timeout=10).status_code == 400


def test_a_graphpipe_client_sees_nothing_of_it(world: World) -> None:
    url = f"http://{world.http}/graphpipe/closes"
    assert (remote.execute(url, np.array([4], np.float32)) == [8]).all()
    assert remote.metadata(url).Outputs(0).Name() == b"y"


def pair(inputs: str) -> dict[str, Any]:
    """A request with ``inputs`` in this order: a is 1, b is 2."""
    value = {"a": 1, "b": 2}
    return {
        "inputs": [
            {"name": name, "datatype": "FP32", "shape": [1], "data": [value[name]]} for name in inputs
        ],
        "outputs": [{"name": "y"}, {"name": "x"}],
    }


@pytest.mark.parametrize("inputs", ["ab", "ba"])
def test_a_server_that_reads_inputs_by_position_gets_those_of_the_signature(
    world: World, inputs: str
) -> None:
    """Also from repeated requests."""
    url = f"http://{world.http}/v2/models/pair/infer"
    with requests.Session() as session:
        for _ in range(12):
            reply = session.post(url, json=pair(inputs), timeout=10)
            assert reply.status_code == 200, reply.text
            outputs = {output["name"]: output["data"] for output in reply.json()["outputs"]}
            assert outputs == {"x": [2], "y": [4]}


@pytest.mark.parametrize("names", ["ab", "ba", ""])
def test_a_graphpipe_caller_has_its_own_order_of_inputs(world: World, names: str) -> None:
    """Without names it is the signature's."""
    value = {"a": 1, "b": 2}
    inputs = [np.array([value[name]], np.float32) for name in names or "ab"]
    outputs = remote.execute_multi(
        f"http://{world.http}/graphpipe/pair", inputs, [*names] or None, ["y", "x"]
    )
    assert [array.tolist() for array in outputs] == [[4], [2]]


@pytest.mark.parametrize("given", ["a", "b"])
def test_an_input_left_out_is_refused_where_the_server_has_shown_no_names(world: World, given: str) -> None:
    before = world.servers["closes"].requests
    reply = requests.post(f"http://{world.http}/v2/models/pair/infer", json=pair(given), timeout=10)
    assert reply.status_code == 400
    missing = "b" if given == "a" else "a"
    assert f"'{missing}'" in reply.json()["error"]
    array = np.array([1], np.float32)
    with pytest.raises(requests.HTTPError, match="400"):
        remote.execute_multi(f"http://{world.http}/graphpipe/pair", [array], [given], None)
    assert world.servers["closes"].requests == before


def test_a_server_that_is_gone_is_not_ready(tmp_path: Any) -> None:
    server = PyServer()
    with ExitStack() as stack:
        up = stack.enter_context(ExitStack())
        url = up.enter_context(server.running())
        daemon = Daemon.start(
            tmp_path,
            {
                "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
                "models": {"m": {"upstream": "u", "signature": SIGNATURE}},
                "upstreams": {"u": upstream(url)},
            },
        )
        stack.callback(daemon.kill)
        world = World(daemon.addresses[0], "", {})

        def ready() -> bool:
            code = requests.get(f"http://{world.http}/v2/models/m/ready", timeout=10).status_code
            return code == 200

        assert ready() and infer(world, "m") == 200
        up.close()
        assert not ready()
        assert infer(world, "m") == 503
        stack.enter_context(server.running())
        eventually(ready)
        eventually(lambda: infer(world, "m") == 200)
        assert daemon.stop() == 0


def test_a_server_that_does_nothing_about_metadata(tmp_path: Any) -> None:
    """One request at a time: what waits behind a question would never be answered."""
    server = PyServer("hangs")
    with ExitStack() as stack:
        url = stack.enter_context(server.running())
        daemon = Daemon.start(
            tmp_path,
            {
                "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
                "models": {"m": {"upstream": "u", "signature": SIGNATURE, "required": False}},
                "upstreams": {"u": {**upstream(url), "probe_interval_secs": 0}},
            },
        )
        stack.callback(daemon.kill)
        world = World(daemon.addresses[0], "", {})
        began = time.monotonic()
        assert requests.get(f"http://{world.http}/v2/models/m/ready", timeout=30).status_code == 200
        assert requests.get(f"http://{world.http}/v2/models/m", timeout=30).status_code == 200
        assert time.monotonic() - began < 15
        server.released.set()
        assert infer(world, "m") == 200
        assert daemon.stop() == 0


def test_check_takes_a_declared_model_at_its_word(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with PyServer().running() as url:

        def checked(model: dict[str, Any]) -> str:
            path = tmp_path / "c.yaml"
            document = {
                "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
                "models": {"m": {"upstream": "u", **model}},
                "upstreams": {"u": upstream(url)},
            }
            path.write_text(yaml.safe_dump(document, sort_keys=False))
            code = main(["check", "-c", str(path), "--probe", "--timeout-secs", "1"])
            told = capsys.readouterr()
            assert code == (1 if told.err else 0)
            return told.err

        assert checked({"signature": SIGNATURE}) == ""
        assert "models.m.upstream: " in checked({}) and "declare its signature" in checked({})


def test_a_command_without_a_signature(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.array([1.5], np.float32))
    with PyServer().running() as url:
        asked = ["infer", "--dialect", "graphpipe", "--transport", "http", "--url", url, "--model", ""]
        assert main([*asked, "--input", f"x=@{tmp_path}/x.npy", "--json"]) == 0
        [output] = json.loads(capsys.readouterr().out)["outputs"]
        assert output["data"] == [3]
