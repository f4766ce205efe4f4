"""docs/tutorial.md, followed from an empty folder to a bridged client: ``make docs`` runs it, since it installs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pages import matches, steps
from tests.ports import free_port, free_ports

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
TEN_MINUTES = 600


class Shell:
    """A shell in a folder; what runs in its background ends with it."""

    _END = "the end of a step:"

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["/bin/bash"],
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, commands: str) -> tuple[int, str]:
        """The status of the last command, and what all have printed."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        # some commands print no end of the line
        process.stdin.write(f"{commands}\nprintf '\\n{self._END}%s\\n' $?\n")
        process.stdin.flush()
        printed = []
        for line in process.stdout:
            if line.startswith(self._END):
                return int(line.removeprefix(self._END)), "".join(printed)
            printed.append(line)
        return process.wait(), "".join(printed)

    def end(self) -> None:
        """Kill all of it."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    found = Shell(folder, {**kept, "SOURCE": str(ROOT)})
    try:
        yield found
    finally:
        found.end()


def own_ports() -> dict[str, str]:
    """Free ports for those of the page."""
    bridge, server = free_ports(3), free_ports(3)
    ours = {str(8000 + each): str(bridge + each) for each in range(3)}
    theirs = {str(9000 + each): str(server + each) for each in range(3)}
    return {**ours, **theirs, "8011": str(free_port())}


@pytest.mark.skipif("TUTORIAL" not in os.environ, reason="it installs: make docs runs it")
def test_the_tutorial_in_ten_minutes(tmp_path: Path) -> None:
    ports = own_ports()
    ported = re.compile(rf"\b(?:{'|'.join(ports)})\b")
    followed = steps(PAGE.read_text().replace("export SOURCE=$HOME/interlingua\n", ""))
    assert len(followed) >= 12
    began = time.monotonic()
    with shell(tmp_path) as opened:
        for step in followed:
            commands = ported.sub(lambda port: ports[port[0]], step.commands)
            if "interlingua init" in commands:
                # it writes the ports of the page
                swaps = ";".join(f"s/\\b{port}\\b/{ports[port]}/" for port in ports)
                commands = commands.replace(
                    "\ncat bridge.yaml", f"\nsed -i '{swaps}' bridge.yaml\ncat bridge.yaml"
                )
            status, printed = opened.run(commands)
            # pip may warn, of its own version for example
            warnings = "...\n" if "pip install" in commands else ""
            shown = warnings + ported.sub(lambda port: ports[port[0]], step.printed or "...\n")
            assert status == 0 and matches(shown, printed), f"{commands}{printed}"
    assert time.monotonic() - began < TEN_MINUTES
