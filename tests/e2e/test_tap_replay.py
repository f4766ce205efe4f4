"""What a tap of the real daemon has written, dialect by dialect, and what comes of replaying it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.schemas import Datatype, Tensor
from interlingua.translator.cli import main
from interlingua.translator.recording.files import RecordingReader, RecordingWriter
from interlingua.translator.recording.record import Record
from tests.e2e.daemon import ROOT, Daemon
from tests.waiting import eventually

WIRES = [("oip", "http"), ("oip", "grpc"), ("trtis", "http"), ("trtis", "grpc"), ("graphpipe", "http")] + [
    ("grps", transport) for transport in ("http", "grpc", "brpc")
]


def listeners() -> list[dict[str, str]]:
    return [{"listen": "127.0.0.1:0", "transport": transport} for transport in ("http", "grpc", "brpc")]


def start(folder: Path, names: Sequence[str] = ("identity_fp32", "identity_uint8"), **options: Any) -> Daemon:
    models = {"path": str(ROOT / "examples" / "models"), "load": list(names)}
    return Daemon.start(folder, {"listeners": listeners(), "model_repository": [models], **options})


def address(daemon: Daemon, transport: str) -> str:
    return daemon.addresses[("http", "grpc", "brpc").index(transport)]


def ask(daemon: Daemon, dialect: str, transport: str, model: str, value: str) -> None:
    where = ["--dialect", dialect, "--transport", transport, "--url", address(daemon, transport)]
    assert main(["infer", *where, "--model", model, "--input", f"INPUT0={value}"]) == 0


def read(path: Path) -> list[Record]:
    with RecordingReader(path) as reader:
        records = list(reader)
    assert not reader.damage
    return records


def npy(path: Path, values: list[float]) -> str:
    np.save(path, np.array(values, np.float32))
    return f"@{path}"


def test_what_came_in_any_dialect_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "taps" / "r"
    daemon = start(tmp_path, tap={"path": str(path), "models": ["identity_fp*"], "headers": ["user-agent"]})
    try:
        for number, wire in enumerate(WIRES):
            ask(daemon, *wire, "identity_fp32", npy(tmp_path / "x.npy", [number, 0.5]))
        ask(daemon, "oip", "http", "identity_uint8", "[1]")
        assert daemon.stop() == 0
    finally:
        daemon.kill()

    records = read(path)

    assert [record.dialect for record in records] == [dialect for dialect, _ in WIRES]
    for number, record in enumerate(records):
        [x], [y] = record.request.inputs, record.answer.responses[0].outputs
        assert x.numpy().tolist() == y.numpy().tolist() == [number, 0.5]
        assert (record.request.model, record.answer.answered_by) == ("identity_fp32", "identity_fp32")
        assert record.answer.elapsed_ns > 0
        assert record.answer.error is None
        assert set(record.headers) <= {"user-agent"}
    assert "decode" in records[0].request.context.timings


@pytest.fixture(scope="module")
def recording(examples: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six requests for ``simple`` and their answers, a seventh that was refused, and one for a model of
    strings."""
    folder = tmp_path_factory.mktemp("recording")
    path = folder / "r"
    daemon = start(folder, tap={"path": str(path)}, names=["simple", "simple_string"])
    try:
        url = ["--dialect", "oip", "--transport", "grpc", "--url", address(daemon, "grpc")]
        for number in range(6):
            row = json.dumps([[number] * 16])
            inputs = ["--input", f"INPUT0={row}", "--input", f"INPUT1={row}"]
            assert main(["infer", *url, "--model", "simple", *inputs]) == 0
        assert main(["infer", *url, "--model", "simple", "--input", "INPUT0=[[1,2]]"]) == 1
        words = json.dumps([["7"] * 16])
        inputs = ["--input", f"INPUT0={words}", "--input", f"INPUT1={words}"]
        assert main(["infer", *url, "--model", "simple_string", *inputs]) == 0
        assert daemon.stop() == 0
    finally:
        daemon.kill()
    assert len(read(path)) == 8
    return path


def replayed(path: Path, daemon: Daemon, dialect: str, transport: str, *more: str) -> int:
    """Replay ``path`` against one listener of ``daemon``; the exit code."""
    url = daemon.addresses[("http", "grpc").index(transport)]
    return main(["replay", str(path), "--dialect", dialect, "--transport", transport, "--url", url, *more])


