"""Requests split among models by weight.

Contract: in the long run each model gets exactly its share. A key always selects the same model, in every
process with the same weights; when one weight changes, keys move only to or from that model.
"""

from __future__ import annotations

import math
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b

_RANGE = 1 << 64
_STEP = 0x9E3779B97F4A7C15
"""The golden ratio of the range, odd: multiples visit the whole range before one repeats, and any run of
them, or every second or tenth, is spread evenly."""


@dataclass(frozen=True, slots=True)
class Part:
    """A model and its weight, 0 or more."""

    to: str
    weight: float = 1.0


class Split:
    """``parts`` are different models; at least one has a weight above 0. ``start`` is the place of the first
    request in the range; None is random, so that processes are not in step."""

    def __init__(self, parts: Sequence[Part], start: int | None = None) -> None:
        self.parts = tuple(parts)
        self.used = tuple(part.to for part in self.parts if part.weight)
        shares = [Fraction(part.weight) for part in self.parts]
        self._bounds = [
            math.ceil(sum(shares[: end + 1]) * _RANGE / sum(shares)) for end in range(len(shares))
        ]
        self._place = secrets.randbits(64) if start is None else start
        self._hashes = [
            (blake2b(part.to.encode(errors="surrogatepass"), digest_size=8), part)
            for part in self.parts
            if part.weight
        ]

    def undo(self) -> None:
        """:meth:`next` returns its last result again."""
        if len(self.used) > 1:
            self._place = (self._place - _STEP) % _RANGE

    @classmethod
    def only(cls, model: str) -> Split:
        return cls([Part(model)])

    def next(self) -> str:
        if len(self.used) == 1:
            return self.used[0]
        self._place = (self._place + _STEP) % _RANGE
        return self.parts[bisect_right(self._bounds, self._place)].to

    def keyed(self, key: str) -> str:
        """The model for every request with ``key``, by rendezvous hashing: each model draws a number from the
        key, and the highest wins."""
        if len(self.used) == 1:
            return self.used[0]
        drawn = key.encode(errors="surrogatepass")
        best, chosen = -1.0, ""
        for salt, part in self._hashes:
            digest = salt.copy()
            digest.update(b"\0")
            digest.update(drawn)
            # strictly between 0 and 1, so that there is a logarithm, and it is not 0
            number = (int.from_bytes(digest.digest(), "big") >> 12) + 0.5
            score = part.weight / -math.log(number / (1 << 52))
            if score > best:
                best, chosen = score, part.to
        return chosen
