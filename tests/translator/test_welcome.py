"""The lines that ``serve`` shows: each is run in a shell, as somebody would who has just installed this."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocols.transport.address import Address
from translator.config import parse
from translator.welcome import welcome

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
    command = [sys.executable, "-m", "translator", "serve", "-c", str(config)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        lines = [daemon.stdout.readline() for _ in range(1 + 2 * (4 + 3 + 1 + 1 + 4))]
        yield [line.rstrip("\n") for line in lines if "operators" not in line]
        daemon.terminate()
        daemon.wait(30)


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
