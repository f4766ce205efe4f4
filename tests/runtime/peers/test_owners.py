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


def test_a_name_with_one_address_is_hashed_by_the_name() -> None:
    """Such as that of a pod of a StatefulSet, whose address changes when it starts again."""
    before = daemon("", peers("a:1 (10.0.0.1)", "b:1 (10.0.0.2)", "c:1 (10.0.0.3)"), None)
    after = daemon("", peers("a:1 (10.0.0.1)", "b:1 (10.0.0.9)", "c:1 (10.0.0.3)"), None)
    moved = {
        (before.owner(each).url, after.owner(each).url)
        for each in range(500)
        if before.owner(each).url != after.owner(each).url
    }
    assert moved == {("b:1 (10.0.0.2)", "b:1 (10.0.0.9)")}
    # those of a headless service share a name
    shared = daemon("", peers("a:1 (10.0.0.1)", "a:1 (10.0.0.2)"), None)
    assert 200 < sum(shared.owner(each).url == "a:1 (10.0.0.1)" for each in range(500)) < 300


def test_another_address_of_a_name_may_be_another_daemon(clock: Clock) -> None:
    owners = settled("a:1 (10.0.0.1)", peers("a:1 (10.0.0.1)", "b:1 (10.0.0.2)"), clock)
    theirs = {each for each in range(200) if owners.owner(each).url.startswith("b")}
    owners.changed(peers("a:1 (10.0.0.1)", "b:1 (10.0.0.9)"))
    assert {each for each in range(200) if "moves to another daemon" in tried(owners, each)} == theirs


def test_the_order_of_a_large_list_does_not_matter() -> None:
    names = [f"peers:1 (10.0.{number // 256}.{number % 256})" for number in range(1000)]
    one, other = daemon("", peers(*names), None), daemon("", peers(*reversed(names)), None)
    ids = [*range(2**63, 2**63 + 500), "\udc80", "é", ""]
    assert [one.owner(each).url for each in ids] == [other.owner(each).url for each in ids]


def test_a_list_of_addresses_needs_no_time(clock: Clock) -> None:
    assert daemon("a:1", peers("a:1"), None).owner(1).url == "a:1"
    assert "the list of peers is empty" in refusal(daemon("a:1", [], None), 1)


def test_after_a_start_nothing_is_certain(clock: Clock) -> None:
    owners = daemon("a:1", peers("a:1", "b:1"))
    assert owners.starting == "the peers are not known yet" == refusal(owners, 1)
    clock.now += 100
    owners.confirm(clock.now)
    assert "settle for another 10.0 s" in refusal(owners, 1) == owners.starting and not owners.settled
    clock.now += SETTLE
    assert owners.owner(1) and owners.settled and not owners.starting


@pytest.mark.parametrize("probed", [False, True])
def test_a_daemon_that_was_certain_does_not_start_again(clock: Clock, probed: bool) -> None:
    owners = daemon("a:1", peers("a:1", "b:1"))
    owners.confirm(clock.now)
    clock.now += SETTLE
    if probed:
        assert not owners.starting
    else:
        owners.confirm(clock.now)
    clock.now += 2 * SETTLE
    assert "has not been confirmed" in refusal(owners, 1)
    assert not owners.starting
    owners.confirm(clock.now)
    assert "settle for another" in refusal(owners, 1)
    assert not owners.starting


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


def test_what_began_here_before_the_list_came_is_forgotten(clock: Clock) -> None:
    """A front end that has an older list than the runtime process lets sequences of others begin there."""
    a, b, c = peers("a:1", "b:1", "c:1")
    owners = settled("a:1", [a, b], clock)
    mine = {each for each in range(1, 200) if owners.owner(each) is a}
    owners.changed([a, b, c])
    theirs = {each for each in mine if "moves to another daemon" in tried(owners, each)}
    lost: list[int | str] = []
    owners.lose = lambda is_lost: lost.extend(filter(is_lost, mine))
    owners.changed([a, b])
    assert theirs and set(lost) == theirs


def test_a_daemon_may_be_listed_twice(clock: Clock) -> None:
    here = peers("a:1", "localhost:1")
    owners = Owners(SETTLE, lambda member: member.url in ("a:1", "localhost:1"))
    lost: list[int | str] = []
    owners.lose = lambda is_lost: lost.extend(filter(is_lost, range(100)))
    owners.changed(here)
    assert owners.here == tuple(here)
    lost.clear()
    owners.changed([*here])
    assert not lost


def test_an_address_that_is_known_later(clock: Clock) -> None:
    known = False
    owners = Owners(SETTLE, lambda member: known)
    owners.changed(peers("name:1"))
    assert not owners.here
    known = True
    owners.confirm(clock.now)
    assert [each.url for each in owners.here] == ["name:1"]


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
