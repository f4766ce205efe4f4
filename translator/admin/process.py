"""Metrics of the process and the machine, read from Linux's /proc.

The names are those of the Prometheus client libraries, and Triton's for the machine, so that dashboards find
them."""

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
    """The metrics of the process that this system provides."""
    for name, kind, text, value in _OF_THE_PROCESS:
        try:
            found = value()
        except (OSError, ValueError, KeyError, IndexError):
            continue
        yield Family(name, kind, text, [Sample(found)])


def build(version: str) -> Family:
    labels = {"version": version, "python": platform.python_version()}
    return Family("interlingua_build_info", "gauge", "The version of the program.", [Sample(1, labels)])


def cache_families(cache: ResponseCache) -> Iterator[Family]:
    """The metrics of the response cache, under our names and Triton's."""
    used, limit = cache.used_bytes, cache.limit_bytes
    lookups, insertions = cache.lookups, cache.insertions
    gauges: tuple[tuple[str, str, float], ...] = (
        ("interlingua_response_cache_bytes", "Bytes of cached answers.", used),
        ("interlingua_response_cache_limit_bytes", "Size limit of the response cache in bytes.", limit),
        ("interlingua_response_cache_entries", "Cached answers.", len(cache)),
        ("nv_cache_util", "Share of the response cache in use, 0 to 1.", used / limit),
        ("nv_cache_num_entries", "Cached answers.", len(cache)),
        ("nv_cache_num_lookups", "Lookups in the response cache.", lookups.count),
        ("nv_cache_num_hits", "Lookups that found an answer.", cache.hits),
        ("nv_cache_num_misses", "Lookups that found none.", lookups.count - cache.hits),
        ("nv_cache_num_evictions", "Cached answers evicted.", cache.evictions),
        ("nv_cache_lookup_duration", "Total time of lookups in microseconds.", lookups.ns // 1000),
        ("nv_cache_insertion_duration", "Total time of insertions in microseconds.", insertions.ns // 1000),
    )
    # Triton's are gauges even if they only grow
    for name, text, value in gauges:
        yield Family(name, "gauge", text, [Sample(value)])
    text = "Cached answers evicted."
    yield Family("interlingua_response_cache_evictions_total", "counter", text, [Sample(cache.evictions)])


class CpuUtilization:
    """CPU utilization of the machine between two scrapes, 0 to 1; 0 at the first."""

    def __init__(self) -> None:
        self._before = _cpu_times()

    def families(self) -> Iterator[Family]:
        """The metric; nothing if /proc is unavailable."""
        now = _cpu_times()
        if now is None or self._before is None:
            return
        whole, idle = (after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        busy = (whole - idle) / whole if whole else 0.0
        text = "CPU utilization of the machine since the last scrape, 0 to 1."
        yield Family("nv_cpu_utilization", "gauge", text, [Sample(round(busy, 4))])


def _cpu_times() -> tuple[int, int] | None:
    """Ticks of all processors since boot, and the idle ones."""
    try:
        ticks = [int(each) for each in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return sum(ticks), ticks[3] + ticks[4]


def _statm(column: int) -> int:
    return int((_PROC / "self/statm").read_text().split()[column]) * os.sysconf("SC_PAGE_SIZE")


def _entries(folder: str) -> int:
    return len(os.listdir(_PROC / "self" / folder))


def _memory_used() -> int:
    return _memory("MemTotal") - _memory("MemAvailable")


def _max_fds() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _memory(name: str) -> int:
    lines = (line.split() for line in (_PROC / "meminfo").read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines}[f"{name}:"] * 1024


@cache
def _started() -> float:
    # once: the two clocks drift
    ticks = int((_PROC / "self/stat").read_text().rpartition(")")[2].split()[19])
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return round(booted + ticks / os.sysconf("SC_CLK_TCK"), 2)


_OF_THE_PROCESS: tuple[tuple[str, Kind, str, Callable[[], float]], ...] = (
    ("process_cpu_seconds_total", "counter", "CPU time, without worker processes.", time.process_time),
    ("process_resident_memory_bytes", "gauge", "Resident memory of the process.", lambda: _statm(1)),
    ("process_virtual_memory_bytes", "gauge", "Virtual memory of the process.", lambda: _statm(0)),
    ("process_open_fds", "gauge", "Open file descriptors.", lambda: _entries("fd")),
    ("process_max_fds", "gauge", "Maximum number of open file descriptors.", _max_fds),
    ("process_start_time_seconds", "gauge", "Start time of the process in seconds since 1970.", _started),
    ("interlingua_process_threads", "gauge", "Threads, libraries included.", lambda: _entries("task")),
    ("interlingua_process_python_threads", "gauge", "Python threads of the process.", threading.active_count),
    ("nv_cpu_memory_total_bytes", "gauge", "Memory of the machine.", lambda: _memory("MemTotal")),
    ("nv_cpu_memory_used_bytes", "gauge", "Memory of the machine in use.", _memory_used),
)
