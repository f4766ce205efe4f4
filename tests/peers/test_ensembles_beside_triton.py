"""The same repository of ensembles, the same requests, to Triton and to the daemon: the same status, the same
values, and the same class of error."""

from __future__ import annotations

import json
import queue
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from tests.conformance.oip_client import Server
from tests.e2e import ensemble_repository
from tests.e2e.daemon import Daemon
from tests.e2e.ensemble_repository import DECOUPLED, ENSEMBLES, MIXED
from tests.peers import servers
from tests.ports import free_port

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

TEXT = """
import numpy as np
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if (given == -1).any():
            return utils.InferenceResponse([], utils.TritonError("minus one"))
        return utils.InferenceResponse([utils.Tensor("OUT", given)])
"""

SIDES = """
input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
"""
CONFIGS = {
    "cached": 'backend: "python" response_cache { enable: true }' + SIDES,
    "batched": 'backend: "python" max_batch_size: 4 dynamic_batching { }' + SIDES,
}
LOADED = sorted({*ENSEMBLES, *CONFIGS} - set(MIXED))

Both = dict[str, Server]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    repository = ensemble_repository.write(folder / "models")
    for name, config in CONFIGS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
        (repository / name / "1" / "model.py").write_text(TEXT)
    with ExitStack() as running:
        cache = ["--cache-config=local,size=1048576"]
        (folder / "triton").mkdir()
        triton = running.enter_context(servers.triton(folder / "triton", LOADED, repository, cache))
        metrics = free_port()
        daemon = Daemon.start(
            folder,
            {
                "server": {"name": "triton", "response_cache_bytes": 1 << 20},
                "admin": {"listen": f"127.0.0.1:{metrics}"},
                "listeners": [
                    {"listen": "127.0.0.1:0", "transport": transport, "dialects": ["oip"]}
                    for transport in ("http", "grpc")
                ],
                "model_repository": [{"path": str(repository), "control": "explicit", "load": LOADED}],
            },
        )
        running.callback(daemon.kill)
        yield {"triton": triton, "ours": Server(*daemon.addresses, metrics=f"127.0.0.1:{metrics}")}


def http(server: Server, path: str, body: Any = None) -> tuple[int, Any]:
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://{server.http}{path}", data)) as answer:
            told = answer.read()
            return answer.status, json.loads(told) if told else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def infer(
    server: Server, model: str, values: Any, name: str = "X", **more: Any
) -> tuple[int, dict[str, Any]]:
    shape = list(np.shape(values))
    given = {"name": name, "shape": shape, "datatype": "INT32", "data": np.ravel(values).tolist()}
    status, answer = http(server, f"/v2/models/{model}/infer", {"inputs": [given], **more})
    return status, {each["name"]: each["data"] for each in answer.get("outputs", ())}


def streamed(server: Server, model: str, values: list[int]) -> tuple[list[Any], bool]:
    """The outputs that came, by name, and whether an error was the end of them."""
    heard: queue.Queue[Any] = queue.Queue()
    given = triton_grpc.InferInput("X", [len(values)], "INT32")
    given.set_data_from_numpy(np.array(values, np.int32))
    found: list[Any] = []
    with triton_grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: heard.put(error or result))
        client.async_stream_infer(model, [given], enable_empty_final_response=True)
        while True:
            each = heard.get(timeout=60)
            if isinstance(each, InferenceServerException):
                return found, True
            response = each.get_response()
            if response.outputs:
                found.append({out.name: each.as_numpy(out.name).tolist() for out in response.outputs})
            if response.parameters["triton_final_response"].bool_param:
                return found, False


@pytest.mark.parametrize("asked", [{}, {"outputs": [{"name": "Y"}]}], ids=["all", "one"])
@pytest.mark.parametrize("values", [[1, 2], [0, 2]])
@pytest.mark.parametrize("model", ["left_out", "left_out_of_the_answer", "left_out_but_required"])
def test_steps_that_leave_outputs_out(
    both: Both, model: str, values: list[int], asked: dict[str, Any]
) -> None:
    assert infer(both["ours"], model, values, **asked) == infer(both["triton"], model, values, **asked)


@pytest.mark.parametrize("values", [[5, 6, 7], [], [1]])
@pytest.mark.parametrize("model", [*DECOUPLED, "left_out"])
def test_answers_of_streams(both: Both, model: str, values: list[int]) -> None:
    if model == "left_out" and not values:
        pytest.skip("the model looks at its first element")
    assert streamed(both["ours"], model, values) == streamed(both["triton"], model, values)


