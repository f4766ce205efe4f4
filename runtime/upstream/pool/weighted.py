"""The choice among servers of different weight: by zone, then by load, then in turn.

A server has as many places as its weight divided by the lightest weight. Those with the fewest full rounds of
places take turns, each as often as its weight (start-time fair queueing): a server that got none for a
while does not get the requests that it missed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from interlingua.runtime.upstream.pool.member import Member

_FIRST_SHARE = 0.1
"""The part of its weight that a server has when it joins: Envoy's ``min_weight_percent``."""


class Weighted:
    """Chooses among weighted servers: in ``zone`` first, if it is not empty. The share of a server that joins
    or returns grows to its weight over ``slow_start_secs``."""

    def __init__(self, zone: str = "", slow_start_secs: float = 0.0) -> None:
        self._zone = zone
        self._slow_start = slow_start_secs
        self._clock = 0.0
        self._before: tuple[Member, float, float] | None = None

    def differ(self, members: Sequence[Member]) -> bool:
        """Whether ``members`` are not simply equals."""
        if self._slow_start:
            return True
        return len({(member.weight, self._elsewhere(member)) for member in members}) > 1

    def choose(self, members: Sequence[Member], tried: Sequence[Member]) -> Member | None:
        """As ``Pool.choose``."""
        able = [member for member in members if member.usable and member not in tried]
        if not able:
            return None
        tiers = [(member.rating, self._elsewhere(member)) for member in able]
        best = min(tiers)
        now = time.monotonic()
        shares = [
            (member, self._share(member, now))
            for member, tier in zip(able, tiers, strict=True)
            if tier == best
        ]
        lightest = min(share for _, share in shares)
        clock = self._clock
        chosen, share = min(
            shares, key=lambda each: (each[0].running * lightest // each[1], max(each[0].due, clock))
        )
        self._before = chosen, chosen.due, clock
        self._clock = max(chosen.due, clock)
        chosen.due = self._clock + 1 / share
        return chosen

    def undo(self) -> None:
        """Forget the last choice."""
        if self._before is not None:
            member, due, clock = self._before
            member.due, self._clock = due, clock

    def _elsewhere(self, member: Member) -> bool:
        return bool(self._zone) and member.zone != self._zone

    def _share(self, member: Member, now: float) -> float:
        age = now - member.since
        if age >= self._slow_start:
            return member.weight
        return member.weight * (_FIRST_SHARE + (1 - _FIRST_SHARE) * age / self._slow_start)
