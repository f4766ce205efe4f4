"""How Serve chooses a replica for models with state: the requests of a sequence go to one replica.

Serve's own stickiness (``ConsistentHashRouter``) moves a sequence when replicas come or go, or when its
replica is busy. Here the daemon names the replica that has answered the start of the sequence in the session
id; all other requests are routed as by default. Serve runs this in the daemon, on the loop of its routers.
"""

from __future__ import annotations

from typing import Any

from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter
from ray.serve.request_router import (
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)

from interlingua.runtime.ray_serve.errors import ReplicaEndedError


class SequenceRouter(LocalityMixin, MultiplexMixin, RequestRouter):  # type: ignore[misc]
    """Without ``FIFOMixin``, which gives a chosen replica to the oldest request."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The one replica of a sequence. If it has ended, the request fails."""
        wanted = "" if pending_request is None else pending_request.metadata.session_id
        if not wanted:
            found: Any = await PowerOfTwoChoicesRequestRouter.choose_replicas(
                self, candidate_replicas, pending_request
            )
            return list(found)
        assert pending_request is not None  # noqa: S101
        pending_request.routing_context.should_backoff = True
        for replica in candidate_replicas:
            if replica.replica_id.unique_id == wanted:
                return [[replica]]
        if not pending_request.future.done():
            pending_request.future.set_exception(ReplicaEndedError(wanted))
            self._remove_pending_request_from_indices(pending_request)
        # the caller looks at the future only when it has a candidate
        return [candidate_replicas]
