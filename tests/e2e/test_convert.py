"""Recorded messages of real clients and servers, converted on the command line; the real daemon understands
them."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests

from interlingua.schemas import InferResponse
from interlingua.translator.cli import main
from interlingua.translator.config.bindings import binding_named
from interlingua.translator.config.signature import read_signature
from interlingua.translator.conversion.convert import read_answer
from tests.e2e.daemon import ROOT, Daemon
from tests.waiting import eventually

BINDINGS = [
    "oip/http",
    "oip/grpc",
    "trtis/http",
    "trtis/grpc",
    "graphpipe/http",
    "grps/http",
    "grps/grpc",
    "grps/brpc",
    "tfserving/http",
    "tfserving/grpc",
]
SIGNATURE = """
inputs: [{name: INPUT0, datatype: FP32, shape: [4]}, {name: INPUT1, datatype: FP32, shape: [4]}]
outputs: [{name: OUTPUT0, datatype: FP32, shape: [4]}, {name: OUTPUT1, datatype: FP32, shape: [4]}]
"""


def spoken_over(transport: str) -> list[str]:
    """The dialects of the bindings over ``transport``."""
    pairs = [each.partition("/") for each in BINDINGS]
    return [dialect for dialect, _, over in pairs if over == transport]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    running = Daemon.start(
        tmp_path_factory.mktemp("convert"),
        {
            "listeners": [
                {"listen": "127.0.0.1:0", "transport": over, "dialects": [*spoken_over(over)]}
                for over in ("http", "grpc", "brpc")
            ],
            "model_repository": [{"path": str(ROOT / "examples" / "models"), "load": ["add_sub"]}],
            "default_model": "add_sub",
        },
    )
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


@pytest.fixture
def question(tmp_path: Path) -> Path:
    """What a client sent to Triton."""
    return written(tmp_path / "question", recorded("ok_json_id")["request"])


@pytest.fixture
def signature(tmp_path: Path) -> Path:
    path = tmp_path / "signature.yaml"
    path.write_text(SIGNATURE)
    return path


def recorded(name: str) -> dict[str, Any]:
    exchanges = json.loads((ROOT / "tests/golden/oip/triton_http.json").read_text())
    return next(exchange for exchange in exchanges if exchange["name"] == name)  # type: ignore[no-any-return]


def written(path: Path, part: dict[str, Any], head: str = "") -> Path:
    path.write_bytes(
        head.encode() + (part["text"].encode() if "text" in part else base64.b64decode(part["b64"]))
    )
    return path


def exchanged(daemon: Daemon, to: str, message: bytes) -> bytes:
    """What comes back for ``message``."""
    transport = to.partition("/")[2]
    address = daemon.addresses[("http", "grpc", "brpc").index(transport)]
    host, _, port = address.rpartition(":")
    if transport == "grpc":
        method = {
            "oip": "/inference.GRPCInferenceService/ModelInfer",
            "trtis": "/nvidia.inferenceserver.GRPCService/Infer",
            "grps": "/grps.protos.v1.GrpsService/Predict",
            "tfserving": "/tensorflow.serving.PredictionService/Predict",
        }[to.partition("/")[0]]
        with grpc.insecure_channel(address) as channel:
            return channel.unary_unary(method)(message, timeout=20)  # type: ignore[no-any-return]
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        if transport == "http":
            line, _, rest = message.partition(b"\r\n")
            message = b"\r\n".join((line, b"host: a", b"connection: close", rest))
        connection.sendall(message)
        if transport == "brpc":
            return connection.recv(1 << 16)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize("to", BINDINGS)
def test_what_was_sent_to_triton_is_understood_in_any_dialect(
    daemon: Daemon,
    question: Path,
    signature: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    to: str,
) -> None:
    out = tmp_path / "out"
    arguments = ["--from", "oip/http", "--to", to, "--signature", str(signature), "-o", str(out)]
    assert main(["convert", str(question), *arguments]) == 0
    verdict = capsys.readouterr().out.splitlines()
    assert "  input 'INPUT0' FP32: exact" in verdict
    lost = [line for line in verdict if line.startswith("  id 'my-id': dropped")]
    assert bool(lost) == (not to.startswith("oip"))

    reply = exchanged(daemon, to, out.read_bytes())

    answer = read_answer(binding_named(to), reply, None, read_signature(signature), model="add_sub")
    assert isinstance(answer, InferResponse), answer
    right = json.loads(recorded("ok_json_id")["body"]["text"])["outputs"]
    assert [tensor.numpy().tolist() for tensor in answer.outputs] == [
        np.array(output["data"], np.float32).tolist() for output in right
    ]


@pytest.mark.parametrize("to", BINDINGS)
def test_what_triton_answered_in_any_dialect(
    signature: Path, question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    exchange = recorded("ok_json_id")
    head = (
        "HTTP/1.1 200 OK\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in exchange["headers"])
        + "\r\n"
    )
    given, out = written(tmp_path / "answer", exchange["body"], head), tmp_path / "out"
    arguments = ["--from", "oip/http", "--to", to, "--signature", str(signature), "--request", str(question)]
    assert main(["convert", str(given), "--answer", *arguments, "-o", str(out), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert {
        "what": "output 'OUTPUT1' FP32",
        "outcome": "exact",
        "datatype": None,
        "code": None,
        "note": "",
    } in (verdict["findings"])
    answer = read_answer(
        binding_named(to), out.read_bytes(), None, read_signature(signature), model="add_sub"
    )
    assert isinstance(answer, InferResponse)
    assert answer.outputs[0].numpy()[0] == np.float32(1.5)


def test_the_command_that_it_shows_can_be_run(
    daemon: Daemon, question: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(question), "--from", "oip/http", "--to", "oip/http", "--form", "curl"]) == 0
    command = capfd.readouterr().out.replace("localhost:8000", daemon.addresses[0])
    ran = subprocess.run(["sh", "-c", command], capture_output=True, timeout=30, check=True)
    assert b"200 OK" in ran.stdout
    assert b"OUTPUT0" in ran.stdout


def test_the_server_may_tell_the_signature(
    daemon: Daemon, question: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    v1 = tmp_path / "v1"
    known = ["--from", "oip/http", "--url", daemon.addresses[0], "--model", "add_sub"]
    assert main(["convert", str(question), *known, "--to", "trtis/http", "-o", str(v1)]) == 0
    # a body of version 1 cannot be cut without it
    back = ["--from", "trtis/http", "--to", "graphpipe/http", "--form", "hex"]
    assert main(["convert", str(v1), *back]) == 1
    assert "message unreadable" in capfd.readouterr().err
    assert main(["convert", str(v1), *back, "--url", daemon.addresses[0]]) == 2
    assert "--url needs --model" in capfd.readouterr().err
    told = ["--url", daemon.addresses[0], "--model", "add_sub"]
    assert main(["convert", str(v1), *back, *told]) == 0
    assert bytes.fromhex(capfd.readouterr().out)


def test_strictness_and_wrong_usage(
    question: Path, signature: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["-o", str(tmp_path / "out"), "--signature", str(signature)]
    asked = ["convert", str(question), "--from", "oip/http", *out, "--to"]
    assert main([*asked, "grps/grpc", "--strict"]) == 1
    assert "id 'my-id': dropped" in capsys.readouterr().out
    assert main([*asked, "oip/grpc", "--strict"]) == 0
    for wrong in (["convert", str(question), "--to", "oip/http"], [*asked, "oip/brpc"], [*asked, "nothing"]):
        assert main(wrong) == 2
    assert main(["convert", str(tmp_path / "none"), "--from", "oip/http", "--to", "oip/grpc"]) == 2
    message = capsys.readouterr().err
    assert "--from is missing" in message
    assert "unknown transport of oip 'brpc'" in message
    assert "No such file" in message


def test_a_record_of_a_tap(daemon: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from interlingua.translator.recording.files import RecordingWriter
    from tests.translator.recording.test_files import record

    path, out = tmp_path / "r", tmp_path / "out"
    with RecordingWriter(path) as writer:
        writer.write(record(1))
        writer.write(record(2, size=3))
    arguments = ["convert", str(path), "--to", "graphpipe/http", "-o", str(out), "--form", "body"]
    assert main([*arguments, "--record", "2"]) == 0
    assert "input 'x' UINT8: exact" in capsys.readouterr().out
    assert main([*arguments, "--record", "2", "--answer"]) == 0
    assert "output 'y' UINT8: exact" in capsys.readouterr().out
    assert main([*arguments, "--record", "3"]) == 2
    assert "has no record 3" in capsys.readouterr().err


BATCHED = {
    "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 3]}],
    "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, 3]}],
    "max_batch_size": 8,
}


@pytest.fixture(scope="module")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    """A daemon with a model that takes batches, and the recording of a batch of two that it was asked."""
    folder = tmp_path_factory.mktemp("tapped")
    path = folder / "tap.rec"
    running = Daemon.start(
        folder,
        {
            "listeners": [{"listen": "127.0.0.1:0", "transport": over} for over in ("http", "grpc")],
            "models": {"echo": {"backend": "identity", "signature": BATCHED}},
            "tap": {"path": str(path)},
        },
    )
    try:
        asked = {"name": "INPUT0", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}
        url = f"http://{running.addresses[0]}/v2/models/echo/infer"
        assert requests.post(url, json={"inputs": [asked]}, timeout=20).status_code == 200
        eventually(lambda: b"echo" in path.read_bytes())
        yield running, path
    finally:
        running.kill()


@pytest.mark.parametrize("to", ["trtis/http", "trtis/grpc"])
def test_a_recorded_batch_is_one_in_version_1(
    tapped: tuple[Daemon, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    """The server that answered the request takes it in version 1 too, where the batch stands apart from the
    shapes: a recording tells which of the two its first dimension is."""
    daemon, path = tapped
    out = tmp_path / "out"
    form = "message" if to == "trtis/http" else "body"
    assert main(["convert", str(path), "--to", to, "-o", str(out), "--form", form, "--strict"]) == 0
    assert capsys.readouterr().out.startswith("exact\n")
    answer = exchanged(daemon, to, out.read_bytes())
    assert np.array([1, 2, 3, 4, 5, 6], np.float32).tobytes() in answer
    assert main(["convert", str(path), "--to", to, "--answer", "-o", str(out), "--strict"]) == 0


def test_a_recording_that_does_not_tell_of_a_batch_needs_the_signature(
    tapped: tuple[Daemon, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from interlingua.translator.recording.files import RecordingReader, RecordingWriter

    _, path = tapped
    older, out, signature = tmp_path / "older", tmp_path / "out", tmp_path / "signature.yaml"
    with RecordingReader(path) as records, RecordingWriter(older) as writer:
        writer.write(replace(next(iter(records)), max_batch_size=None))
    arguments = ["convert", str(older), "--to", "trtis/http", "-o", str(out)]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("needs the signature\n")
    assert main([*arguments, "--answer"]) == 0
    assert capsys.readouterr().out.startswith("needs the signature\n")
    assert main([*arguments, "--strict"]) == 1
    capsys.readouterr()
    signature.write_text(json.dumps(BATCHED))
    assert main([*arguments, "--strict", "--signature", str(signature)]) == 0
    assert capsys.readouterr().out.startswith("exact\n")
    # other dialects have the batch in the shapes
    assert main(["convert", str(older), "--to", "oip/http", "-o", str(out), "--strict"]) == 0


def test_a_message_without_a_signature_needs_it_for_version_1(
    question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["convert", str(question), "--from", "oip/http", "-o", str(tmp_path / "out"), "--model", "m"]
    assert main([*arguments, "--to", "trtis/http"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("needs the signature\n") and "  the batch: needs the signature" in said
    assert main([*arguments, "--to", "grps/http"]) == 0
    assert "needs the signature" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["Predict_gtensors", "Predict_compress1", "Predict_compress2", "Predict_compress3"]
)
def test_frames_of_the_original_bridge(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    source = ROOT / "tests/golden/grps/brpc" / f"{name}.c2s"
    out = ["-o", str(tmp_path / "out"), "--model", "m"]
    assert main(["convert", str(source), "--from", "grps/brpc", "--to", "oip/grpc", *out]) == 0
    assert "exact" in capsys.readouterr().out
