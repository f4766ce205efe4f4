"""The form of the dashboard: a request in every dialect, and the same request from other programs."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from interlingua.protocols.registry import DIALECTS
from interlingua.translator.cli import main
from tests.certificates import Authority
from tests.e2e.daemon import ROOT, Daemon

SIGNATURE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
LABELS = {
    "inputs": [{"name": "x", "datatype": "UINT64", "shape": [-1]}],
    "outputs": [{"name": "y", "datatype": "UINT64", "shape": [-1]}],
}
SECRET = "open sesame"
TRANSPORTS = ("http", "grpc", "brpc", "tcp")
SPOKEN = [
    (name, transport)
    for name, dialect in DIALECTS.items()
    for transport in TRANSPORTS
    if transport in dialect.bindings
]


def spoken(transport: str) -> dict[str, Any]:
    """A listener of every dialect that the transport carries."""
    dialects = [name for name, dialect in DIALECTS.items() if transport in dialect.bindings]
    return {"listen": "127.0.0.1:0", "transport": transport, "dialects": dialects}


def saved(save: Any) -> str:
    save(file := io.BytesIO(), np.zeros((1, 2), np.float32))
    return base64.b64encode(file.getvalue()).decode()


NPZ = saved(np.savez)
HUGE = base64.b64encode(base64.b64decode(saved(np.save)).replace(b"(1, 2)", b"(200000000000000,)")).decode()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    closed = {"listen": "127.0.0.1:0", "transport": "http", "allow": {"inference": ["10.9.8.7/32"]}}
    config = {
        "listeners": [*(spoken(each) for each in TRANSPORTS), closed],
        "admin": {"listen": "127.0.0.1:0"},
        "models": {
            "m": {"backend": "identity", "signature": SIGNATURE},
            "labels": {"backend": "identity", "signature": LABELS},
        },
        "default_model": "m",
    }
    found = Daemon.start(tmp_path_factory.mktemp("form"), config)
    yield found
    assert found.stop() == 0


def place(daemon: Daemon, dialect: str, transport: str) -> dict[str, Any]:
    listener = daemon.addresses[TRANSPORTS.index(transport)]
    return {"listener": listener, "dialect": dialect, "transport": transport, "model": "m"}


def sent(daemon: Daemon, request: dict[str, Any]) -> Any:
    reply = requests.post(f"{daemon.admin}/try", json=request, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize(("dialect", "transport"), SPOKEN)
def test_every_dialect_over_every_transport(daemon: Daemon, dialect: str, transport: str) -> None:
    request = place(daemon, dialect, transport)
    described = sent(daemon, {**request, "describe": True})["signature"]
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    found = sent(daemon, {**request, "inputs": [{"name": "x", "json": [[1, 2.5]]}]})
    (output,) = found["outputs"]
    assert (output["shape"], output["data"], output["elements"]) == ([1, 2], [1.0, 2.5], 2)
    assert found["ms"] > 0


def ran(command: list[str] | str, **more: Any) -> bytes:
    found = subprocess.run(command, capture_output=True, timeout=60, check=False, **{"cwd": ROOT, **more})
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize(("dialect", "transport"), SPOKEN)
def test_the_same_request_from_other_programs(
    daemon: Daemon,
    dialect: str,
    transport: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    request = {**place(daemon, dialect, transport), "inputs": [{"name": "x", "json": [[7, 8]]}]}
    snippets = sent(daemon, request)["snippets"]
    counted = f"{daemon.admin}/server"

    def answered() -> int:
        listener = requests.get(counted, timeout=60).json()["listeners"][TRANSPORTS.index(transport)]
        return int(listener["dialects"][dialect]["codes"].get("OK", 0))

    before = answered()
    if transport == "http":
        assert shutil.which("curl"), "the test needs curl"
        assert ran(snippets["curl"], shell=True)
        assert answered() == before + 1
    else:
        assert snippets["curl"].startswith("# curl does not speak")
    before = answered()
    assert ran([sys.executable, "-c", snippets["python"]])
    assert answered() == before + 1
    (tmp_path / "signature.yaml").write_text(shlex.split(snippets["infer"])[1])
    command = shlex.split(snippets["infer"].splitlines()[-1])
    monkeypatch.chdir(tmp_path)
    assert main(command[1:]) == 0
    assert "[[7. 8.]]" in capsys.readouterr().out


def test_the_command_of_interlingua(daemon: Daemon) -> None:
    request = {**place(daemon, "oip", "http"), "inputs": [{"name": "x", "json": [[7, 8]]}]}
    command = sent(daemon, request)["snippets"]["infer"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert b"[7. 8.]" in ran(command, shell=True, env={**os.environ, "PATH": path})


def test_files_of_numpy_and_raw_pixels(daemon: Daemon) -> None:
    request = place(daemon, "oip", "grpc")
    file = io.BytesIO()
    np.save(file, np.arange(2048, dtype=np.int64).reshape(-1, 2))
    npy = base64.b64encode(file.getvalue()).decode()
    found = sent(daemon, {**request, "inputs": [{"name": "x", "npy": npy}]})
    assert found["outputs"][0]["data"][:3] == [0.0, 1.0, 2.0]
    # the command has its input as a file, in the datatype of the model
    assert "--input x=@x.npy" in found["snippets"]["infer"]
    stored = np.load(io.BytesIO(base64.b64decode(found["snippets"]["arrays"]["x.npy"])))
    assert stored.dtype == np.float32 and stored.shape == (1024, 2) and stored[1, 1] == 3
    # a long message is a file
    assert "request.bin" in found["snippets"]["python"]
    assert len(base64.b64decode(found["snippets"]["file"])) > 2048 * 4
    raw = base64.b64encode(np.array([[3, 4]], np.float32).tobytes()).decode()
    found = sent(daemon, {**request, "inputs": [{"name": "x", "raw": raw, "shape": [1, 2]}]})
    assert found["outputs"][0]["data"] == [3.0, 4.0]


def test_integers_that_a_browser_would_round(daemon: Daemon) -> None:
    request = {**place(daemon, "oip", "grpc"), "model": "labels"}
    text = f"[{2**53 - 1}, {2**53 + 1}, {2**64 - 1}]"
    (output,) = sent(daemon, {**request, "inputs": [{"name": "x", "text": text}]})["outputs"]
    assert output["data"] == [2**53 - 1, str(2**53 + 1), str(2**64 - 1)]


@pytest.mark.parametrize(("dialect", "transport"), SPOKEN)
def test_a_long_input_is_handled_beside_the_loop(daemon: Daemon, dialect: str, transport: str) -> None:
    rows = 1 << 16
    text = f"[{','.join(['[0.5,2]'] * rows)}]"
    found = sent(daemon, {**place(daemon, dialect, transport), "inputs": [{"name": "x", "text": text}]})
    (output,) = found["outputs"]
    assert (output["shape"], output["data"][-2:]) == ([rows, 2], [0.5, 2.0])


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"json": [["a", "b"]]}, "INVALID_TENSOR"),
        ({"json": "@/etc/hostname"}, "INVALID_TENSOR"),
        ({"text": "[[1, 2]"}, "INVALID_TENSOR"),
        ({"text": [[1, 2]]}, "INVALID_TENSOR"),
        ({"npy": "AAAA"}, "INVALID_TENSOR"),
        ({"npy": NPZ}, "INVALID_TENSOR"),
        ({"npy": HUGE}, "INVALID_TENSOR"),
        ({"npy": 3}, "INVALID_TENSOR"),
        ({"raw": "AAAAAAAAAAA=", "shape": [0, 10**15, 10**15]}, "INVALID_TENSOR"),
        ({"raw": "AAAA", "shape": [1, 2]}, "INVALID_TENSOR"),
        ({"json": [[1, 2, 3]]}, "INVALID_TENSOR"),
    ],
)
def test_inputs_that_do_not_fit(daemon: Daemon, given: dict[str, Any], code: str) -> None:
    request = place(daemon, "oip", "http")
    assert sent(daemon, {**request, "inputs": [{"name": "x", **given}]})["error"]["code"] == code


def test_unknown_models_listeners_and_dialects(daemon: Daemon) -> None:
    request = {**place(daemon, "oip", "http"), "inputs": []}
    for wrong in ({"model": "absent"}, {"listener": "127.0.0.1:1"}, {"dialect": "none"}):
        assert sent(daemon, {**request, **wrong})["error"]["code"] == "NOT_FOUND"


def test_the_form_obeys_allow_of_the_listener(daemon: Daemon) -> None:
    request = {**place(daemon, "oip", "http"), "listener": daemon.addresses[4]}
    for more in ({"describe": True}, {"inputs": [{"name": "x", "json": [[1, 2]]}]}):
        assert sent(daemon, {**request, **more})["error"]["code"] == "FORBIDDEN"


def test_other_pages_cannot_send_it(daemon: Daemon) -> None:
    url = f"{daemon.admin}/try"
    assert (
        requests.post(url, data="{}", headers={"content-type": "text/plain"}, timeout=60).status_code == 415
    )
    assert requests.options(url, timeout=60).status_code == 405
    assert requests.post(url, json={"model": "m"}, timeout=60).status_code == 400


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon whose listeners of every transport serve clients with a token alone, and one with a key."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens").write_text(f"trainer: sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}\n")
    (folder / "key").write_text(SECRET)
    allow = {"inference": ["user:*"]}
    listeners = [{**spoken(each), "allow": allow} for each in TRANSPORTS if each != "tcp"]
    keyed = {**spoken("http"), "allow": {"inference": [f"key:x-secret={folder}/key"]}}
    issued = Authority(folder / "authority").issue("127.0.0.1")
    secured = [
        {**spoken(each), "allow": allow, "tls": {"cert": issued.cert, "key": issued.key}}
        for each in ("http", "grpc")
    ]
    config = {
        "listeners": [*listeners, keyed, *secured],
        "admin": {"listen": "127.0.0.1:0"},
        "auth": {"tokens": str(folder / "tokens")},
        "models": {"m": {"backend": "identity", "signature": SIGNATURE}},
    }
    found = Daemon.start(folder, config)
    yield found
    assert found.stop() == 0


@pytest.mark.parametrize(
    ("number", "transport", "credentials"),
    [
        (0, "http", {"authorization": f"Bearer {SECRET}"}),
        (1, "grpc", {"authorization": f"Bearer {SECRET}"}),
        (2, "brpc", {"authorization": f"Bearer {SECRET}"}),
        (3, "http", {"x-secret": SECRET}),
    ],
)
def test_snippets_have_a_placeholder_of_the_credentials(
    guarded: Daemon, number: int, transport: str, credentials: dict[str, str], tmp_path: Path
) -> None:
    dialect = "grps" if transport == "brpc" else "oip"
    place = {"listener": guarded.addresses[number], "dialect": dialect, "transport": transport, "model": "m"}
    request = {**place, "inputs": [{"name": "x", "json": [[7, 8]]}], "headers": credentials}
    snippets = sent(guarded, request)["snippets"]
    assert SECRET not in str(snippets)
    environment = {
        **os.environ,
        "TOKEN": SECRET,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    if transport == "http":
        assert b'"model_name":"m"' in ran(snippets["curl"], shell=True, env=environment)
    if transport == "brpc":
        assert "it lacks the credentials" in snippets["python"]
    else:
        assert ran([sys.executable, "-c", snippets["python"]], env=environment)
    assert b"[[7. 8.]]" in ran(snippets["infer"], shell=True, env=environment, cwd=tmp_path)


@pytest.mark.parametrize(("number", "transport"), [(4, "http"), (5, "grpc")])
def test_snippets_for_tls(guarded: Daemon, number: int, transport: str) -> None:
    place = {"listener": guarded.addresses[number], "dialect": "oip", "transport": transport, "model": "m"}
    headers = {"authorization": f"Bearer {SECRET}"}
    found = sent(guarded, {**place, "inputs": [{"name": "x", "json": [[7, 8]]}], "headers": headers})
    command = found["snippets"]["infer"]
    assert ("https://" in command, '--ca "$CA"' in command) == (transport == "http", transport == "grpc")


@pytest.mark.parametrize(
    ("number", "transport", "scheme", "without_authorities"),
    [(4, "http", "https://", "certificate"), (5, "grpc", "", "cannot be reached: the connection was closed")],
)
def test_the_command_over_tls_with_credentials(
    guarded: Daemon,
    capsys: pytest.CaptureFixture[str],
    number: int,
    transport: str,
    scheme: str,
    without_authorities: str,
) -> None:
    folder = Path(guarded.process.args[-1]).parent  # type: ignore[index]
    command = ["infer", "--dialect=oip", f"--transport={transport}", "--model=m", "--input=x=[[7, 8]]"]
    command.append(f"--url={scheme}{guarded.addresses[number]}")
    known = f"--ca={folder}/authority/ca.pem"
    assert main([*command, known, "--header", f"authorization: Bearer {SECRET}"]) == 0
    assert "[[7. 8.]]" in capsys.readouterr().out
    assert main([*command, known]) == 1
    assert capsys.readouterr().err.startswith("UNAUTHENTICATED: ")
    assert main(command) == 1
    assert without_authorities in capsys.readouterr().err
    assert main([*command, "--ca=nowhere.pem"]) == 2
    assert "'nowhere.pem' cannot be read as certificates" in capsys.readouterr().err
    assert main([*command, "--header=bad name: x"]) == 2
    assert "write 'name: value'" in capsys.readouterr().err


def test_allow_of_the_admin_address_refuses_it(tmp_path: Path) -> None:
    config = {
        "listeners": [{"listen": "127.0.0.1:0", "transport": "http"}],
        "admin": {"listen": "127.0.0.1:0", "allow": {"inference": []}},
        "models": {"m": {"backend": "identity", "signature": SIGNATURE}},
    }
    daemon = Daemon.start(tmp_path, config)
    try:
        request = {"listener": daemon.addresses[0], "dialect": "oip", "transport": "http", "model": "m"}
        assert requests.post(f"{daemon.admin}/try", json=request, timeout=60).status_code == 403
    finally:
        daemon.kill()
