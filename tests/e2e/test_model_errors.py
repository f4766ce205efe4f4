"""The errors of models written in Python as clients see them, and the flags of a request that models see."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc as grpcio
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from interlingua.schemas.messages import SEQUENCE_FLAGS
from tests.e2e.daemon import Daemon
from tests.runtime.python_models import INT32, python_model

CODES = (
    "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED",
)  # fmt: skip

FAILS = f"""
def execute(self, requests):
    return [pb.InferenceResponse(error=self.error(int(given(request)[0]))) for request in requests]

def error(self, number):
    names = {CODES!r}
    return pb.TritonError("said", getattr(pb.TritonError, names[number])) if number >= 0 else pb.TritonError("said")
"""

ASKS = f"""
def execute(self, requests):
    names = {CODES!r}
    asked = pb.InferenceRequest(
        model_name="fails", inputs=[pb.Tensor("IN", given(requests[0]))], requested_output_names=["OUT"]
    )
    error = asked.exec().error()
    return [answer([next(number for number, name in enumerate(names) if getattr(pb.TritonError, name) == error.code())])]
"""

SENDS = """
def execute(self, requests):
    for request in requests:
        request.get_response_sender().send(answer(given(request)))
        raise ValueError("after the answer")
"""

READS = """
def execute(self, requests):
    return [answer([request.flags(), request.correlation_id(), len(request.parameters())]) for request in requests]
"""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[str]]]:
    """The addresses of a daemon with the models, and of one that has it as its upstream, over gRPC."""
    folder = tmp_path_factory.mktemp("models")
    python_model(folder, FAILS, INT32, "fails")
    python_model(folder, ASKS, INT32, "asks")
    python_model(folder, SENDS, INT32, "sends")
    python_model(folder, READS, INT32, "reads")
    listeners = [
        {"listen": "127.0.0.1:0", "transport": transport, "dialects": ["oip"]}
        for transport in ("http", "grpc")
    ]
    config = {"listeners": listeners, "model_repository": [{"path": str(folder)}]}
    daemon = Daemon.start(tmp_path_factory.mktemp("behind"), config)
    try:
        upstream = {"dialect": "oip", "transport": "grpc", "urls": [daemon.addresses[1]]}
        before = Daemon.start(
            tmp_path_factory.mktemp("before"),
            {
                "listeners": listeners,
                "models": {name: {"upstream": "u"} for name in ("fails", "sends", "reads")},
                "upstreams": {"u": upstream},
            },
        )
        try:
            yield [daemon.addresses, before.addresses]
        finally:
            before.kill()
    finally:
        daemon.kill()


@pytest.mark.parametrize(
    ("number", "grpc", "http"),
    [
        (-1, "INTERNAL", "500"),
        (0, "UNKNOWN", "500"),
        (1, "INTERNAL", "500"),
        (2, "NOT_FOUND", "404"),
        (3, "INVALID_ARGUMENT", "400"),
        (4, "UNAVAILABLE", "503"),
        (5, "UNIMPLEMENTED", "501"),
        (6, "ALREADY_EXISTS", "400"),
        (7, "CANCELLED", "499"),
    ],
    ids=("none", *CODES),
)
@pytest.mark.parametrize("where", [0, 1], ids=["local", "through an upstream"])
def test_codes_map_one_to_one(
    daemons: list[list[str]], where: int, number: int, grpc: str, http: str
) -> None:
    """Triton's gRPC statuses have the names of its codes."""
    addresses = daemons[where]
    array = np.array([number], np.int32)
    for module, address, status in (
        (tritonclient.grpc, addresses[1], f"StatusCode.{grpc}"),
        (tritonclient.http, addresses[0], http),
    ):
        given = module.InferInput("IN", [1], "INT32")
        given.set_data_from_numpy(array)
        with (
            module.InferenceServerClient(address) as client,
            pytest.raises(InferenceServerException) as caught,
        ):
            client.infer("fails", [given])
        assert (caught.value.status(), caught.value.message()) == (status, "said")


