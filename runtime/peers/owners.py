"""The daemon that owns each sequence by the current list of peers, and when that is certain.

Contract: the owner follows from the correlation id and the list alone, so that daemons with one list agree
without a message. Every daemon has to learn of a change of the list within half of ``settle_secs``. Then no
two daemons ever run requests of one sequence as its owners. The old owner forgets a sequence as soon as it
learns of the change; no daemon uses the new owner until ``settle_secs`` after it has learned of it. A daemon
that cannot confirm its list for as long may have missed a change: it refuses, and forgets all.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence

from interlingua.runtime.peers.rendezvous import Rendezvous
from interlingua.runtime.upstream.pool.homes import Key, Publish
from interlingua.runtime.upstream.pool.member import Member
from interlingua.schemas import unavailable

Identity = int | str
"""A correlation id."""

IsLost = Callable[[Identity], bool]
"""Whether a sequence has another owner now."""

_log = logging.getLogger(__name__)


class Owners:
    """The ``SequenceServers`` of the peers.

    ``is_here``: whether a peer is this daemon; ``here`` are those that are, usually one. ``settle_secs`` is
    None for a list that never changes. ``lose`` is called when sequences here may have another owner.
    """

    def __init__(self, settle_secs: float | None, is_here: Callable[[Member], bool]) -> None:
        self.here: tuple[Member, ...] = ()
        self.lose: Callable[[IsLost], object] | None = None
        self._is_here = is_here
        self._settle_secs = settle_secs
        self._list = Rendezvous(())
        self._confirmed = -math.inf
        self._settled = math.inf
        self._begun = False
        self._before: list[tuple[float, Rendezvous]] = []
        """Earlier lists, each with the time until which sequences that had another owner by it wait."""

    def owner(self, identity: Identity) -> Member:
        """Raises UNAVAILABLE if there is none, and while it is not certain."""
        if not self._list.members:
            raise unavailable("the list of peers is empty")
        owner = self._list.owner(identity)
        if self._settle_secs is not None:
            self._check(identity, owner)
        return owner

    @property
    def doubt(self) -> str:
        """Why no owner is certain now; empty if they are."""
        if self._settle_secs is None:
            return ""
        return self._doubt(self._settle_secs, time.monotonic())

    @property
    def starting(self) -> str:
        """Why no owner has been certain yet; empty if they were. All daemons have one DNS or file: they serve
        requests without a sequence while it is out of order."""
        doubt = "" if self._begun else self.doubt
        self._begun = not doubt
        return doubt

    @property
    def settled(self) -> bool:
        """Whether the owners of all sequences are certain."""
        now = time.monotonic()
        return not self.doubt and all(until <= now for until, _ in self._before)

    def _doubt(self, settle_secs: float, now: float) -> str:
        if now - self._confirmed > settle_secs:
            if self._confirmed == -math.inf:
                return "the peers are not known yet"
            return f"the list of peers has not been confirmed for {now - self._confirmed:.1f} s"
        if now < self._settled:
            return f"the peers settle for another {self._settled - now:.1f} s"
        return ""

    def _check(self, identity: Identity, owner: Member) -> None:
        """Raises UNAVAILABLE while ``owner`` is not certain."""
        if doubt := self.doubt:
            raise unavailable(doubt)
        now = time.monotonic()
        for until, before in self._before:
            if now < until and before.owner(identity).url != owner.url:
                raise unavailable(
                    f"sequence '{identity}' moves to another daemon, for another {until - now:.1f} s"
                )

    def changed(self, members: Sequence[Member]) -> None:
        """The list is ``members`` from now on."""
        before, self._list = self._list, Rendezvous(members)
        was_here, self.here = self.here, tuple(filter(self._is_here, members))
        if self._settle_secs is not None:
            now = time.monotonic()
            recent = [each for each in self._before if each[0] > now]
            self._before = [*recent, (now + self._settle_secs, before)] if before.members else recent
        if self.lose is not None:
            # requests on their way when the list before came may have begun sequences of others here
            self.lose(
                lambda identity: (
                    _is_lost(identity, self._list, self.here) or _is_lost(identity, before, was_here)
                )
            )
        self._log_list()

    def confirm(self, when: float) -> None:
        """The list was right at the ``time.monotonic()`` ``when``."""
        if not self.here:
            # the address of a name may be known by now
            self.here = tuple(filter(self._is_here, self._list.members))
            if self.here:
                self._log_list()
        if self._settle_secs is not None and when - self._confirmed > self._settle_secs:
            if self._confirmed > -math.inf:
                _log.warning("peers known again", extra={"facts": {"secs": round(when - self._confirmed, 1)}})
            # changes in between may not have reached the others yet
            self._settled = when + self._settle_secs
            if self.lose is not None:
                self.lose(lambda _: True)
        self._confirmed = when
        self._begun = self._begun or not self.doubt

    def _log_list(self) -> None:
        here = ",".join(member.url for member in self.here)
        _log.info("peers changed", extra={"facts": {"peers": len(self._list.members), "here": here}})

    # --- what the pool of the peers calls: the list alone determines the owner of a sequence

    def first(self, identity: Identity, members: Sequence[Member]) -> list[Member]:
        """See ``SequenceServers``; ``members`` are those of the list."""
        return [self._list.owner(identity)] if members else []

    def find(self, key: Key, members: Sequence[Member]) -> Member | None:
        return next(iter(self.first(key[1], members)), None)

    def remember(self, key: Key, member: Member, members: Sequence[Member], start: bool) -> None:
        """Nothing is kept of a sequence."""

    def forget(self, key: Key) -> None:
        """Nothing is kept of a sequence."""

    def share(self, publish: Publish) -> None:
        """Every process has the list."""

    def place(self, key: Key, url: str | None) -> None:
        """No process publishes owners."""


def _is_lost(identity: Identity, members: Rendezvous, here: Sequence[Member]) -> bool:
    """Whether ``identity`` has another owner among ``members`` than this daemon."""
    return not here or members.owner(identity) not in here
