"""Who owns a sequence, and when that is certain, by a clock of the test's own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from interlingua.runtime.peers import owners as module
from interlingua.runtime.peers.owners import Owners
from interlingua.runtime.upstream.pool import Member
from interlingua.schemas import ErrorCode, InferenceError

SETTLE = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def peers(*names: str) -> list[Member]:
    return [Member(None, name) for name in names]


def daemon(here: str, members: Sequence[Member], settle: float | None = SETTLE) -> Owners:
    found = Owners(settle, lambda member: member.url == here)
    found.changed(members)
    return found


def settled(here: str, members: Sequence[Member], clock: Clock) -> Owners:
    found = daemon(here, members)
    found.confirm(clock.now)
    clock.now += SETTLE
    found.confirm(clock.now)
    return found


def refusal(owners: Owners, identity: int | str) -> str:
    with pytest.raises(InferenceError) as caught:
        owners.owner(identity)
    assert caught.value.code is ErrorCode.UNAVAILABLE and caught.value.retryable
    return caught.value.message


def test_daemons_with_one_list_agree_and_share_alike() -> None:
    names = ["a:1", "b:1", "c:1", "d:1"]
    one, other = daemon("a:1", peers(*names), None), daemon("c:1", peers(*reversed(names)), None)
    found = Counter(one.owner(identity).url for identity in range(1, 4001))
    assert found == Counter(other.owner(identity).url for identity in range(1, 4001))
    assert set(found) == set(names) and all(850 < count < 1150 for count in found.values())
    assert one.owner(7).url == one.owner("7").url
    # a member that joins takes its share, and moves nothing else
    wider = daemon("a:1", peers(*names, "e:1"), None)
    moved = [each for each in range(1, 4001) if wider.owner(each).url != one.owner(each).url]
    assert {wider.owner(each).url for each in moved} == {"e:1"} and 650 < len(moved) < 950


def test_a_list_of_addresses_needs_no_time(clock: Clock) -> None:
    assert daemon("a:1", peers("a:1"), None).owner(1).url == "a:1"
    assert "the list of peers is empty" in refusal(daemon("a:1", [], None), 1)


def test_after_a_start_nothing_is_certain(clock: Clock) -> None:
    owners = daemon("a:1", peers("a:1", "b:1"))
    assert owners.doubt == "the peers are not known yet" == refusal(owners, 1)
    clock.now += 100
    owners.confirm(clock.now)
    assert "settle for another 10.0 s" in refusal(owners, 1) and not owners.settled
    clock.now += SETTLE
    assert owners.owner(1) and owners.settled


def test_only_what_moves_waits(clock: Clock) -> None:
    a, b, c = peers("a:1", "b:1", "c:1")
    owners = settled("a:1", [a, b], clock)
    before = {identity: owners.owner(identity) for identity in range(1, 200)}
    lost: list[int | str] = []
    owners.lose = lambda is_lost: lost.extend(filter(is_lost, range(1, 200)))
    owners.changed([a, b, c])
    moving = {identity for identity in before if "moves to another daemon" in tried(owners, identity)}
    assert 30 < len(moving) < 110 and not owners.settled
    # the daemon forgets its own at once: those of others are theirs to forget
    assert {each for each in lost if before[int(each)] is a} == {each for each in moving if before[each] is a}
    clock.now += SETTLE - 0.1
    assert tried(owners, min(moving))
    clock.now += 0.1
    assert {identity for identity in before if owners.owner(identity) is c} == moving and owners.settled
    # back and forth: what another daemon may have begun meanwhile is forgotten
    owners.changed([a, b])
    assert {identity for identity in before if tried(owners, identity)} == moving


def tried(owners: Owners, identity: int) -> str:
    try:
        owners.owner(identity)
    except InferenceError as error:
        return error.message
    return ""


def test_a_daemon_without_confirmation_refuses_and_forgets(clock: Clock) -> None:
    owners = settled("a:1", peers("a:1"), clock)
    lost: list[bool] = []
    owners.lose = lambda is_lost: lost.append(is_lost(1))
    clock.now += SETTLE
    assert owners.owner(1)
    clock.now += 0.5
    assert "not been confirmed for 10.5 s" in refusal(owners, 1) and not lost
    owners.confirm(clock.now)
    # a change in between may have been missed
    assert lost == [True] and "settle" in refusal(owners, 1)
    clock.now += SETTLE
    owners.confirm(clock.now)
    assert owners.owner(1) and lost == [True]


def test_two_daemons_never_own_one_sequence_at_once(clock: Clock) -> None:
    """Lists change at random; each daemon learns of each change within half of the time to settle."""
    chance = random.Random(3)
    names = ["a:1", "b:1", "c:1"]
    daemons = {name: daemon(name, peers(*names)) for name in names}
    begun: dict[str, set[int | str]] = {name: set() for name in names}
    for name, owners in daemons.items():
        owners.lose = lambda is_lost, mine=begun[name]: mine.difference_update(list(filter(is_lost, mine)))
    truth, seen = names, dict.fromkeys(names, names)
    answered = 0
    for step in range(4000):
        clock.now += 0.5
        if chance.random() < 0.02:
            truth = sorted(chance.sample(names, chance.randint(1, 3)))
        for place, name in enumerate(names):
            # every 4 seconds
            if step % 8 == place * 2:
                if seen[name] != truth:
                    daemons[name].changed(peers(*truth))
                    seen[name] = truth
                daemons[name].confirm(clock.now)
        identity, entry = chance.randint(1, 20), chance.choice(names)
        try:
            owner = daemons[entry].owner(identity).url
            if daemons[owner].owner(identity).url != owner:
                continue
        except InferenceError:
            continue
        answered += 1
        begun[owner].add(identity)
        assert [name for name in names if identity in begun[name]] == [owner], step
    assert answered > 1000
