"""The benchmark of the ring measures two processes."""

from __future__ import annotations

import subprocess
import sys


def test_every_row_has_figures() -> None:
    # a process of its own: it forks
    text = subprocess.run(
        [sys.executable, "-m", "benchmarks.ring", "--quick"], check=True, capture_output=True, text=True
    ).stdout
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    large = "4,194,304"
    assert [row[0] for row in rows] == [
        "64",
        "64",
        "65,536",
        large,
        f"{large}, in place",
        f"{large}, in place, made",
    ]
    assert all(float(cell) > 0 for row in rows for cell in row[2:])
