"""KServe's clients drive the daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.daemon import Daemon


def test_both_clients(examples: Daemon) -> None:
    script = Path(__file__).parent / "oip_kserve_client.py"
    done = subprocess.run(
        [sys.executable, str(script), *examples.addresses[:2]], capture_output=True, text=True, timeout=90
    )
    assert done.stdout.endswith("answered\n"), done.stderr
