"""What operators are told of the process and its machine, as far as the system tells, which is Linux's /proc.

The names are those of Prometheus' own clients, and Triton's for the machine, so that dashboards find them.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from interlingua.runtime.models.response_cache import ResponseCache
from interlingua.translator.admin.metrics import Family, Kind, Sample

_PROC = Path("/proc")


def families() -> Iterator[Family]:
    """The process; what the system does not tell is left out."""
    for name, kind, text, value in _OF_THE_PROCESS:
        try:
            found = value()
        except (OSError, ValueError, KeyError, IndexError):
            continue
        yield Family(name, kind, text, [Sample(found)])


def build(version: str) -> Family:
    """Which program this is."""
    labels = {"version": version, "python": platform.python_version()}
    return Family("interlingua_build_info", "gauge", "The version of the program.", [Sample(1, labels)])


def cache_families(cache: ResponseCache) -> Iterator[Family]:
    """What the response cache holds, under names of our own and under Triton's."""
    told: tuple[tuple[str, str, float], ...] = (
        ("interlingua_response_cache_bytes", "Bytes of answers that are kept.", cache.used_bytes),
        ("interlingua_response_cache_limit_bytes", "Bytes that may be kept.", cache.limit_bytes),
        ("interlingua_response_cache_entries", "Answers that are kept.", len(cache)),
        (
            "nv_cache_util",
            "Share of the response cache's bytes that is in use, from 0 to 1.",
            cache.used_bytes / cache.limit_bytes,
        ),
        ("nv_cache_num_entries", "Answers that the response cache keeps.", len(cache)),
        ("nv_cache_num_lookups", "Times that an answer was looked for.", cache.lookups.count),
        ("nv_cache_num_hits", "Times that one was found.", cache.hits),
        ("nv_cache_num_misses", "Times that none was found.", cache.lookups.count - cache.hits),
        ("nv_cache_num_evictions", "Answers that had to make room for others.", cache.evictions),
        (
            "nv_cache_lookup_duration",
            "Microseconds that looking for answers took, whether or not they were found.",
            cache.lookups.ns // 1000,
        ),
        (
            "nv_cache_insertion_duration",
            "Microseconds that it took to keep answers.",
            cache.insertions.ns // 1000,
        ),
    )
    # Triton's are gauges even where they only grow
    for name, text, value in told:
        yield Family(name, "gauge", text, [Sample(value)])
    text = "Answers that had to make room for others."
    yield Family("interlingua_response_cache_evictions_total", "counter", text, [Sample(cache.evictions)])


class CpuUtilization:
    """How busy the machine's processors were between two looks, 0 to 1. The first look finds 0."""

    def __init__(self) -> None:
        self._before = _cpu_times()

    def families(self) -> Iterator[Family]:
        """Nothing where the system does not tell."""
        now = _cpu_times()
        if now is None or self._before is None:
            return
        whole, idle = (after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        busy = (whole - idle) / whole if whole else 0.0
        text = "Share of the machine's processors that was busy since the last look, from 0 to 1."
        yield Family("nv_cpu_utilization", "gauge", text, [Sample(round(busy, 4))])


def _cpu_times() -> tuple[int, int] | None:
    """Ticks of all processors since the machine was started, and those of them that were idle."""
    try:
        ticks = [int(each) for each in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(ticks), ticks[3] + ticks[4]


def _statm(column: int) -> int:
    return int((_PROC / "self/statm").read_text().split()[column]) * os.sysconf("SC_PAGE_SIZE")


def _max_fds() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _memory(name: str) -> int:
    lines = (line.split() for line in (_PROC / "meminfo").read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}[f"{name}:"] * 1024


@cache
def _started() -> float:
    # once, or the two clocks would make it tremble
    ticks = int((_PROC / "self/stat").read_text().rpartition(")")[2].split()[19])
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return round(booted + ticks / os.sysconf("SC_CLK_TCK"), 2)


_OF_THE_PROCESS: tuple[tuple[str, Kind, str, Callable[[], float]], ...] = (
    (
        "process_cpu_seconds_total",
        "counter",
        "Processor time that the process has spent, without the processes of Python models.",
        time.process_time,
    ),
    ("process_resident_memory_bytes", "gauge", "Memory that the process has in use.", lambda: _statm(1)),
    ("process_virtual_memory_bytes", "gauge", "Addresses that the process has in use.", lambda: _statm(0)),
    (
        "process_open_fds",
        "gauge",
        "Descriptors that the process has open.",
        lambda: len(os.listdir(_PROC / "self/fd")),
    ),
    ("process_max_fds", "gauge", "Descriptors that the process may have open.", _max_fds),
    ("process_start_time_seconds", "gauge", "When the process was started, in seconds since 1970.", _started),
    (
        "interlingua_process_threads",
        "gauge",
        "Threads of the process, those of libraries included.",
        lambda: len(os.listdir(_PROC / "self/task")),
    ),
    ("interlingua_process_python_threads", "gauge", "Threads that run Python.", threading.active_count),
    ("nv_cpu_memory_total_bytes", "gauge", "Memory of the machine.", lambda: _memory("MemTotal")),
    (
        "nv_cpu_memory_used_bytes",
        "gauge",
        "Memory of the machine that is not available.",
        lambda: _memory("MemTotal") - _memory("MemAvailable"),
    ),
)
