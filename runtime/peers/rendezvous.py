"""Rendezvous hashing: each key belongs to the member with the highest weight for it, so that a member that
joins or leaves moves only its own share (Thaler and Ravishankar, 1998)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from interlingua.runtime.upstream.pool.member import Member

_KEPT = 65536
"""A limit on remembered owners, because clients choose the ids."""

_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Shifts and factors of SplitMix64 (Steele, Lea and Flood, 2014); a shift of 31 follows."""


class Rendezvous:
    """The owners of correlation ids among ``members``, in any order. The ids 7 and "7" have one owner.

    A name with one address is hashed by the name, as by Envoy's ``use_hostname_for_hashing``: its sequences
    stay there when the address changes. The addresses of other names are hashed each by itself."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        names = [member.url.partition(" ")[0] for member in members]
        uses = Counter(names)
        keys = (name if uses[name] == 1 else member.url for name, member in zip(names, members, strict=True))
        self._seeds = np.fromiter(map(_hash, keys), np.uint64, len(names))
        self._owners: dict[int | str, Member] = {}

    def owner(self, identity: int | str) -> Member:
        """The owner of ``identity``; there must be a member."""
        owner = self._owners.get(identity)
        if owner is None:
            if len(self._owners) >= _KEPT:
                self._owners.clear()
            owner = self._owners[identity] = self.members[int(self._weights(identity).argmax())]
        return owner

    def _weights(self, identity: int | str) -> np.ndarray:
        # array operations take a microsecond each, a hash for each member would take half of one
        weights = self._seeds ^ np.uint64(_hash(str(identity)))
        for shift, factor in _STEPS:
            weights ^= weights >> np.uint64(shift)
            weights *= np.uint64(factor)
        weights ^= weights >> np.uint64(31)
        return weights


def _hash(text: str) -> int:
    # not hash(), which differs from one process to the next
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())
