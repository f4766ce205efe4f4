"""The CPUs of the processes of a server."""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.runtime.cpus import available_cpus


@dataclass(frozen=True, slots=True)
class CpuPlacement:
    """The CPUs of all front ends together and of the runtime process; none is no affinity. A run of a model
    takes ``engine_threads``."""

    front_ends: tuple[int, ...]
    runtime: tuple[int, ...]
    engine_threads: int


def placed(cpus: tuple[int, ...], workers: int) -> CpuPlacement:
    """The placement of ``workers`` front ends on ``cpus``. A front end has one event loop, so that as many
    CPUs as front ends are enough for them, and models run on the others. With fewer, all share all."""
    left = max(1, (len(cpus) or available_cpus()) - workers)
    if len(cpus) > workers:
        return CpuPlacement(cpus[:workers], cpus[workers:], left)
    return CpuPlacement(cpus, cpus, left)
