"""Requests that repeat others are counted as any, though together."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from interlingua.protocols.wire import NO_CONTEXT
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.schemas.status import VersionStatistics

ENDS = [
    ("1", 1, 40_000),
    ("1", 1, 50_000),
    ("1", 4, 3_000_000),
    ("", 4, 70_000),
    ("2", 4, 70_000),
    ("1", 1, 20_000_000_000),
]
"""The version, the batch elements and the nanoseconds of some requests."""


def _repeated(counts: UpstreamCounts, version: str, size: int, ns: int) -> None:
    counts.repeated(version, size, ns, ns // 10, time.monotonic_ns())


def _succeeded(counts: UpstreamCounts, version: str, size: int, ns: int) -> None:
    counts.success(version, size, (5, 5, 5, 5 + ns - ns // 10, 5 + ns, 0), NO_CONTEXT)


def _timeless(counts: UpstreamCounts) -> dict[str, VersionStatistics]:
    return {version: replace(each, last_inference_ms=0) for version, each in counts.by_version.items()}


def test_reports_of_a_version_have_them() -> None:
    counts = UpstreamCounts()
    for number in range(1, 4):
        _repeated(counts, "7", 1, 1000)
        assert counts.of("7").inference_count == number


@pytest.mark.parametrize("read", [False, True])
def test_they_count_as_others(read: bool) -> None:
    repeated, others = UpstreamCounts(), UpstreamCounts()
    for version, size, ns in ENDS * 3:
        _repeated(repeated, version, size, ns)
        _succeeded(others, version, size, ns)
        assert repeated.answered == others.answered
        if read:
            assert _timeless(repeated) == _timeless(others)
    assert _timeless(repeated) == _timeless(others)


def test_they_count_between_others() -> None:
    mixed, others = UpstreamCounts(), UpstreamCounts()
    for number, (version, size, ns) in enumerate(ENDS * 3):
        (_repeated if number % 2 else _succeeded)(mixed, version, size, ns)
        _succeeded(others, version, size, ns)
    assert _timeless(mixed) == _timeless(others)


def test_the_last_one_has_its_time() -> None:
    counts = UpstreamCounts()
    before = time.time_ns() // 1_000_000
    _repeated(counts, "1", 1, 1000)
    after = time.time_ns() // 1_000_000
    time.sleep(0.05)
    found = counts.by_version["1"].last_inference_ms
    assert before - 1 <= found <= after + 1
    assert counts.by_version["1"].last_inference_ms == found
    _repeated(counts, "1", 1, 1000)
    assert counts.by_version["1"].last_inference_ms > found


def test_what_fails_is_of_a_version_that_repeated() -> None:
    counts = UpstreamCounts()
    _repeated(counts, "7", 1, 1000)
    counts.failure("", 1, time.monotonic_ns(), ValueError(), NO_CONTEXT)
    counts.failure("9", 1, time.monotonic_ns(), ValueError(), NO_CONTEXT)
    _succeeded(counts, "8", 1, 1000)
    counts.refused("7", NO_CONTEXT)
    assert counts.by_version.keys() == {"7", "8"}
    found = counts.by_version["7"]
    assert (found.inference_count, sum(found.failures.values()), found.refused) == (1, 2, 1)
