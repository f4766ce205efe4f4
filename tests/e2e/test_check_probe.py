"""What ``check --probe`` says of real servers: ours in every dialect, and others that are wrong."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlingua.protocols.registry import DIALECTS
from interlingua.translator.cli import main
from tests.e2e.daemon import ROOT, Daemon

KINDS = [(name, over) for name, dialect in DIALECTS.items() for over in sorted(dialect.bindings)]
NAMES = {name: dialect.manifest.title or name for name, dialect in DIALECTS.items()}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], str]]:
    """The address of a server that speaks one dialect over one transport alone, and has the model
    ``simple``."""
    folder = tmp_path_factory.mktemp("servers")
    models = folder / "models"
    models.mkdir()
    for name in ("simple", "identity_fp32", "digits"):
        (models / name).symlink_to(ROOT / "examples" / "models" / name)
    daemon = Daemon.start(
        folder,
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": over, "dialects": [name]} for name, over in KINDS
            ],
            "default_model": "simple",
            "model_repository": [
                {"path": str(models), "load": ["simple", "identity_fp32"], "control": "explicit"}
            ],
        },
    )
    try:
        yield dict(zip(KINDS, daemon.addresses, strict=True))
        assert daemon.stop() == 0
    finally:
        daemon.kill()


class Checked:
    """A configuration with one upstream, and what a probe says of it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._path = folder / "c.yaml"
        self._capsys = capsys

    def __call__(
        self, dialect: str, transport: str, url: str, models: dict[str, Any] | None = None, code: int = 1
    ) -> list[str]:
        """The problems, each as it stands on its line behind the name of the file."""
        document = {
            "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
            "upstreams": {"there": {"dialect": dialect, "transport": transport, "urls": [url]}},
            "models": {name: {"upstream": "there", **model} for name, model in (models or {}).items()},
        }
        self._path.write_text(yaml.safe_dump(document, sort_keys=False))
        asked = ["check", "-c", str(self._path), "--probe", "--timeout-secs", "5"]
        assert main(asked) == code, self._capsys.readouterr()
        told = self._capsys.readouterr()
        assert "servers (1):" in told.out
        assert main([*asked, "--json"]) == code
        [server] = json.loads(self._capsys.readouterr().out)["servers"]
        lines = [f"{each['line']}: {each['key']}: {each['text']}" for each in server["problems"]]
        assert told.err.splitlines() == [f"{self._path}:{line}" for line in lines]
        return lines


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    return Checked(tmp_path, capsys)


@pytest.mark.parametrize("kind", KINDS, ids="/".join)
def test_a_server_that_is_what_is_stated(
    checked: Checked, servers: dict[tuple[str, str], str], kind: tuple[str, str]
) -> None:
    assert checked(*kind, servers[kind], {"simple": {}}, code=0) == []


@pytest.mark.parametrize("declared", KINDS, ids="/".join)
@pytest.mark.parametrize("real", KINDS, ids="/".join)
def test_a_server_that_speaks_something_else(
    checked: Checked, servers: dict[tuple[str, str], str], real: tuple[str, str], declared: tuple[str, str]
) -> None:
    if real == declared:
        return
    [problem] = checked(*declared, servers[real])
    spoken = f"{servers[real]} answers {NAMES[real[0]]} over {real[1]}; not {NAMES[declared[0]]} over {declared[1]}"
    assert problem.endswith(spoken)
    if real[1] == declared[1]:
        assert ": upstreams.there.dialect: " in problem
    elif real[0] == declared[0]:
        assert ": upstreams.there.transport: " in problem


def test_no_server_is_there(checked: Checked, unused_tcp_port: int, tmp_path: Path) -> None:
    url = f"127.0.0.1:{unused_tcp_port}"
    assert checked("oip", "grpc", url) == [
        f"9: upstreams.there.urls[0]: {url} cannot be reached: Connection refused"
    ]
    [problem] = checked("oip", "http", f"unix:{tmp_path}/none.sock")
    assert problem.endswith("none.sock cannot be reached: No such file or directory")


def test_a_server_that_says_nothing_of_the_kind(checked: Checked) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def answer() -> None:
            listening.settimeout(0.1)
            while not stop.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                with connection:
                    # what is not read would end the connection before it is answered
                    connection.settimeout(0.2)
                    with contextlib.suppress(OSError):
                        connection.recv(1 << 16)
                    connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            [problem] = checked("oip", "http", f"127.0.0.1:{listening.getsockname()[1]}")
        finally:
            stop.set()
            thread.join()
    assert "does not answer OIP v2 over http" in problem
    assert "nor any other known dialect" in problem


@pytest.mark.parametrize(
    "kind", [("oip", "http"), ("oip", "grpc"), ("trtis", "http"), ("trtis", "grpc")], ids="/".join
)
def test_a_model_that_is_not_there(
    checked: Checked, servers: dict[tuple[str, str], str], kind: tuple[str, str]
) -> None:
    [problem] = checked(*kind, servers[kind], {"resnet": {}})
    # version 1 lists what it knows, loaded or not
    names = "identity_fp32, simple" if kind[0] == "oip" else "digits, identity_fp32, simple"
    assert f": models.resnet.upstream: the server has no model 'resnet' (there are: {names})" in problem
    [problem] = checked(*kind, servers[kind], {"simple": {"remote_model": "simpel"}})
    assert ": models.simple.remote_model: the server has no model 'simpel'; is 'simple' meant?" in problem
    [problem] = checked(*kind, servers[kind], {"digits": {}})
    assert ": models.digits.upstream: the server " in problem
    assert (f"has not loaded model 'digits' (at {servers[kind]})" in problem) == (kind[0] == "oip")


@pytest.mark.parametrize("kind", [("oip", "grpc"), ("trtis", "http"), ("graphpipe", "http")], ids="/".join)
def test_a_signature_that_is_another(
    checked: Checked, servers: dict[tuple[str, str], str], kind: tuple[str, str]
) -> None:
    signature = {
        "inputs": [
            {"name": "INPUT0", "datatype": "FP32", "shape": [-1, 16]},
            {"name": "B", "datatype": "INT32", "shape": [-1, 8]},
        ],
        "outputs": [{"name": "SUM", "datatype": "INT32", "shape": [-1, 16]}],
    }
    model = {"signature": signature, "inputs": {"B": "INPUT1"}, "outputs": {"SUM": "OUTPUT9"}}
    problems = checked(*kind, servers[kind], {"simple": model})
    where = f" (at {servers[kind]})"
    assert sorted(problem.partition(": ")[2] for problem in problems) == [
        "models.simple.outputs.SUM: the server's model has no output 'OUTPUT9' (there are: OUTPUT0, OUTPUT1)"
        + where,
        "models.simple.signature.inputs[0].datatype: is FP32, the server reports INT32" + where,
        "models.simple.signature.inputs[1].shape: is [-1, 8], the server reports [-1, 16]" + where,
    ]


def test_a_server_that_is_not_ready(checked: Checked, tmp_path: Path) -> None:
    broken = tmp_path / "models" / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"nothing")
    daemon = Daemon.start(
        tmp_path,
        {
            "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
            "model_repository": [{"path": str(tmp_path / "models")}],
        },
    )
    try:
        problems = checked("oip", "http", daemon.addresses[0], {"broken": {}})
    finally:
        daemon.kill()
    assert any("is not ready" in problem for problem in problems)
    assert any(": models.broken.upstream: " in problem for problem in problems)


def test_json_without_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-c", str(tmp_path / "c.yaml"), "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["errors"]
    assert problem["text"] == "cannot be read: No such file or directory"
