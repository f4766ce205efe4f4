"""Traces of the real daemon, as a collector receives them: bridged, mirrored, retried and failed requests."""

from __future__ import annotations

import json
import queue
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc

from tests.e2e.collector import Collector, Received, collector, grpc_collector
from tests.e2e.daemon import Daemon
from tests.ports import free_port
from tests.waiting import eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, Daemon]]:
    """A collector, and a daemon that bridges to another one and mirrors; both export to it, the other one
    over gRPC."""
    folder = tmp_path_factory.mktemp("tracing")
    token = folder / "token"
    token.write_text("Bearer one\n")
    with ExitStack() as stack, collector() as found, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        over_grpc = stack.enter_context(grpc_collector())
        over_grpc.spans = found.spans
        # a front end is forked, and has a channel of grpcio
        served = {**far_config(over_grpc, "grpc"), "server": {"workers": 1}}
        far = Daemon.start(folder_in(folder, "far"), served)
        near = Daemon.start(folder_in(folder, "near"), near_config(found, far, token))
        try:
            yield found, near
        finally:
            near.kill()
            far.kill()


def folder_in(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def far_config(to: Collector, protocol: str = "http/protobuf") -> dict[str, Any]:
    identity = {"backend": "identity", "signature": SIGNATURE}
    return {
        "listeners": [{"listen": "127.0.0.1:0", "transport": each} for each in ("http", "grpc")],
        "models": {"m": identity, "shadow": identity},
        "tracing": {"otlp": to.url, "protocol": protocol, "service_name": "far", "sample": 0.0},
    }


def near_config(to: Collector, far: Daemon, token: Path) -> dict[str, Any]:
    http, grpc_address = far.addresses
    return {
        "server": {"access_log": "all"},
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http", "dialects": ["oip", "trtis", "tfserving"]},
            {"listen": "127.0.0.1:0", "transport": "grpc"},
        ],
        "admin": {"listen": "127.0.0.1:0"},
        "upstreams": {
            "far": {"dialect": "oip", "transport": "http", "urls": [f"http://{http}"]},
            "far_grpc": {"dialect": "oip", "transport": "grpc", "urls": [grpc_address]},
            "down": {"dialect": "oip", "transport": "http", "urls": [f"http://127.0.0.1:{free_port()}"]},
            "halved": {
                "dialect": "oip",
                "transport": "http",
                "urls": [f"http://{http}", f"http://127.0.0.1:{free_port()}"],
                # the first call is an inference, at the server that is not there
                "flavor": "triton",
                "probe_interval_secs": 0.0,
            },
        },
        "models": {
            "m": {"upstream": "far", "signature": SIGNATURE},
            "over_grpc": {"upstream": "far_grpc", "remote_model": "m", "signature": SIGNATURE},
            "halved": {"upstream": "halved", "remote_model": "m", "signature": SIGNATURE, "required": False},
            "shadow": {"upstream": "far", "signature": SIGNATURE},
            "down": {"upstream": "down", "signature": SIGNATURE, "required": False},
            "missing": {"upstream": "far", "signature": SIGNATURE, "required": False},
            "here": {"backend": "identity", "signature": SIGNATURE},
            "copy": {"backend": "identity", "signature": SIGNATURE},
        },
        "routes": [
            {"match": {"model": "m"}, "to": "m", "mirror": {"to": "shadow"}},
            {"match": {"model": "alias"}, "to": "here", "mirror": {"to": "copy"}},
        ],
        "tracing": {
            "otlp": to.url,
            "service_name": "near",
            "sample": 0.0,
            "headers": {"authorization": {"file": str(token)}},
        },
    }


