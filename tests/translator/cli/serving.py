"""``interlingua serve`` as a process, without a configuration of ours."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_ADDRESS = re.compile(r"(admin listening|listening) address=(\S+)")


@dataclass(frozen=True)
class Served:
    """A running daemon: the address of every dialect, that of gRPC, that of the operators."""

    process: subprocess.Popen[str]
    every: str
    grpc: str
    admin: str


@contextmanager
def serve(*arguments: str, cwd: Path = ROOT) -> Iterator[Served]:
    """Run ``interlingua serve ARGUMENTS`` on free ports; it must stop in order."""
    command = [sys.executable, "-m", "interlingua", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            log = []
            for line in process.stderr:
                log.append(line)
                if " serving " in line:
                    break
            found = _ADDRESS.findall("".join(log))
            assert [event for event, _ in found] == ["admin listening", "listening", "listening"], log
            admin, every, grpc = (address for _, address in found)
            yield Served(process, every, grpc, admin)
            # it skips the drain
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            assert process.returncode == 0
        finally:
            process.kill()
