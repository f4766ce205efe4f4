"""Traffic over time: what the rings keep, and what pages make of it."""

from __future__ import annotations

import random
from array import array

import pytest

from interlingua.translator.admin.handler import QueryError
from interlingua.translator.dashboard.history import COLUMNS, History, Selection, summed
from interlingua.translator.dashboard.rings import MAX_WAYS, OTHERS, SCALES, Rings
from interlingua.translator.dashboard.traffic import BUCKETS, Counts, Traffic, Way, counted, merge

OIP = Way("oip", "1", "a", "")
GRPS = Way("grps", "", "b", "far")


def counts(requests: int, failed: int = 0, bucket: int = 3) -> Counts:
    latencies = [0] * BUCKETS
    latencies[bucket] = requests
    return (failed, *latencies)


class Feed:
    """A server whose traffic and clock a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.traffic = Traffic()
        self.history = History(self._collect, lambda: self.now)

    async def _collect(self) -> Traffic:
        return self.traffic

    async def second(self, ways: dict[Way, Counts], **queues: dict[str, int]) -> None:
        """Let a second pass with these inferences."""
        self.traffic = merge(Traffic(dict(self.traffic.ways), **queues), Traffic(ways))
        self.now += 1
        await self.history.sample()


async def fed() -> Feed:
    feed = Feed()
    await feed.history.sample()
    return feed


async def test_rates_latencies_and_queues_of_a_second() -> None:
    feed = await fed()
    await feed.second({OIP: counts(4, 1), GRPS: counts(2, bucket=8)}, waiting={"a": 3}, limited={"far": 2})
    points = feed.history.points(Selection())
    assert tuple(points) == COLUMNS
    assert points["time"] == [1_000_000.0]
    assert (points["requests_per_sec"], points["failed_per_sec"]) == ([6.0], [1.0])
    (p50,), (p99,) = points["p50_ms"], points["p99_ms"]
    assert p50 is not None and p99 is not None
    assert 0.25 < p50 <= 0.5 and 10 < p99 <= 25
    assert points["waiting"] == [5]


@pytest.mark.parametrize(
    ("query", "requests", "waiting"),
    [
        ("dialect=oip", 4, 3),
        ("dialect=grps", 2, 2),
        ("route=1", 4, 3),
        ("route=", 2, 2),
        ("model=b", 2, 2),
        ("upstream=far", 2, 2),
        ("upstream=", 4, 3),
        ("dialect=oip&model=b", 0, 0),
    ],
)
async def test_a_selection_has_the_inferences_of_its_ways_alone(
    query: str, requests: int, waiting: int
) -> None:
    feed = await fed()
    await feed.second({OIP: counts(4), GRPS: counts(2)}, waiting={"a": 3}, limited={"far": 2})
    points = feed.history.points(Selection.of_query(query))
    assert points["requests_per_sec"] == [requests]
    if requests:
        assert points["waiting"] == [waiting]
    else:
        assert points["p50_ms"] == [None]


@pytest.mark.parametrize("query", ["range=2d", "colour=red"])
def test_a_query_of_something_unknown_is_refused(query: str) -> None:
    with pytest.raises(QueryError):
        Selection.of_query(query)


async def test_rates_count_the_time_that_has_passed() -> None:
    feed = await fed()
    feed.now += 3  # the loop was busy
    await feed.second({OIP: counts(8)})
    assert feed.history.points(Selection())["requests_per_sec"] == [2.0]


async def test_what_happened_before_the_first_sample_is_not_in_it() -> None:
    feed = Feed()
    feed.traffic = Traffic({OIP: counts(1000)})
    await feed.history.sample()
    await feed.second({})
    assert feed.history.points(Selection())["requests_per_sec"] == [0.0]


async def test_a_clock_that_is_set_back_and_counts_that_begin_again() -> None:
    feed = await fed()
    await feed.second({OIP: counts(5)})
    feed.now -= 10
    await feed.history.sample()
    feed.traffic = Traffic({OIP: counts(1)})
    feed.now += 1
    await feed.history.sample()
    await feed.second({OIP: counts(2)})
    assert min(value or 0 for value in feed.history.points(Selection())["requests_per_sec"]) >= 0


@pytest.mark.parametrize("back_secs", [0.5, 10, 3600])
async def test_a_clock_that_is_set_back_leaves_intervals_in_order(back_secs: float) -> None:
    feed = await fed()
    for _ in range(30):
        await feed.second({OIP: counts(5)})
    feed.now -= back_secs + 1
    await feed.second({OIP: counts(5)})
    for _ in range(5):
        await feed.second({OIP: counts(3)})
    for name in ("10m", "2h", "24h"):
        times = feed.history.points(Selection.of_query(f"range={name}"))["time"]
        assert times == sorted(set(times)), name  # type: ignore[type-var]
        assert (times[-1] or 0.0) <= feed.now
    assert feed.history.points(Selection())["requests_per_sec"][-3:] == [3.0] * 3


async def test_longer_ranges_have_coarser_intervals_with_the_same_requests() -> None:
    feed = await fed()
    for _ in range(120):
        await feed.second({OIP: counts(1)}, waiting={"a": 2})
    for name, interval in (("10m", 1), ("2h", 10), ("24h", 60)):
        selection = Selection.of_query(f"range={name}")
        points = feed.history.points(selection)
        assert selection.scale == interval
        assert len(points["time"]) == pytest.approx(120 / interval, abs=1)
        assert set(points["requests_per_sec"]) == {1.0}
        assert set(points["waiting"]) == {2}
        (way,) = feed.history.ways(selection)
        assert (way["requests"], way["dialect"], way["model"]) == (120, "oip", "a")


@pytest.mark.parametrize("number", [0, 1, 300])
def test_sums_are_those_of_integers(number: int) -> None:
    seeded = random.Random(number)
    most = 2**32 - 1  # the sum is more
    added = [array("I", (seeded.choice((0, 1, most)) for _ in range(BUCKETS + 1))) for _ in range(number)]
    expected = [sum(each[place] for each in added) for place in range(BUCKETS + 1)]
    assert summed(added) == expected
    assert all(type(count) is int for count in summed(added))


async def test_only_the_latest_points_are_sent_again() -> None:
    feed = await fed()
    for _ in range(5):
        await feed.second({OIP: counts(1)})
    times = feed.history.points(Selection())["time"]
    assert times[-1] is not None
    assert feed.history.points(Selection(), times[-1])["time"] == times[-1:]


def test_the_memory_is_bounded_and_no_request_is_lost() -> None:
    rings = Rings()
    ways = {Way("oip", "", f"m{number}", ""): counts(0) for number in range(80)}
    rings.sample(Traffic(ways), 0.5)
    for second in range(1, 620):
        ways = {way: counts(second + (number < 3)) for number, way in enumerate(ways)}
        rings.sample(Traffic(ways, {f"m{number}": 1 for number in range(60)}), second + 0.5)
    for scale in SCALES:
        kept = list(rings.intervals(scale.secs, -1))
        assert len(kept) <= scale.kept
        assert max(len(each.ways) for each in kept) <= MAX_WAYS + 1
        assert max(len(each.waiting) for each in kept) <= MAX_WAYS + 1
    assert len(list(rings.intervals(1, -1))) == 600
    last = list(rings.intervals(1))[-1]
    assert sum(sum(each[1:]) for each in last.ways.values()) == 80
    assert Way("oip", "", OTHERS, "") in last.ways


def test_processes_add_up_and_an_exited_one_keeps_what_it_counted() -> None:
    one = Traffic({OIP: counts(1)}, {"a": 1}, {"far": 1})
    other = Traffic({OIP: counts(2, 1), GRPS: counts(1)}, {"a": 2, "b": 1})
    found = merge(merge(Traffic(), one), other)
    assert found.ways == {OIP: counts(3, 1), GRPS: counts(1)}
    assert (found.waiting, found.limited) == ({"a": 3, "b": 1}, {"far": 1})
    assert one.ways == {OIP: counts(1)}
    assert counted(found) == Traffic(found.ways)
