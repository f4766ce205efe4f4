"""``interlingua infer`` as a client: what it finds out itself, sends, receives and writes."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import orjson
import pytest
from PIL import Image

from interlingua.translator.cli import main
from interlingua.translator.config import parse
from tests.translator.cli.serving import ROOT, Served, serve

DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A daemon with a few of the example models and one that accumulates."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("digits", "simple", "words", "identity_bytes", "identity_uint8"):
        (folder / name).symlink_to(ROOT / "examples" / "models" / name)
    write_counter(folder / "counter")
    with serve(str(folder)) as daemon:
        yield daemon


def write_counter(folder: Path) -> None:
    """A model that answers how many requests of its sequence there were, and what the last one had."""
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        """\
backend: "python"
max_batch_size: 1
sequence_batching { max_sequence_idle_microseconds: 60000000 }
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "SEEN" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
    )
    (folder / "1" / "model.py").write_text(
        """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    seen = 0

    def execute(self, requests):
        responses = []
        for request in requests:
            self.seen += 1
            words = f"{self.seen} {request.correlation_id()} {request.request_id()} {request.parameters()}"
            array = np.array([[words.encode()]], dtype=object)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", array)]))
        return responses
"""
    )


def infer(served: Served, *arguments: str, url: str = "") -> int:
    return main(["infer", "--url", url or served.every, *arguments])


