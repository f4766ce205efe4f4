"""What version 1 clients ask beside inferences: health, status, models that come and go."""

from __future__ import annotations

import itertools
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from google.protobuf import json_format, text_format

from tests.e2e.daemon import Daemon
from tests.e2e.trtis_clients import clients_of, refused, running
from tests.e2e.trtis_models import BROKEN, DATATYPES, EMPTY, LOADED, SPARE
from tests.standins.trtis_client import TrtisError
from tests.standins.trtis_contract import code_name, datatype_name, from_line, message
from tests.standins.trtis_http_client import TrtisHttp
from tests.waiting import eventually

A = np.arange(32, dtype=np.int32).reshape(2, 16)
SUMS = {"INPUT0": A, "INPUT1": A}
GIVEN = {"DATA": np.zeros(3, np.float32)}
READY, UNAVAILABLE, UNLOADING = 1, 2, 4


@pytest.fixture(scope="module")
def clients(v1: Daemon) -> Iterator[dict[str, Any]]:
    with clients_of(v1) as both:
        yield both


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, clients: dict[str, Any]) -> Any:
    return clients[request.param]


# ---- health and status


def test_health(client: Any) -> None:
    assert client.health("live") and client.health("ready")


def test_health_over_http_has_a_status_and_no_body(v1: Daemon) -> None:
    for mode in ("live", "ready"):
        reply = TrtisHttp(v1.addresses[0]).exchange("GET", f"/api/health/{mode}")
        assert (reply.status, reply.body) == (200, b"")
        assert code_name(from_line("RequestStatus", reply.find("NV-Status") or "")) == "SUCCESS"


def test_status_of_the_server(client: Any) -> None:
    first, second = client.status(), client.status()
    assert first.id == "replica:7" and first.ready_state == 2 and first.version
    assert 0 < first.uptime_ns < second.uptime_ns
    assert set(LOADED) <= set(first.model_status)
    assert second.status_stats.success.count > first.status_stats.success.count
    assert second.status_stats.success.total_time_ns > 0


def test_status_of_a_model_has_its_configuration(client: Any) -> None:
    status = client.status("classy")
    assert list(status.model_status) == ["classy"]
    config = status.model_status["classy"].config
    assert (config.name, config.platform, config.max_batch_size) == ("classy", "onnxruntime_onnx", 4)
    assert config.version_policy.latest.num_versions == 1
    assert config.output[0].label_filename == "labels.txt"
    assert [group.count >= 1 for group in config.instance_group] == [True]
    for side, name in ((config.input, "DATA"), (config.output, "PROB")):
        assert [(spec.name, datatype_name(spec.data_type), list(spec.dims)) for spec in side] == [
            (name, "TYPE_FP32", [5])
        ]
    assert status.model_status["classy"].version_status[1].ready_state == READY
    assert set(client.status("multi_ver").model_status["multi_ver"].version_status) == {1, 3, 7}
    for name, datatype in DATATYPES.items():
        spec = client.status(f"identity_{name}").model_status[f"identity_{name}"].config.input[0]
        wanted = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        assert (datatype_name(spec.data_type), list(spec.dims)) == (wanted, [-1])


def comparable(status: Any) -> Any:
    """A status without what grows while it is asked for."""
    status.ClearField("uptime_ns")
    status.ClearField("status_stats")
    return status


@pytest.mark.parametrize("path", ["/api/status", "/api/status/", "/api/status/simple"])
def test_status_in_three_formats(v1: Daemon, path: str) -> None:
    client = TrtisHttp(v1.addresses[0])
    binary = message("ServerStatus")
    reply = client.exchange("GET", f"{path}?format=binary")
    assert reply.find("Content-Type") == "application/octet-stream"
    binary.ParseFromString(reply.body)
    json_bodies = [
        client.exchange("GET", f"{path}?format=json").body,
        requested_json(v1.addresses[0], path),
    ]
    for body in json_bodies:
        assert b'"model_status"' in body and b'"version_status"' in body
        parsed = json_format.Parse(body.decode(), message("ServerStatus"))
        assert comparable(parsed) == comparable(binary)
    for query in ("", "?format=text", "?format=other"):
        text = client.exchange("GET", path + query).body.decode()
        assert text.startswith('id: "replica:7"\n')
        assert comparable(text_format.Parse(text, message("ServerStatus"))) == comparable(binary)


