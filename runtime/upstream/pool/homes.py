"""The servers of sequences, which have their state.

A sequence whose start this daemon has not seen goes to the first server in an order that depends only on its
id and the servers' names, so that several daemons, and a restarted one, agree. The processes of one daemon
also notify each other of sequences that have another server: because it was better at their start, or
because servers have joined since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Protocol

from interlingua.runtime.upstream.pool.member import Member

Key = tuple[str, int | str]
"""A model and the id of a sequence."""

_KEPT = 65536
"""A limit, because clients may start sequences and never end them."""


Publish = Callable[[Key, str | None], None]
"""Has other processes know the url of the server of a sequence, None for the first in its order."""


class SequenceServers(Protocol):
    """Which server of a pool has the state of a sequence."""

    def first(self, identity: int | str, members: Sequence[Member]) -> list[Member]:
        """``members`` for a sequence that begins, the best first."""

    def find(self, key: Key, members: Sequence[Member]) -> Member | None:
        """The server among ``members`` with the state of a sequence; None if it is gone."""

    def remember(self, key: Key, member: Member, members: Sequence[Member], start: bool) -> None:
        """A request of a sequence goes to ``member``."""

    def forget(self, key: Key) -> None:
        """The sequence ends."""

    def changed(self, members: Sequence[Member]) -> None:
        """The pool has ``members`` from now on."""

    def share(self, publish: Publish) -> None:
        """Notify other processes by ``publish``."""

    def place(self, key: Key, url: str | None) -> None:
        """As another process reports; see ``Publish``."""


class Homes:
    """The servers of the sequences of one process, and with :meth:`share` those of other processes that are
    not first in the order of their sequence. See ``SequenceServers``."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, Member] = OrderedDict()
        self._elsewhere: OrderedDict[Key, str] = OrderedDict()
        self._publish: Publish | None = None

    def share(self, publish: Publish) -> None:
        self._publish = publish

    def place(self, key: Key, url: str | None) -> None:
        """As another process reports; see ``Publish``."""
        self._elsewhere.pop(key, None)
        if url is not None:
            self._elsewhere[key] = url
            if len(self._elsewhere) > _KEPT:
                self._elsewhere.popitem(last=False)

    def first(self, identity: int | str, members: Sequence[Member]) -> list[Member]:
        """``members`` for a sequence that begins, the best first."""
        return sorted(in_order(identity, members), key=lambda member: member.rating)

    def find(self, key: Key, members: Sequence[Member]) -> Member | None:
        """The server among ``members`` with the state of a sequence; None if it is gone."""
        if not members:
            return None
        if self._publish is None:
            member = self._known.get(key) or in_order(key[1], members)[0]
            if key in self._known:
                self._known.move_to_end(key)
            return member if member in members else None
        url = self._elsewhere.get(key)
        if url is None:
            return in_order(key[1], members)[0]
        return next((member for member in members if member.url == url), None)

    def remember(self, key: Key, member: Member, members: Sequence[Member], start: bool) -> None:
        """A request of a sequence goes to ``member``."""
        self._known[key] = member
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        if start and self._publish is not None:
            self._move(key, None if in_order(key[1], members)[0] is member else member.url)

    def forget(self, key: Key) -> None:
        """The sequence ends."""
        self._known.pop(key, None)
        self._move(key, None)

    def changed(self, members: Sequence[Member]) -> None:
        """Servers have joined or left: the sequences stay where they are."""
        if self._publish is None:
            return
        for key, member in self._known.items():
            if members and in_order(key[1], members)[0] is not member:
                self._move(key, member.url)

    def _move(self, key: Key, url: str | None) -> None:
        if self._publish is not None and url != self._elsewhere.get(key):
            self.place(key, url)
            self._publish(key, url)


def in_order(identity: int | str, members: Iterable[Member]) -> list[Member]:
    """``members`` in the sequence's order of preference: rendezvous hashing."""
    text = str(identity).encode(errors="surrogatepass")
    # not hash(), which differs from one process to the next
    return sorted(members, key=lambda member: blake2b(b"%b %b" % (member.url.encode(), text)).digest())
