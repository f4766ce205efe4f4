"""The grps stand-ins against each other, and the server against what the real ones answered.

Were client and server wrong in the same way, the end-to-end tests would prove nothing; the recordings of both
originals tie them down.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from tests.e2e.background import Background
from tests.standins.grps_brpc import BrpcServing, GrpsBrpc
from tests.standins.grps_client import GrpsError, GrpsGrpc, GrpsHttp
from tests.standins.grps_contract import GrpsMessage, arrays_of, gtensors
from tests.standins.grps_grpc_server import start_grpc
from tests.standins.grps_http_server import grps_http_server
from tests.standins.grps_server import ALL, GrpsServer

RECORDED = Path(__file__).parents[1] / "golden" / "grps" / "http_exchanges.json"
FLAVORS = ("py", "cpp")
LEFT_OUT = {
    # methods and bodies that no client uses; put online over another connection
    "live_post_badjson", "live_post_octet", "live_head", "live_options", "live_delete", "ready_after_online",
    # models that these servers do not have, or that answer otherwise
    "out_dict", "out_ndarray_oneof", "out_own_status", "out_model_field", "out_all_dtypes",
    "stream_kinds", "stream_err", "nd_ret_on_two", "nd_ret_on_bin", "nd_ret_on_nan",
    # requests that nobody means: how each reads them is for a server to know
    "stream_and_ndarray", "stream_badjson", "stream_empty", "gt_tensors_obj_not_list", "gt_scalar_not_list",
    "two_oneof_str_gtensors", "two_oneof_str_gmap", "bin_data_and_str_in_json", "gt_enum_bad_int",
    "gt_enum_numstr", "gt_camel_flatInt32", "gt_f32_over", "gt_null", "gt_null_list_field", "gmap_b64_bad",
    "gmap_b64_nopad", "gmap_camel_sS", "gmap_as_list", "nd_ragged_depth", "nd_ragged_depth2",
    "nd_empty_nested", "model_empty_payload_query",
}  # fmt: skip
"""Cases that the stand-ins are not for."""
LEFT_OUT_GROUPS = ("meta_", "predict_", "brpc_", "unknown_", "series_", "js_", "metrics")


def contents(body: dict[str, str]) -> bytes:
    return body["text"].encode() if "text" in body else base64.b64decode(body["base64"])


def cases() -> list[tuple[str, dict[str, Any]]]:
    recorded = json.loads(RECORDED.read_text())["standard"]
    return [
        (name, case)
        for name, case in recorded.items()
        if name not in LEFT_OUT and not name.startswith(LEFT_OUT_GROUPS)
    ]


def understood(body: bytes) -> Any:
    """What a client reads in a body: documents without their error texts, or bytes."""
    text, decoder, documents = body.decode(errors="surrogateescape").strip(), json.JSONDecoder(), []
    while text:
        try:
            document, end = decoder.raw_decode(text)
        except ValueError:
            return body
        if isinstance(document, dict):
            document.get("status", {}).pop("msg", None)
        documents.append(document)
        text = text[end:].strip()
    return documents


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    running = Background()
    yield running
    running.close()


@pytest.mark.parametrize("flavor", FLAVORS)
def test_the_server_answers_as_the_real_ones_did(background: Background, flavor: str) -> None:
    address = background.serve(grps_http_server(GrpsServer(flavor)))
    compared, differing = 0, []
    for name, case in cases():
        if flavor not in case or not isinstance(case[flavor], dict):
            continue
        method, target, _ = case["request"]["line"].split(" ")
        headers = {key: value for key, value in case["request"]["headers"] if key != "Content-Length"}
        body = contents(case["request"]["body"])
        reply = requests.request(method, f"http://{address}{target}", data=body, headers=headers, timeout=10)
        recorded = case[flavor]
        wanted = (int(recorded["status_line"].split()[1]), understood(dechunked(recorded)))
        compared += 1
        if (reply.status_code, understood(reply.content)) != wanted:
            differing.append((name, reply.status_code, reply.text[:300], wanted))
    assert not differing
    assert compared > 60


def dechunked(answer: dict[str, Any]) -> bytes:
    body = contents(answer["body"])
    if ["Transfer-Encoding", "chunked"] not in answer["headers"]:
        return body
    found = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        found += rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]
    return found


@pytest.fixture(params=[(flavor, transport) for flavor in FLAVORS for transport in ("http", "grpc", "brpc")])
def client(request: pytest.FixtureRequest, background: Background) -> Iterator[Any]:
    flavor, transport = request.param
    server = GrpsServer(flavor)
    if transport == "http":
        yield GrpsHttp(background.serve(grps_http_server(server, recut=7)))
        return
    if transport == "brpc":
        serving = BrpcServing(server)
        asking = GrpsBrpc(f"127.0.0.1:{background.run(serving.start())}")
        asking.get("live")  # a server that is stopped while it accepts leaves a socket
        yield asking
        asking.close()
        background.run(serving.stop())
        return
    listening, port = background.run(start_grpc(server))
    made = GrpsGrpc(f"127.0.0.1:{port}")
    yield made
    made.close()
    background.run(listening.stop(None))


def test_every_datatype(client: Any) -> None:
    for told in (client.predict(GrpsMessage(str_data="all")), client.predict(gtensors(**ALL))):
        arrays = arrays_of(told)
        assert list(arrays) == list(ALL)
        for name, array in arrays.items():
            assert array.dtype == ALL[name].dtype and array.shape == ALL[name].shape
            assert array.tolist() == ALL[name].tolist()


def test_streams(client: Any) -> None:
    if isinstance(client, GrpsBrpc):
        return  # there are none
    pieces = list(client.stream(GrpsMessage(str_data="stream")))
    assert [piece.str_data for piece in pieces] == [f"stream data {number}" for number in range(3)]
    *_, last = client.stream(GrpsMessage(str_data="stream-err"))
    assert (last.status.code, last.status.msg) == (500, "bad thing mid-stream")


def test_errors_and_health(client: Any) -> None:
    with pytest.raises(GrpsError, match="boom"):
        client.predict(GrpsMessage(str_data="raise:boom"))
    with pytest.raises(GrpsError, match="nobody-1"):
        client.predict(GrpsMessage(model="nobody-1", str_data="x"))
    client.get("live")
    with pytest.raises(GrpsError, match="Unavailable"):
        client.get("ready")
    client.get("online")
    client.get("ready")


def test_tensors(client: Any) -> None:
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.full((2, 3), 7, np.int32)
    arrays = arrays_of(client.predict(gtensors("simple-1.0.0", INPUT0=a, INPUT1=b)))
    assert (arrays["OUTPUT0"] == a + b).all() and (arrays["OUTPUT1"] == a - b).all()
    assert client.predict(GrpsMessage(bin_data=b"\0\xff")).bin_data == b"\0\xff"