def requested_json(address: str, path: str) -> bytes:
    return requests.get(f"http://{address}{path}", headers={"Accept": "application/json"}, timeout=10).content


def test_statistics_count_requests_by_batch_size(client: Any) -> None:
    def counters() -> Any:
        return client.status("simple").model_status["simple"].version_status[1]

    context = client.context("simple")
    context.infer(SUMS, ["OUTPUT0"])
    before = counters()
    for rows in (1, 2, 2):
        context.infer({name: array[:rows] for name, array in SUMS.items()}, ["OUTPUT0"])
    after = counters()
    assert after.model_inference_count - before.model_inference_count == 5
    assert after.model_execution_count - before.model_execution_count == 3
    assert time.time() * 1000 - after.last_inference_timestamp_milliseconds < 60_000
    grown = {
        size: after.infer_stats[size].success.count - before.infer_stats[size].success.count
        for size in (1, 2)
    }
    assert grown == {1: 1, 2: 2}
    for part in ("success", "compute", "queue"):
        duration = getattr(after.infer_stats[2], part)
        assert duration.count >= 2, part
    assert after.infer_stats[2].success.total_time_ns > before.infer_stats[2].success.total_time_ns
    assert after.infer_stats[2].compute.total_time_ns > 0


def test_failures_are_counted_too(clients: dict[str, Any]) -> None:
    client = clients["http"]

    def failed() -> int:
        stats = client.status("simple_string").model_status["simple_string"].version_status[1].infer_stats
        return int(stats[1].failed.count)

    before = failed()
    words = np.array([[b"no number"] * 16], object)
    with pytest.raises(TrtisError):
        client.infer("simple_string", {"INPUT0": words, "INPUT1": words}, ["OUTPUT0"])
    assert failed() == before + 1


# ---- models that come and go


def test_the_repository_lists_every_model(client: Any) -> None:
    assert set(client.repository()) == {*LOADED, SPARE, BROKEN, EMPTY}


def test_the_repository_as_text(v1: Daemon) -> None:
    reply = TrtisHttp(v1.addresses[0]).exchange("GET", "/api/repository/index")
    parsed = text_format.Parse(reply.body.decode(), message("ModelRepositoryIndex"))
    assert SPARE in [entry.name for entry in parsed.models]


def test_a_model_is_loaded_called_and_unloaded(client: Any) -> None:
    with refused("UNAVAILABLE", f"Request for unknown model: '{SPARE}'"):
        context = client.context("simple")
        context.model = SPARE
        context.infer(SUMS, [])
    client.load(SPARE)
    try:
        assert client.infer(SPARE, GIVEN, ["PROB"]).outputs["PROB"].tolist() == [0, 0, 0]
        assert client.status(SPARE).model_status[SPARE].version_status[1].ready_state == READY
        context = client.context(SPARE)
        # loading again replaces it
        client.load(SPARE)
        assert client.infer(SPARE, GIVEN, ["PROB"]).model_version == 1
    finally:
        client.unload(SPARE)
    with refused("UNAVAILABLE", f"Request for unknown model: '{SPARE}' has no available versions"):
        context.infer(GIVEN, ["PROB"])
    context.version = 1
    with refused("UNAVAILABLE", f"Request for unknown model: '{SPARE}' version 1 is not at ready state"):
        context.infer(GIVEN, ["PROB"])
    version = unloaded(client)
    assert version.ready_state == UNAVAILABLE and version.ready_state_reason.message == "unloaded"
    # a model that was unloaded on purpose keeps nobody from being ready
    assert client.health("ready")
    client.unload(SPARE)


def unloaded(client: Any) -> Any:
    """The state of the spare model's version once it has let go of its last request."""
    deadline = time.monotonic() + 10
    while True:
        version = client.status(SPARE).model_status[SPARE].version_status[1]
        if version.ready_state != UNLOADING or time.monotonic() > deadline:
            return version


def test_unloading_what_is_not_there_is_fine(client: Any) -> None:
    client.unload("nobody")