def outputs(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The data of the answer's outputs, by name."""
    return {each["name"]: each["data"] for each in orjson.loads(capsys.readouterr().out)["outputs"]}


@pytest.mark.parametrize(
    ("at", "stated"),
    [
        ("every", []),
        ("grpc", []),  # no HTTP there
        ("every", ["--dialect=graphpipe"]),
        ("every", ["--transport=grpc"]),
    ],
)
def test_dialect_and_transport_are_detected(
    served: Served, at: str, stated: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*stated, "--model=digits", f"--input=image=@{DIGITS}/seven.npy", "--output=label", "--json"]
    assert infer(served, *given, url=getattr(served, at)) == 0
    assert outputs(capsys) == {"label": [[7]]}


def test_no_server_to_detect(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "--url=unix:nowhere.sock", "--model=m"]) == 1
    assert capsys.readouterr().err.startswith(
        "UNAVAILABLE: the upstream at unix:nowhere.sock cannot be reached"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--timeout-secs=nan"], "argument --timeout-secs: invalid number above 0 value: 'nan'"),
        (["--timeout-secs=-1"], "argument --timeout-secs: invalid number above 0 value: '-1'"),
        (["--transport=htp"], "unknown transport 'htp'; did you mean 'http'? (allowed: "),
        (["--dialect=ois"], "unknown dialect 'ois'; did you mean 'oip'? (allowed: "),
        (["--dialect=oip", "--transport=tcp"], "unknown transport of oip 'tcp' (allowed: http, grpc)"),
    ],
)
def test_no_server_is_needed_to_refuse(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):  # as argparse ends
        assert main(["infer", "--url=unix:nowhere.sock", "--model=m", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_server_of_no_dialect(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "--url", served.admin, "--model=m"]) == 1
    expected = (
        f"BAD_UPSTREAM: no known dialect is recognized at {served.admin}: state --dialect and --transport\n"
    )
    assert capsys.readouterr().err == expected


def test_a_bridge_to_a_recognized_server(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--from=trtis", f"--url={served.every}", "--model=m=digits", "-o=-"]) == 0
    server = parse(capsys.readouterr().out).upstreams["server"]
    assert (server.dialect, server.transport, server.urls) == ("oip", "grpc", (served.every,))


def test_an_image(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    given = [f"--input=image=@{DIGITS}/three.pgm", "--pixels=0:16", "--output=label", "--json"]
    assert infer(served, "--model=digits", *given) == 0
    assert outputs(capsys) == {"label": [[3]]}


def test_several_inputs_in_one_file(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ramp, ones = np.arange(16, dtype="<i4")[None], np.ones((1, 16), "<i4")
    np.savez(tmp_path / "x.npz", INPUT0=ramp, INPUT1=ones)
    (tmp_path / "x.json").write_bytes(orjson.dumps({"INPUT0": ramp.tolist(), "INPUT1": ones.tolist()}))
    for name in ("x.npz", "x.json"):
        assert (
            infer(served, "--model=simple", f"--input=@{tmp_path}/{name}", "--output=OUTPUT0", "--json") == 0
        )
        assert outputs(capsys) == {"OUTPUT0": (ramp + 1).tolist()}


@pytest.mark.parametrize("content", [b"Hello, world", b'["Hello, world"]'])
def test_standard_input(
    served: Served, content: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert infer(served, "--model=identity_bytes", "--input==@-", "--json") == 0
    assert outputs(capsys) == {"OUTPUT0": ["Hello, world"]}


def test_a_stream(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert infer(served, "--model=words", "--input=TEXT=a b c", "--stream", "--json") == 0
    answers = [orjson.loads(line)["outputs"] for line in capsys.readouterr().out.splitlines()]
    assert [answer[0]["data"] for answer in answers] == [["a"], ["b"], ["c"]]


def test_a_stream_of_a_model_with_one_answer(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model=digits", f"--input=image=@{DIGITS}/seven.npy", "--output=label", "--stream", "--json"]
    assert infer(served, "--dialect=graphpipe", *given) == 0
    assert outputs(capsys) == {"label": [[7]]}


def test_id_parameters_and_sequence(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model=counter", "--input=X=[[1]]", "--sequence=42", "--id=my-id", "--json"]
    words = ["--parameter=text=a", "--parameter=number=2", "--parameter=truth=true"]
    for count, flags in enumerate((["--sequence-start"], words, ["--sequence-end"]), 1):
        assert infer(served, *given, *flags) == 0
        ((seen,),) = outputs(capsys)["SEEN"]
        assert seen.startswith(f"{count} 42 my-id ")
        if flags is words:
            assert orjson.loads(seen.split(" ", 3)[3]) == {"text": "a", "number": 2, "truth": True}


@pytest.mark.parametrize("dialect", ["oip", "graphpipe", "trtis"])
def test_classes(served: Served, dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [f"--input=image=@{DIGITS}/seven.npy", "--output=probabilities", "--classes=2", "--json"]
    assert infer(served, f"--dialect={dialect}", "--model=digits", *given) == 0
    ((first, second),) = outputs(capsys)["probabilities"]
    assert re.fullmatch(r"0\.\d{6}:7(:\w+)?", first)
    assert float(first.split(":")[0]) > float(second.split(":")[0])


def test_a_signature_for_a_server_without_metadata(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "signature.yaml"
    path.write_text(
        "inputs: [{name: INPUT0, datatype: UINT8, shape: [-1]}]\noutputs: [{name: OUTPUT0, datatype: UINT8, shape: [-1]}]\n"
    )
    given = ["--dialect=grps", "--model=identity_uint8", "--input=INPUT0=[1,2]", "--json"]
    assert infer(served, *given, "--transport=http") == 2
    assert "the server does not report its datatype" in capsys.readouterr().err
    assert infer(served, *given, "--transport=http", f"--signature={path}") == 0
    assert outputs(capsys) == {"OUTPUT0": [1, 2]}


def test_many_times(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model=digits", f"--input=image=@{DIGITS}/seven.npy", "--output=label", "-n", "5"]
    assert infer(served, *given) == 0
    captured = capsys.readouterr()
    assert captured.out == "label  INT64 [1, 1]\n[[7]]\n"
    first, second = captured.err.splitlines()
    assert re.fullmatch(r"5 requests in \d+\.\d{3} s, one after the other \(\d+\.\d/s\)", first)
    assert re.fullmatch(r"latency in ms: mean [\d.]+, p50 [\d.]+, p90 [\d.]+, p99 [\d.]+, max [\d.]+", second)
    assert infer(served, *given, "--json") == 0
    captured = capsys.readouterr()
    timing = orjson.loads(captured.out)["timing"]
    assert (timing["requests"], captured.err) == (5, "")
    assert 0 < timing["p50_ms"] <= timing["p99_ms"] <= timing["max_ms"]


def test_a_picture_there_and_back(served: Served, tmp_path: Path) -> None:
    """Through a model that takes the encoded file, and one that takes pixels."""
    Image.fromarray(np.arange(48, dtype="u1").reshape(4, 4, 3)).save(tmp_path / "x.png")
    given = ["--model=identity_bytes", f"--input=INPUT0=@{tmp_path}/x.png", "-o", f"{tmp_path}/y.NPY"]
    assert infer(served, *given) == 0
    assert np.load(tmp_path / "y.NPY").tolist() == [(tmp_path / "x.png").read_bytes()]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--stream", "-o", "x.npy"], "a stream has any number of answers: a file has one"),
        (["-o", "x.tiff"], "'x.tiff' ends in none of .npy, .npz, .json, .png"),
        (["--parameter", "a"], "--parameter a: write NAME=VALUE"),
        (["--sequence-end"], "--sequence-start and --sequence-end need --sequence"),
        (["--sequence=0"], "--sequence: 0 and an empty text are no sequence"),
        (["--input=image=@-", "--input=other=@-"], "standard input has one value: @- is there 2 times"),
        (["--input", "@nowhere.json"], "inputs: 'nowhere.json' cannot be read as .json"),
    ],
)
def test_arguments_that_make_no_sense(
    served: Served, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer(served, "--dialect=oip", "--transport=http", "--model=digits", *arguments) == 2
    assert complaint in capsys.readouterr().err
