"""Shares are exact, keys stay, and a change of weight moves what it must."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from interlingua.translator.serving.routing.split import Part, Split

WEIGHTS = st.floats(0.001, 1000) | st.integers(1, 100).map(float) | st.just(0.0)
SPLITS = st.lists(WEIGHTS, min_size=1, max_size=5).filter(any)
KEYS = st.text(max_size=12)


def split(weights: list[float], start: int = 0) -> Split:
    return Split([Part(f"m{place}", weight) for place, weight in enumerate(weights)], start)


@given(SPLITS, st.integers(0, 2**64 - 1), st.integers(1, 2000), st.sampled_from([1, 2, 3, 7, 10]))
def test_each_part_gets_its_share(weights: list[float], start: int, requests: int, every: int) -> None:
    """Of any number of requests in a row, all or every so manyth, and wherever it starts; a request made at
    random would be off by the root of their number."""
    shared = split(weights, start)
    drawn = Counter([shared.next() for _ in range(every * requests)][::every])
    for place, weight in enumerate(weights):
        share = float(Fraction(weight) / sum(map(Fraction, weights)))
        assert abs(drawn[f"m{place}"] - requests * share) <= 3 + 3 * math.log2(1 + requests), (place, drawn)
        assert weight or not drawn[f"m{place}"]


def test_the_shares_over_the_whole_range_are_exact() -> None:
    """No number comes twice, so the parts get as many of them as their ranges have: to a whole request of
    2 to the power of 64."""
    shared = split([95, 5, 0.001])
    ranges = [end - start for start, end in zip([0, *shared._bounds], shared._bounds, strict=False)]
    assert sum(ranges) == 2**64
    for weight, wide in zip([95, 5, 0.001], ranges, strict=True):
        assert abs(Fraction(wide, 2**64) - Fraction(weight) / (100 + Fraction(0.001))) < Fraction(1, 2**63)


def test_processes_do_not_go_in_step() -> None:
    def course() -> list[str]:
        shared = Split([Part("a"), Part("b")])
        return [shared.next() for _ in range(64)]

    assert len({tuple(course()) for _ in range(8)}) > 1


@given(SPLITS, KEYS)
def test_a_key_always_leads_to_the_same_part(weights: list[float], key: str) -> None:
    chosen = split(weights).keyed(key)
    other = split(weights, start=12345)
    other.next()
    assert {other.keyed(key) for _ in range(3)} == {chosen}
    assert weights[int(chosen[1:])] > 0


def test_what_a_key_leads_to_is_written_down() -> None:
    """Another process, another release, must say the same."""
    shared = Split([Part("stable", 70), Part("canary", 30)])
    assert [user for user in range(20) if shared.keyed(str(user)) == "canary"] == [1, 2, 4, 11, 12, 14]


@given(SPLITS, st.data())
def test_changing_one_weight_moves_only_what_it_must(weights: list[float], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(weights) - 1))
    changed = [*weights]
    changed[place] = data.draw(WEIGHTS)
    if not any(changed):
        return
    before, after = split(weights), split(changed)
    for number in range(200):
        old, new = before.keyed(str(number)), after.keyed(str(number))
        if old != new:
            assert f"m{place}" == (new if changed[place] > weights[place] else old)


@given(st.lists(st.integers(1, 9).map(float), min_size=2, max_size=4))
def test_keys_are_shared_out_by_weight(weights: list[float]) -> None:
    shared = split(weights)
    drawn = Counter(shared.keyed(f"key {number}") for number in range(1000))
    for place, weight in enumerate(weights):
        share = weight / sum(weights)
        deviation = math.sqrt(1000 * share * (1 - share))
        assert abs(drawn[f"m{place}"] - 1000 * share) < 5 * deviation
