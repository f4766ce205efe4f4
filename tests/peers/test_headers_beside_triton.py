"""Headers become parameters of a Python model here as they do at Triton: the same requests to both servers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from tests.conformance.oip_client import Server
from tests.peers.beside import Servers, alike, beside, grpc_input

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([each.parameters()], object))])
            for each in requests
        ]
"""
CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: 1 }
output { name: "OUT" data_type: TYPE_STRING dims: 1 }
"""


def write(repository: Path) -> Sequence[str]:
    folder = repository / "told" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(MODEL)
    (folder.parent / "config.pbtxt").write_text(CONFIG)
    return ["told"]


@pytest.fixture(scope="module", params=["my_.*|priority", "(?-i)MY_.*|my_b|priority"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    options = [f"--{over}-header-forward-pattern={request.param}" for over in ("http", "grpc")]
    listener = {"headers_as_parameters": request.param}
    with beside(tmp_path_factory.mktemp("headers"), write, options, listener) as servers:
        yield servers


def over_http(server: Server, headers: dict[str, str], **parameters: Any) -> Any:
    """What the model is told. Names of headers go out as they are written here."""
    body = {
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}],
        "parameters": parameters,
    }
    connection = http.client.HTTPConnection(server.http, timeout=30)
    try:
        connection.putrequest("POST", "/v2/models/told/infer")
        data = json.dumps(body).encode()
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        return answer.status, json.loads(told["outputs"][0]["data"][0]) if answer.status == 200 else told
    finally:
        connection.close()


def over_grpc(server: Server, headers: dict[str, str], **parameters: Any) -> Any:
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        given = [grpc_input("IN", np.ones(1, np.float32), "FP32")]
        answer = client.infer("told", given, headers=headers, parameters=parameters or None)
        return json.loads(answer.as_numpy("OUT")[0])


def test_names_and_cases_over_http(both: Servers) -> None:
    headers = {"MY_A": "one", "my_b": "two", "My_C": "three", "other": "four"}
    assert alike(both, lambda server: over_http(server, headers))[0] == 200


def test_names_and_cases_over_grpc(both: Servers) -> None:
    alike(both, lambda server: over_grpc(server, {"my_a": "one", "my_b": "two", "other": "four"}))


def test_parameters_of_the_request_are_there_too(both: Servers) -> None:
    alike(both, lambda server: over_http(server, {"my_b": "two"}, number=7, text="x"))


def test_a_header_and_a_parameter_of_one_name(both: Servers) -> None:
    alike(both, lambda server: over_http(server, {"my_b": "header"}, my_b="body"))
    alike(both, lambda server: over_grpc(server, {"my_b": "header"}, my_b="body"))


def test_a_pattern_is_found_anywhere_in_a_name(both: Servers) -> None:
    found = {"x-my_b": "yes", "x-my_b-y": "yes"}
    assert alike(both, lambda server: over_http(server, {**found, "other": "no"})) == (200, found)


def test_names_of_the_protocols_own_parameters_stay_headers_here(both: Servers) -> None:
    """A browser's `Priority` header says nothing of the priority of a request."""
    (triton, told), (daemon, nothing) = (
        over_http(both[name], {"priority": "u=1", "my_b_timeout": "3"}) for name in ("triton", "daemon")
    )
    assert (triton, daemon) == (200, 200)
    assert told == {"priority": "u=1", "my_b_timeout": "3"}
    assert nothing == {"my_b_timeout": "3"}
