"""What does not fit a model behind the daemon is refused in the words that a real Triton has for it, and an input
that the model's configuration calls optional may be left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.conformance.oip_client import Server
from tests.conformance.refusal_texts import TABLE, write_models
from tests.e2e.daemon import Daemon
from tests.peers import servers

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

CONFIG = """
backend: "python"
max_batch_size: 4
input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } ]
input [ { name: "B" data_type: TYPE_FP32 dims: [ 2 ] optional: true } ]
output [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("X", pb_utils.get_input_tensor_by_name(request, "A").as_numpy())]
            )
            for request in requests
        ]
"""


def tensor(name: str, *shape: int, datatype: str = "FP32") -> dict[str, Any]:
    count = 1
    for size in shape:
        count *= size
    return {"name": name, "datatype": datatype, "shape": shape, "data": [1] * count}


A, B = tensor("A", 1, 2), tensor("B", 1, 2)
ANSWERED = {"both": [A, B], "without the optional one": [A]}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    # Triton counts inputs: with an optional one in place of A it asks the model
    "missing": ({"inputs": []}, "Please provide all required input(s)."),
    "unknown": ({"inputs": [A, tensor("Q", 1, 2)]}, "unexpected inference input 'Q' for model"),
    "too many": ({"inputs": [A, B, tensor("Q", 1, 2)]}, "but got 3 inputs for model"),
    "datatype": (
        {"inputs": [tensor("A", 1, 2, datatype="INT32"), B]},
        "inference input 'A' data-type is 'INT32', but model",
    ),
    "shape": ({"inputs": [tensor("A", 1, 3), B]}, "Expected [-1,2], got [1,3]."),
    "batch": (
        {"inputs": [tensor("A", 5, 2), tensor("B", 5, 2)]},
        "inference request batch-size must be <= 4 for",
    ),
    "batches": (
        {"inputs": [tensor("A", 1, 2), tensor("B", 2, 2)]},
        "batch size does not match other inputs for",
    ),
    "output": ({"inputs": [A], "outputs": [{"name": "Q"}]}, "unexpected inference output 'Q' for model"),
}
"""Requests, and what both say of them; the rest of the words differs between Triton's own releases."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Daemon]]:
    folder = tmp_path_factory.mktemp("refusals")
    model = folder / "repository" / "picky" / "1"
    model.mkdir(parents=True)
    (model / "model.py").write_text(MODEL)
    (model.parent / "config.pbtxt").write_text(CONFIG)
    with servers.triton(folder, ["picky"], folder / "repository") as triton:
        daemon = Daemon.start(
            _made(folder / "daemon"),
            {
                "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
                "upstreams": {
                    "grpc": {"dialect": "oip", "transport": "grpc", "urls": [triton.grpc]},
                    "http": {"dialect": "oip", "transport": "http", "urls": [triton.http]},
                },
                "models": {over: {"upstream": over, "remote_model": "picky"} for over in ("grpc", "http")},
            },
        )
        try:
            yield triton, daemon
        finally:
            daemon.kill()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def infer(address: str, model: str, body: dict[str, Any]) -> tuple[int, str]:
    reply = requests.post(f"http://{address}/v2/models/{model}/infer", json=body, timeout=30)
    return reply.status_code, reply.json().get("error", "")


@pytest.mark.parametrize("over", ["grpc", "http"])
@pytest.mark.parametrize("given", ANSWERED)
def test_what_triton_takes_goes_on(both: tuple[Server, Daemon], given: str, over: str) -> None:
    triton, daemon = both
    body = {"inputs": ANSWERED[given]}
    assert infer(triton.http, "picky", body) == (200, "")
    assert infer(daemon.addresses[0], over, body) == (200, "")


@pytest.mark.parametrize("over", ["grpc", "http"])
@pytest.mark.parametrize("mistake", REFUSED)
def test_what_triton_refuses_is_refused_in_its_words(
    both: tuple[Server, Daemon], mistake: str, over: str
) -> None:
    triton, daemon = both
    body, words = REFUSED[mistake]
    status, told = infer(triton.http, "picky", body)
    assert status == 400 and words in told
    before = asked(triton)
    status, told = infer(daemon.addresses[0], over, body)
    assert status == 400 and words in told and f"'{over}'" in told
    assert asked(triton) == before


def asked(triton: Server) -> int:
    """How many requests Triton has answered or failed."""
    (counted,) = requests.get(f"http://{triton.http}/v2/models/picky/stats", timeout=30).json()["model_stats"]
    statistics = counted["inference_stats"]
    return int(statistics["success"]["count"]) + int(statistics["fail"]["count"])


@pytest.fixture(scope="module")
def of_the_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("texts")
    models = write_models(folder / "repository")
    with servers.triton(folder, models, folder / "repository") as triton:
        yield triton


@pytest.mark.parametrize("name", TABLE)
def test_the_table_of_texts_is_that_of_triton(of_the_table: Server, name: str) -> None:
    refused = TABLE[name]
    status, text = refused.send(of_the_table)
    assert status == (refused.triton_status if refused.message is None else "INVALID_ARGUMENT"), text
    assert status == 200 or text.startswith(refused.text)
