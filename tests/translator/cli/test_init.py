"""``interlingua init``: the file that it writes is the bridge that its options, or answers, describe."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlingua.protocols.registry import DIALECTS
from interlingua.translator.cli import main
from interlingua.translator.cli.bridge import server_names
from interlingua.translator.config import load, parse
from tests.translator.cli.serving import ROOT

PAGE = (ROOT / "docs" / "migration.md").read_text()


def bridges() -> dict[str, dict[str, Any]]:
    """The last configuration of each section of the page: the clients of one server, at another one."""
    sections = re.split(r"^## (?=From )", PAGE, flags=re.MULTILINE)[1:]
    blocks = {
        each.splitlines()[0]: re.findall(r"```yaml\n(# bridge.yaml.*?)```", each, re.S) for each in sections
    }
    return {name: yaml.safe_load(found[-1]) for name, found in blocks.items()}


def options(bridge: dict[str, Any]) -> list[str]:
    """What describes ``bridge`` on the command line."""
    words = []
    for listener in bridge["listeners"]:
        # a listener that states no dialect has those of its transport
        spoken = listener.get("dialects") or [
            name for name, each in DIALECTS.items() if listener["transport"] in each.bindings
        ]
        words += [f"--from={name}/{listener['transport']}" for name in spoken]
    (upstream,) = bridge["upstreams"].values()
    words += [f"--to={upstream['dialect']}/{upstream['transport']}"]
    words += [f"--url={url}" for url in upstream["urls"]]
    return words + [
        f"--model={name}={model.get('remote_model', name)}" for name, model in bridge["models"].items()
    ]


@pytest.mark.parametrize("name", bridges())
def test_the_bridges_of_the_page(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bridge = bridges()[name]
    path = tmp_path / "bridge.yaml"
    assert main(["init", *options(bridge), "-o", str(path)]) == 0
    assert main(["check", "-c", str(path)]) == 0
    assert capsys.readouterr().err == ""
    ours, theirs = load(path), parse(yaml.safe_dump(bridge))
    for mine, other in zip(ours.listeners, theirs.listeners, strict=True):
        assert (mine.listen, mine.transport, mine.dialects) == (other.listen, other.transport, other.dialects)
        assert mine.default_model == other.default_model
    (mine,), (other,) = ours.upstreams.values(), theirs.upstreams.values()
    assert (mine.dialect, mine.transport, mine.urls) == (other.dialect, other.transport, other.urls)
    assert ours.models.keys() == theirs.models.keys()
    assert ours.admin == theirs.admin


@pytest.mark.parametrize(
    ("dialect", "server"),
    [*((name, "oip/grpc") for name in DIALECTS), *(("oip", name) for name in server_names())],
)
def test_every_dialect_and_server_is_accepted(
    dialect: str, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--from={dialect}", f"--to={server}", "--url=unix:s.sock", "--model=a model"]
    path = tmp_path / "b.yaml"
    assert main(["init", *words, "-o", str(path)]) == 0
    assert main(["check", "-c", str(path)]) == 0
    assert capsys.readouterr().err == ""


def test_what_is_commented_out_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from=trtis", "--to=grps/http", "--url=a:1", "--model=m"]
    assert main(["init", *words, "-o", "-"]) == 0
    # a comment in words has one space
    enabled = re.sub(r"^( *)#(?! \w|`)", r"\1", capsys.readouterr().out.replace("# `", "# the "), flags=re.M)
    config = parse(enabled)
    assert config.upstreams["server"].tls is not None
    assert config.models["m"].inputs == {"NAME": "NAME_THERE"}
    assert config.models["m"].signature is not None


def test_a_file_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "b.yaml"
    path.write_text("mine")
    words = ["--from=trtis", "--to=oip/http", "--url=a:1", "--model=m", "-o", str(path)]
    assert main(["init", *words]) == 2
    assert capsys.readouterr().err == f"interlingua init: {path} exists; --force replaces it\n"
    assert path.read_text() == "mine"
    assert main(["init", *words, "--force"]) == 0
    assert load(path).upstreams["server"].urls == ("a:1",)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ("--from=trits", "--from: unknown dialect 'trits'; did you mean 'trtis'?"),
        ("--to=oip", "--to: write the transport, too: oip/"),
        ("--to=oip/gprc", "--to: unknown transport of oip 'gprc'; did you mean 'grpc'?"),
        ("--url=nowhere", "--url: 'nowhere' is not a URL"),
        ("--model==m", "--model: a model needs a name for clients"),
    ],
)
def test_options_that_make_no_sense(changed: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    stated = {"--from": "trtis", "--to": "oip/http", "--url": "a:1", "--model": "m"}
    option, _, value = changed.partition("=")
    words = [f"{name}={text}" for name, text in (stated | {option: value}).items()]
    assert main(["init", *words, "-o", "-"]) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.out == ""


def test_without_a_terminal_nothing_is_asked() -> None:
    command = [sys.executable, "-m", "interlingua", "init", "--from", "trtis"]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert "--to is missing" in ran.stderr


def test_a_server_that_is_not_recognized(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    words = ["init", "--from=trtis", "--model=m", "-o=-"]
    assert main([*words, "--url=unix:nowhere.sock"]) == 2
    assert "no known dialect is recognized at unix:nowhere.sock\n" in capsys.readouterr().err
    assert main([*words, "--url=nowhere"]) == 2
    assert capsys.readouterr().err.startswith("interlingua init: --url: 'nowhere' is not a URL")


def test_four_questions_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "interlingua", "init"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        for answer in (b"graphpipe/http", b"oip/htp", b"oip/http", b"http://new:8000", b"adder=sim"):
            before = shown
            while shown.count(b"\n> ") == before.count(b"\n> "):
                shown += os.read(ours, 4096)
            os.write(ours, answer + b"\n")
        assert process.wait(60) == 0
    assert b"unknown transport of oip 'htp'; did you mean 'http'?" in shown
    os.close(ours)
    config = load(tmp_path / "bridge.yaml")
    assert config.listeners[0].default_model == "adder"
    assert config.models["adder"].remote_model == "sim"
