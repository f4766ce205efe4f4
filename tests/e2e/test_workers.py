"""A server of several processes is one server to its clients, and outlives its processes."""

from __future__ import annotations

import json
import os
import signal
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPSConnection
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.certificates import Authority
from tests.e2e.daemon import ROOT, WAIT_SECS, Daemon
from tests.waiting import eventually

SPEC = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
WORDS = [{"name": "x", "datatype": "BYTES", "shape": [-1]}]
CONFIG: dict[str, Any] = {
    "server": {"workers": 2, "shutdown_timeout_secs": 10},
    "admin": {"listen": "127.0.0.1:0"},
    "listeners": [
        {"listen": "127.0.0.1:0", "transport": "http"},
        {"listen": "127.0.0.1:0", "transport": "grpc"},
    ],
    "model_repository": [
        {"path": str(ROOT / "examples" / "models"), "control": "explicit", "load": ["digits"]}
    ],
    "models": {
        "echo": {
            "backend": "identity",
            "signature": {"inputs": SPEC, "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]},
        },
        "words": {"backend": "identity", "signature": {"inputs": WORDS, "outputs": WORDS}},
    },
}
_opened: list[HTTPConnection] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes the connections of a test."""
    yield
    while _opened:
        _opened.pop().close()


def exited(pid: int) -> bool:
    """Whether a process has ended; its parent may not have noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Server:
    folder: Path

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.admin = daemon.until("admin listening")["address"]
        self.http = daemon.addresses[0]

    def get(self, path: str, address: str = "") -> Any:
        with urllib.request.urlopen(f"http://{address or self.admin}{path}", timeout=WAIT_SECS) as answer:
            return json.load(answer)

    def processes(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.get("/processes")
        return found

    def connections_of_front_ends(self) -> list[int]:
        return [each["connections"] for each in self.processes().values() if each["role"] == "front end"]

    def connections(self, count: int) -> list[HTTPConnection]:
        """Connections, which spread over the front ends; closed at the end of the test."""
        found = [HTTPConnection(self.http, timeout=30) for _ in range(count)]
        _opened.extend(found)
        return found

    def spread(self, model: str = "echo", value: float = 1) -> list[HTTPConnection]:
        """Connections of which each front end has two at least, and no others: one that did not turn for half a second,
        as on a busy machine, got none in that time. Each was used once, for a request that ``model`` answers with
        ``value``."""
        eventually(lambda: not any(self.connections_of_front_ends()))
        found: list[HTTPConnection] = []
        while min(self.connections_of_front_ends()) < 2:
            found += self.connections(1)
            assert infer(found[-1], [1], model) == [value]
            assert len(found) < 1000
        return found

    def kill(self, name: str) -> int:
        """Kill a process and wait until its sockets have closed; its id."""
        pid: int = self.processes()[name]["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: exited(pid))
        return pid

    def until_ready(self, gone: int = 0) -> None:
        """Wait until all processes are ready, and the one with the id ``gone`` is not among them."""
        eventually(lambda: all(each["ready"] and each["pid"] != gone for each in self.processes().values()))

    def metric(self, name: str) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=WAIT_SECS) as answer:
            lines = answer.read().decode().splitlines()
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)
        }


def call(connection: HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, json.loads(content) if content[:1] in (b"{", b"[") else content


def infer(connection: HTTPConnection, values: list[float], model: str = "echo") -> Any:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}]
    status, answer = call(connection, "POST", f"/v2/models/{model}/infer", {"inputs": inputs})
    return answer["outputs"][0]["data"] if status == 200 else (status, answer)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Server]:
    """Its last listeners, for HTTP and gRPC, have TLS."""
    issued = authority.issue("127.0.0.1")
    tls = {"cert": issued.cert, "key": issued.key}
    secure = [{**each, "tls": tls} for each in CONFIG["listeners"]]
    config = {**CONFIG, "listeners": [*CONFIG["listeners"], *secure]}
    daemon = Daemon.start(tmp_path_factory.mktemp("workers"), config)
    try:
        yield Server(daemon)
        assert daemon.stop() == 0
        assert not [line for line in daemon.log if line["level"] == "unparsed"]
    finally:
        daemon.kill()


