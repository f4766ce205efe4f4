"""What a benchmark shows on a terminal while it measures; a pipe gets results alone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = "\r\x1b[K"

_PROGRAM = """
from benchmarks import progress
for number in progress.each((1, 2), lambda number: f"case {number}"):
    progress.say(f"result {number}\\n")
"""

OTHERS = {
    "any_port", "arrivals", "bare_loop", "calls", "clients", "codecs", "counting", "floors", "kserve_rows", "load",
    "metrics", "overload", "passing", "plots", "ray", "ray_daemon", "replay", "ring", "scale_model", "strings",
}  # fmt: skip
"""Servers and clients of benchmarks, and those that measure one thing, in seconds."""


def test_a_line_on_a_terminal_alone() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        assert process.communicate(timeout=60)[0] == "result 1\nresult 2\n"
        shown = os.read(ours, 65536).decode()
        os.close(ours)
    assert shown == f"{LINE}1 of 2: case 1{LINE}{LINE}2 of 2: case 2{LINE}{LINE}"
    piped = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert piped.stderr == ""


@pytest.mark.parametrize(
    "name", ["batching", "tabular", "hostile/__main__", "bridging/__main__", "gpu", "__main__"]
)
def test_benchmarks_of_make_show_it(name: str) -> None:
    assert "progress.each(" in (ROOT / f"benchmarks/{name}.py").read_text()


def test_the_list_of_the_others_is_whole() -> None:
    programs = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if 'if __name__ == "__main__"' in path.read_text()
    }
    without = {
        name for name in programs if "progress.each(" not in (ROOT / f"benchmarks/{name}.py").read_text()
    }
    assert without == OTHERS