@pytest.mark.parametrize(("dialect", "transport"), [wire for wire in WIRES if wire[1] != "brpc"])
def test_replayed_in_any_dialect_the_answers_are_the_same(
    recording: Path, examples: Daemon, capsys: pytest.CaptureFixture[str], dialect: str, transport: str
) -> None:
    # GraphPipe has no names of models; those of our paths are given
    names = ["--map", "simple=simple", "--map", "simple_string=simple_string"]
    assert replayed(recording, examples, dialect, transport, "--concurrency", "4", "--json", *names) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["sent"], report["equal"], report["different"], report["failed"]) == (8, 8, 0, 0)
    assert set(report["latency_ms"]) == {"p50", "p90", "p99", "max"}
    assert {each["output"] for each in report["outputs"]} == {"OUTPUT0", "OUTPUT1"}


def test_another_model_answers_otherwise(
    recording: Path, examples: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = read(recording)
    wrong = records[3].answer.responses[0].outputs
    records[3].answer.responses[0].outputs = (
        Tensor.checked("OUTPUT0", Datatype.INT32, (1, 16), bytes(64)),
        *wrong[1:],
    )
    with RecordingWriter(tmp_path / "wrong") as writer:
        for record in records:
            writer.write(record)
    assert replayed(tmp_path / "wrong", examples, "trtis", "grpc", "--rate", "200") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "7 equal, 1 different, 0 failed"
    assert "output 'OUTPUT0' of 'simple' differs in 1 of 6 answers, by 6 " in "\n".join(lines)
    assert "record 4" in "\n".join(lines)


def test_what_cannot_be_replayed(
    recording: Path, examples: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(recording.read_bytes()[:-10])
    assert replayed(cut, examples, "oip", "http", "--limit", "100") == 0
    told = capsys.readouterr()
    assert "7 sent" in told.out
    assert "record 8, at byte" in told.err

    whole = bytearray(recording.read_bytes())
    whole[len(whole) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(whole)
    assert replayed(tmp_path / "damaged", examples, "oip", "http") == 1, "who knows how many are gone"
    told = capsys.readouterr()
    assert " 0 different, 0 failed" in told.out
    assert "checksum" in told.err

    more = ("--dialect", "oip", "--transport", "http", "--url", examples.addresses[0])
    assert main(["replay", str(recording), str(cut), *more]) == 0
    assert "15 sent" in capsys.readouterr().out

    assert replayed(ROOT / "README.md", examples, "oip", "http") == 2
    assert "is not a recording" in capsys.readouterr().err
    assert replayed(tmp_path / "none", examples, "oip", "http") == 2
    assert replayed(recording, examples, "opi", "http") == 2
    assert "did you mean 'oip'" in capsys.readouterr().err
    assert replayed(recording, examples, "oip", "http", "--map", "simple") == 2
    with pytest.raises(SystemExit) as left:
        replayed(recording, examples, "oip", "http", "--rate", "0")
    assert left.value.code == 2


def test_redacted_requests_are_sent_with_what_was_made_up(
    examples: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r"
    daemon = start(tmp_path, tap={"path": str(path), "redact": {"tensors": ["INPUT0"]}})
    try:
        ask(daemon, "oip", "http", "identity_fp32", npy(tmp_path / "x.npy", [1, 2, 3]))
        assert daemon.stop() == 0
    finally:
        daemon.kill()
    assert replayed(path, examples, "grps", "grpc") == 1
    assert "1 not sent: inputs were redacted" in capsys.readouterr().out
    assert replayed(path, examples, "grps", "grpc", "--generate-redacted") == 0
    assert "1 not compared: inputs were generated" in capsys.readouterr().out


def test_a_tap_that_cannot_be_written_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AssertionError, match="startup failed"):
        start(tmp_path, tap={"path": str(tmp_path / "file" / "r")})


def test_operators_see_what_the_tap_has_done(tmp_path: Path) -> None:
    daemon = start(tmp_path, tap={"path": str(tmp_path / "r")}, admin={"listen": "127.0.0.1:0"})
    try:
        ask(daemon, "oip", "http", "identity_uint8", "[1]")
        [place] = [line["address"] for line in daemon.log if line["event"] == "admin listening"]
        recorded = 'interlingua_tap_requests_total{outcome="recorded"} 1'
        eventually(lambda: recorded in fetched(place, "/metrics"))
        assert json.loads(fetched(place, "/tap"))["recorded"] == 1
        assert daemon.stop() == 0
    finally:
        daemon.kill()


def fetched(place: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{place}{path}", timeout=10) as answer:
        return answer.read().decode()  # type: ignore[no-any-return]
