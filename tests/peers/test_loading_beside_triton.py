"""What is loaded, how a load fails, and raw bodies: the same requests to Triton and to the daemon."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from tests.conformance.oip_client import Server
from tests.peers.beside import Servers, alike, beside, http
from tests.runtime.python_models import ECHO, HEAD, INT32, python_model
from tests.runtime.repository.test_backend_of_files import AUTO

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

SEEN = """
def initialize(self, args):
    import json
    self.batches = json.loads(args["model_config"])["max_batch_size"]

def execute(self, requests):
    found = []
    for request in requests:
        seen = given(request)
        text = np.array([f"{list(seen.shape)} {seen.tolist()}"], object)
        found.append(pb.InferenceResponse([pb.Tensor("OUT", text.reshape(1, 1) if self.batches else text)]))
    return found
"""

RAISES = "def initialize(self, args):\n    raise ValueError('no')\n" + ECHO

RAW = {
    "free": ("TYPE_INT32 dims: [ -1 ]", 0),
    "fixed": ("TYPE_INT32 dims: [ 4 ]", 0),
    "batch_free": ("TYPE_INT32 dims: [ -1 ]", 8),
    "batch_fixed": ("TYPE_INT32 dims: [ 4 ]", 8),
    "batch_rows": ("TYPE_INT32 dims: [ 2, -1 ]", 8),
    "batch_both": ("TYPE_INT32 dims: [ -1, -1 ]", 8),
    "text": ("TYPE_STRING dims: [ 1 ]", 0),
    "free_text": ("TYPE_STRING dims: [ -1 ]", 0),
    "batch_text": ("TYPE_STRING dims: [ 1 ]", 8),
    "batch_free_text": ("TYPE_STRING dims: [ -1 ]", 8),
}


def write(folder: Path) -> list[str]:
    for name in ("no_config", "empty_config"):
        python_model(folder, AUTO + ECHO, None, name)
    (folder / "empty_config" / "config.pbtxt").touch()
    python_model(folder, ECHO, None, "no_backend")
    (folder / "no_backend" / "config.pbtxt").write_text(INT32)
    for name in ("loaded", "renewed", "kept"):
        python_model(folder, AUTO + ECHO, INT32, name)
    for name, (given, batch) in RAW.items():
        config = f"""
            max_batch_size: {batch}
            input [ {{ name: "IN" data_type: {given} }} ]
            output [ {{ name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }} ]
        """
        python_model(folder, SEEN, config, name)
    python_model(folder, RAISES, INT32, "raises")
    python_model(folder, ECHO, INT32, "foreign")
    (folder / "foreign" / "config.pbtxt").write_text('backend: "no such"' + INT32)
    return ["no_config", "empty_config", "no_backend", "loaded", "renewed", "kept", *RAW]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with beside(tmp_path_factory.mktemp("loading"), write) as servers:
        yield servers


def infer(server: Server, model: str, shape: list[int], data: list[int]) -> tuple[int, Any]:
    given = {"name": "IN", "datatype": "INT32", "shape": shape, "data": data}
    return http(server, f"/v2/models/{model}/infer", {"inputs": [given]})


def load(server: Server, model: str, parameters: dict[str, Any]) -> tuple[int, Any]:
    return http(server, f"/v2/repository/models/{model}/load", {"parameters": parameters})


def answer(model: str, shape: list[int], data: list[int]) -> tuple[int, Any]:
    output = {"name": "OUT", "datatype": "INT32", "shape": shape, "data": data}
    return 200, {"model_name": model, "model_version": "1", "outputs": [output]}


# --- what the files are


@pytest.mark.parametrize("model", ["no_config", "empty_config", "no_backend"])
def test_a_folder_that_names_no_backend(both: Servers, model: str) -> None:
    assert alike(both, lambda server: infer(server, model, [2], [1, 2])) == answer(model, [2], [1, 2])


def test_a_load_with_a_configuration_that_names_no_backend(both: Servers) -> None:
    config = json.dumps({"max_batch_size": "16"})
    assert alike(both, lambda server: load(server, "loaded", {"config": config})) == (200, None)
    # the model has declared its tensors itself
    assert alike(both, lambda server: infer(server, "loaded", [1, 2], [1, 2])) == answer(
        "loaded", [1, 2], [1, 2]
    )


def test_files_and_a_configuration_that_names_no_backend(both: Servers) -> None:
    tensor = {"data_type": "TYPE_INT32", "dims": [-1]}
    config = json.dumps({"input": [{"name": "IN", **tensor}], "output": [{"name": "OUT", **tensor}]})
    body = "    def execute(self, requests):\n        return [answer(given(each) * 3) for each in requests]\n"
    code = base64.b64encode((HEAD + body).encode()).decode()
    parameters = {"config": config, "file:1/model.py": code}
    assert alike(both, lambda server: load(server, "sent", parameters)) == (200, None)
    assert alike(both, lambda server: infer(server, "sent", [2], [1, 2])) == answer("sent", [2], [3, 6])


# --- loads that fail


def test_a_load_of_a_model_that_there_is_not(both: Servers) -> None:
    assert alike(both, lambda server: load(server, "absent", {})) == (
        500,
        {"error": "failed to load 'absent', failed to poll from model repository"},
    )


@pytest.mark.parametrize(("model", "why"), [("raises", "Internal: ValueError: no"), ("foreign", "no such")])
def test_a_model_that_does_not_load(both: Servers, model: str, why: str) -> None:
    def outcome(server: Server) -> Any:
        status, said = load(server, model, {})
        assert f"'{model}'" in said["error"]
        return status, why in said["error"]

    assert alike(both, outcome) == (400, True)
    _, said = load(both["daemon"], model, {})
    assert said["error"].startswith(f"failed to load '{model}', ")


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"config": "{"}, "parameter 'config' is not JSON"),
        ({"config": "[]"}, "parameter 'config' is not a JSON object"),
        ({"config": '{"no_such_field": 1}'}, "parameter 'config'"),
        ({"config": '{"max_batch_size": "many"}'}, "parameter 'config'"),
        ({"config": '{"name": "other"}'}, "no version is available: "),
        ({"config": 7}, "parameter 'config' must be a string"),
        ({"file:1/model.py": ""}, "override model directory requires the override of its config"),
        ({"file:1/model.py": 7}, "parameter 'file:1/model.py' must be the content of a file"),
    ],
)
def test_parameters_that_cannot_be_used(both: Servers, parameters: dict[str, Any], why: str) -> None:
    def fails(server: Server) -> bool:
        status, said = load(server, "kept", parameters)
        # Triton says 500, and nothing of the reason
        return status >= 400 and "error" in said

    assert alike(both, fails) is True
    status, said = load(both["daemon"], "kept", parameters)
    assert status == 400
    assert said["error"].startswith(f"failed to load 'kept', {why}")
    # what was served is served on
    assert alike(both, lambda server: infer(server, "kept", [1], [1])) == answer("kept", [1], [1])


def test_a_configuration_over_grpc_that_is_not_json(both: Servers) -> None:
    def outcome(server: Server) -> Any:
        with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
            with pytest.raises(InferenceServerException) as caught:
                client.load_model("kept", config="{")
            return caught.value.status(), caught.value.message().startswith("failed to load 'kept', ")

    assert alike(both, outcome) == ("StatusCode.INTERNAL", True)


# --- raw bodies


INTS = {
    f"{count} integers": b"".join(number.to_bytes(4, "little") for number in range(count))
    for count in (0, 2, 4, 6, 8)
}


@pytest.mark.parametrize("model", RAW)
@pytest.mark.parametrize("body", [*INTS.values(), b"odd"], ids=[*INTS, "three bytes"])
def test_a_raw_binary_body(both: Servers, model: str, body: bytes) -> None:
    def outcome(server: Server) -> Any:
        status, said = http(
            server, f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": "0"}
        )
        if status != 200:
            return status, "error" in said
        # JSON without a length of its own, and one string behind it
        head, _, text = said.partition(b"}}]}")
        return status, json.loads(head + b"}}]}")["outputs"][0]["shape"], text[4:]

    alike(both, outcome)


@pytest.mark.parametrize(
    ("model", "status"), [("batch_free", 200), ("batch_rows", 200), ("batch_fixed", 400), ("batch_both", 400)]
)
def test_a_raw_binary_body_is_a_batch_of_one(both: Servers, model: str, status: int) -> None:
    headers = {"Inference-Header-Content-Length": "0"}
    body = INTS["8 integers"]
    assert alike(both, lambda server: http(server, f"/v2/models/{model}/infer", body, headers)[0]) == status