@pytest.mark.parametrize("number", range(len(CODES)), ids=CODES)
def test_a_model_that_calls_another_sees_its_code(daemons: list[list[str]], number: int) -> None:
    given = tritonclient.grpc.InferInput("IN", [1], "INT32")
    given.set_data_from_numpy(np.array([number], np.int32))
    with tritonclient.grpc.InferenceServerClient(daemons[0][1]) as client:
        assert client.infer("asks", [given]).as_numpy("OUT").tolist() == [number]


# --- streams


def request_of(model: str, number: int) -> Any:
    raws = [number.to_bytes(4, "little")]
    request = service_pb2.ModelInferRequest(model_name=model, id="x", raw_input_contents=raws)
    request.inputs.add(name="IN", datatype="INT32", shape=[1])
    return request


def streamed(
    address: str, model: str, number: int, **metadata: str
) -> list[tuple[str, str, str, bool | None]]:
    """The text, the model, the id and the final flag of each answer; the status of the stream at the end."""
    request = request_of(model, number)
    found: list[tuple[str, str, str, bool | None]] = []
    with grpcio.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            for answer in stub.ModelStreamInfer(
                iter([request]), metadata=tuple(metadata.items()), timeout=30
            ):
                inner = answer.infer_response
                final = None
                if "triton_final_response" in inner.parameters:
                    final = inner.parameters["triton_final_response"].bool_param
                found.append(
                    (answer.error_message.partition(", message")[0], inner.model_name, inner.id, final)
                )
        except grpcio.RpcError as error:
            found.append((error.details(), error.code().name, "", None))
    return found


@pytest.mark.parametrize("where", [0, 1], ids=["here", "upstream"])
@pytest.mark.parametrize("number", range(len(CODES)), ids=CODES)
def test_an_error_of_a_model_in_a_stream_names_it_whatever_its_code(
    daemons: list[list[str]], where: int, number: int
) -> None:
    assert streamed(daemons[where][1], "fails", number) == [("said", "fails", "x", True)]


def test_an_error_of_a_model_as_the_status_of_its_stream(daemons: list[list[str]]) -> None:
    ended = streamed(daemons[0][1], "fails", 3, triton_grpc_error="true")
    assert ended == [("said", "INVALID_ARGUMENT", "", None)]


@pytest.mark.parametrize("where", [0, 1], ids=["here", "upstream"])
def test_an_answer_before_an_error_comes_first_in_a_stream(daemons: list[list[str]], where: int) -> None:
    """The model has one answer to a request, and fails after it has sent that."""
    first, second = streamed(daemons[where][1], "sends", 7)
    assert first == ("", "sends", "x", False)
    assert second == ("Failed to process the request(s) for model 'sends_0'", "sends", "x", True)


# --- flags


@pytest.mark.parametrize("where", [0, 1], ids=["here", "upstream"])
@pytest.mark.parametrize(
    ("flags", "number"), [((), 0), (("sequence_start",), 1), (("sequence_end",), 2), (SEQUENCE_FLAGS, 3)]
)
def test_flags_without_a_sequence_id_reach_the_model(
    daemons: list[list[str]], where: int, flags: tuple[str, ...], number: int
) -> None:
    http, grpc = daemons[where]
    given = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [0]}
    document = {"inputs": [given], "parameters": dict.fromkeys(flags, True)}
    with urllib.request.urlopen(
        f"http://{http}/v2/models/reads/infer", json.dumps(document).encode()
    ) as answer:
        assert json.loads(answer.read())["outputs"][0]["data"] == [number, 0, 2]
    request = request_of("reads", 0)
    for flag in flags:
        request.parameters[flag].bool_param = True
    with grpcio.insecure_channel(grpc) as channel:
        (raw,) = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request).raw_output_contents
    assert np.frombuffer(raw, np.int32).tolist() == [number, 0, 2]
