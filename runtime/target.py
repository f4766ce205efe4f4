"""The seam between the router and the models: local models and models of upstreams are the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from interlingua.protocols.dialect import Opened, Passthrough, StreamPassthrough
from interlingua.runtime.models.inline_runs import InlineRuns
from interlingua.runtime.models.instance_answer import InstanceAnswer
from interlingua.runtime.models.response_cache import ResponseCache
from interlingua.runtime.models.warmup import WarmupSample
from interlingua.runtime.repository.snapshot import Origin
from interlingua.runtime.upstream.dropped_fields import DroppedFields
from interlingua.runtime.upstream.forward import ReceivedMessage, UpstreamForward
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelStatus,
    Readiness,
    Signature,
    VersionStatistics,
    VersionStatus,
)


@dataclass(slots=True)
class PassedMessage:
    """What a target keeps of a message that it forwards undecoded, for a copy to be decoded later: the
    ``signature`` in the caller's names once the message may be sent, and ``nbytes`` of message and reply.
    ``response`` decodes the reply for the decoded request, as :meth:`Target.infer` returns it; it raises as
    that."""

    signature: Signature | None = None
    nbytes: int = 0
    response: Callable[[InferRequest], InferResponse] | None = None


Observe = Callable[[], PassedMessage | None]
"""Whether a message is observed: decides when it is about to be sent."""


@dataclass(frozen=True, slots=True)
class ServerHooks:
    """The server as a model sees it: ``find`` returns a model by name or raises NOT_FOUND; ``standing`` is
    the readiness of a model and version as far as it is known without I/O; the model calls ``changed`` when
    its readiness changes. ``cache`` is the response cache, if the server has one."""

    find: Callable[[str], Target]
    standing: Callable[[str, str], Readiness]
    changed: Callable[[], None]
    cache: ResponseCache | None = None


class Version(Protocol):
    """A version of a local model that is ready: an instance, its agreed signature, its queue and its counts.
    ``scope`` is its part of the response cache. A ``decoupled`` version answers any number of times; one that
    ``learns`` discovers from other models whether it does. ``check`` returns the outputs to compute for a
    request and raises INVALID_TENSOR. ``inline`` has its runs on the event loop, if it may have any."""

    number: str
    scope: int
    signature: Signature
    decoupled: bool = False
    learns: bool = False
    statistics: VersionStatistics
    inline: InlineRuns | None = None
    check: Callable[[InferRequest], tuple[str, ...]]

    @property
    def waiting(self) -> int:
        """The number of queued requests."""

    @property
    def sequences(self) -> int:
        """The number of sequences that have started and not ended."""

    async def answer(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer:
        """The one answer of a version that is not decoupled. Raises the instance's errors, OVERLOADED and
        UNAVAILABLE for a full queue, DEADLINE_EXCEEDED, CANCELLED."""

    def answers_at_once(self, request: InferRequest) -> bool:
        """Whether :meth:`answer` would not wait now. Never raises."""
        return False

    def answer_now(self, request: InferRequest, outputs: tuple[str, ...]) -> InstanceAnswer | None:
        """As :meth:`answer`; None if that would wait."""
        return None

    def answers(
        self, request: InferRequest, outputs: tuple[str, ...]
    ) -> AsyncGenerator[InstanceAnswer, None]:
        """The answers as they come, the last one final. Raises as :meth:`answer`, but keeps no deadline."""

    async def warm_up(self, sample: WarmupSample) -> None:
        """Run ``sample`` on every executor; as a sequence of its own if the model has sequences. Raises as a
        request would."""

    def join(self, hooks: ServerHooks) -> None:
        """Serve from now on."""
        return

    async def learn(self) -> str:
        """Discover whether the models that this one calls are decoupled. Returns the reason why the version
        cannot run with them, or an empty string."""
        return ""

    async def learn_labels(self) -> None:
        """Take over the class labels of the models that this one calls, for outputs without labels."""
        return

    def end_sequences(self, is_lost: Callable[[int | str], bool]) -> None:
        """End the sequences whose correlation ids are lost: their next requests come to another daemon."""
        return

    def readiness(self) -> Readiness:
        """Whether a request would run now."""

    async def close(self) -> None:
        """Finish queued and running requests and free the instance."""


class Target(Protocol):
    """A model that answers requests. The defaults are those of a model that nothing here has loaded, that
    forwards nothing, and whose signature does not change.

    ``upstream`` is the upstream of a remote model. A local model has ``loaded`` versions and reasons why
    others ``failed``, both by number; the ``origin`` of its files; the models that it ``needs`` for its
    requests. ``reports_changes``: every change of its readiness calls :attr:`ServerHooks.changed`.
    ``controlled``: clients may :meth:`load` and :meth:`unload` it upstream. ``version_names`` has the numbers
    of loaded versions by other names, under which clients may request them.
    """

    name: str
    upstream: Upstream | None = None
    dropped_fields: DroppedFields | None = None
    loaded: Mapping[str, Version] = {}
    failed: Mapping[str, str] = {}
    origin: Origin | None = None
    needs: tuple[str, ...] = ()
    reports_changes: bool = False
    controlled: bool = False
    version_names: Mapping[str, str] = {}

    async def infer(self, request: InferRequest) -> InferResponse:
        """Answer ``request``. The outputs are those requested (all for None), in the order of the
        signature. Raises ``InferenceError``."""

    def infers_at_once(self, request: InferRequest) -> bool:
        """Whether :meth:`infer` would not wait now, so that it needs no task. Raises as :meth:`infer`."""
        return False

    def infer_now(self, request: InferRequest) -> InferResponse | None:
        """As :meth:`infer`; None, with nothing counted, if that would wait."""
        return None

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Answer ``request`` with any number of responses, as they come; of the last one ``final`` is
        True, and it may have no outputs. A model that does not stream yields exactly one. Iterating
        raises as :meth:`infer` does, which ends the stream; a response that failed while others may
        follow has ``error`` instead. To close the generator is to cancel."""

    async def decoupled(self, version: str = "") -> bool:
        """Whether it answers any number of times, as far as known. Raises as :meth:`metadata` does."""

    async def signature(self, version: str = "") -> Signature:
        """The signature with which a codec decodes a request for ``version``. Raises as :meth:`metadata`."""

    async def renew_signature(self, version: str = "", since: int = 0) -> None:
        """Discover the signature again, unless that was done after ``since`` (``time.monotonic_ns()``, 0 for
        now), when a request came that does not fit it: the upstream may have replaced the model. Raises
        NOT_FOUND."""
        return

    def count_undecoded(self, end: BaseException, version: str, began: int, context: Context) -> None:
        """Count a request that came at ``began`` (``time.monotonic_ns()``) and ended by ``end`` because the
        signature to decode it with was unavailable."""
        return

    @property
    def passthrough(self) -> Passthrough[Any, Any, Any] | None:
        """The passthrough whose messages it forwards undecoded, if any."""
        return None

    async def pass_through(
        self, opened: Opened[Any], model: str, version: str, context: Context, observe: Observe | None = None
    ) -> Any:
        """The answer, in the caller's form, to a message that is forwarded undecoded for a caller that uses
        the name ``model``; None if the message has to be decoded. Calls ``observe`` before it sends the
        message. Raises as :meth:`infer`."""
        return None

    def forward(self, received: ReceivedMessage) -> UpstreamForward | None:
        """How messages that repeat ``received`` are sent without a task; None if they are not. Raises as
        :meth:`pass_through`, and as codecs."""
        return None

    @property
    def stream_passthrough(self) -> StreamPassthrough[Any, Any, Any] | None:
        """As :attr:`passthrough`, for streams."""
        return None

    async def pass_stream(
        self, opened: Opened[Any], model: str, version: str, context: Context
    ) -> AsyncGenerator[tuple[Any, bool], None]:
        """As :meth:`pass_through`, for a streamed request: the answers, None where one is not sent, and
        whether each is the last. Nothing if the message has to be decoded. Raises before the first answer
        alone; encodes a later failure."""
        return
        yield  # type: ignore[unreachable]

    async def metadata(self, version: str = "") -> ModelMetadata:
        """The model as it describes itself, for ``version`` or the one that the policy chooses.
        Raises NOT_FOUND for an unknown version, UNAVAILABLE if the upstream does not answer."""

    async def status(self) -> ModelStatus:
        """The model's configuration and its versions with their statistics. Raises UNAVAILABLE if the
        upstream does not answer."""

    async def version_status(self, version: str) -> VersionStatus | None:
        """The status of ``version``, which may be a label; None for an unknown one. Raises UNAVAILABLE if the
        upstream does not answer, and its error for an unknown label."""
        versions = (await self.status()).versions
        return next((each for each in versions if each.version == version), None)

    async def ready(self, version: str = "") -> Readiness:
        """Whether a request would be answered now. Never raises."""

    def readiness(self, version: str = "") -> Readiness:
        """As :meth:`ready`, as far as it is known without I/O."""
        return Readiness(True)

    @property
    def caches(self) -> bool:
        """Whether its answers go to the server's response cache."""
        return False

    @property
    def statistics(self) -> Mapping[str, VersionStatistics]:
        """The counts by version."""
        return {}

    def continue_statistics(self, counted: Mapping[str, VersionStatistics]) -> None:
        """Continue the counts of the model that this one replaces, by version."""
        return

    def version(self, requested: str) -> Version:
        """The loaded version that runs a request for ``requested``. Raises NOT_FOUND."""
        raise InferenceError(
            ErrorCode.NOT_FOUND, f"Request for unknown model: '{self.name}' has no available versions"
        )

    def join(self, hooks: ServerHooks) -> None:
        """Serve from now on."""
        return

    async def warm_up(self, before: Target | None = None) -> None:
        """Run the samples of the configuration on every version that is not one of ``before``. Raises
        ``LoadError``."""
        return

    def end_sequences(self, is_lost: Callable[[int | str], bool]) -> None:
        """See ``Version``: of all versions."""
        for version in self.loaded.values():
            version.end_sequences(is_lost)

    @property
    def unloaded(self) -> bool:
        """Whether a client has unloaded the model upstream."""
        return False

    async def load(self) -> None:
        """Have the upstream load the model. Raises the upstream's error, UNSUPPORTED if its dialect has no
        such call."""
        raise TypeError(f"model '{self.name}' is not controlled")

    async def unload(self) -> None:
        """Have the upstream unload the model. Raises as :meth:`load`."""
        raise TypeError(f"model '{self.name}' is not controlled")

    async def close(self) -> None:
        """Finish running requests and free the model. It does not close the connections of an upstream."""

    async def give_way(self, successor: Target) -> None:
        """As :meth:`close`, but versions that ``successor`` has taken over stay."""
        await self.close()


def result_of(work: Coroutine[Any, Any, InferResponse]) -> InferResponse:
    """The result of ``work``, a :meth:`Target.infer` that does not wait. Raises as it does."""
    try:
        work.send(None)
    except StopIteration as end:
        response: InferResponse = end.value
        return response
    work.close()
    raise RuntimeError("a model has waited that answers at once")
