"""The seam between the router and the models: local models and models of upstreams are the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from interlingua.protocols.dialect import Passthrough, PassthroughNames
from interlingua.schemas import (
    Context,
    InferHeads,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelStatus,
    Readiness,
    Signature,
)


@dataclass(slots=True)
class Forward:
    """A message that a target takes unread: ``heads`` are those of its tensors, ``names`` those to write into
    it, ``signature`` and ``remote_signature`` the model's in the caller's names and in the upstream's."""

    names: PassthroughNames
    heads: InferHeads
    signature: Signature
    remote_signature: Signature
    context: Context


class Target(Protocol):
    """A model that answers requests. By default a derived class forwards nothing, and its signature does not
    change."""

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
        """Whether it answers any number of times, as far as known. Raises as :meth:`metadata`
        does."""

    async def signature(self, version: str = "") -> Signature:
        """What a codec needs to cut a request for ``version``. Raises as :meth:`metadata` does."""

    async def renew_signature(self, version: str = "") -> None:
        """Discover the signature again, because a request does not fit it: the upstream may have replaced
        the model. Raises NOT_FOUND."""
        return

    def count_undecoded(self, end: BaseException, version: str, began: int, context: Context) -> None:
        """Count a request that came at ``began`` (``time.monotonic_ns()``) and ended by ``end`` because the
        signature to decode it with was unavailable."""
        return

    @property
    def passthrough(self) -> Passthrough[Any, Any, Any] | None:
        """The passthrough whose messages it takes unread, if any."""
        return None

    async def accept(self, heads: InferHeads, model: str, version: str, context: Context) -> Forward | None:
        """Whether it takes a message with ``heads`` unread, from a caller who calls it ``model``; None where
        the request has to be decoded. Raises as :meth:`infer`."""
        return None

    async def forward(
        self, forward: Forward, message: Any, read: Callable[[Any], tuple[Any, str] | InferResponse]
    ) -> Any:
        """What ``read`` makes of the reply to ``message``: an answer in the caller's form, or a response, in
        the caller's names. Raises as :meth:`infer`."""
        raise TypeError(f"model '{self.name}' takes no message unread")

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
