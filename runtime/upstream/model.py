"""A model of an upstream, under the names that our clients use, with its counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from typing import Any

from interlingua.protocols.dialect import Opened, Passthrough, StreamPassthrough
from interlingua.runtime.models.model import UNLOADED
from interlingua.runtime.models.only_answer import only_answer
from interlingua.runtime.models.renames import Renames
from interlingua.runtime.models.statistics import batch_size
from interlingua.runtime.models.turns import Turns
from interlingua.runtime.repository.absent import all_in
from interlingua.runtime.target import Observe, Target
from interlingua.runtime.upstream.attributes import NO_ATTRIBUTES, Attributes
from interlingua.runtime.upstream.config import fetch_config, is_decoupled
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.dropped_fields import DroppedFields
from interlingua.runtime.upstream.forward import ReceivedMessage, UpstreamForward
from interlingua.runtime.upstream.learning import UpstreamLearning
from interlingua.runtime.upstream.names import UpstreamNames
from interlingua.runtime.upstream.passing import UpstreamPassing
from interlingua.runtime.upstream.reports import UpstreamReports
from interlingua.runtime.upstream.signature import KnownSignature, UpstreamSignature
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    ModelState,
    ModelStatus,
    Operation,
    Parameter,
    Readiness,
    Signature,
    VersionStatistics,
    VersionStatus,
)
from interlingua.schemas.status import UNNAMED_VERSION

_STALE = frozenset({ErrorCode.INVALID_TENSOR, ErrorCode.NOT_FOUND, ErrorCode.BAD_UPSTREAM})
"""Errors after which the upstream's model may have changed, so its signature is discovered again."""

_CONFIG_SECS = 2.0
"""The timeout for discovering whether a model is decoupled."""


