"""Every fault for a short time: no answer is wrong, nothing is lost, and all callers get their answers again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import departures, kills
from tests.chaos.faults import FAULTS
from tests.chaos.measure import run
from tests.chaos.table import table
from tests.chaos.world import clock_environment

SECS = 0.25


@pytest.mark.timeout(300)
async def test_faults(tmp_path: Path) -> None:
    faults = [fault for fault in FAULTS if not fault.clock or shutil.which("cc")]
    rows = await run(faults, tmp_path / "world", SECS)
    print(table(rows))
    violations = {row.fault.name: row.violations for row in rows if row.violations}
    assert not violations


@pytest.mark.timeout(300)
async def test_departures(tmp_path: Path) -> None:
    """Clients of every dialect and transport that left have left nothing for the daemon to wait for."""
    row = await departures.run_short(tmp_path)
    print(departures.table([row]))
    assert row.violations == []


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_clock_moves_while_a_process_runs(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    environment = clock_environment(tmp_path, offset)
    program = (
        "import pathlib, struct, sys, time\n"
        "before, steady = time.time(), time.monotonic()\n"
        "pathlib.Path(sys.argv[1]).open('r+b').write(struct.pack('=q', 86_400))\n"
        "print(round((time.time() - before) / 86_400), round((time.monotonic() - steady) / 86_400))\n"
    )
    command = [sys.executable, "-c", program, str(offset)]
    assert (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "1 0\n"
    )


@pytest.mark.timeout(300)
async def test_kills(tmp_path: Path) -> None:
    """Each kind of process of a server of several, once: its successor answers, and nothing is left of it."""
    rows, before, after = await kills.run(tmp_path / "world", 1)
    print(kills.table(rows, before, after))
    assert {row.kind.name: row.violations for row in rows if row.violations} == {}
    assert all(row.outcomes["ok"] for row in rows)
