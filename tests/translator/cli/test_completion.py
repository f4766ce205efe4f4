"""The scripts of ``interlingua completion`` in the shells themselves.

Bash and zsh run on a terminal: TAB is pressed, then a key that writes the line, as it is completed, into a file.
Fish lists its completions itself.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.translator.cli.serving import Served, serve

SHELLS = [
    pytest.param(
        shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")
    )
    for shell in ("bash", "zsh", "fish")
]
DEADLINE_SECS = 60
CONTROL_O = b"\x0f"

BASH = """\
source <(interlingua completion bash)
write() { printf '%s' "$READLINE_LINE" > line.tmp; mv line.tmp line; }
bind -x '"\\C-o": write'
"""
ZSH = """\
autoload -Uz compinit && compinit -u -D
source <(interlingua completion zsh)
write() { printf '%s' "$BUFFER" > line.tmp; mv line.tmp line; }
zle -N write
bindkey '^O' write
"""

Complete = Callable[[str], str]
"""From a line to the line after TAB."""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("--example") as daemon:
        yield daemon


@pytest.fixture(scope="module", params=SHELLS)
def complete(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Complete]:
    """One shell for all lines, in a folder with a configuration, where ``interlingua`` is this one."""
    folder = tmp_path_factory.mktemp(request.param)
    config = "listeners: [{listen: '127.0.0.1:0', transport: http}]\nmodels: {configured: {upstream: u}}\n"
    config += "upstreams: {u: {dialect: oip, transport: http, urls: ['a:1']}}\n"
    (folder / "bridge.yaml").write_text(config)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder), "ZDOTDIR": str(folder), "TERM": "xterm"}
    if request.param == "fish":
        yield lambda line: listed_by_fish(line, folder, environment)
        return
    (folder / ".zshrc").write_text(ZSH)
    (folder / "bashrc").write_text(BASH)
    command = {"bash": ["bash", "--noprofile", "--rcfile", "bashrc", "-i"], "zsh": ["zsh", "-d", "-i"]}
    with terminal(command[request.param], folder, environment) as keyboard:
        yield lambda line: typed(line, keyboard, folder)


def listed_by_fish(line: str, folder: Path, environment: dict[str, str]) -> str:
    """The line with its only completion, if there is one."""
    program = f"interlingua completion fish | source; complete --do-complete '{line}'"
    ran = subprocess.run(
        ["fish", "--no-config", "-c", program], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    found = [each.partition("\t")[0].strip() for each in ran.stdout.splitlines()]
    return f"{line.rpartition(' ')[0]} {found[0]}" if len(found) == 1 else line


@contextmanager
def terminal(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[int]:
    """The file descriptor of the keyboard of a shell."""
    process, keyboard = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, environment)
    os.set_blocking(keyboard, False)
    try:
        yield keyboard
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(keyboard)


def typed(line: str, keyboard: int, folder: Path) -> str:
    """The line after TAB. The shell reads keys one after the other, so TAB has ended when the file appears."""
    written = folder / "line"
    written.unlink(missing_ok=True)
    # Control-U clears the line
    os.write(keyboard, b"\x15" + line.encode() + b"\t" + CONTROL_O)
    deadline = time.monotonic() + DEADLINE_SECS
    shown = b""
    while not written.exists():
        assert time.monotonic() < deadline, shown
        try:
            shown += os.read(keyboard, 65536)
        except BlockingIOError:
            time.sleep(0.02)
    return written.read_text().rstrip()


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("interlingua conform", "interlingua conformance"),
        ("interlingua infer --dial", "interlingua infer --dialect"),
    ],
)
def test_commands_and_options(complete: Complete, line: str, completed: str) -> None:
    assert complete(line) == completed


def test_models_of_the_running_server(complete: Complete, served: Served) -> None:
    """Whose dialect nobody states. On a busy machine it may not answer in time."""
    line = f"interlingua infer --url {served.every} --model "
    deadline = time.monotonic() + DEADLINE_SECS
    while (completed := complete(f"{line}dig")) != f"{line}digits":
        assert time.monotonic() < deadline, completed


def test_models_of_the_configuration(complete: Complete) -> None:
    """No server answers at that address."""
    line = "interlingua infer --url unix:nowhere.sock --model "
    assert complete(f"{line}conf") == f"{line}configured"
