"""With ``log_format: json`` every line that a server prints is a JSON object, from each process and library."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.e2e.daemon import ROOT, START_SECS, STOP_SECS
from tests.runtime.python_models import INT32, python_model
from tests.waiting import eventually

NOISY = """
def initialize(self, args):
    import os, sys
    print("a line\\nand \\x1b[31manother")
    print("not an object: {", file=sys.stderr)
    os.write(2, b"half a line, https://ann:s3cr3t@host/ ")

def execute(self, requests):
    import os
    number = int(given(requests[0])[0])
    os.write(1, b"x" * 5000 + bytes([10]) + b'{"printed": "as an object"}' + bytes([10]))
    if number < 0:
        os.write(2, b"dying\\n")
        os.kill(os.getpid(), 9)
    return [answer(given(request)) for request in requests]
"""


class Printed:
    """A server with its standard output and standard error in files, which it may outlive."""

    def __init__(self, folder: Path, config: str, *arguments: str) -> None:
        (folder / "config.yaml").write_text(config)
        number = len(list(folder.glob("stdout*")))
        self.paths = folder / f"stdout{number}", folder / f"stderr{number}"
        with self.paths[0].open("wb") as out, self.paths[1].open("wb") as err:
            command = [sys.executable, "-m", "interlingua", "serve", "-c", str(folder / "config.yaml")]
            command += arguments
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err)

    def lines(self, stream: int = 1) -> list[dict[str, Any]]:
        """The complete lines of a stream: 0 is standard output. Each has to be an object."""
        found = [json.loads(line) for line in self.paths[stream].read_bytes().split(b"\n")[:-1]]
        assert all(isinstance(each, dict) for each in found)
        return found

    def until(self, number: int = 1, /, **fields: Any) -> dict[str, Any]:
        """Wait for a line with ``fields``."""
        deadline = time.monotonic() + START_SECS
        while True:
            for line in self.lines(number):
                if fields.items() <= line.items():
                    return line
            assert time.monotonic() < deadline, (fields, self.lines(0), self.lines(1))
            time.sleep(0.02)

    def ended(self) -> int:
        code = self.process.wait(STOP_SECS)
        for path in self.paths:
            assert path.read_bytes()[-1:] in (b"", b"\n")
        return code


def config(folder: Path, **server: Any) -> dict[str, Any]:
    python_model(folder / "models", NOISY, INT32, "noisy")
    return {
        "server": {"log_format": "json", "drain_secs": 0.0, "access_log": "all", **server},
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0"},
        "model_repository": [{"path": str(folder / "models")}],
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_a_server_that_serves_fails_and_stops(workers: int, tmp_path: Path) -> None:
    server = Printed(tmp_path, yaml.safe_dump(config(tmp_path, workers=workers)))
    try:
        address = server.until(event="listening")["address"]
        server.until(event="serving")
        assert server.until(0, event="output", text="a line")["stream"] == "stdout"
        server.until(0, text="and \x1b[31manother")
        server.until(text="not an object: {", stream="stderr")

        def infer(model: str, number: int) -> int:
            inputs = [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [number]}]
            url = f"http://{address}/v2/models/{model}/infer"
            return requests.post(url, json={"inputs": inputs}, timeout=START_SECS).status_code

        assert infer("noisy", 1) == 200
        assert infer("absent", 1) == 404
        assert infer("noisy", -1) >= 500
        server.until(event="request", code="OK", model="noisy")
        server.until(event="request", code="NOT_FOUND", model="absent")
        failed = server.until(event="request", model="noisy", level="error")
        assert failed["status"] >= 500
        assert ("role" in failed) is bool(workers)
        # a front end may log in the middle of the line, and then it is cut there
        eventually(lambda: any(each.get("text", "").endswith("dying") for each in server.lines()))
        texts = [each.get("text", "") for each in server.lines()]
        assert any(each.startswith("half a line, https://[redacted]@host/") for each in texts)
        server.until(0, printed="as an object")
        long = [each["text"] for each in server.lines(0) if each.get("text", "").startswith("xxx")]
        assert sum(map(len, long)) >= 5000
        admin = server.until(event="admin listening")["address"]
        for level, status in (("debug", 200), ("warning", 200), ("loud", 400), ("", 400)):
            answer = requests.post(f"http://{admin}/logging?level={level}", timeout=START_SECS)
            assert answer.status_code == status, answer.text
        audited = server.until(event="privileged operation", result="allowed")
        assert (audited["operation"], audited["class"]) == ("logging", "logging")
        count = len([each for each in server.lines() if each["event"] == "request"])
        assert infer("noisy", 2) in (200, 503)
        eventually(lambda: len([each for each in server.lines() if each["event"] == "request"]) > count)
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
    finally:
        server.process.kill()
        server.process.wait()
    # the level hides what is of no interest, in all processes
    assert not {"stopping", "stopped"} & {each["event"] for each in server.lines()}
    assert "s3cr3t" not in "".join(path.read_text() for path in server.paths)


def infer(address: str, number: int) -> int:
    """The status of a request to the noisy model, which dies of a negative ``number``."""
    inputs = [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [number]}]
    url = f"http://{address}/v2/models/noisy/infer"
    return requests.post(url, json={"inputs": inputs}, timeout=START_SECS).status_code


def test_a_server_that_reloads_and_is_replaced(tmp_path: Path) -> None:
    """A reload, one that is refused, a model that dies, and a successor that takes over."""
    stated = config(tmp_path, handover_socket=str(tmp_path / "handover.sock"))
    server = Printed(tmp_path, yaml.safe_dump(stated))
    servers = [server]
    try:
        address = server.until(event="listening")["address"]
        server.until(event="serving")
        admin = server.until(event="admin listening")["address"]
        for change, status in (({"default_model": "noisy"}, 200), ({"defualt_model": "noisy"}, 422)):
            (tmp_path / "config.yaml").write_text(yaml.safe_dump({**stated, **change}))
            assert requests.post(f"http://{admin}/reload", timeout=START_SECS).status_code == status
        assert "default_model" in str(server.until(event="reload refused"))
        server.until(event="configuration reloaded")
        assert infer(address, 1) == 200
        assert infer(address, -1) >= 500
        successor = Printed(tmp_path, yaml.safe_dump(stated), "--take-over")
        servers.append(successor)
        successor.until(event="serving")
        assert server.ended() == 0
        server.until(event="handed over")
        assert infer(address, 1) == 200
        successor.process.send_signal(signal.SIGTERM)
        assert successor.ended() == 0
    finally:
        for each in servers:
            each.process.kill()
            each.process.wait()
    for each in servers:
        assert each.lines()
        assert "a line" in [line.get("text") for line in each.lines(0)]


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("server: {log_format: json, log_levl: info}\nlisteners: []", 2, "log_levl"),
        ('server:\n  "log_format": "json"\n: : [', 2, "config.yaml:"),
        (
            "server: {log_format: json}\nlisteners: [{listen: '127.0.0.1:TAKEN', transport: http}]",
            1,
            "in use",
        ),
    ],
    ids=["key", "yaml", "address"],
)
def test_a_server_that_cannot_start(text: str, code: int, reason: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = Printed(tmp_path, text.replace("TAKEN", str(taken.getsockname()[1])))
        assert server.ended() == code
    assert any(reason in each["reason"] for each in server.lines() if "reason" in each), server.lines()
    assert not server.lines(0)


CRASH = """
import os, sys, threading, warnings
from interlingua.translator.logs.capture import json_output
with json_output():
    warnings.warn("odd")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start(); thread.join()
    class Odd:
        def __del__(self): raise KeyError("k")
    Odd()
    os.system("echo from a shell")
    print("last words without an end", end="")
    if sys.argv[1] == "abort":
        sys.stdout.flush()
        os.abort()
raise RuntimeError("at the end")
"""


@pytest.mark.parametrize("end", ["raise", "abort"])
def test_what_python_itself_prints(end: str, tmp_path: Path) -> None:
    program = subprocess.run(
        [sys.executable, "-c", CRASH, end], cwd=ROOT, capture_output=True, timeout=START_SECS, check=False
    )
    out = [json.loads(line) for line in program.stdout.splitlines()]
    assert [each["text"] for each in out] == ["from a shell", "last words without an end"]
    errors = program.stderr.splitlines()
    # a fatal signal ends with the traceback of faulthandler, as text
    cut = next(
        (number for number, line in enumerate(errors) if line.startswith(b"Fatal Python error")), len(errors)
    )
    assert (cut < len(errors)) is (end == "abort")
    found = [json.loads(line) for line in errors[:cut]]
    assert any("odd" in each["event"] for each in found)
    assert any("ZeroDivisionError" in each.get("exception", "") for each in found)
    assert any("KeyError" in each.get("exception", "") for each in found)
    if end == "raise":
        assert found[-1]["event"] == "unexpected error" and "at the end" in found[-1]["exception"]
        assert program.returncode == 1
    else:
        assert program.returncode == -signal.SIGABRT or os.WTERMSIG(program.returncode)
