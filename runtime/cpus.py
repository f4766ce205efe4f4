"""The CPUs that this process may use, and the threads that a run of a model may take of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def available_cpus() -> int:
    """How many CPUs the affinity mask and the quota of the control group permit, at least 1."""
    return max(1, min([len(os.sched_getaffinity(0)), *_quotas(_GROUPS, _OWN_GROUP)]))


def _quotas(groups: Path, own: Path) -> Iterator[int]:
    """The CPUs that the control group of this process and the groups above it permit, rounded up: ``cpu.max``
    of cgroup v2 has a quota and a period in microseconds, or ``max`` (Linux, cgroup-v2.rst, "CPU Interface
    Files")."""
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return
    name = PurePosixPath(line.removeprefix("0::")).relative_to("/")
    for group in (name, *name.parents):
        try:
            quota, period = (groups / group / "cpu.max").read_text().split()
        except (OSError, ValueError):
            # a root has no limit; in a container, outer groups are not visible
            continue
        if quota != "max":
            yield -(-int(quota) // int(period))


class EngineThreads:
    """How many threads a run takes of an engine that has a pool of its own, unless the model states it.
    ``count`` is 0 where the engine decides, as it does in a process that has all CPUs."""

    count = 0


def use_cpus(cpus: Sequence[int], engine_threads: int) -> None:
    """Run on ``cpus`` from now on, unless there are none, with threads and processes that start later. Raises
    ``OSError`` if none of them is available."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    EngineThreads.count = engine_threads
