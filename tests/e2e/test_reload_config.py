"""Reloads of the configuration of a running daemon."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.grpc as triton_grpc

from tests.certificates import Authority
from tests.e2e.daemon import WAIT_SECS
from tests.e2e.reloading import Reloaded, infer, reloaded
from tests.e2e.test_lifecycle import slow_model
from tests.e2e.test_reload import write_model
from tests.ports import free_port
from tests.waiting import eventually

SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
LOCAL = {"backend": "identity", "signature": SIGNATURE}
HTTP = {"listen": "127.0.0.1:0", "transport": "http"}
ADMIN = {"listen": "127.0.0.1:0"}


def config(**sections: Any) -> dict[str, Any]:
    return {"listeners": [HTTP], "admin": ADMIN, "models": {"one": LOCAL}, **sections}


def test_models_come_and_go_with_the_file(tmp_path: Path) -> None:
    with reloaded(tmp_path, config(models={"one": LOCAL, "two": LOCAL})) as server:
        (address,) = server.daemon.addresses
        assert infer(address, "one").status_code == infer(address, "two").status_code == 200
        with requests.Session() as kept:
            assert infer(address, "one", kept).status_code == 200
            changed = {**LOCAL, "description": "another"}
            assert server.reload(models={"one": LOCAL, "two": changed, "three": LOCAL}) == {
                "models": {"added": ["three"], "removed": [], "changed": {"two": ["description"]}}
            }
            assert all(infer(address, name, kept).status_code == 200 for name in ("one", "two", "three"))
            assert server.reload(models={"two": changed}) == {
                "models": {"added": [], "removed": ["one", "three"], "changed": {}}
            }
            assert infer(address, "one", kept).status_code == 404
            assert infer(address, "two", kept).status_code == 200
        # the counts of models that stay go on
        stats = requests.get(f"http://{address}/v2/models/two/stats", timeout=WAIT_SECS).json()
        assert stats["model_stats"][0]["inference_count"] == 3
        assert server.reload() == {}


def test_nothing_changes_unless_all_of_it_can(tmp_path: Path) -> None:
    with reloaded(tmp_path, config()) as server, socket.create_server(("127.0.0.1", 0)) as taken:
        (address,) = server.daemon.addresses
        port = taken.getsockname()[1]
        both = {"one": LOCAL, "two": LOCAL}
        assert server.refused(models=both, listeners=[HTTP, {**HTTP, "listen": f"127.0.0.1:{port}"}]) == [
            f"cannot listen at 127.0.0.1:{port}: Address already in use"
        ]
        (tmp_path / "broken.onnx").write_bytes(b"nothing")
        broken = {"backend": "onnxruntime", "path": str(tmp_path / "broken.onnx")}
        port = free_port()
        (reason,) = server.refused(
            models={**both, "broken": broken}, listeners=[HTTP, {**HTTP, "listen": f"127.0.0.1:{port}"}]
        )
        assert reason.startswith("model 'broken': ")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        (reason,) = server.refused(listeners=[{**HTTP, "transport": "htpt"}])
        assert "config.yaml:" in reason and "did you mean 'http'?" in reason
        assert server.refused(
            models=both, server={"workers": 3, "cpus": [0]}, admin={"listen": f"127.0.0.1:{port}"}
        ) == [
            "server.workers: a change needs a restart",
            "server.cpus: a change needs a restart",
            "admin.listen: a change needs a restart",
        ]
        server.path.write_text("listeners: [")
        assert server.post().status_code == 422
        server.path.write_text(json.dumps(config()))
        assert infer(address, "one").status_code == 200
        assert infer(address, "two").status_code == 404

        def refusals() -> list[str]:
            return [line["reason"] for line in server.daemon.log if line["event"] == "reload refused"]

        eventually(lambda: len(refusals()) == 5)
        assert "Address already in use" in refusals()[0]


def test_listeners_keep_their_sockets_and_connections(tmp_path: Path) -> None:
    second, third = ({**HTTP, "listen": f"127.0.0.1:{free_port()}"} for _ in range(2))
    grpc = {"listen": f"127.0.0.1:{free_port()}", "transport": "grpc"}
    with reloaded(tmp_path, config(listeners=[HTTP, second, grpc])) as server:
        first = http.client.HTTPConnection(server.daemon.addresses[0], timeout=WAIT_SECS)
        gone = http.client.HTTPConnection(second["listen"], timeout=WAIT_SECS)

        def ready(connection: http.client.HTTPConnection) -> tuple[int, str]:
            connection.request("GET", "/v2/health/ready")
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.getheader("connection", "")

        assert ready(first) == ready(gone) == (200, "")
        sockets = first.sock, gone.sock
        limited, closed = {**HTTP, "allow": {"metadata": ["10.0.0.0/8"]}}, {**grpc, "max_elements": 300_000}
        assert server.reload(listeners=[third, limited, closed]) == {
            "listeners": {
                "added": [third["listen"]],
                "removed": [second["listen"]],
                "changed": {HTTP["listen"]: ["allow"], grpc["listen"]: ["max_elements"]},
            }
        }
        # the same connection, and another rule
        assert ready(first) == (200, "")
        assert first.sock is sockets[0]
        first.request("GET", "/v2/models/one")
        answer = first.getresponse()
        assert (answer.status, answer.read() != b"") == (403, True)
        assert infer(third["listen"], "one").status_code == 200
        # another name of the same address: the same socket
        renamed = {**third, "listen": third["listen"].replace("127.0.0.1", "127.1")}
        assert server.reload(listeners=[renamed, limited, closed]) == {
            "listeners": {"added": [], "removed": [], "changed": {renamed["listen"]: ["listen"]}}
        }
        assert infer(third["listen"], "one").status_code == 200
        # the socket of a changed listener takes connections all the time
        with triton_grpc.InferenceServerClient(grpc["listen"]) as client:
            given = triton_grpc.InferInput("x", [1, 2], "FP32")
            given.set_data_from_numpy(np.ones((1, 2), np.float32))
            assert (client.infer("one", [given]).as_numpy("y") == 1).all()
        eventually(lambda: not listens(second["listen"]))
        first.close()
        gone.close()
        report = requests.get(f"{server.daemon.admin}/server", timeout=WAIT_SECS).json()
        assert [each["address"] for each in report["listeners"]] == [
            third["listen"],
            server.daemon.addresses[0],
            grpc["listen"],
        ]


def listens(address: str) -> bool:
    try:
        socket.create_connection(parse(address)).close()
    except ConnectionRefusedError:
        return False
    return True


def test_upstreams_and_routes_stay_with_their_counts(tmp_path: Path) -> None:
    folder = tmp_path / "behind"
    folder.mkdir()
    with reloaded(folder, config()) as behind:
        servers = {"dialect": "oip", "transport": "http", "urls": [behind.daemon.addresses[0]]}
        far = {"upstream": "behind", "remote_model": "one"}
        sections = {
            "models": {"far": far, "one": LOCAL},
            "upstreams": {"behind": servers},
            "routes": [{"match": {"model": "a*"}, "to": "far"}],
        }
        with reloaded(tmp_path, config(**sections)) as server:
            (address,) = server.daemon.addresses
            assert infer(address, "any").status_code == 200
            more = {**sections["models"], "further": {**far, "upstream": "other"}}
            found = server.reload(
                models=more,
                upstreams={"behind": servers, "other": servers},
                routes=[{"match": {"model": "b*"}, "to": "one"}, *sections["routes"]],
                server={"max_inflight_requests": 100},
            )
            assert found == {
                "models": {"added": ["further"], "removed": [], "changed": {}},
                "upstreams": {"added": ["other"], "removed": [], "changed": {}},
                "routes": {"added": ["model=b*"], "removed": [], "changed": {}},
                "options": {"added": [], "removed": [], "changed": {"server.max_inflight_requests": []}},
            }
            assert infer(address, "any").status_code == infer(address, "further").status_code == 200
            report = requests.get(f"{server.daemon.admin}/routes", timeout=WAIT_SECS).json()
            assert [(each["match"], each["requests"]) for each in report] == [
                ({"model": "b*"}, 0),
                ({"model": "a*"}, 2),
            ]
            upstreams = requests.get(f"{server.daemon.admin}/upstreams", timeout=WAIT_SECS).json()
            (member,) = upstreams["behind"]["servers"]
            assert member["requests"] >= 2  # nobody has begun to count again
            assert server.reload(models={"one": LOCAL}, upstreams=None, routes=None)["upstreams"] == {
                "added": [],
                "removed": ["behind", "other"],
                "changed": {},
            }
            assert infer(address, "far").status_code == 404


def test_requests_in_flight_end_as_they_began(tmp_path: Path) -> None:
    slow = {"backend": "onnxruntime", "path": str(slow_model(tmp_path)), "instances": 2}
    second = {**HTTP, "listen": f"127.0.0.1:{free_port()}"}
    with reloaded(tmp_path, config(models={"slow": slow, "one": LOCAL}, listeners=[HTTP, second])) as server:
        body = {"inputs": [{"name": "TURNS", "datatype": "INT64", "shape": [], "data": [1_500_000]}]}

        def count(address: str) -> requests.Response:
            return requests.post(f"http://{address}/v2/models/slow/infer", json=body, timeout=WAIT_SECS)

        with ThreadPoolExecutor() as pool:
            running = [pool.submit(count, each) for each in (server.daemon.addresses[0], second["listen"])]
            server.daemon.until_in_flight(2)
            found = server.reload(models={"one": LOCAL}, listeners=[HTTP])
            assert (found["models"]["removed"], found["listeners"]["removed"]) == (
                ["slow"],
                [second["listen"]],
            )
            assert not any(each.done() for each in running)
            assert count(server.daemon.addresses[0]).status_code == 404
            assert [each.result().status_code for each in running] == [200, 200]


def test_files_of_repositories_decide(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    for name in ("plain", "fleeting"):
        write_model(repository, name, 1)
    given = [{"path": str(repository), "control": "explicit", "load": ["plain"]}]
    fixed = tmp_path / "fixed"
    write_model(fixed, "batched", 1)
    sections = config(model_repository=[*given, {"path": str(fixed)}], models=None)
    with reloaded(tmp_path, {key: each for key, each in sections.items() if each}) as server:
        (address,) = server.daemon.addresses
        load = f"http://{address}/v2/repository/models/fleeting/load"
        assert requests.post(load, timeout=WAIT_SECS).status_code == 200
        assert server.reload() == {}
        # what a client has loaded stays, and changed files of others are loaded
        write_model(fixed, "batched", -1)
        write_model(repository, "plain", -1)
        assert server.reload()["models"] == {"added": [], "removed": [], "changed": {"batched": ["files"]}}
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}

        def y(name: str) -> list[float]:
            url = f"http://{address}/v2/models/{name}/infer"
            data: list[float] = requests.post(url, json=body, timeout=WAIT_SECS).json()["outputs"][0]["data"]
            return data

        assert (y("batched"), y("plain"), y("fleeting")) == ([-1, -2, -3], [1, 2, 3], [1, 2, 3])
        shutil.rmtree(fixed / "batched")
        assert server.reload(model_repository=[{"path": str(fixed)}])["models"]["removed"] == [
            "batched",
            "fleeting",
            "plain",
        ]


def test_the_command_finds_the_daemon(tmp_path: Path) -> None:
    port, authority = free_port(), Authority(tmp_path / "ca")
    issued = authority.issue("localhost", "127.0.0.1")
    tls = {"cert": issued.cert, "key": issued.key}
    with reloaded(tmp_path, config(admin={"listen": f"127.0.0.1:{port}", "tls": tls})) as server:
        server.write(models={"one": LOCAL, "two": LOCAL}, server={"name": "renamed"})
        done = server.command("-c", str(server.path))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "reloaded\nmodels: added two\noptions: changed server.name\n"
        url = f"https://127.0.0.1:{port}"
        trusting = ("--admin", url, "--ca", authority.ca)
        assert server.command(*trusting).stdout == "reloaded; nothing has changed\n"
        server.write(models={"one": {"backend": "identiti"}})
        done = server.command(*trusting, "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["reloaded"] is False
        done = server.command(*trusting)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("refused; everything is as it was\n")
        assert "did you mean 'identity'?" in done.stderr
    done = server.command("--admin", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no answer from the admin address" in done.stderr


def test_a_hangup_reloads(tmp_path: Path) -> None:
    with reloaded(tmp_path, config(admin={"listen": f"unix:{tmp_path}/admin.sock"})) as server:
        (address,) = server.daemon.addresses
        server.write(models={"two": LOCAL})
        server.daemon.process.send_signal(signal.SIGHUP)
        assert server.daemon.until("configuration reloaded")["models"] == "added two, removed one"
        assert infer(address, "two").status_code == 200
        assert infer(address, "one").status_code == 404
        done = server.command("-c", str(server.path))
        assert (done.returncode, done.stdout) == (0, "reloaded; nothing has changed\n")


def test_only_permitted_callers_reload(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    with reloaded(tmp_path, config(server={"audit_log": str(audit)})) as server:
        assert server.post().status_code == 200
        refused = server.post(Origin="https://elsewhere.example")
        assert (refused.status_code, "other sites" in refused.text) == (403, True)
        assert requests.get(f"{server.daemon.admin}/reload", timeout=WAIT_SECS).status_code == 405
        rebound = server.post(Host="elsewhere.example")
        assert rebound.status_code == 421
        server.refused(listeners=[])
    records = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(each["operation"], each["class"], each["result"], each["caller"]) for each in records] == [
        ("reload", "control", "allowed", "127.0.0.1"),
        ("reload", "control", "refused", "127.0.0.1"),
        ("reload", "control", "failed", "127.0.0.1"),
    ]


def test_processes_start_again_by_the_new_file(tmp_path: Path) -> None:
    second = {**HTTP, "listen": f"127.0.0.1:{free_port()}", "max_connections_per_address": 3}
    with reloaded(tmp_path, config(server={"workers": 1}, listeners=[HTTP])) as server:
        assert infer(server.daemon.addresses[0], "one").status_code == 200
        assert server.refused(listeners=[{**HTTP, "transport": "grpc", "engine": "library"}]) != []
        server.reload(models={"two": LOCAL}, listeners=[second, HTTP])
        for role in ("runtime", "front end 0"):
            processes = requests.get(f"{server.daemon.admin}/processes", timeout=WAIT_SECS).json()
            os.kill(processes[role]["pid"], signal.SIGKILL)
            eventually(
                lambda: answers(second["listen"], "two") and answers(server.daemon.addresses[0], "two")
            )
        assert infer(second["listen"], "one").status_code == 404
        kept = [socket.create_connection(parse(second["listen"])) for _ in range(3)]
        with pytest.raises(requests.ConnectionError):
            infer(second["listen"], "two")
        for each in kept:
            each.close()


def parse(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def answers(address: str, model: str) -> bool:
    try:
        return infer(address, model).status_code == 200
    except requests.ConnectionError:
        return False


def test_taps_and_mirrors_are_replaced(tmp_path: Path) -> None:
    mirrored = {"match": {"model": "one"}, "to": "one", "mirror": {"to": "two"}}
    both = {"one": LOCAL, "two": LOCAL}
    with reloaded(tmp_path, config(models=both)) as server:
        (address,) = server.daemon.addresses
        tap = {"path": str(tmp_path / "tap.rec")}
        found = server.reload(routes=[mirrored], tap=tap)
        assert found["mirrors"]["added"] == ["model=one to two"]
        assert found["tap"]["added"] == [tap["path"]]
        assert infer(address, "one").status_code == 200

        def compared(server: Reloaded) -> int:
            report = requests.get(f"{server.daemon.admin}/mirror", timeout=WAIT_SECS).json()
            count: int = report["mirrors"][0]["compared"]
            return count

        eventually(lambda: compared(server) == 1)
        assert server.reload(models={**both, "three": LOCAL}).keys() == {"models"}
        assert compared(server) == 1
        assert server.reload(routes=None, tap=None).keys() == {"routes", "mirrors", "tap"}
        server.daemon.until("tap closed")
        assert (tmp_path / "tap.rec").stat().st_size > 0
        assert infer(address, "one").status_code == 200
