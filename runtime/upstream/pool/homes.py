"""Where sequences live: the server that has their state.

Whoever has not seen a sequence begin sends it where everybody would: the order of servers for a sequence
depends on its id and their names alone, so that several daemons, and one that was restarted, agree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b

from interlingua.runtime.upstream.pool.member import Member

Key = tuple[str, int | str]
"""A model and the id of a sequence."""

_KEPT = 65536
"""Clients may begin sequences and never end them."""


class Homes:
    """The servers of sequences that are known."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, Member] = OrderedDict()

    def find(self, key: Key) -> Member | None:
        """Where the sequence was last sent, None where that is not known."""
        member = self._known.get(key)
        if member is not None:
            self._known.move_to_end(key)
        return member

    def remember(self, key: Key, member: Member) -> None:
        """The sequence lives at ``member`` from now on."""
        self._known[key] = member
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def forget(self, key: Key) -> None:
        """The sequence has ended."""
        self._known.pop(key, None)


def in_order(identity: int | str, members: Iterable[Member]) -> list[Member]:
    """``members`` in the order in which the sequence would choose them."""
    text = str(identity).encode(errors="surrogatepass")
    # not hash(), which differs from one process to the next
    return sorted(members, key=lambda member: blake2b(b"%b %b" % (member.url.encode(), text)).digest())
