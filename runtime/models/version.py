"""One version of a model that is ready, as ``runtime.models.model`` uses it.

``tensor_version`` runs functions on tensors, ``request_version`` instances that get whole requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from interlingua.runtime.backends import InstanceAnswer, ServerHooks
from interlingua.runtime.models.statistics import count_refusal, entered
from interlingua.runtime.models.warmup import WarmupSample
from interlingua.schemas import (
    InferenceError,
    InferRequest,
    ModelState,
    Readiness,
    Signature,
    VersionStatistics,
    VersionStatus,
)


class Version(Protocol):
    """A version of a model that is ready: an instance, its agreed signature, its queue and its counts.

    ``scope`` is its part of the response cache. A ``decoupled`` version answers any number of times; one that
    ``learns`` finds out from other models whether it does.
    """

    number: str
    scope: int
    signature: Signature
    decoupled: bool
    learns: bool
    statistics: VersionStatistics

    @property
    def waiting(self) -> int:
        """How many requests wait for their run."""

    def check(self, request: InferRequest) -> tuple[str, ...]:
        """The outputs to compute for ``request``. Raises INVALID_TENSOR."""

    async def answer(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        """The one answer of a version that is not decoupled. Raises what the instance raises, OVERLOADED and
        UNAVAILABLE where too many wait, DEADLINE_EXCEEDED, CANCELLED."""

    def answers(
        self, request: InferRequest, outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        """The answers as the instance gives them, the last one final. Raises as :meth:`answer`, but keeps no
        deadline."""

    async def warm_up(self, sample: WarmupSample) -> None:
        """Run ``sample`` on every executor; as a sequence of its own where there are sequences. Raises as a
        request would."""

    def join(self, hooks: ServerHooks) -> None:
        """Serve from now on."""

    async def learn(self) -> str:
        """Find out from the models that this one goes through whether they are decoupled. Returns why the
        version cannot run with them, empty where it can."""

    async def learn_labels(self) -> None:
        """Take over the class labels of the models that this one goes through, where it has none itself."""

    def readiness(self) -> Readiness:
        """Whether a request would run now."""

    async def close(self) -> None:
        """Finish what runs or waits and free the instance."""


def checked(version: Version, request: InferRequest) -> tuple[str, ...]:
    """The outputs to compute. Raises INVALID_TENSOR, which is counted as no failure of the model."""
    try:
        return version.check(request)
    except InferenceError:
        count_refusal(entered(version.statistics, request.context))
        raise


def status_of(version: Version) -> VersionStatus:
    """The version as a server tells of it."""
    state = version.readiness()
    name = ModelState.READY if state.ready else ModelState.UNAVAILABLE
    return VersionStatus(version.number, name, state.reason, version.statistics)
