"""Requests shared out among models by weight.

Contract: in the long run each model gets its share exactly, and what has a key always goes to the same model,
in every process that has the same weights. When one weight changes, keys move to or from that model alone.
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
"""The golden ratio of the range, odd: numbers so far apart go over the whole range before one comes again,
and any number of them in a row, or every second or tenth of them, lies as evenly as can be."""


@dataclass(frozen=True, slots=True)
class Part:
    """A model and its weight, any number from 0; with 0 it gets nothing."""

    to: str
    weight: float = 1.0


class Split:
    """``parts`` are different models; at least one has a weight above 0. ``start`` is where in the range the
    first request falls; None chooses it at random, so that processes do not move in step."""

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

    @classmethod
    def only(cls, model: str) -> Split:
        """Everything to one model."""
        return cls([Part(model)])

    def next(self) -> str:
        """The model for a request without a key."""
        if len(self.used) == 1:
            return self.used[0]
        self._place = (self._place + _STEP) % _RANGE
        return self.parts[bisect_right(self._bounds, self._place)].to

    def keyed(self, key: str) -> str:
        """The model for every request with ``key``: each model draws a number from it, and the highest one
        wins. The others' numbers stay as they are when a weight changes."""
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
