"""Which of several weighted servers gets a request."""

from __future__ import annotations

from collections import Counter

import pytest

from interlingua.runtime.upstream.pool import Attempt, Member, Pool, Weighted
from interlingua.runtime.upstream.pool import weighted as weighted_module


def member(url: str, weight: float = 1.0, zone: str = "") -> Member:
    made = Member(None, url)
    made.weight, made.zone = weight, zone
    return made


def pool(*members: Member, zone: str = "", slow_start_secs: float = 0.0) -> Pool:
    return Pool(members, weighted=Weighted(zone, slow_start_secs))


def chosen(among: Pool, count: int) -> Counter[str]:
    """Which servers get so many requests, one after the other."""
    found: Counter[str] = Counter()
    for _ in range(count):
        attempt = Attempt(among)
        with attempt:
            found[attempt.member.url] += 1
    return found


def hold(among: Pool, count: int) -> Counter[str]:
    """Which servers get so many requests at the same time."""
    for _ in range(count):
        Attempt(among).__enter__()
    return Counter({each.url: each.running for each in among.members})


@pytest.mark.parametrize("weights", [(3, 1), (2, 3), (5, 1, 1), (0.5, 1.5)])
@pytest.mark.parametrize("take", [chosen, hold])
def test_each_gets_its_share(weights: tuple[float, ...], take: object) -> None:
    assert callable(take)
    among = pool(*(member(str(place), weight) for place, weight in enumerate(weights)))
    rounds = 10
    scale = rounds / min(weights)
    found = take(among, round(sum(weights) * scale))
    for place, weight in enumerate(weights):
        assert abs(found[str(place)] - weight * scale) <= 2, found


def test_a_server_with_more_requests_than_its_share_gets_none() -> None:
    slow, fast = member("slow", 2), member("fast", 1)
    among = pool(slow, fast)
    slow.running = 20
    assert chosen(among, 10) == {"fast": 10}
    # what it missed does not come at once
    slow.running = 0
    assert abs(chosen(among, 30)["slow"] - 20) <= 1


def test_a_server_that_joins_gets_its_share_at_once() -> None:
    among = pool(member("a", 2), member("b"))
    chosen(among, 300)
    among.members.append(member("c"))
    assert chosen(among, 40) == {"a": 20, "b": 10, "c": 10}


def test_servers_of_equal_weight_are_chosen_as_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Weighted, "choose", None)
    assert chosen(pool(member("a", 7), member("b", 7)), 10) == {"a": 5, "b": 5}


def test_the_own_zone_comes_first() -> None:
    near, next_to, far = member("near", zone="a"), member("next", zone="a"), member("far", zone="b")
    among = pool(far, near, next_to, zone="a")
    assert chosen(among, 10) == {"near": 5, "next": 5}
    assert hold(among, 10) == {"near": 5, "next": 5, "far": 0}
    near.ready = False
    assert chosen(among, 10) == {"next": 10}
    next_to.failed("refused", unreachable=True)
    assert chosen(among, 10) == {"far": 10}
    # one that reports not ready is better than one that fails, in any zone
    far.failed("refused", unreachable=True)
    assert chosen(among, 10) == {"near": 10}
    next_to.answered()
    assert chosen(among, 10) == {"next": 10}


def test_each_is_tried_once() -> None:
    among = pool(member("a", 2), member("b"), zone="z")
    first = among.choose(())
    assert first is not None
    second = among.choose((first,))
    assert second is not None and second is not first
    assert among.choose((first, second)) is None


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_a_server_starts_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(weighted_module, "time", clock)
    old, new = member("old"), member("new")
    among = pool(old, new, slow_start_secs=10)
    old.since, new.since = 0.0, clock.now
    shares = []
    for seconds in (0, 5, 10):
        clock.now = 1000.0 + seconds
        shares.append(chosen(among, 220)["new"])
    assert abs(shares[0] - 20) <= 1 and abs(shares[1] - 220 * 0.55 / 1.55) <= 1 and shares[2] == 110


def test_a_server_that_returns_starts_slowly() -> None:
    old, back = member("old"), member("back")
    among = pool(old, back, slow_start_secs=1e6)
    old.since = back.since = -1e7
    assert chosen(among, 20) == {"old": 10, "back": 10}
    back.failed("refused", unreachable=True)
    back.answered()
    assert 0 < chosen(among, 110)["back"] <= 11
    health = back.health
    back.since = -1e7
    # as another process of this daemon reports it
    back.adopt(health._replace(open=True))
    back.adopt(health)
    assert back.since > 0
