"""The servers of sequences, which have their state.

A sequence whose start this daemon has not seen goes to the first server in an order that depends only on its
id and the servers' names, so that several daemons, and a restarted one, agree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b

from interlingua.runtime.upstream.pool.member import Member

Key = tuple[str, int | str]
"""A model and the id of a sequence."""

_KEPT = 65536
"""A limit, because clients may start sequences and never end them."""


class Homes:
    def __init__(self) -> None:
        self._known: OrderedDict[Key, Member] = OrderedDict()

    def find(self, key: Key) -> Member | None:
        """The server of the last request, None if unknown."""
        member = self._known.get(key)
        if member is not None:
            self._known.move_to_end(key)
        return member

    def remember(self, key: Key, member: Member) -> None:
        self._known[key] = member
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)


def in_order(identity: int | str, members: Iterable[Member]) -> list[Member]:
    """``members`` in the sequence's order of preference."""
    text = str(identity).encode(errors="surrogatepass")
    # not hash(), which differs from one process to the next
    return sorted(members, key=lambda member: blake2b(b"%b %b" % (member.url.encode(), text)).digest())