def test_every_front_end_answers(server: Server) -> None:
    connections = server.spread()
    assert [infer(each, [1, number]) for number, each in enumerate(connections)] == [
        [1, number] for number in range(len(connections))
    ]
    counts = server.connections_of_front_ends()
    assert len(counts) == 2
    assert all(counts)


def test_tls_ends_in_every_front_end(server: Server, authority: Authority) -> None:
    _, _, http, grpc = server.daemon.addresses
    context = ssl.create_default_context(cafile=authority.ca)
    eventually(lambda: not any(server.connections_of_front_ends()))
    number = 0
    while number < 4 or not all(server.connections_of_front_ends()):
        _opened.append(HTTPSConnection(http, timeout=30, context=context))
        assert infer(_opened[-1], [1, number]) == [1, number]
        number += 1
    values = np.arange(100_000, dtype=np.float32)
    given = triton.InferInput("x", values.shape, "FP32")
    given.set_data_from_numpy(values)
    with ExitStack() as closing:
        for _ in range(4):
            client = triton.InferenceServerClient(grpc, ssl=True, root_certificates=authority.ca)
            closing.enter_context(client)
            assert (client.infer("echo", [given]).as_numpy("y") == values).all()


def test_large_tensors_pass(server: Server) -> None:
    (connection,) = server.connections(1)
    data = np.arange(1 << 20, dtype="<f4").tobytes()
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "datatype": "FP32",
                    "shape": [1 << 20],
                    "parameters": {"binary_data_size": len(data)},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = {"inference-header-content-length": str(len(head))}
    for _ in range(3):
        connection.request("POST", "/v2/models/echo/infer", head + data, headers)
        assert connection.getresponse().read().endswith(data)


def test_loads_take_effect_on_all_front_ends(server: Server) -> None:
    connections = server.connections(6)
    for _ in range(3):
        assert call(connections[0], "POST", "/v2/repository/models/identity_fp32/load", {})[0] == 200
        assert [call(each, "GET", "/v2/models/identity_fp32/ready")[0] for each in connections] == [200] * 6
        assert call(connections[1], "POST", "/v2/repository/models/identity_fp32/unload", {})[0] == 200
        found = [call(each, "GET", "/v2/models/identity_fp32/ready")[0] for each in connections]
        assert found == [400] * 6 or found == [404] * 6


def test_a_server_set_offline_is_offline_for_all(server: Server) -> None:
    connections = server.connections(6)
    try:
        assert call(connections[0], "GET", "/grps/v1/health/offline")[0] == 200
        assert {call(each, "GET", "/grps/v1/health/ready")[0] for each in connections} != {200}
        assert len({call(each, "GET", "/grps/v1/health/ready")[0] for each in connections}) == 1
    finally:
        assert call(connections[1], "GET", "/grps/v1/health/online")[0] == 200
    assert {call(each, "GET", "/grps/v1/health/ready")[0] for each in connections} == {200}


def test_shared_memory_is_registered_for_all(server: Server) -> None:
    connections = server.connections(6)
    region = shared_memory.SharedMemory(create=True, size=8)
    try:
        region.buf[:8] = struct.pack("<2f", 1.5, -2)
        described = {"key": f"/{region.name}", "offset": 0, "byte_size": 8}
        path = "/v2/systemsharedmemory/region/mine"
        assert call(connections[0], "POST", f"{path}/register", described)[0] == 200
        place = {"shared_memory_region": "mine", "shared_memory_byte_size": 8}
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "parameters": place}]}
        for each in connections:
            status, answer = call(each, "POST", "/v2/models/echo/infer", body)
            assert (status, answer["outputs"][0]["data"]) == (200, [1.5, -2])
        assert call(connections[1], "POST", f"{path}/unregister")[0] == 200
        assert {call(each, "POST", "/v2/models/echo/infer", body)[0] for each in connections} == {404}
    finally:
        region.close()
        region.unlink()