def traceparent(number: int, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{number:032x}-{CALLER}-{flags}", "tracestate": "vendor=one"}


def wait_for(found: Collector, number: int, *names: str) -> list[Received]:
    """The spans of a trace, once it has those with ``names``."""
    trace_id = f"{number:032x}"

    def arrived() -> bool:
        here = [span.name for span in found.trace(trace_id)]
        return all(here.count(name) >= names.count(name) for name in names)

    eventually(arrived)
    return found.trace(trace_id)


def only(spans: list[Received], name: str, service: str = "near") -> Received:
    (span,) = [span for span in spans if (span.name, span.service) == (name, service)]
    return span


def grpc_tensor() -> tritonclient.grpc.InferInput:
    tensor = tritonclient.grpc.InferInput("x", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
    return tensor


INFER = "POST /v2/models/{model}/infer"
RPC = "inference.GRPCInferenceService/ModelInfer"


def test_a_bridged_and_mirrored_request(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    url = f"http://{near.addresses[0]}/v2/models/m/infer"
    assert requests.post(url, json=BODY, headers=traceparent(1), timeout=30).ok
    # two attempts at the other daemon, which has a span below each of them
    spans = wait_for(found, 1, INFER, INFER, INFER, "POST", "POST", "mirror")
    server = only(spans, INFER)
    assert (server.kind, server.parent_id, server.error) == ("server", CALLER, None)
    assert server.attributes["http.response.status_code"] == 200
    assert server.attributes["interlingua.dialect"] == "oip"
    mirror = only(spans, "mirror")
    assert (mirror.parent_id, mirror.attributes["interlingua.model"]) == (server.span_id, "shadow")
    attempts = {span.parent_id: span for span in spans if span.kind == "client"}
    assert attempts.keys() == {server.span_id, mirror.span_id}
    for attempt in attempts.values():
        assert attempt.attributes["interlingua.upstream"] == "far"
        assert attempt.attributes["server.address"] == "127.0.0.1"
        assert attempt.attributes["http.response.status_code"] == 200
        (far,) = [span for span in spans if span.service == "far" and span.parent_id == attempt.span_id]
        assert far.kind == "server"
        assert attempt.began <= far.began <= far.ended <= attempt.ended
    assert server.began <= attempts[server.span_id].began <= attempts[server.span_id].ended <= server.ended
    assert found.headers["authorization"] == "Bearer one"


def test_the_stages_of_a_request_to_a_local_model(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    body = json.dumps(BODY).encode()
    for number, late in ((2, 0.0), (14, 0.05), (15, 0.5), (16, 5.0)):
        head = [
            "POST /v2/models/here/infer HTTP/1.1\r\nhost: a\r\nconnection: close",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in traceparent(number).items()),
            "\r\n",
        ]
        pieces = ["\r\n".join(head).encode(), body] if late else ["\r\n".join(head).encode() + body]
        host, port = near.addresses[0].split(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            for piece in pieces:
                client.sendall(piece)
                time.sleep(late)
            assert client.recv(12) == b"HTTP/1.1 200"
        spans = wait_for(found, number, INFER)
        server = only(spans, INFER)
        stages = sorted((span for span in spans if span is not server), key=lambda span: span.began)
        names = ["route", "decode", "queue", "exec", "encode"]
        if late and stages[0].name != "receive":
            continue  # a busy machine has seen the headers with the body
        assert [span.name for span in stages] == (["receive", *names] if late else names)
        assert {span.parent_id for span in stages} == {server.span_id}
        ends = [
            server.began,
            *(moment for span in stages for moment in (span.began, span.ended)),
            server.ended,
        ]
        assert ends == sorted(ends)
        if late and stages[0].ended - stages[0].began >= late * 0.5e9:
            return
    pytest.fail("no span 'receive' is as long as the body was late")


def test_a_copy_to_a_local_model(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    url = f"http://{near.addresses[0]}/v2/models/alias/infer"
    assert requests.post(url, json=BODY, headers=traceparent(13), timeout=30).ok
    spans = wait_for(found, 13, INFER, "mirror")
    server, mirror = only(spans, INFER), only(spans, "mirror")
    assert (mirror.parent_id, mirror.attributes["interlingua.model"]) == (server.span_id, "copy")
    assert (server.attributes["interlingua.model"], server.attributes["interlingua.target"]) == (
        "alias",
        "here",
    )


def test_a_request_that_the_server_samples_itself(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    settings = f"http://{near.addresses[0]}/v2/models/missing/trace/setting"
    url = f"http://{near.addresses[0]}/v2/models/missing/infer"
    assert "trace_id" not in requests.post(url, json=BODY, timeout=30).json()
    # of a model that its upstream does not have
    assert requests.post(settings, json={"trace_rate": "1"}, timeout=30).json()["trace_rate"] == "1"
    number = int(requests.post(url, json=BODY, timeout=30).json()["trace_id"], 16)
    spans = wait_for(found, number, INFER, "POST")
    server, attempt = only(spans, INFER), only(spans, "POST")
    assert (server.parent_id, attempt.parent_id) == ("", server.span_id)


def test_grpc_on_both_sides(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    with tritonclient.grpc.InferenceServerClient(near.addresses[1]) as client:
        client.infer("over_grpc", [grpc_tensor()], headers=traceparent(3))
    spans = wait_for(found, 3, RPC, RPC, RPC)
    (server,) = [span for span in spans if span.parent_id == CALLER]
    attempt = next(span for span in spans if span.kind == "client")
    assert attempt.parent_id == server.span_id
    assert server.attributes["rpc.system"] == "grpc"
    assert server.attributes["rpc.grpc.status_code"] == attempt.attributes["rpc.grpc.status_code"] == 0
    (far,) = [span for span in spans if span.service == "far" and span.kind == "server"]
    assert far.parent_id == attempt.span_id


def test_a_retried_attempt(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    url = f"http://{near.addresses[0]}/v2/models/halved/infer"
    assert requests.post(url, json=BODY, headers=traceparent(10), timeout=30).ok
    spans = wait_for(found, 10, INFER, INFER)
    failed, answered = sorted((span for span in spans if span.kind == "client"), key=lambda span: span.began)
    assert failed.attributes["error.type"] == "UNAVAILABLE" and failed.error
    assert answered.error is None and answered.attributes["http.request.resend_count"] == 1
    assert failed.parent_id == answered.parent_id and failed.ended <= answered.began
    (far,) = [span for span in spans if span.service == "far" and span.kind == "server"]
    assert far.parent_id == answered.span_id


def test_a_request_that_fails(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    url = f"http://{near.addresses[0]}/v2/models/missing/infer"
    answer = requests.post(url, json=BODY, headers=traceparent(4), timeout=30)
    assert answer.status_code == 404
    assert answer.json()["trace_id"] == f"{4:032x}"
    spans = wait_for(found, 4, INFER, "POST")
    server = only(spans, INFER)
    # the client made the mistake: OpenTelemetry marks no server span for a 4xx
    assert (server.error, server.attributes["error.type"]) == (None, "NOT_FOUND")
    assert server.attributes["http.response.status_code"] == 404
    attempt = only(spans, "POST")
    assert attempt.error and attempt.attributes["http.response.status_code"] == 404


def test_a_fault_of_the_server(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    url = f"http://{near.addresses[0]}/v2/models/down/infer"
    answer = requests.post(url, json=BODY, headers=traceparent(8), timeout=30)
    assert answer.status_code == 503
    server = only(wait_for(found, 8, INFER), INFER)
    assert (server.error, server.attributes["error.type"]) == ("UNAVAILABLE", "UNAVAILABLE")
    assert server.attributes["http.response.status_code"] == 503

    assert answer.json()["trace_id"] == server.trace_id

    def logged() -> list[str]:
        return [line["code"] for line in near.log if line.get("trace_id") == server.trace_id]

    eventually(logged)
    assert logged() == ["UNAVAILABLE"]


def test_a_caller_that_is_not_sampled(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    url = f"http://{near.addresses[0]}/v2/models/here/infer"
    assert requests.post(url, json=BODY, headers=traceparent(5, "00"), timeout=30).ok
    assert requests.post(url, json=BODY, headers=traceparent(6), timeout=30).ok
    wait_for(found, 6, INFER)
    assert not found.trace(f"{5:032x}")


V1_HEADER = 'batch_size: 1 input { name: "x" dims: 1 dims: 2 } output { name: "y" }'
DIALECTS: dict[str, tuple[int, str, bytes, dict[str, str]]] = {
    "trtis": (7, "/api/infer/{model}", bytes(8), {"NV-InferRequest": V1_HEADER}),
    "tfserving": (42, "/v1/models/{model}:predict", b'{"instances": [[1.0, 2.0]]}', {}),
}
"""A trace, the route of inferences over HTTP, and a request."""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_another_dialect(traces: tuple[Collector, Daemon], dialect: str) -> None:
    found, near = traces
    number, route, body, more = DIALECTS[dialect]
    headers = {**traceparent(number), **more, "Content-Type": "application/octet-stream"}
    url = f"http://{near.addresses[0]}{route.format(model='m')}"
    answer = requests.post(url, data=body, headers=headers, timeout=30)
    assert answer.status_code == 200 and "SUCCESS" in answer.headers.get("NV-Status", "SUCCESS"), answer.text
    name = f"POST {route}"
    spans = wait_for(found, number, name, INFER, INFER, "POST", "POST", "mirror")
    server = only(spans, name)
    assert (server.parent_id, server.attributes["interlingua.dialect"]) == (CALLER, dialect)
    mirror = only(spans, "mirror")
    attempts = [span for span in spans if span.kind == "client"]
    assert sorted(span.parent_id for span in attempts) == sorted((server.span_id, mirror.span_id))
    servers = [span.parent_id for span in spans if span.service == "far" and span.kind == "server"]
    assert sorted(servers) == sorted(span.span_id for span in attempts)


def test_each_message_of_a_stream_is_a_request(traces: tuple[Collector, Daemon]) -> None:
    found, near = traces
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(near.addresses[1]) as client:
        client.start_stream(lambda result, error: answers.put((result, error)), headers=traceparent(9))
        for _ in range(2):
            client.async_stream_infer("here", [grpc_tensor()])
        assert [answers.get(timeout=30)[1] for _ in range(2)] == [None, None]
    name = "inference.GRPCInferenceService/ModelStreamInfer"
    spans = wait_for(found, 9, name, name)
    servers = [span for span in spans if span.kind == "server"]
    assert [span.parent_id for span in servers] == [CALLER, CALLER]
    assert len({span.span_id for span in servers}) == 2
    for server in servers:
        assert {"decode", "exec"} <= {span.name for span in spans if span.parent_id == server.span_id}


def test_settings_reach_every_front_end(tmp_path: Path) -> None:
    with collector() as found, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        config = far_config(found)
        config["server"] = {"workers": 2}
        daemon = Daemon.start(tmp_path, config)
        try:
            check_settings(found, daemon, found.url)
        finally:
            daemon.kill()


def check_settings(found: Collector, daemon: Daemon, url: str) -> None:
    http, grpc_address = daemon.addresses
    settings = f"http://{http}/v2/trace/setting"
    shown = {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": "0",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "url": f"{url}/v1/traces",
        "resource": "service.name=far",
        "bsp_max_export_batch_size": "512",
        "bsp_max_queue_size": "2048",
        "bsp_schedule_delay": "50",
    }

    def infer() -> None:
        # on a connection of its own, which any front end may get
        assert requests.post(f"http://{http}/v2/models/m/infer", json=BODY, timeout=30).ok

    sampled = 0

    def instances() -> int:
        nonlocal sampled
        infer()
        sampled += 1
        return len({span.instance for span in found.spans})

    def counted() -> int:
        return len({span.trace_id for span in found.spans})

    def used_up() -> bool:
        infer()
        return bool(requests.get(settings, timeout=30).json()["trace_count"] == "0")

    assert requests.get(settings, timeout=30).json() == shown
    infer()
    assert requests.post(settings, json={"trace_rate": "1"}, timeout=30).json() == {
        **shown,
        "trace_rate": "1",
    }
    eventually(lambda: instances() == 2)
    # what is left of a count is that of all front ends
    with tritonclient.grpc.InferenceServerClient(grpc_address) as client:
        client.update_trace_settings(settings={"trace_level": "OFF"})
        eventually(lambda: counted() == sampled)
        client.update_trace_settings(settings={"trace_count": "5", "trace_level": "TIMESTAMPS"})
        told = client.get_trace_settings(as_json=True)["settings"]
        assert (told["trace_count"]["value"], told["trace_mode"]["value"]) == (["5"], ["opentelemetry"])
    eventually(used_up)
    infer()
    eventually(lambda: counted() == sampled + 5)
