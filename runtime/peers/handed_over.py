"""Sequences of a process that another has taken over, in the place of its peers.

Connections that clients keep still lead here. The state of a sequence here is out of date as soon as the
sequence begins again in the successor, so none goes on, and none begins: only one of a single request runs.
"""

from __future__ import annotations

from interlingua.runtime.target import Target
from interlingua.schemas import InferRequest, unavailable


class HandedOver:
    """See ``Peers``."""

    starting = ""

    def target(self, local: Target, request: InferRequest, forwarded: bool) -> Target:
        """``local``, for a sequence of one request. Raises UNAVAILABLE."""
        sequence = request.sequence
        if sequence is None or (sequence.start and sequence.end):
            return local
        raise unavailable(
            f"sequence '{sequence.id}' is with the process that has taken over from this one: connect again"
        )
