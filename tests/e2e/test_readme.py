"""The commands of the README against the daemon that it starts: ``make docs`` runs it, since some install."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.daemon import Daemon
from tests.pages import matches, shell, steps

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## Try it$(.*?)^## ", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif("DOCS" not in os.environ, reason="it installs: make docs runs it")
def test_what_to_try(tmp_path: Path) -> None:
    section = SECTION.search((ROOT / "README.md").read_text())
    assert section is not None
    # the folder of the user
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    config = yaml.safe_load((ROOT / "config.example.yaml").read_text())
    listeners = [listener for listener in config["listeners"] if not listener["listen"].startswith("unix:")]
    known = [listener["listen"].rpartition(":")[2] for listener in listeners]
    for listener in (*listeners, config["admin"]):
        listener["listen"] = "127.0.0.1:0"
    server = {**config["server"], "log_format": "json", "drain_secs": 0.0}
    daemon = Daemon.start(tmp_path, {**config, "server": server, "listeners": listeners})
    try:
        bound = {
            port: address.rpartition(":")[2] for port, address in zip(known, daemon.addresses, strict=True)
        }
        followed = steps(re.sub(r"localhost:(\d+)", lambda port: f"localhost:{bound[port[1]]}", section[1]))
        assert len(followed) == 3
        with shell(tmp_path) as opened:
            for step in followed:
                # the default address is that of the page
                commands = step.commands.replace(
                    "infer --model digits", f"infer --url localhost:{bound['8000']} --model digits"
                )
                status, printed = opened.run(f"set -e\n{commands}")
                shown = "...\n" + (step.printed or "...\n")
                assert status == 0 and matches(shown, printed), f"{commands}{printed}"
                assert "rror" not in printed
    finally:
        daemon.stop()