class UpstreamModel(Target):
    """``inputs`` and ``outputs`` map our clients' names to the upstream's. ``declared`` is the signature in
    our clients' names, for upstreams whose metadata is missing or wrong. ``controlled``: clients may load and
    unload it there. ``dropped_fields`` counts what the upstream's dialect cannot carry, ``widened`` is what
    it carries as another datatype. With ``strict_signature`` the upstream gets only requests that fit the
    signature, to which ``attributes`` are added."""

    def __init__(
        self,
        name: str,
        upstream: Upstream,
        remote_model: str,
        *,
        inputs: Renames | None = None,
        outputs: Renames | None = None,
        declared: Signature | None = None,
        description: str = "",
        parameters: Mapping[str, Parameter] | None = None,
        controlled: bool = False,
        dropped_fields: DroppedFields | None = None,
        widened: Mapping[Datatype, Datatype] | None = None,
        strict_signature: bool = True,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> None:
        self.name = name
        self.dropped_fields = dropped_fields
        self.controlled = controlled
        self.upstream: Upstream = upstream
        self._remote = remote_model
        self._names = UpstreamNames(name, upstream.name, inputs, outputs)
        self._signatures = UpstreamSignature(
            name, upstream, remote_model, self._names, declared, widened or {}, attributes
        )
        self._strict = strict_signature
        self._turns = Turns()
        self._counts = UpstreamCounts()
        self._reports = UpstreamReports(
            name,
            upstream,
            self._names,
            self._signatures,
            self._counts,
            description=description,
            parameters=parameters or {},
            attributes=attributes,
        )
        self._last = ModelStatus(name, versions=(VersionStatus(UNNAMED_VERSION, ModelState.READY),))
        upstream.unloaded.controlled.append(self._controlled_elsewhere)
        self._streams = upstream.offers(Operation.INFER_STREAM)
        self._passing = UpstreamPassing(
            name,
            remote_model,
            upstream,
            self._names,
            self._signatures,
            self._counts,
            strict_signature,
            self._known,
            self._count_end,
            self._streams,
        )
        self._learning = UpstreamLearning(self._passing)

    @property
    def unloaded(self) -> bool:
        return self._remote in self.upstream.unloaded

    def infer(self, request: InferRequest) -> Coroutine[Any, Any, InferResponse]:
        """See ``Target``; names are translated both ways. Requests of one sequence run one after the other:
        concurrent ones could overtake each other. A caller that takes only one answer gets it from a stream
        if the model is known to be decoupled, which shows when it refuses to give one answer."""
        if request.answers == "only":
            return self._infer_only(request)
        return self._infer(request) if request.sequence is None else self._infer_in_turn(request)

    async def _infer_only(self, request: InferRequest) -> InferResponse:
        known = await self._known(request.version, request.context)
        if not known.decoupled:
            try:
                return await self._infer_in_turn(request)
            except InferenceError as error:
                unable = error.code is ErrorCode.UNSUPPORTED and self._streams
                if not unable or not await self._is_decoupled(known):
                    raise
        return await only_answer(self.stream(request), self.name)

    async def _infer_in_turn(self, request: InferRequest) -> InferResponse:
        if request.sequence is None:
            return await self._infer(request)
        async with self._turns.of(request.sequence.id, self.name, request.context):
            return await self._infer(request)

    async def _infer(self, request: InferRequest, known: KnownSignature | None = None) -> InferResponse:
        call = request.context.sent
        if call is not None and call.translates:
            known = call.forward.known  # with which it was sent
        else:
            known, call = known or await self._fitting(request), None
        signature = known.local
        began = sent = time.monotonic_ns() if call is None else call.translated
        try:
            translated = self._translated(request)
            if call is None:
                sent = time.monotonic_ns()
            answer: InferResponse = await self.upstream.call(
                Operation.INFER, translated, known.remote, request.context
            )
            received = time.monotonic_ns()
            answer.outputs = self._names.chosen(self._names.answered(answer), request.outputs, signature)
        except (InferenceError, asyncio.CancelledError) as end:
            self._count_failed(end, request, signature, began)
            request.context.ended["upstream"] = ended = time.monotonic_ns()
            request.context.timings["upstream"] = ended - sent
            raise
        self._own(answer, request)
        # the queue of the upstream is not visible here: it is part of its time
        course = began, sent, sent, received, time.monotonic_ns(), 0
        self._counts.success(answer.version, batch_size(request, signature), course, request.context)
        request.context.timings["upstream"] = received - sent
        request.context.ended["upstream"] = received
        return answer

    @property
    def statistics(self) -> Mapping[str, VersionStatistics]:
        return self._counts.by_version

    @property
    def passthrough(self) -> Passthrough[Any, Any, Any] | None:
        return self.upstream.passthrough

    def pass_through(
        self, opened: Opened[Any], model: str, version: str, context: Context, observe: Observe | None = None
    ) -> Coroutine[Any, Any, Any]:
        return self._passing.infer(opened, model, version, context, observe)

    def forward(self, received: ReceivedMessage) -> UpstreamForward | None:
        return self._learning.forward(self, received)

    @property
    def stream_passthrough(self) -> StreamPassthrough[Any, Any, Any] | None:
        return self.upstream.stream_passthrough

    def pass_stream(
        self, opened: Opened[Any], model: str, version: str, context: Context
    ) -> AsyncGenerator[tuple[Any, bool], None]:
        return self._passing.stream(opened, model, version, context)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """The upstream's responses as they come; the one of :meth:`infer` if its dialect has no streams, or
        the server does not know that method. Sequences are as there."""
        async with AsyncExitStack() as turn:
            if request.sequence is not None:
                of = self._turns.of(request.sequence.id, self.name, request.context)
                await turn.enter_async_context(of)
            async with aclosing(self._stream(request)) as answers:
                async for answer in answers:
                    if answer.final:
                        # an answer may wait for others to go first, and they for this sequence to go on
                        await turn.aclose()
                    yield answer

    async def _stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        if not self._streams:
            yield await self._infer(request)
            return
        known = await self._fitting(request)
        if self.upstream.streams_at_need and not await self._is_decoupled(known):
            yield await self._infer(request, known)
            return
        signature = known.local
        began = time.monotonic_ns()
        answered = final = False
        size = batch_size(request, signature)
        try:
            async with aclosing(
                self.upstream.stream(self._translated(request), known.remote, request.context)
            ) as answers:
                async for answer in answers:
                    if not answered and answer.error and answer.error.code is ErrorCode.NOT_FOUND:
                        raise answer.error  # no model has run
                    answered = True
                    answer.outputs = self._names.chosen_present(answer, request.outputs, signature)
                    if answer.error is not None:
                        answer.error.origin = self.upstream.name
                    self._own(answer, request)
                    if answer.final and not final:
                        final = True
                        self._counts.streamed(size, began, request.context)
                    yield answer
        except InferenceError as error:
            if final:
                return  # nothing is missing
            if answered or error.code is not ErrorCode.UNSUPPORTED:
                self._count_failed(error, request, signature, began)
                raise
            self._streams = False
            yield await self._infer(request)
            return
        except (asyncio.CancelledError, GeneratorExit) as end:
            if not final:
                self._count_failed(end, request, signature, began)
            raise
        if not final:
            self._counts.streamed(size, began, request.context)
            # some servers report the end by ending the stream alone
            yield InferResponse(self.name, (), request.version, request.id)

    async def decoupled(self, version: str = "") -> bool:
        """Whether its remote configuration declares it; False without streams, and after a timeout."""
        if not self._streams:
            return False
        try:
            async with asyncio.timeout(_CONFIG_SECS):
                return await self._is_decoupled(await self._signatures.of(version))
        except TimeoutError:
            return False

    async def signature(self, version: str = "") -> Signature:
        known = self._signatures.known(version) or await self._signatures.of(version)
        return known.local

    async def renew_signature(self, version: str = "", since: int = 0) -> None:
        await self._signatures.renewed(version, since)

    async def metadata(self, version: str = "") -> ModelMetadata:
        """The upstream's metadata in our clients' names."""
        return await self._reports.metadata(version)

    async def status(self) -> ModelStatus:
        """The configuration from the upstream or its metadata, and our counts by version; the last status for
        a model that a client has unloaded there."""
        if self.unloaded and not (await self.ready()).ready:
            last = replace(self.upstream.unloaded.status(self._remote), name=self.name)
            return all_in(last, ModelState.UNAVAILABLE, UNLOADED)
        metadata = await self.metadata()
        versions = await self._reports.versions(metadata)
        self._last = ModelStatus(self.name, await self._reports.config(metadata), versions, elsewhere=True)
        return self._last

    async def version_status(self, version: str) -> VersionStatus | None:
        """See ``Target``. An upstream may know versions and labels that its metadata do not list."""
        return await super().version_status(version) or await self._reports.version(version)

    async def ready(self, version: str = "") -> Readiness:
        """Whether the upstream reports the model as ready."""
        return await self._reports.ready(version)

    async def close(self) -> None:
        """Nothing of its own to close: the connections belong to the upstream."""

    def _translated(self, request: InferRequest) -> InferRequest:
        """The request in the upstream's names. Raises UNREPRESENTABLE for a field that must not be
        dropped."""
        if self.dropped_fields is not None:
            self.dropped_fields.note(request, self.upstream.name)
        return self._names.to_upstream(request, self._remote)

    def _own(self, answer: InferResponse, request: InferRequest) -> None:
        """Put our names on an answer, and note its version."""
        answer.model, answer.id = self.name, request.id
        self._counts.answered = answer.version or self._counts.answered

    def _count_failed(
        self, end: BaseException, request: InferRequest, signature: Signature, began: int
    ) -> None:
        self._count_end(end, request.version, batch_size(request, signature), began, request.context)

    def _count_end(self, end: BaseException, version: str, size: int, began: int, context: Context) -> None:
        if isinstance(end, InferenceError) and end.code in _STALE:
            self._signatures.forget()
        self._counts.failure(version, size, began, end, context)

    def count_undecoded(self, end: BaseException, version: str, began: int, context: Context) -> None:
        self._counts.failure(version, 1, began, end, context)

    async def load(self) -> None:
        await self.upstream.call(Operation.MODEL_LOAD, ModelRef(self._remote))
        self.upstream.unloaded.loaded(self._remote)
        self._signatures.forget()

    async def unload(self) -> None:
        with suppress(InferenceError):
            await self.status()  # the upstream may not report it after the unload
        await self.upstream.call(Operation.MODEL_UNLOAD, ModelRef(self._remote))
        self.upstream.unloaded.add(self._remote, self._last)
        self._signatures.forget()

    def _controlled_elsewhere(self, remote: str) -> None:
        """Another process of this server has loaded or unloaded the model ``remote``."""
        if remote == self._remote:
            self._signatures.forget()

    async def _is_decoupled(self, known: KnownSignature) -> bool:
        """Whether the upstream says that the model answers any number of times; requested once."""
        if known.decoupled is None:
            known.decoupled = is_decoupled(await fetch_config(self.upstream, ModelRef(self._remote)))
        return known.decoupled

    async def _known(self, version: str, context: Context, *, again: bool = False) -> KnownSignature:
        """The signature of ``version``, discovered ``again`` if requested. Counts a request that fails
        because it is unavailable. Raises DEADLINE_EXCEEDED."""
        began, deadline = time.monotonic_ns(), context.deadline
        try:
            try:
                async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                    if again:
                        return await self._signatures.renewed(version, context.began)
                    return await self._signatures.of(version)
            except TimeoutError:
                text = f"model '{self.name}' did not answer before the deadline"
                raise InferenceError(ErrorCode.DEADLINE_EXCEEDED, text) from None
        except (InferenceError, asyncio.CancelledError) as end:
            self.count_undecoded(end, version, began, context)
            raise

    async def _fitting(self, request: InferRequest) -> KnownSignature:
        """The signature that ``request`` fits. Raises INVALID_TENSOR in the words of local models."""
        known = self._signatures.known(request.version)
        known = known or await self._known(request.version, request.context)
        if not self._strict:
            return known
        try:
            known.check.check(request)
            return known
        except InferenceError:
            fresh = await self._known(request.version, request.context, again=True)
        try:
            fresh.check.check(request)
        except InferenceError:
            self._counts.refused(request.version, request.context)
            self._names.refuse_hidden(request)
            raise
        return fresh
