"""Refused clients get few records in the audit log, and the last ones count those without."""

from __future__ import annotations

import pytest

from interlingua.translator.access.refusals import (
    CALLER_BURST,
    CALLER_PER_SEC,
    LISTENER_BURST,
    LISTENER_PER_SEC,
    RefusalRecords,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_one_caller(clock: Clock) -> None:
    records = RefusalRecords(clock)
    found = [records.suppressed("10.0.0.1") for _ in range(CALLER_BURST + 90)]
    assert found == [0] * CALLER_BURST + [None] * 90
    assert records.suppressed("10.0.0.2") == 90  # another caller has its own
    clock.now += 1.01 / CALLER_PER_SEC
    assert [records.suppressed("10.0.0.1") for _ in range(3)] == [0, None, None]
    clock.now += 1.01 / CALLER_PER_SEC
    assert records.suppressed("10.0.0.1") == 2


def test_one_client_with_many_addresses(clock: Clock) -> None:
    records = RefusalRecords(clock)
    for number in range(100_000):
        clock.now += 0.001
        records.suppressed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    clock.now += 1.0
    suppressed = records.suppressed("10.9.9.9")
    assert suppressed is not None
    # under a flood, too, a few are recorded
    recorded = [records.suppressed(f"::{number:x}") for number in range(1000)].count(0)
    assert 0 < recorded <= LISTENER_PER_SEC
    assert suppressed <= 100_000 - LISTENER_BURST
