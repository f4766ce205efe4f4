"""Processes with a fresh interpreter, which find the program as this one does and nothing in their folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from {module} import main
sys.path.pop(0)
main(*{descriptors!r})
"""
_ROOT = str(Path(__file__).parents[2])


def start(module: str, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """A process that runs ``main(*descriptors)`` of ``module``. Raises ``OSError``."""
    program = _PROGRAM.format(root=_ROOT, module=module, descriptors=tuple(descriptors))
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", "-c", program], stdin=subprocess.DEVNULL, pass_fds=descriptors
    )


def end(process: subprocess.Popen[bytes], secs: float) -> None:
    """Wait ``secs`` for the exit of a process, and kill it then. Blocks."""
    try:
        process.wait(secs)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
