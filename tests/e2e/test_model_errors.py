"""The codes with which a model written in Python fails, as clients see them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

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


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[str]]]:
    """The addresses of a daemon with the models, and of one that has it as its upstream, over gRPC."""
    folder = tmp_path_factory.mktemp("models")
    python_model(folder, FAILS, INT32, "fails")
    python_model(folder, ASKS, INT32, "asks")
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
            {"listeners": listeners, "models": {"fails": {"upstream": "u"}}, "upstreams": {"u": upstream}},
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