@pytest.mark.parametrize(
    ("model", "values"),
    [("repeated_alone", [5, -2, 6]), ("repeated", [-1, 5]), ("repeated_last", [-1, 5]), ("nested", [5, -1])],
)
def test_failures_of_streams(both: Both, model: str, values: list[int]) -> None:
    told = {name: streamed(server, model, values) for name, server in both.items()}
    assert all(failed for _, failed in told.values())
    # Triton may end the stream before it has sent what came before
    ours, theirs = told["ours"][0], told["triton"][0]
    assert ours[: len(theirs)] == theirs


@pytest.mark.parametrize("model", DECOUPLED)
def test_decoupled_ensembles(both: Both, model: str) -> None:
    for server in both.values():
        assert infer(server, model, [1])[0] == 501
        assert http(server, f"/v2/models/{model}/config")[1]["model_transaction_policy"] == {
            "decoupled": True
        }
        told = http(server, f"/v2/models/{model}/generate", {"X": [5]})[1]["Y"]
        assert told == (10 if model == "repeated_and_joined" else 5)
        assert http(server, f"/v2/models/{model}/generate", {"X": [5, 6]})[0] == 200


@pytest.mark.parametrize("model", MIXED)
def test_ensembles_that_are_not_loaded(both: Both, model: str) -> None:
    for server in both.values():
        status, answer = http(server, f"/v2/repository/models/{model}/load", b"{}")
        assert status == 400
        assert "different decoupled models" in answer["error"]
        assert infer(server, model, [1])[0] == 404


@pytest.mark.parametrize(
    "body",
    [
        b'{"X": [1], "X": [2]}',
        b'{"X": [1], "parameters": {"X": [2]}}',
        b'{"parameters": {"X": [2]}}',
        b'{"X": [1], "p": 1, "p": 2}',
        b'{"X": [1], "p": 1, "parameters": {"p": 2}}',
        b'{"X": [1], "id": "i", "id": "j"}',
    ],
)
def test_generate_with_members_that_come_twice(both: Both, body: bytes) -> None:
    told = {name: http(server, "/v2/models/left_out/generate", body) for name, server in both.items()}
    assert told["ours"][0] == told["triton"][0]
    if told["triton"][0] == 200:
        assert {key: told["ours"][1].get(key) for key in ("Y", "id")} == {
            key: told["triton"][1].get(key) for key in ("Y", "id")
        }


# --- what is counted


def statistics(server: Server, model: str) -> dict[str, Any]:
    (told,) = http(server, f"/v2/models/{model}/stats")[1]["model_stats"]
    counts = {name: each["count"] for name, each in told["inference_stats"].items()}
    sizes = {each["batch_size"]: each["compute_infer"]["count"] for each in told["batch_stats"]}
    return {
        **counts,
        "inferences": told["inference_count"],
        "executions": told["execution_count"],
        "sizes": sizes,
    }


def metrics(server: Server) -> str:
    with urllib.request.urlopen(f"http://{server.metrics}/metrics") as answer:
        return answer.read().decode()


def test_what_is_counted(both: Both) -> None:
    """Hits of the cache count in ``queue``, refusals by validation count in nothing."""
    for step in (
        [("cached", [1]), ("cached", [1]), ("cached", [2])],
        [("cached", [1], "NO"), ("batched", [[1]] * 5), ("batched", [1])],
        [("batched", [[1], [2]]), ("batched", [[3]]), ("cached", [2])],
    ):
        for model, values, *name in step:
            statuses = {infer(server, model, values, *(name or ["IN"]))[0] for server in both.values()}
            assert len(statuses) == 1
        for model in CONFIGS:
            assert statistics(both["ours"], model) == statistics(both["triton"], model)


def test_metrics_have_tritons_names_types_and_labels(both: Both) -> None:
    for server in both.values():
        for model in CONFIGS:
            infer(server, model, [7] if model == "cached" else [[7]], "IN")
    ours, theirs = metrics(both["ours"]), metrics(both["triton"])
    types = {
        name: dict(re.findall(r"^# TYPE (nv_\w+) (\w+)$", text, re.M))
        for name, text in (("o", ours), ("t", theirs))
    }
    kept = {name: kind for name, kind in types["t"].items() if name.startswith(("nv_cache", "nv_inference"))}
    assert {name: types["o"].get(name) for name in kept} == kept
    for family in kept:
        for text in (ours, theirs):
            labels = {
                tuple(re.findall(r'[{,](\w+)="', line))
                for line in text.splitlines()
                if re.match(rf"{family}[{{ ]", line)
            }
            assert labels, family
            expected = (
                ("model", "reason", "version")
                if family == "nv_inference_request_failure"
                else ("model", "version")
                if family.startswith("nv_inference") or family.endswith("_per_model")
                else ()
            )
            assert labels == {expected}, family
