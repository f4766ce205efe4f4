"""A new daemon takes the sockets of a running one over: nothing is lost, and one that fails changes nothing."""

from __future__ import annotations

import http.client
import json
import mmap
import os
import socket
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests

from interlingua.translator.recording.files import RecordingReader
from tests.chaos import handovers
from tests.e2e.daemon import ROOT, WAIT_SECS, Daemon
from tests.e2e.test_sequences import write_sum
from tests.ports import free_port
from tests.waiting import eventually

SPEC = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
ECHO = {
    "backend": "identity",
    "signature": {"inputs": SPEC, "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}]},
}
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.5]}]})


def config(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "server": {"handover_socket": str(folder / "handover.sock"), "drain_secs": 0.2},
        "listeners": [
            {"listen": "127.0.0.1:0", "transport": "http"},
            {"listen": f"unix:{folder}/http.sock", "transport": "http"},
            {"listen": "127.0.0.1:0", "transport": "grpc"},
        ],
        "admin": {"listen": "127.0.0.1:0"},
        "models": {"echo": ECHO},
        "tap": {"path": str(folder / "tap")},
        **more,
    }


SERVING = b"\x08\x01"
"""A HealthCheckResponse."""


class UnixConnection(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def infer(address: str) -> float:
    """The answer of ``echo``, over a new connection."""
    if address.startswith("unix:"):
        connection: http.client.HTTPConnection = UnixConnection(address[5:], timeout=WAIT_SECS)
    else:
        connection = http.client.HTTPConnection(address, timeout=WAIT_SECS)
    try:
        connection.request("POST", "/v2/models/echo/infer", BODY, {"host": "localhost"})
        found: float = json.load(connection.getresponse())["outputs"][0]["data"][0]
        return found
    finally:
        connection.close()


def readiness(daemon: Daemon) -> int:
    connection = http.client.HTTPConnection(daemon.admin.removeprefix("http://"), timeout=WAIT_SECS)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon.start(tmp_path, config(tmp_path))
    try:
        yield daemon
    finally:
        daemon.kill()


@pytest.mark.timeout(200)
async def test_no_request_is_lost(tmp_path: Path) -> None:
    """From several processes to one; ``python -m tests.chaos.handovers`` has all combinations, ten times."""
    result = await handovers.run(tmp_path, (2, 0), pause_secs=0.1)
    assert result.violations == []
    assert result.probes["200"] > 10
    assert all(counts["ok"] > 10 for counts in result.outcomes.values())


def test_a_successor_that_fails_changes_nothing(old: Daemon, tmp_path: Path) -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        used = [*config(tmp_path)["listeners"], {"listen": f"127.0.0.1:{taken}", "transport": "grpc"}]
        failing = [
            (config(tmp_path, listeners=used), f"127.0.0.1:{taken}"),
            (config(tmp_path, models={"echo": ECHO, "broken": _broken(tmp_path)}), "broken"),
        ]
        for each, reason in failing:
            new = Daemon.begin(tmp_path, each, "--take-over")
            try:
                assert reason in str(new.until("startup failed")["reason"])
                assert new.process.wait(WAIT_SECS) == 1
            finally:
                new.kill()
            old.until("hand-over failed")
            old.log[:] = [line for line in old.log if line["event"] != "hand-over failed"]
            assert [infer(address) for address in old.addresses[:2]] == [1.5, 1.5]
            assert readiness(old) == 200
    new = Daemon.begin(tmp_path, config(tmp_path), "--take-over")
    try:
        eventually(lambda: [line["event"] for line in old.log].count("hand-over began") == 3)
        new.process.kill()
        old.until("hand-over failed")
        assert [infer(address) for address in old.addresses[:2]] == [1.5, 1.5]
    finally:
        new.kill()
    assert old.stop() == 0
    assert list(tmp_path.glob("*.sock")) == []


def _broken(folder: Path) -> dict[str, Any]:
    (folder / "broken.onnx").write_bytes(b"this is no model")
    return {"backend": "onnxruntime", "path": str(folder / "broken.onnx")}


def test_what_clients_have_changed_moves(tmp_path: Path) -> None:
    """From one process to several, and back."""
    memory = Path(f"/dev/shm/interlingua_takeover_{os.getpid()}")
    memory.write_bytes(bytes(2 * mmap.PAGESIZE))
    models = {"path": str(ROOT / "examples" / "models"), "control": "explicit", "load": ["simple"]}
    write_sum(tmp_path / "models", "direct")
    of = partial(config, tmp_path, model_repository=[models, {"path": str(tmp_path / "models")}])
    region = {"key": f"/{memory.name}", "byte_size": 32, "offset": mmap.PAGESIZE}
    first = Daemon.start(tmp_path, of(server={**of()["server"], "workers": 0}))
    daemons = [first]
    http = first.addresses[0]

    def call(path: str, body: Any = None, method: str = "POST") -> Any:
        reply = requests.request(method, f"http://{http}/{path}", json=body, timeout=WAIT_SECS)
        assert reply.status_code == 200, (path, reply.text)
        return reply

    def added(number: int, start: bool = False) -> Any:
        """The answer of the sequence, which has no other client."""
        one = {"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [number]}
        body = {"inputs": [one], "parameters": {"sequence_id": 7, "sequence_start": start}}
        reply = requests.post(f"http://{http}/v2/models/direct/infer", json=body, timeout=WAIT_SECS)
        return reply.json()["outputs"][0]["data"][0] if reply.ok else (reply.status_code, reply.text)

    def state() -> tuple[Any, ...]:
        regions = call("v2/systemsharedmemory/status", method="GET").json()
        ready = [
            requests.get(f"http://{http}/v2/models/{name}/ready").ok for name in ("simple", "identity_fp32")
        ]
        return (
            regions,
            requests.get(f"http://{http}/grps/v1/health/ready", timeout=WAIT_SECS).status_code,
            ready,
        )

    try:
        call("v2/systemsharedmemory/region/mine/register", region)
        call("v2/repository/models/identity_fp32/load")
        call("v2/repository/models/simple/unload")
        call("grps/v1/health/offline", method="GET")
        before = state()
        assert before[0][0]["name"] == "mine" and before[1] != 200 and before[2] == [False, True]
        assert (added(1, start=True), added(2)) == (1, 3)
        for workers in (2, 0):
            new = Daemon.begin(tmp_path, of(server={**of()["server"], "workers": workers}), "--take-over")
            daemons.append(new)
            new.until("took over")
            assert daemons[-2].process.wait(WAIT_SECS) == 0
            assert state() == before
            # the sum was in the memory of the old process: no answer is better than a wrong one
            status, text = added(4)
            assert status == 400 and "must specify the START flag" in text
            assert (added(1, start=True), added(2)) == (1, 3)
        assert daemons[-1].stop() == 0
    finally:
        memory.unlink()
        for each in daemons:
            each.kill()


def test_other_addresses_change_with_it(old: Daemon, tmp_path: Path) -> None:
    """A listener that the successor lacks ends; a new one opens; the file of an inherited one stays. Both processes
    record in one file."""
    listeners = [{"listen": f"unix:{tmp_path}/http.sock", "transport": "http"}]
    listeners.append({"listen": f"unix:{tmp_path}/other.sock", "transport": "http"})
    infer(old.addresses[0])
    channel = grpc.insecure_channel(old.addresses[2])
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
    assert next(watch) == SERVING
    new = Daemon.begin(tmp_path, config(tmp_path, listeners=listeners), "--take-over")
    try:
        new.until("took over")
        assert list(watch) == [], "it ends, and has never reported anything else"
        channel.close()
        assert old.process.wait(WAIT_SECS) == 0
        assert not [line for line in old.log if line["event"] == "requests cut at shutdown"]
        assert [infer(f"unix:{tmp_path}/{name}.sock") for name in ("http", "other")] == [1.5, 1.5]
        with pytest.raises(ConnectionRefusedError):
            infer(old.addresses[0])
        mode = (tmp_path / "handover.sock").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
        assert new.stop() == 0
    finally:
        new.kill()
    assert list(tmp_path.glob("*.sock")) == []
    assert [path.name for path in tmp_path.glob("tap*")] == ["tap"]
    recorded = RecordingReader(tmp_path / "tap")
    assert len(list(recorded)) == 3 and recorded.damage == ""


def test_a_daemon_that_does_not_run(tmp_path: Path) -> None:
    new = Daemon.begin(tmp_path, config(tmp_path), "--take-over")
    try:
        assert str(tmp_path / "handover.sock") in new.until("startup failed")["reason"]
        assert new.process.wait(WAIT_SECS) == 1
    finally:
        new.kill()
