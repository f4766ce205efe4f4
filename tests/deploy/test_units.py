"""The units for systemd, as ``systemd-analyze`` reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT, SOCKET = FOLDER / "interlingua.service", FOLDER / "interlingua.socket"
MOST_EXPOSED = 2.5
"""What ``systemd-analyze security`` may add up to, of 10: a service of a distribution has 5 to 9."""

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists, beside its sockets."""
    copy = tmp_path / UNIT.name
    text = re.sub(r"/opt/interlingua/bin/interlingua", shutil.which("true") or "", UNIT.read_text())
    if _version() < 253:
        # as the comment in the unit says
        text = text.replace("Type=notify-reload", "Type=notify\nExecReload=/bin/kill -HUP $MAINPID")
    copy.write_text(text)
    shutil.copy(SOCKET, tmp_path)
    return copy


def _version() -> int:
    found = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[1])


def test_it_has_no_unknown_option(unit: Path) -> None:
    units = [unit, unit.with_suffix(".socket")]
    ended = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert [line for line in ended.stderr.splitlines() if unit.stem in line] == []
    assert ended.returncode == 0


def test_it_is_confined(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    ended = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", ended.stdout)
    assert found is not None, ended.stderr
    assert float(found[1]) <= MOST_EXPOSED
