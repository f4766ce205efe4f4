"""GraphPipe and tritonclient through the daemon to a real Triton, over gRPC and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from graphpipe import remote

from tests.conformance.oip_client import Server
from tests.e2e.daemon import Daemon
from tests.peers.servers import IDENTITIES

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]

TRANSPORTS = ["grpc", "http"]
DTYPES: dict[str, Any] = {
    "bool": np.bool_, "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp64": np.float64, "bytes": object,
}  # fmt: skip
NOT_IN_GRAPHPIPE = {"bf16"}


@pytest.fixture(scope="module")
def daemon(triton: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    running = Daemon.start(
        tmp_path_factory.mktemp("daemon"),
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": "http"},
                {"listen": "127.0.0.1:0", "transport": "grpc", "dialects": ["oip"]},
            ],
            "models": {
                f"{model}_{transport}": {"upstream": transport, "remote_model": model}
                for model in ("simple", "simple_string", "cls", *IDENTITIES)
                for transport in TRANSPORTS
            },
            "upstreams": {
                "grpc": {"dialect": "oip", "transport": "grpc", "urls": [triton.grpc]},
                "http": {"dialect": "oip", "transport": "http", "urls": [triton.http]},
            },
        },
    )
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


def sample(name: str) -> Any:
    if name == "bytes":
        return np.array([b"abc", b"", b"\xff\xfe\x00r"], object)
    if name == "bool":
        return np.array([True, False, True])
    return np.array([0, 1, 100], DTYPES[name])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_graphpipe_client_gets_sum_and_difference(daemon: Daemon, transport: str) -> None:
    a, b = np.arange(16, dtype=np.int32)[None], np.full((1, 16), 5, np.int32)
    url = f"http://{daemon.addresses[0]}/graphpipe/simple_{transport}"
    total, difference = remote.execute_multi(url, [a, b], None, None)
    assert (total == a + b).all() and (difference == a - b).all()
    [difference] = remote.execute_multi(url, [b, a], ["INPUT1", "INPUT0"], ["OUTPUT1"])
    assert (difference == a - b).all()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_datatype_arrives_as_it_left(daemon: Daemon, name: str, transport: str) -> None:
    array, model = sample(name), f"identity_{name}_{transport}"
    for module, address in ((triton_http, daemon.addresses[0]), (triton_grpc, daemon.addresses[1])):
        given = module.InferInput("INPUT0", array.shape, name.upper())
        given.set_data_from_numpy(array)
        with module.InferenceServerClient(address) as client:
            got = client.infer(model, [given]).as_numpy("OUTPUT0")
        assert got.tolist() == array.tolist()
        assert got.dtype == array.dtype
    if name not in NOT_IN_GRAPHPIPE:
        url = f"http://{daemon.addresses[0]}/graphpipe/{model}"
        sent = array.astype(np.uint8) if name == "bool" else array
        got = remote.execute(url, sent)
        assert [x.rstrip(b"\0") if isinstance(x, bytes) else x for x in sent.tolist()] == got.tolist()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tritons_own_words_come_through(daemon: Daemon, transport: str) -> None:
    given = triton_grpc.InferInput("WRONG", [1], "FP32")
    given.set_data_from_numpy(np.zeros(1, np.float32))
    with (
        triton_grpc.InferenceServerClient(daemon.addresses[1]) as client,
        pytest.raises(triton_grpc.InferenceServerException, match="WRONG") as caught,
    ):
        client.infer(f"identity_fp32_{transport}", [given])
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_the_daemon_is_ready_because_triton_is(daemon: Daemon) -> None:
    with triton_http.InferenceServerClient(daemon.addresses[0]) as client:
        assert client.is_server_ready()
        assert client.is_model_ready("simple_grpc")
        metadata = client.get_model_metadata("simple_http")
    assert [tensor["shape"] for tensor in metadata["inputs"]] == [[-1, 16], [-1, 16]]
