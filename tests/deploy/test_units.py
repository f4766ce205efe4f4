"""The unit for systemd, as ``systemd-analyze`` reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "interlingua.service"
MOST_EXPOSED = 2.5
"""What ``systemd-analyze security`` may add up to, of 10: a service of a distribution has 5 to 9."""

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists."""
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"/opt/interlingua/bin/interlingua", shutil.which("true") or "", UNIT.read_text()))
    return copy


def test_it_has_no_unknown_option(unit: Path) -> None:
    ended = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert [line for line in ended.stderr.splitlines() if unit.name in line] == []
    assert ended.returncode == 0


def test_it_is_confined(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    ended = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", ended.stdout)
    assert found is not None, ended.stderr
    assert float(found[1]) <= MOST_EXPOSED
