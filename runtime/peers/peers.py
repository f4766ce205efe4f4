"""The daemons that share sequences with this one: requests go to the owner, forwarded once at most."""

from __future__ import annotations

from interlingua.runtime.models.turns import Turns
from interlingua.runtime.peers.model import PeerModel
from interlingua.runtime.peers.owners import Identity, Owners
from interlingua.runtime.peers.wide_ids import widen
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.pool import Member
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import InferenceError, InferRequest, unavailable

FORWARDED = "interlingua-forwarded"
"""The header of a request that a peer has forwarded."""


class Peers:
    """``upstream`` calls the peers, its pool by ``owners``. ``counts`` are of requests with a sequence, by
    what became of them: ``local`` ones have their owner here, ``forwarded`` ones another, ``received`` ones
    come from a peer, ``refused`` ones have no certain owner, or another than the peer thought."""

    def __init__(self, upstream: Upstream, owners: Owners) -> None:
        self.upstream = upstream
        self.owners = owners
        self.counts = dict.fromkeys(("local", "forwarded", "received", "refused"), 0)
        self._turns = Turns()

    async def start(self, *, forwards: bool = True) -> None:
        """Follow the list of peers from now on, and probe them if this process ``forwards`` requests."""
        upstream = self.upstream
        await upstream.pool.watch(upstream.name, upstream.probe if forwards else None)

    @property
    def starting(self) -> str:
        """See ``Owners``."""
        return self.owners.starting

    def target(self, local: Target, request: InferRequest, forwarded: bool) -> Target:
        """The target of ``request``, of a sequence, to the model ``local``: that itself or the same model at
        the owner. ``forwarded``: a peer has sent it. Raises UNAVAILABLE if no owner is certain, and if it was
        forwarded to another daemon than its owner."""
        assert request.sequence is not None, "only sequences have owners"  # noqa: S101
        identity = request.sequence.id
        owner = self._owner(identity)
        if owner in self.owners.here:
            if forwarded:
                widen(request)
            self.counts["received" if forwarded else "local"] += 1
            return local
        if forwarded:
            self.counts["refused"] += 1
            raise unavailable(f"the daemons disagree on the owner of sequence '{identity}'")
        self.counts["forwarded"] += 1
        # not kept: it would keep a model that is unloaded
        return PeerModel(local, self.upstream, self._turns)

    def _owner(self, identity: Identity) -> Member:
        try:
            return self.owners.owner(identity)
        except InferenceError:
            self.counts["refused"] += 1
            raise

    async def close(self) -> None:
        await self.upstream.close()
