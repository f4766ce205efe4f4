"""docs/tutorial.md, followed from an empty folder to a bridged client: ``make docs`` runs it, since it installs."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tests.pages import matches, shell, steps
from tests.ports import free_port, free_ports

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
TEN_MINUTES = 600


def own_ports() -> dict[str, str]:
    """Free ports for those of the page."""
    bridge, server = free_ports(3), free_ports(3)
    ours = {str(8000 + each): str(bridge + each) for each in range(3)}
    theirs = {str(9000 + each): str(server + each) for each in range(3)}
    return {**ours, **theirs, "8011": str(free_port())}


@pytest.mark.skipif("DOCS" not in os.environ, reason="it installs: make docs runs it")
def test_the_tutorial_in_ten_minutes(tmp_path: Path) -> None:
    ports = own_ports()
    ported = re.compile(rf"\b(?:{'|'.join(ports)})\b")
    followed = steps(PAGE.read_text().replace("export SOURCE=$HOME/interlingua\n", ""))
    assert len(followed) >= 12
    began = time.monotonic()
    with shell(tmp_path, SOURCE=str(ROOT)) as opened:
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
