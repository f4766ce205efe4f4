"""Which output is which, behind GraphPipe servers that ignore the names of outputs: graphpipe-go's ``Serve`` answers
with every output of the function in its own order, and no answer of the dialect has names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import requests
from graphpipe import remote

from tests.e2e.background import Background
from tests.e2e.daemon import Daemon
from tests.standins.graphpipe_go_server import GoServer

NAMES = ["output0", "output1", "output2"]
X = np.array([7], dtype=np.int64)
RIGHT = {"output0": 8, "output1": 14, "output2": -7}


def spec(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def signature(*outputs: dict[str, Any]) -> dict[str, Any]:
    return {"inputs": [spec("input0", "INT64", [-1])], "outputs": list(outputs)}


WHOLE = [spec(name, "INT64", [-1]) for name in NAMES]
FP32 = [spec("score", "FP32", [-1, 2]), spec("box", "FP32", [-1, 4]), spec("label", "INT64", [-1])]
MODELS: dict[str, dict[str, Any]] = {
    "discovered": {"upstream": "go"},
    "declared": {"upstream": "go", "signature": signature(*WHOLE)},
    "renamed": {"upstream": "go", "outputs": {"twice": "output1"}},
    "fewer": {"upstream": "go", "signature": signature(*WHOLE[:2])},
    "more": {"upstream": "go", "signature": signature(*WHOLE, spec("output3", "INT64", [-1]))},
    "mixed": {"upstream": "mixed", "signature": signature(*FP32)},
    "other_types": {"upstream": "mixed", "signature": signature(FP32[0], FP32[2], FP32[1])},
    "other_shapes": {"upstream": "mixed", "signature": signature(FP32[1], FP32[0], FP32[2])},
}


def plain(x: Any) -> list[Any]:
    return [x + 1, x * 2, -x]


def mixed(x: Any) -> list[Any]:
    rows = len(x)
    return [np.zeros((rows, 2), np.float32), np.ones((rows, 4), np.float32), x]


@dataclass
class World:
    """The daemon, and the servers behind it."""

    http: str
    go: GoServer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    background = Background()
    go, other = GoServer(plain, 1, 3), GoServer(mixed, 1, 3)
    urls = {"go": background.serve(go.application()), "mixed": background.serve(other.application())}
    daemon = Daemon.start(
        tmp_path_factory.mktemp("order"),
        {
            "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
            "models": MODELS,
            "upstreams": {
                name: {"dialect": "graphpipe", "transport": "http", "urls": [url]}
                for name, url in urls.items()
            },
        },
    )
    try:
        yield World(daemon.addresses[0], go)
        assert daemon.stop() == 0
    finally:
        daemon.kill()
        background.close()


def infer(world: World, model: str, outputs: list[str] | None) -> requests.Response:
    body: dict[str, Any] = {"inputs": [{**spec("input0", "INT64", [1]), "data": [7]}]}
    if outputs is not None:
        body["outputs"] = [{"name": name} for name in outputs]
    return requests.post(f"http://{world.http}/v2/models/{model}/infer", json=body, timeout=10)


CHOICES = [None, *(list(names) for count in (1, 2, 3) for names in permutations(NAMES, count))]


@pytest.mark.parametrize("model", ["discovered", "declared"])
@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_values_have_the_requested_names(world: World, model: str, chosen: list[str] | None) -> None:
    reply = infer(world, model, chosen)
    assert reply.status_code == 200, reply.text
    told = {output["name"]: output["data"] for output in reply.json()["outputs"]}
    assert told == {name: [RIGHT[name]] for name in chosen or NAMES}
    assert world.go.asked[-1] == NAMES


@pytest.mark.parametrize("chosen", [["output1", "output0"], ["output2"], ["output2", "output2", "output0"]])
def test_a_graphpipe_client_gets_the_requested_order(world: World, chosen: list[str]) -> None:
    got = remote.execute_multi(f"http://{world.http}/graphpipe/declared", [X], ["input0"], chosen)
    assert [int(array[0]) for array in got] == [RIGHT[name] for name in chosen]


def test_a_renamed_output_is_the_right_one(world: World) -> None:
    reply = infer(world, "renamed", ["twice", "output0"])
    told = {output["name"]: output["data"] for output in reply.json()["outputs"]}
    assert told == {"twice": [14], "output0": [8]}


@pytest.mark.parametrize("chosen", [None, ["output0"], ["output1", "output0"]], ids=str)
@pytest.mark.parametrize(("model", "count"), [("fewer", 2), ("more", 4)])
def test_another_number_of_outputs_is_refused(
    world: World, model: str, count: int, chosen: list[str] | None
) -> None:
    reply = infer(world, model, chosen)
    assert reply.status_code == 502
    error = reply.json()["error"]
    assert f"3 tensors without names where {count} outputs were expected (output0, output1" in error
    assert error.startswith("upstream 'go': ")


def test_the_right_order_of_different_outputs_is_taken(world: World) -> None:
    reply = infer(world, "mixed", ["label", "score"])
    told = {output["name"]: output["data"] for output in reply.json()["outputs"]}
    assert told == {"label": [7], "score": [0, 0]}


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("other_types", "is FP32 [1, 4] where output 'label' is INT64 [-1]"),
        ("other_shapes", "is FP32 [1, 2] where output 'box' is FP32 [-1, 4]"),
    ],
)
@pytest.mark.parametrize("chosen", [None, ["score"]], ids=str)
def test_a_declared_order_that_the_answer_contradicts_is_refused(
    world: World, model: str, words: str, chosen: list[str] | None
) -> None:
    reply = infer(world, model, chosen)
    assert reply.status_code == 502
    assert words in reply.json()["error"], reply.text