def test_loading_under_traffic_loses_no_request(clients: dict[str, Any]) -> None:
    client = clients["http"]
    client.load(SPARE)
    stop, failures = threading.Event(), []

    def ask() -> None:
        with client.context(SPARE) as context:
            while not stop.is_set():
                try:
                    context.infer(GIVEN, ["PROB"])
                except TrtisError as error:
                    failures.append(error)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    try:
        for _ in range(5):
            client.load(SPARE)
    finally:
        stop.set()
        for asker in askers:
            asker.join()
        client.unload(SPARE)
    assert not failures


@pytest.mark.parametrize(
    ("model", "begins"),
    [
        (BROKEN, f"failed to load '{BROKEN}', "),
        (EMPTY, f"failed to load '{EMPTY}', no version is available"),
        ("nobody", "failed to load 'nobody', no version is available"),
    ],
)
def test_a_model_that_cannot_be_loaded(client: Any, model: str, begins: str) -> None:
    with refused("INTERNAL", begins):
        client.load(model)
    client.unload(model)


def test_no_control_unless_the_repository_allows_it(tmp_path: Path) -> None:
    with running(tmp_path, {"load": ["simple"]}) as own:
        for client in (own.http, own.grpc):
            for act in (client.load, client.unload):
                with refused("UNAVAILABLE", "explicit model load / unload is not allowed"):
                    act("simple")
            assert client.infer("simple", SUMS, ["OUTPUT0"]).batch_size == 2


def test_a_model_that_failed_at_start_keeps_the_server_from_being_ready(tmp_path: Path) -> None:
    with running(tmp_path, {"control": "explicit", "load": ["simple", BROKEN]}) as own:
        assert own.http.health("live") and own.grpc.health("live")
        assert not own.http.health("ready") and not own.grpc.health("ready")
        reply = own.http.exchange("GET", "/api/health/ready")
        assert reply.status == 400
        assert code_name(from_line("RequestStatus", reply.find("NV-Status") or "")) == "SUCCESS"
        own.grpc.unload(BROKEN)
        assert own.http.health("ready") and own.grpc.health("ready")


def test_what_polling_has_unloaded_stays_in_the_status(tmp_path: Path) -> None:
    """As at the original server, with the counts of the requests that it has answered."""
    options = {"control": "poll", "load": ["simple", "multi_ver"]}
    with running(tmp_path, options, repository_poll_secs=0.1) as own:
        asked = {"INPUT0": np.arange(4, dtype=np.int32)}
        for client in (own.http, own.grpc):
            client.infer("simple", SUMS, ["OUTPUT0"])
            client.infer("multi_ver", asked, ["OUTPUT0"], version=1)
        shutil.rmtree(tmp_path / "models" / "multi_ver" / "1")
        shutil.rmtree(tmp_path / "models" / "simple")
        for client, (model, size) in itertools.product(
            (own.http, own.grpc), [("simple", 2), ("multi_ver", 1)]
        ):
            version = gone(client, model)
            assert version.ready_state_reason.message == "unloaded"
            assert version.infer_stats[size].success.count == 2
            assert version.model_execution_count == 2
        ready = own.http.status("multi_ver").model_status["multi_ver"].version_status
        assert {number: each.ready_state for number, each in ready.items()} == {
            1: UNAVAILABLE,
            3: READY,
            7: READY,
        }
        assert own.http.health("ready") and own.grpc.health("ready")
        with refused("UNAVAILABLE", "Request for unknown model: 'simple' has no available versions"):
            own.http.infer("simple", SUMS, ["OUTPUT0"])


def gone(client: Any, model: str) -> Any:
    """The state of version 1 of ``model`` once it has followed its files."""
    deadline = time.monotonic() + 20
    while True:
        version = client.status().model_status[model].version_status[1]
        if version.ready_state == UNAVAILABLE or time.monotonic() > deadline:
            return version
        time.sleep(0.05)


def test_a_server_that_is_leaving_says_so(tmp_path: Path) -> None:
    with running(tmp_path, {"load": ["simple"]}, drain_secs=20.0) as own:
        own.daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: not own.http.health("ready"), 15)
        for client in (own.http, own.grpc):
            with refused("UNAVAILABLE", "Server exiting"):
                client.status()
        with refused("UNAVAILABLE", "Server exiting"):
            own.grpc.health("ready")
        reply = own.http.exchange("GET", "/api/health/ready")
        assert code_name(from_line("RequestStatus", reply.find("NV-Status") or "")) == "UNAVAILABLE"
        # running() asks it to stop once more, which ends the wait
