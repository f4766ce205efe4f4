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

from interlingua.runtime.ray_serve.cluster import current
from interlingua.runtime.ray_serve.errors import ReplicaEndedError


class SequenceRouter(LocalityMixin, MultiplexMixin, RequestRouter):  # type: ignore[misc]
    """Without ``FIFOMixin``, which gives a chosen replica to the oldest request."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The one replica of a sequence; none while it loads other files. If it has ended, the request
        fails."""
        if pending_request is None or not (wanted := pending_request.metadata.session_id):
            found: Any = await PowerOfTwoChoicesRequestRouter.choose_replicas(
                self, candidate_replicas, pending_request
            )
            return list(found)
        pending_request.routing_context.should_backoff = True
        for replica in candidate_replicas:
            if replica.replica_id.unique_id == wanted:
                return [[replica]]
        if _runs(self.app_name, wanted):
            return []
        if not pending_request.future.done():
            pending_request.future.set_exception(ReplicaEndedError(wanted))
            self._remove_pending_request_from_indices(pending_request)
        # the caller looks at the future only when it has a candidate
        return [candidate_replicas]


def _runs(application: str, replica: str) -> bool:
    """Whether ``replica`` runs, as the cluster was seen last. Serve lists none that loads other files."""
    cluster = current()
    view = None if cluster is None else cluster.view
    found = None if view is None else view.applications.get(application)
    return found is not None and any(each.replica == replica for each in found.running)
