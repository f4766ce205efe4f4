"""The seam between the router and whatever answers: a local model or an upstream are the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from interlingua.schemas import InferRequest, InferResponse, ModelMetadata, ModelStatus, Readiness, Signature


class Target(Protocol):
    """A model that can be asked."""

    name: str

    async def infer(self, request: InferRequest) -> InferResponse:
        """Answer ``request``. The outputs are those requested (all for None), in the order of the
        signature. Raises ``InferenceError``."""

    def stream(self, request: InferRequest) -> AsyncIterator[InferResponse]:
        """Answer ``request`` with any number of responses, as they come; of the last one ``final`` is
        True, and it may have no outputs. A model that does not stream gives exactly one. Iterating
        raises as :meth:`infer` does, and that is the end; a response that failed while others may
        follow has ``error`` instead. To stop iterating is to cancel."""

    async def decoupled(self, version: str = "") -> bool:
        """Whether it answers any number of times, as far as it can be told. Raises as :meth:`metadata`
        does."""

    async def signature(self, version: str = "") -> Signature:
        """What a codec needs to cut a request for ``version``. Raises as :meth:`metadata` does."""

    async def metadata(self, version: str = "") -> ModelMetadata:
        """The model as it describes itself, for ``version`` or the one that the policy chooses.
        Raises NOT_FOUND for a version that is not there, UNAVAILABLE while it cannot be known."""

    async def status(self) -> ModelStatus:
        """The model's configuration and what became of each version, with its statistics. Raises
        UNAVAILABLE while it cannot be known."""

    async def ready(self, version: str = "") -> Readiness:
        """Whether a request would be answered now. Never raises."""

    async def close(self) -> None:
        """Let go of everything: finish what runs, free the model or the connections."""
