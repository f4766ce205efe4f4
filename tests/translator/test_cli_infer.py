"""``interlingua infer`` against the daemon, in every dialect and over every transport of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest

from interlingua.protocols.registry import DIALECTS
from interlingua.translator.cli import main

ROOT = Path(__file__).parents[2]
WAYS = [
    (name, transport)
    for name, dialect in DIALECTS.items()
    for transport in ("http", "grpc")
    # a grps server does not tell what its models take
    if transport in dialect.bindings and name != "grps"
]


def _over(transport: str) -> str:
    return ", ".join(name for name, dialect in DIALECTS.items() if transport in dialect.bindings)


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the sockets ``http`` and ``grpc`` of a running daemon."""
    folder = tmp_path_factory.mktemp("run")
    config = folder / "c.yaml"
    config.write_text(
        f"""\
server: {{drain_secs: 0}}
listeners:
  - {{listen: "unix:{folder}/http", transport: http, dialects: [{_over("http")}]}}
  - {{listen: "unix:{folder}/grpc", transport: grpc, dialects: [{_over("grpc")}]}}
models:
  echo:
    backend: identity
    signature:
      inputs:
        - {{name: NUMBERS, datatype: FP32, shape: [-1, 2]}}
        - {{name: WORDS, datatype: BYTES, shape: [-1]}}
      outputs:
        - {{name: OUT_NUMBERS, datatype: FP32, shape: [-1, 2]}}
        - {{name: OUT_WORDS, datatype: BYTES, shape: [-1]}}
"""
    )
    command = [sys.executable, "-m", "interlingua", "serve", "-c", str(config)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stderr is not None
        assert any(" serving " in line for line in daemon.stderr)
        yield folder
        daemon.terminate()
        daemon.wait(30)


def infer(sockets: Path, way: tuple[str, str], *arguments: str, model: str = "echo") -> int:
    dialect, transport = way
    url = f"unix:{sockets}/{transport}"
    where = [f"--dialect={dialect}", f"--transport={transport}", f"--url={url}", f"--model={model}"]
    return main(["infer", *where, *arguments])


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_json_in_and_out(sockets: Path, way: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--input", "WORDS=[]", "--input", "NUMBERS=[[1, 0.5], [3, -4]]"]
    assert infer(sockets, way, *given, "--json", "--output", "OUT_NUMBERS") == 0
    outputs = orjson.loads(capsys.readouterr().out)["outputs"]
    assert outputs == [
        {"name": "OUT_NUMBERS", "datatype": "FP32", "shape": [2, 2], "data": [[1, 0.5], [3, -4]]}
    ]


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_files_in_and_out(sockets: Path, way: tuple[str, str], tmp_path: Path) -> None:
    np.save(tmp_path / "n.npy", np.array([[np.nan, 2]], "<f4"))
    np.save(tmp_path / "w.npy", np.array([b"\xff", b""]))
    given = ["--input", f"=@{tmp_path}/n.npy", "--input", f"=@{tmp_path}/w.npy"]
    assert infer(sockets, way, *given, "--npz", f"{tmp_path}/out.npz") == 0
    with np.load(tmp_path / "out.npz") as read:
        assert read["OUT_NUMBERS"].tobytes() == np.array([[np.nan, 2]], "<f4").tobytes()
        assert read["OUT_WORDS"].tolist() == [b"\xff", b""]


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_text_out(sockets: Path, way: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert infer(sockets, way, "--input", 'WORDS=["a"]', "--input", "NUMBERS=[[1, 2]]") == 0
    assert capsys.readouterr().out == "OUT_NUMBERS  FP32 [1, 2]\n[[1. 2.]]\n\nOUT_WORDS  BYTES [1]\n['a']\n"


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_server_that_does_not_tell_what_it_takes(
    sockets: Path, transport: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "n.npy", np.array([[1, 2]], "<f4"))
    files = ["--input", f"NUMBERS=@{tmp_path}/n.npy", "--input", 'WORDS=["a"]']
    assert infer(sockets, ("grps", transport), *files, "--output", "OUT_WORDS", "--json") == 0
    outputs = orjson.loads(capsys.readouterr().out)["outputs"]
    assert outputs == [{"name": "OUT_WORDS", "datatype": "BYTES", "shape": [1], "data": ["a"]}]
    assert infer(sockets, ("grps", transport), *files, "--output", "OUT_WORD") == 2
    assert "unknown output 'OUT_WORD'; did you mean 'OUT_WORDS'?" in capsys.readouterr().err
    assert infer(sockets, ("grps", transport), "--input", "NUMBERS=[[1, 2]]", *files[2:]) == 2
    assert "input 'NUMBERS': the server does not report its datatype" in capsys.readouterr().err


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_an_unknown_model_is_the_servers_error(
    sockets: Path, way: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer(sockets, way, "--input", "x=[1]", model="nobody") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("NOT_FOUND: ")
    assert "nobody" in captured.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--input", "WORD=[]"], "unknown input 'WORD'; did you mean 'WORDS'? (allowed: NUMBERS, WORDS)"),
        (["--input", "NUMBERS"], "--input NUMBERS: write NAME=@file.npy or NAME=JSON"),
        (["--input", "NUMBERS=@nowhere.npy"], "input 'NUMBERS': 'nowhere.npy' cannot be read as .npy"),
        (["--input", "NUMBERS=[true]"], "input 'NUMBERS': true is not a number, as FP32 needs"),
        (["--input", "NUMBERS=[[1,2]]"] + ["--input", "=[]"] * 2, "the model has only 2 inputs"),
        (["--input", "=[[1,2]]", "--input", "=[]", "--npz", "/nowhere/x"], "No such file or directory"),
    ],
)
def test_arguments_that_make_no_sense(
    sockets: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer(sockets, WAYS[0], *arguments) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.startswith("interlingua infer: ")


@pytest.mark.parametrize(
    ("dialect", "transport", "url", "complaint"),
    [
        ("oipp", "http", "a:1", "unknown dialect 'oipp'; did you mean 'oip'?"),
        ("graphpipe", "grpc", "a:1", "unknown transport of graphpipe 'grpc' (allowed: http, tcp)"),
        ("oip", "http", "a", "'a' is not a URL"),
        ("oip", "grpc", "http://a:1", "unknown scheme"),
    ],
)
def test_places_that_make_no_sense(
    dialect: str, transport: str, url: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"--dialect={dialect}", f"--transport={transport}", f"--url={url}", "--model=m"]
    assert main(["infer", *arguments]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_no_server_there(tmp_path: Path, way: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert infer(tmp_path, way, "--input", "x=[1]", "--timeout-secs", "5") == 1
    assert capsys.readouterr().err.startswith("UNAVAILABLE: ")
