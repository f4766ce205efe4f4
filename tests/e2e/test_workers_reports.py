"""The reports of a server of several processes are those of one server, whichever process answers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton_grpc

from interlingua.translator.recording.files import RecordingReader
from tests.e2e.daemon import WAIT_SECS, Daemon
from tests.e2e.test_workers import SPEC, Server, call, closed, infer
from tests.ports import free_port
from tests.waiting import eventually

__all__ = ["closed"]

SIGNATURE = {"inputs": SPEC, "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]}


def config(folder: Path) -> dict[str, Any]:
    """A server that is its own upstream: ``remote`` is ``echo``, called over a connection of its own."""
    port = free_port()
    return {
        "server": {"workers": 2, "shutdown_timeout_secs": 10, "audit_log": str(folder / "audit.log")},
        "admin": {"listen": "127.0.0.1:0"},
        "listeners": [
            {"listen": f"127.0.0.1:{port}", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "grpc"},
        ],
        "upstreams": {"itself": {"dialect": "oip", "transport": "http", "urls": [f"127.0.0.1:{port}"]}},
        "models": {
            "echo": {"backend": "identity", "signature": SIGNATURE},
            "other": {"backend": "identity", "signature": SIGNATURE},
            "remote": {"upstream": "itself", "remote_model": "echo"},
        },
        "routes": [
            {
                "match": {"model": "mixed"},
                "split": [{"to": "echo"}, {"to": "other"}],
                "mirror": {"to": "other"},
            },
            {"match": {"model": "named"}, "to": "remote", "versions": {"9": "1"}},
        ],
        "tap": {"path": str(folder / "tap.rec"), "models": ["mixed"]},
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("reports")
    daemon = Daemon.start(folder, config(folder))
    try:
        found = Server(daemon)
        found.folder = folder
        yield found
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if "unexpected error" in line["event"]], daemon.log
    finally:
        daemon.kill()


@pytest.fixture
def connections(server: Server) -> Iterator[list[HTTPConnection]]:
    """Connections to both front ends."""
    found = server.connections(6)
    for each in found:
        infer(each, [1])
    yield found
    for each in found:
        each.close()


def statistics(connection: HTTPConnection, model: str = "remote") -> Any:
    status, answer = call(connection, "GET", f"/v2/models/{model}/stats")
    assert status == 200, answer
    (found,) = answer["model_stats"]
    return found


def test_statistics_of_upstream_models_are_those_of_all(
    server: Server, connections: list[HTTPConnection]
) -> None:
    before = statistics(connections[0])["inference_stats"]["success"]["count"]
    for number, each in enumerate(connections):
        assert infer(each, [number, 2], "remote") == [number, 2]
    found = [statistics(each) for each in connections]
    assert {each["inference_stats"]["success"]["count"] for each in found} == {before + 6}
    assert found == [found[0]] * 6
    renamed = [statistics(each, "named") for each in connections]
    assert [each["version"] for each in renamed] == ["9"] * 6
    assert [each["inference_stats"] for each in renamed] == [found[0]["inference_stats"]] * 6
    everything = call(connections[0], "GET", "/v2/models/stats")[1]["model_stats"]
    assert found[0] in everything
    counts = []
    for _ in range(3):
        with triton_grpc.InferenceServerClient(server.daemon.addresses[1]) as client:
            (stated,) = client.get_inference_statistics("remote").model_stats
            counts.append(stated.inference_stats.success.count)
    assert counts == [before + 6] * 3
    assert server.get("/models")["remote"]["versions"][0]["requests"] == before + 6


def test_status_counts_requests_of_all(connections: list[HTTPConnection]) -> None:
    """TRTIS reports how often each operation was requested, and since when the server runs."""

    def status(connection: HTTPConnection) -> tuple[int, int]:
        text = call(connection, "GET", "/api/status")[1].decode()
        uptime = int(text.partition("uptime_ns: ")[2].split()[0])
        of_status = text.partition("status_stats")[2].partition("}")[0]
        # absent from the first status of all
        return uptime, int((of_status.partition("count: ")[2].split() or ["0"])[0])

    first, *found = [status(each) for each in connections]
    counts = [count for _, count in found]
    assert counts == list(range(first[1] + 1, first[1] + 6))
    uptimes = [uptime for uptime, _ in (first, *found)]
    assert uptimes == sorted(uptimes)


def test_charts_of_grps_count_all(connections: list[HTTPConnection]) -> None:
    def requests_per_second_of_today(connection: HTTPConnection) -> float:
        status, answer = call(connection, "GET", "/grps/v1/monitor/series?name=*qps")
        assert status == 200
        return float(answer["data"][29][1])

    for each in connections:
        for _ in range(50):
            infer(each, [1])
    (rate,) = {requests_per_second_of_today(each) for each in connections}
    # 0.001 is the precision
    assert rate >= 300 / 86_400 - 0.001


def test_reports_have_the_shape_of_one_process(server: Server, connections: list[HTTPConnection]) -> None:
    for number, each in enumerate(connections):
        assert infer(each, [number], "mixed") == [number]
    found = server.get("/server")
    assert [each["address"] for each in found["listeners"]] == server.daemon.addresses
    assert found["listeners"][0]["dialects"]["oip"]["requests"] >= 12
    first, second = server.get("/routes")
    assert (first["route"], first["requests"], second["route"]) == (1, 6, 2)
    assert sum(each["requests"] for each in first["to"]) == 6
    (member,) = server.get("/upstreams")["itself"]["servers"]
    assert (member["state"], member["breaker"], member["outstanding"]) == ("in use", "closed", 0)
    models = server.get("/models")
    assert {name: each["state"] for name, each in models.items()} == dict.fromkeys(
        ("echo", "other", "remote"), "READY"
    )
    assert models["echo"]["versions"][0]["requests"] >= 6

    def compared() -> int:
        (mirror,) = server.get("/mirror")["mirrors"]
        dropped = mirror["dropped"].get("same_model", 0)
        return int(mirror["equal"] + dropped)

    eventually(lambda: compared() >= 6 and server.get("/tap")["recorded"] >= 6)
    assert server.get("/mirror")["different"] is False
    # one recording of all
    with RecordingReader(server.folder / "tap.rec") as recorded:
        requests = [each.request for each in recorded]
    assert not recorded.damage
    assert sorted(each.inputs[0].numpy()[0] for each in requests) == list(range(6))


def test_lines_of_the_log_name_their_process(server: Server, connections: list[HTTPConnection]) -> None:
    for each in connections:
        call(each, "POST", "/v2/logging", {"log_verbose_level": 0})
    audited = server.folder / "audit.log"
    eventually(audited.read_text)
    assert all(json.loads(line)["role"].startswith("front end") for line in audited.read_text().splitlines())
    # a thread reads the log
    eventually(lambda: {"supervisor", "front end 0"} <= {line["role"] for line in server.daemon.log})


def test_the_dashboard_is_that_of_one_process_with_its_processes(server: Server) -> None:
    view = server.get("/view")
    tables = {table["id"]: table for table in view["tables"]}
    assert view["state"] == ["Ready", "good"]
    assert list(tables) == ["listeners", "models", "upstreams", "routes", "mirrors", "processes"]
    assert [row[0][0] for row in tables["models"]["rows"]] == ["echo", "other", "remote"]
    assert [row[0][0] for row in tables["processes"]["rows"]] == [
        "supervisor",
        "runtime",
        "front end 0",
        "front end 1",
    ]
    connection = HTTPConnection(server.admin, timeout=10)
    connection.request("GET", "/plain")
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/html; charset=utf-8"
    assert '<h2 id="processes-title">Processes</h2>' in answer.read().decode()
    connection.close()


def test_the_history_is_that_of_all(server: Server, connections: list[HTTPConnection]) -> None:
    def requests() -> dict[tuple[str, str, str], int]:
        ways = server.get("/history?range=1m")["ways"]
        return {(way["route"], way["model"], way["upstream"]): way["requests"] for way in ways}

    began = requests()
    for each in connections:
        infer(each, [1], "named")
        assert call(each, "POST", "/v2/models/absent/infer", {"inputs": []})[0] == 404
    way = ("2", "remote", "itself")
    eventually(lambda: requests().get(way, 0) - began.get(way, 0) == 6)
    errors = server.get("/errors")["errors"]
    assert [each["code"] for each in errors[:6]] == ["NOT_FOUND"] * 6
    assert "absent" in errors[0]["error"]


def test_a_browser_that_watches_gets_events_of_all(server: Server) -> None:
    connection = HTTPConnection(server.admin, timeout=WAIT_SECS)
    connection.request("GET", "/events?range=1m")
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream"
    assert answer.readline() == b"event: entries\n"
    entries = json.loads(answer.readline().removeprefix(b"data: "))["entries"]
    assert {"server", "upstreams", "processes", "models/remote", "condition"} <= entries.keys()
    assert list(entries["processes"]) == ["supervisor", "runtime", "front end 0", "front end 1"]
    connection.close()


def test_openmetrics_of_all_processes_are_complete(server: Server) -> None:
    """Two answers on one connection: a wrong length of the first would garble the second."""
    connection = HTTPConnection(server.admin, timeout=WAIT_SECS)
    for _ in range(2):
        connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
        assert connection.getresponse().read().endswith(b"\n# EOF\n")
    connection.close()


def test_counters_never_decrease(server: Server, connections: list[HTTPConnection]) -> None:
    """What a process has counted stays after it has exited, as far as it was reported; a stopped process adds
    its last report."""
    for each in connections:
        infer(each, [1], "remote")
    name = 'nv_inference_request_success{model="remote"'
    (before,) = server.metric(name).values()
    routed = server.get("/routes")[0]["requests"]
    counted = statistics(connections[0])["inference_stats"]["success"]["count"]
    pid = server.processes()["front end 0"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert list(server.metric(name).values()) == [before]
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: server.processes()["front end 0"]["restarts"] == 1)
    server.until_ready()
    assert list(server.metric(name).values()) == [before]
    assert server.get("/routes")[0]["requests"] == routed
    (connection,) = server.connections(1)
    assert statistics(connection)["inference_stats"]["success"]["count"] == counted