def test_metrics_are_those_of_one_server(server: Server) -> None:
    name = 'interlingua_requests_total{listener="' + server.http

    def count() -> float:
        return sum(
            value
            for labels, value in server.metric(name).items()
            if 'operation="infer"' in labels and 'code="OK"' in labels
        )

    before = count()
    models = server.metric('nv_inference_request_success{model="echo"')
    for each in server.connections(10):
        infer(each, [1])
    assert count() == before + 10
    (now,), (then,) = server.metric('nv_inference_request_success{model="echo"').values(), models.values()
    assert now == then + 10
    assert set(server.metric("interlingua_process_up").values()) == {1}


def test_requests_of_all_front_ends_have_one_counter(server: Server) -> None:
    numbers = []
    for each in server.connections(6):
        for _ in range(3):
            each.request("GET", "/api/status")
            answer = each.getresponse()
            answer.read()
            numbers.append(answer.getheader("NV-Status") or "")
    found = [int(line.partition("request_id: ")[2].split()[0]) for line in numbers]
    assert found == list(range(found[0], found[0] + 18))


def test_a_killed_front_end_loses_its_connections_alone(server: Server) -> None:
    connections = server.spread()
    pid = server.kill("front end 0")
    answers = []
    for each in connections:
        try:
            answers.append(infer(each, [2]))
        except OSError:
            answers.append(None)
    assert all(answer in ([2], None) for answer in answers)
    assert 2 <= answers.count([2]) <= len(answers) - 2
    # new ones go to the other, at once
    assert [infer(each, [3]) for each in server.connections(4)] == [[3]] * 4
    server.until_ready(pid)
    assert [infer(each, [4]) for each in server.connections(4)] == [[4]] * 4


def test_a_restarted_front_end_knows_what_clients_changed(server: Server) -> None:
    assert call(server.connections(1)[0], "GET", "/grps/v1/health/offline")[0] == 200
    try:
        server.until_ready(server.kill("front end 1"))
        found = {call(each, "GET", "/grps/v1/health/ready")[0] for each in server.connections(6)}
        assert 200 not in found
    finally:
        call(server.connections(1)[0], "GET", "/grps/v1/health/online")
    assert {call(each, "GET", "/grps/v1/health/ready")[0] for each in server.connections(6)} == {200}


def test_a_frozen_front_end_gets_no_new_connections(server: Server) -> None:
    old = server.spread()
    pid = server.processes()["front end 0"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(1)
        began = time.monotonic()
        assert [infer(each, [5]) for each in server.connections(6)] == [[5]] * 6
        assert server.get("/health/live")["live"]
        assert server.get("/health/ready")["ready"]
        # it holds up nobody
        assert time.monotonic() - began < 25
        # callers of the other notice nothing
        pool = ThreadPoolExecutor(len(old))
        asked = [pool.submit(infer, each, [6]) for each in old]
        eventually(lambda: sum(each.done() for each in asked) >= 2)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [each.result() for each in asked] == [[6]] * len(old)
    pool.shutdown()
    server.until_ready()


def test_costly_requests_of_one_front_end_hold_up_nobody(server: Server) -> None:
    """Strings in JSON take the longest of what a client may send: each becomes an object, and text again."""
    count = 1_000_000
    words = {"name": "x", "datatype": "BYTES", "shape": [count], "data": [""] * count}
    body = json.dumps({"inputs": [words]}).encode()
    old = server.connections(8)
    assert [infer(each, [4]) for each in old] == [[4]] * 8
    with ThreadPoolExecutor(2) as pool:

        def costly(connection: HTTPConnection) -> int:
            connection.request("POST", "/v2/models/words/infer", body)
            answer = connection.getresponse()
            answer.read()
            return answer.status

        # connections go to the front ends in turn: these two to one
        asked = [pool.submit(costly, each) for each in (old[0], old[2])]
        answered = 0
        while not any(each.done() for each in asked):
            (new,) = server.connections(1)
            assert [infer(each, [5]) for each in (*old[3:], new)] == [[5]] * 6
            new.close()
            answered += 6
        assert [each.result() for each in asked] == [200, 200]
    print(f"{answered} answers meanwhile")
    assert answered >= 18


def test_models_come_back_after_the_runtime_process_exits(server: Server) -> None:
    connections = server.connections(4)
    for each in connections:
        infer(each, [1])
    pid = server.processes()["runtime"]["pid"]
    fork_server = int(Path(f"/proc/{pid}/status").read_text().partition("PPid:")[2].split()[0])
    # the runtime process does not start again while this one is stopped
    os.kill(fork_server, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: infer(connections[0], [1]) != [1])
        status, answer = infer(connections[0], [1])
        assert status == 503
        assert "the runtime process" in answer["error"]

        def unready() -> str:
            try:
                server.get("/health/ready")
            except urllib.error.HTTPError as refused:
                return f"{refused.code} {refused.read().decode()}"
            return ""

        # the supervisor and a front end notice the end of a process each for itself
        eventually(unready)
        assert unready().startswith("503")
        assert "runtime process" in unready()
    finally:
        os.kill(fork_server, signal.SIGCONT)
    server.until_ready(pid)
    eventually(lambda: infer(connections[0], [1]) == [1])
    assert [infer(each, [6]) for each in connections] == [[6]] * 4


def test_callers_get_right_answers_or_typed_errors_while_processes_are_killed(server: Server) -> None:
    """Nobody waits for ever, nobody gets another caller's answer."""
    stop = time.monotonic() + 5

    def ask(number: int) -> list[object]:
        (connection,), faults = server.connections(1), []
        count = 0
        while time.monotonic() < stop:
            count += 1
            sent = [float(number), float(count)]
            try:
                answer = infer(connection, sent)
            except OSError:
                connection.close()
                continue
            if answer != sent and answer[0] != 503:
                faults.append((sent, answer))
        return faults

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask, number) for number in range(8)]
        for name in ("front end 0", "runtime", "front end 1"):
            time.sleep(1.2)
            pid = server.processes()[name]["pid"]
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        assert [each.result() for each in asking] == [[]] * 8
    server.until_ready()


