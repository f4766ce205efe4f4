"""The allocator's settings, each in a process of its own: they cannot be taken back."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS_OF_BIG_BLOCKS = """
import resource
from interlingua.runtime.allocator import tune_allocator

told = {tune}
for _ in range(50):
    bytes(4 << 20).count(1)
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")


def measure(tune: bool, **environment: str) -> tuple[str, int]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    code = FAULTS_OF_BIG_BLOCKS.format(tune="tune_allocator()" if tune else None)
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env={**clean, **environment}, capture_output=True, text=True, check=True)
    told, faults = done.stdout.split()
    return told, int(faults)


@glibc
def test_big_blocks_are_used_again() -> None:
    untouched, before = measure(tune=False, MALLOC_MMAP_THRESHOLD_="131072")
    told, after = measure(tune=True)
    assert (untouched, told) == ("None", "True")
    # 50 blocks of 1024 pages: faulted in every time, or once
    assert before > 40_000
    assert after < before / 4


@glibc
@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"])
def test_settings_from_outside_win(name: str) -> None:
    assert measure(tune=True, **{name: "1048576"})[0] == "False"
