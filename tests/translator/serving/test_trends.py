"""Trends under a clock of our own."""

from __future__ import annotations

import pytest

from interlingua.translator.serving.trends import Trends

MINUTE, HOUR, DAY = 60, 3_600, 86_400
SECOND_ROWS, MINUTE_ROWS, HOUR_ROWS = 173, 113, 53
"""Where the latest second, minute and hour stand; the latest day stands at 29."""


class Clock:
    now = 20.0 * DAY + 30

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trends(clock: Clock) -> Trends:
    return Trends(clock)


def test_nothing_has_happened(trends: Trends) -> None:
    told = trends.metrics()
    assert {name: len(values) for name, values in told.trends.items()} == dict.fromkeys(
        (
            "requests_per_second",
            "failed_percent",
            "latency_mean_ms",
            "latency_max_ms",
            "cpu_percent",
            "memory_percent",
        ),
        174,
    )
    assert set(told.trends["requests_per_second"]) == {0}
    assert len(told.latencies_ms) == 20
    assert set(told.latencies_ms.values()) == {0}


def test_requests_are_seen_on_every_scale(trends: Trends, clock: Clock) -> None:
    for ns, failed in ((1_000_000, False), (3_000_000, True), (2_000_000, False), (2_000_000, False)):
        trends.count(ns, failed)
    told = trends.metrics().trends
    rates = told["requests_per_second"]
    assert [rates[row] for row in (SECOND_ROWS, MINUTE_ROWS, HOUR_ROWS)] == [4, 0.067, 0.001]
    for row in (29, HOUR_ROWS, MINUTE_ROWS, SECOND_ROWS):
        assert told["failed_percent"][row] == 25
        assert told["latency_mean_ms"][row] == 2
        assert told["latency_max_ms"][row] == 3
    assert sum(told["failed_percent"]) == 100, "and nowhere else"


def test_time_moves_the_rows(trends: Trends, clock: Clock) -> None:
    trends.count(1_000_000, False)
    for seconds, row in ((1, SECOND_ROWS - 1), (58, SECOND_ROWS - 59)):
        clock.now += seconds
        assert trends.metrics().trends["requests_per_second"][row] == 1
    clock.now += 1
    told = trends.metrics().trends["latency_mean_ms"]
    assert set(told[SECOND_ROWS - 59 :]) == {0}
    assert told[MINUTE_ROWS - 1] == told[HOUR_ROWS] == told[29] == 1
    clock.now += 2 * DAY
    told = trends.metrics().trends["latency_mean_ms"]
    assert [row for row, value in enumerate(told) if value] == [27]
    clock.now += 30 * DAY
    assert set(trends.metrics().trends["latency_mean_ms"]) == {0}
    assert sum(len(buckets) for buckets in trends._buckets.values()) <= 4, "what is too old is let go"


def test_how_latencies_are_spread(trends: Trends) -> None:
    for milliseconds in range(1, 1_001):
        trends.count(milliseconds * 1_000_000, False)
    told = trends.metrics().latencies_ms
    assert list(told) == sorted(told)
    assert told[0.1] == pytest.approx(100, abs=1)
    assert told[0.9] == pytest.approx(900, abs=1)
    assert told[0.9999] == pytest.approx(1_000, abs=1)


def test_many_requests_of_one_second(trends: Trends) -> None:
    for number in range(10_000):
        trends.count((10_000 - number) * 1_000, number % 4 == 0)
    found = trends.metrics()
    assert found.trends["requests_per_second"][-1] == 10_000
    assert found.trends["failed_percent"][-1] == 25
    assert found.trends["latency_mean_ms"][-1] == pytest.approx(5.0005, abs=1e-3)
    assert found.trends["latency_max_ms"][-1] == 10
    assert found.latencies_ms[0.9999] == pytest.approx(4.096, abs=1e-3), "of the latest ones"


def test_what_the_process_takes(trends: Trends, clock: Clock) -> None:
    clock.now += 1
    told = trends.metrics().trends
    assert 0 < told["memory_percent"][29] < 100
    assert told["cpu_percent"][29] >= 0
