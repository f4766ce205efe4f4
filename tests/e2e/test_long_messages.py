"""Messages that take long to decode: limits on the work, and what the other clients notice of it."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from benchmarks.hostile import payloads
from benchmarks.hostile.servers import config
from interlingua.protocols.graphpipe import codec as graphpipe
from interlingua.schemas import pack_bytes
from interlingua.schemas.grps import MESSAGES as GRPS_MESSAGES
from interlingua.schemas.oip import MESSAGES as OIP_MESSAGES
from tests.e2e.daemon import Daemon
from tests.waiting import eventually

STRINGS = "/v2/models/identity_bytes/infer"
NUMBERS = "/v2/models/identity_fp32/infer"
JSON = {"Content-Type": "application/json"}
GZIP = {**JSON, "Content-Encoding": "gzip"}
GRPS_METHOD = "/grps.protos.v1.GrpsService/Predict"
GRPS: Any = GRPS_MESSAGES["grps.protos.v1.GrpsMessage"]
RESPONSE: Any = OIP_MESSAGES["inference.ModelInferResponse"]
INFER = "/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture(scope="module", params=["native", "library"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    stated = config(request.param)
    for listener in stated["listeners"]:
        listener |= {
            "max_elements": 1_000_000,
            "max_decompressed_bytes": 1 << 23,
            "max_compression_ratio": 50,
        }
    running = Daemon.start(tmp_path_factory.mktemp("daemon"), stated)
    yield running
    running.stop()


def post(daemon: Daemon, path: str, body: bytes, headers: dict[str, str] = JSON) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(daemon.addresses[0], timeout=60)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("body", "headers", "option"),
    [
        pytest.param(gzip.compress(bytes(1 << 22)), GZIP, "max_compression_ratio", id="ratio"),
        pytest.param(
            gzip.compress(np.arange(3 << 20).tobytes(), 1), GZIP, "max_decompressed_bytes", id="size"
        ),
        pytest.param(payloads.strings(1_000_001), JSON, "max_elements", id="strings"),
        pytest.param(payloads.numbers(1_000_001), JSON, "max_elements", id="numbers"),
        pytest.param(payloads.arrays(500_001), JSON, "max_elements", id="arrays"),
        pytest.param(payloads.equal_keys(5_000), JSON, "max_elements", id="equal keys"),
        pytest.param(payloads.distinct_keys(5_000), JSON, "max_elements", id="keys"),
        pytest.param(payloads.many_tensors(2_000), JSON, "max_elements", id="tensors"),
    ],
)
def test_work_above_a_limit_is_refused_by_its_option(
    daemon: Daemon, body: bytes, headers: dict[str, str], option: str
) -> None:
    status, answer = post(daemon, STRINGS, body, headers)
    assert (status, f"that {option} of this listener allows" in answer["error"]) == (413, True), answer


def test_compressed_messages_over_grpc(daemon: Daemon) -> None:
    """grpcio decompresses by itself, so the limits are those of the other engine."""
    message = payloads.raw_message(1 << 20)
    with grpc.insecure_channel(daemon.addresses[1]) as channel:
        infer = channel.unary_unary(INFER)
        assert infer(payloads.raw_message(10))
        with pytest.raises(grpc.RpcError) as failure:
            infer(message, compression=grpc.Compression.Gzip)
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "of this listener allows" in failure.value.details()


@pytest.mark.parametrize("count", [300_000, 990_000])
def test_long_json_is_exact(daemon: Daemon, count: int) -> None:
    values = [index / 8 for index in range(count)]
    body = payloads.json_of(json.dumps(values).encode(), (1, count), "FP32")
    status, answer = post(daemon, NUMBERS, body)
    assert status == 200
    assert answer["outputs"][0]["data"] == values


def test_long_strings_are_exact(daemon: Daemon) -> None:
    values = [f'text, "{index}" é' for index in range(100_000)]
    body = payloads.json_of(json.dumps(values).encode(), (1, len(values)), "BYTES")
    status, answer = post(daemon, STRINGS, body)
    assert status == 200
    assert answer["outputs"][0]["data"] == values


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (payloads.invalid_at_the_end(100_000), "not JSON"),
        (payloads.deep(100_000), "nests deeper"),
        (payloads.open_string(1 << 20), "not JSON"),
        (payloads.json_of(b"[" + b"1," * 99_999 + b"true]", (1, 100_000), "FP32"), "element 99999 must be"),
    ],
    ids=["UTF-8", "deep", "open string", "type"],
)
def test_long_json_that_is_refused(daemon: Daemon, body: bytes, fault: str) -> None:
    status, answer = post(daemon, NUMBERS, body)
    assert status == 400
    assert fault in answer["error"]


def test_others_are_served_meanwhile(daemon: Daemon) -> None:
    body = payloads.strings(300_000)
    post(daemon, STRINGS, body)  # starts the process
    served = 0
    over = threading.Event()

    def serve_others() -> None:
        nonlocal served
        connection = http.client.HTTPConnection(daemon.addresses[0], timeout=60)
        while not over.is_set():
            connection.request("POST", NUMBERS, payloads.numbers(2), JSON)
            connection.getresponse().read()
            served += 1
        connection.close()

    other = threading.Thread(target=serve_others)
    other.start()
    eventually(lambda: served)
    before = served
    status, _ = post(daemon, STRINGS, body)
    meanwhile = served - before
    over.set()
    other.join()
    assert status == 200
    # one may end before the body has come, and one after its answer
    assert meanwhile > 3


# --- the other dialects and forms


def call(daemon: Daemon, message: bytes, method: str = INFER) -> bytes:
    with grpc.insecure_channel(
        daemon.addresses[1], options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        answer: bytes = channel.unary_unary(method)(message)
        return answer


def raw(daemon: Daemon, path: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(daemon.addresses[0], timeout=60)
    try:
        connection.request("POST", path, body, JSON)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("count", [10, 100_000])
def test_typed_contents_are_exact(daemon: Daemon, count: int) -> None:
    answer = RESPONSE.FromString(call(daemon, payloads.typed_message(count)))
    assert answer.raw_output_contents[0] == pack_bytes([b"a"] * count)
    assert tuple(answer.outputs[0].shape) == (1, count)


@pytest.mark.parametrize("count", [10, 100_000])
def test_raw_contents_are_exact(daemon: Daemon, count: int) -> None:
    answer = RESPONSE.FromString(call(daemon, payloads.raw_message(count)))
    assert answer.raw_output_contents[0] == payloads.packed_strings(count)


@pytest.mark.parametrize("count", [10, 100_000])
def test_graphpipe_strings_are_exact(daemon: Daemon, count: int) -> None:
    status, answer = raw(daemon, "/graphpipe/identity_bytes", payloads.graphpipe_strings(count))
    assert status == 200
    (tensor,) = graphpipe.decode_response(answer, None, None)
    assert tensor.view == pack_bytes([b"ab"] * count)


@pytest.mark.parametrize("count", [10, 100_000])
def test_grps_is_exact(daemon: Daemon, count: int) -> None:
    status, answer = raw(daemon, "/grps/v1/infer/predict", payloads.grps_strings(count))
    (tensor,) = json.loads(answer)["gtensors"]["tensors"]
    assert (status, tensor["flat_string"]) == (200, ["ab"] * count)
    status, answer = raw(daemon, "/grps/v1/infer/predict?return-ndarray=true", payloads.grps_floats(count))
    assert (status, json.loads(answer)["ndarray"]) == (200, [[1.5] * count])
    message = GRPS.FromString(call(daemon, payloads.grps_text_message(count), GRPS_METHOD))
    assert message.gtensors.tensors[0].flat_string == ["ab"] * count


@pytest.mark.parametrize(
    "message",
    [payloads.typed_message(1_000_001), payloads.raw_message(1_000_001), payloads.parameters_message(4_000)],
    ids=["typed", "raw", "parameters"],
)
def test_elements_over_grpc_are_counted(daemon: Daemon, message: bytes) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        call(daemon, message)
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "that max_elements of this listener allows" in failure.value.details()


def test_elements_of_other_dialects_are_counted(daemon: Daemon) -> None:
    status, answer = raw(daemon, "/graphpipe/identity_bytes", payloads.graphpipe_strings(1_000_001))
    assert (status, b"that max_elements of this listener allows" in answer) == (413, True)
    for path, body in (
        ("/grps/v1/infer/predict", payloads.grps_strings(1_000_001)),
        ("/grps/v1/infer/predict", payloads.grps_floats(1_000_001)),
    ):
        assert b"that max_elements of this listener allows" in raw(daemon, path, body)[1]
    for message in (payloads.grps_text_message(1_000_001), payloads.grps_map(4_000)):
        status_of = GRPS.FromString(call(daemon, message, GRPS_METHOD)).status
        assert "that max_elements of this listener allows" in status_of.msg
