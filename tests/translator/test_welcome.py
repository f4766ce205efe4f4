"""The lines that ``serve`` shows: each is run in a shell, as somebody would who has just installed this."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlingua.protocols.transport.address import Address
from interlingua.translator.config import parse
from interlingua.translator.welcome import welcome

ROOT = Path(__file__).parents[2]
CONFIG = """\
server: {{drain_secs: 0}}
listeners:
  - {{listen: "127.0.0.1:0", transport: http}}
  - {{listen: "127.0.0.1:0", transport: grpc}}
  - {{listen: "127.0.0.1:0", transport: brpc}}
  - {{listen: "127.0.0.1:0", transport: tcp}}
  - {{listen: "unix:{folder}/all.sock", transport: http}}
default_model: the_echo
models:
  the_echo:
    backend: identity
    signature:
      inputs: [{{name: GIVEN, datatype: FP32, shape: [-1, 2]}}]
      outputs: [{{name: SAME, datatype: FP32, shape: [-1, 2]}}]
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What a running daemon has shown, line by line."""
    folder = tmp_path_factory.mktemp("run")
    config = folder / "c.yaml"
    config.write_text(CONFIG.format(folder=folder))
    command = [sys.executable, "-m", "interlingua", "serve", "-c", str(config)]
    # no terminal, no lines to paste
    ours, theirs = pty.openpty()
    with open(ours) as terminal, subprocess.Popen(command, cwd=ROOT, stdout=theirs) as daemon:
        os.close(theirs)
        lines = [terminal.readline() for _ in range(1 + 2 * (4 + 3 + 1 + 1 + 4))]
        yield [line.rstrip("\r\n") for line in lines if "operators" not in line]
        daemon.terminate()
        daemon.wait(30)


@pytest.mark.parametrize(("form", "terminal"), [("json", True), ("json", False), ("text", False)])
def test_what_collects_logs_gets_nothing_but_the_log(tmp_path: Path, form: str, terminal: bool) -> None:
    """Nothing on standard output, and on standard error nothing but lines of the log."""
    path = tmp_path / "c.yaml"
    stated = CONFIG.format(folder=tmp_path).replace("drain_secs: 0", f"drain_secs: 0, log_format: {form}")
    path.write_text(stated)
    command = [sys.executable, "-m", "interlingua", "serve", "-c", str(path)]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(command, cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stderr is not None
        lines = []
        for line in daemon.stderr:
            lines.append(line)
            if "serving" in line:
                break
        daemon.terminate()
        lines += daemon.stderr
        daemon.wait(30)
    os.set_blocking(ours, False)
    with contextlib.suppress(BlockingIOError):
        assert os.read(ours, 1 << 16) == b""
    for end in (ours, theirs):
        os.close(end)
    if form == "json":
        assert {json.loads(line)["event"] for line in lines} >= {"listening", "serving", "stopped"}


def test_failed_models_are_counted_and_not_requested(tmp_path: Path) -> None:
    text = """\
    listeners: [{listen: ":0", transport: http}, {listen: ":0", transport: tcp, default_model: broken}]
    default_model: broken
    upstreams: {there: {dialect: oip, transport: http, urls: ["a:1"]}}
    models: {broken: {upstream: there}, fine: {upstream: there}}
    """
    config = parse(text)
    listening = [(options, Address("127.0.0.1", 9)) for options in config.listeners]
    shown = welcome(config, listening, None, ["fine"], ["broken", "other"])
    assert shown.startswith("interlingua is serving 1 of 3 models.\n  not loaded: broken, other\n")
    assert "/v2/models/fine\n" in shown and "/broken" not in shown
    assert shown.endswith("  graphpipe  tcp   127.0.0.1:9\n")
    shown = welcome(config, listening, None, [], ["broken", "fine"])
    assert shown.startswith("interlingua is serving 0 of 2 models.\n")
    assert "curl" not in shown and "{model}" not in shown


@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines for HTTP are for curl")
def test_every_line_to_paste_works(shown: list[str]) -> None:
    commands = {
        re.sub(" +", " ", where.strip()): line.strip()
        for where, line in zip(shown[1::2], shown[2::2], strict=True)
    }
    assert len(commands) == 4 + 3 + 1 + 1 + 4
    for where, command in commands.items():
        ran = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, (where, ran)
        # bRPC is asked whether it is ready, a unix socket of grps for the whole server
        assert "the_echo" in ran.stdout or '"status":"SUCCESS"' in ran.stdout, (where, ran)


def test_the_lines_ask_for_a_model_that_is_there(tmp_path: Path) -> None:
    config = parse('{listeners: [{listen: ":0", transport: http}]}')
    listening = [(config.listeners[0], Address("127.0.0.1", 9))]
    assert "/v2/models/one\n" in welcome(config, listening, None, ["one", "two"])
    assert "/v2/models/MODEL\n" in welcome(config, listening)
    config = parse(CONFIG.format(folder=tmp_path))
    assert "/v2/models/the_echo\n" in welcome(
        config, [(config.listeners[0], Address("127.0.0.1", 9))], None, ["one"]
    )


def test_one_line_for_each_dialect_of_a_shared_address() -> None:
    config = parse('{listeners: [{listen: ":0", transport: any}, {listen: "[::1]:0", transport: grpc}]}')
    ports = (Address("127.0.0.1", 8000), Address("127.0.0.1", 8001))
    shown = welcome(config, list(zip(config.listeners, ports, strict=True)), None, ["one"])
    assert "python" not in shown
    spoken = config.listeners[0].dialects
    assert shown.count("curl") == len(spoken)
    assert all(f"  {name:10} http  127.0.0.1:8000\n      curl -s " in shown for name in spoken)
    assert "  oip        grpc  127.0.0.1:8000\n" in shown and "  oip        grpc  127.0.0.1:8001\n" in shown


def test_the_interpreter_is_named_as_a_shell_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = parse(CONFIG.format(folder=tmp_path))
    listening = [(config.listeners[3], Address("127.0.0.1", 9))]

    def line() -> str:
        return welcome(config, listening).splitlines()[-1].strip()

    here = tmp_path / "an environment" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(here))
    monkeypatch.setattr(shutil, "which", lambda name: str(here))
    assert line().startswith("python -c ")
    monkeypatch.setattr(shutil, "which", lambda name: "/elsewhere/python")
    assert line().startswith(f"'{here}' -c ")
    monkeypatch.chdir(tmp_path)
    assert line().startswith("'an environment/bin/python' -c ")