def test_nothing_is_left_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    daemon = Daemon.start(tmp_path, CONFIG)
    pids = [each["pid"] for each in Server(daemon).processes().values()]
    daemon.process.kill()
    daemon.process.wait()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    daemon.kill()


def test_requests_in_flight_end_at_a_stop(tmp_path: Path) -> None:
    config = {**CONFIG, "server": {**CONFIG["server"], "drain_secs": 1.5}}
    daemon = Daemon.start(tmp_path, config)
    server = Server(daemon)
    (connection,) = server.connections(1)
    assert infer(connection, [1]) == [1]
    daemon.process.send_signal(signal.SIGTERM)
    # it reports not ready, and answers
    eventually(lambda: call(connection, "GET", "/v2/health/ready")[0] != 200)
    assert infer(connection, [2]) == [2]
    assert daemon.process.wait(WAIT_SECS) == 0
    daemon.kill()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_front_ends_and_models_have_cpus_of_their_own(tmp_path: Path) -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    config = {**CONFIG, "server": {**CONFIG["server"], "workers": "auto", "cpus": [second, first]}}
    daemon = Daemon.start(tmp_path, config)
    try:
        pids = {name: each["pid"] for name, each in Server(daemon).processes().items()}
        found = {name: os.sched_getaffinity(pid) for name, pid in pids.items()}
        assert found.pop("supervisor", {first, second}) == {first, second}
        assert found == {"front end 0": {second}, "runtime": {first}}
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def test_grpcio_cannot_listen_for_front_ends(tmp_path: Path) -> None:
    listener = {"listen": "127.0.0.1:0", "transport": "grpc", "engine": "library"}
    daemon = Daemon.begin(tmp_path, {**CONFIG, "listeners": [listener]})
    assert daemon.process.wait(WAIT_SECS) == 1
    daemon.kill()
    assert any("needs workers: 0" in str(line) for line in daemon.log)


def test_an_address_in_use_ends_the_start(server: Server, tmp_path: Path) -> None:
    config = {**CONFIG, "listeners": [{"listen": server.http, "transport": "http"}]}
    daemon = Daemon.begin(tmp_path, config)
    assert daemon.process.wait(WAIT_SECS) == 1
    daemon.kill()
    assert any("cannot listen" in str(line) for line in daemon.log)
    assert daemon.log[-1]["event"] == "startup failed"
