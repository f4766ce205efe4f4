"""A local model at the peer that owns a sequence, as a target."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing

from interlingua.runtime.models.only_answer import only_answer
from interlingua.runtime.models.turns import Turns
from interlingua.runtime.peers.wide_ids import narrowed
from interlingua.runtime.target import Target
from interlingua.runtime.upstream.names import UpstreamNames
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelStatus,
    Operation,
    Readiness,
    Signature,
)


class PeerModel(Target):
    """The model ``local``, which every peer has, at the one of ``upstream`` that owns the sequence of a
    request. That peer checks requests and counts them in its statistics. Requests of one sequence have
    ``turns``."""

    def __init__(self, local: Target, upstream: Upstream, turns: Turns) -> None:
        self.name = local.name
        self._local = local
        self._upstream = upstream
        self._names = UpstreamNames(local.name, upstream.name, None, None)
        self._turns = turns

    async def infer(self, request: InferRequest) -> InferResponse:
        """See ``Target``. Raises UNAVAILABLE if the owner is gone. Requests of one sequence run one after the
        other: concurrent ones could overtake each other."""
        if request.answers == "only" and await self._local.decoupled(request.version):
            return await only_answer(self.stream(request), self.name)
        async with self._turn(request):
            return await self._infer(request)

    async def _infer(self, request: InferRequest) -> InferResponse:
        context, began = request.context, time.monotonic_ns()
        signature = await self._local.signature(request.version)
        try:
            translated = narrowed(self._names.to_upstream(request, self.name))
            response: InferResponse = await self._upstream.call(
                Operation.INFER, translated, signature, context
            )
        finally:
            context.ended["upstream"] = ended = time.monotonic_ns()
            context.timings["upstream"] = ended - began
        return self._own(response, request, signature)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """As :meth:`infer`: the owner's answers as they come."""
        if not await self._local.decoupled(request.version):
            yield await self.infer(request)
            return
        signature = await self._local.signature(request.version)
        translated = narrowed(self._names.to_upstream(request, self.name))
        final = False
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(self._turn(request))
            answers = self._upstream.stream(translated, signature, request.context)
            async with aclosing(answers):
                async for answer in answers:
                    if answer.final:
                        final = True
                        # an answer may wait for others to go first, and they for this sequence to go on
                        await turn.aclose()
                    yield self._own(answer, request, signature)
        if not final:
            yield InferResponse(self.name, (), request.version, request.id)

    async def decoupled(self, version: str = "") -> bool:
        return await self._local.decoupled(version)

    async def signature(self, version: str = "") -> Signature:
        return await self._local.signature(version)

    async def metadata(self, version: str = "") -> ModelMetadata:
        return await self._local.metadata(version)

    async def status(self) -> ModelStatus:
        return await self._local.status()

    async def ready(self, version: str = "") -> Readiness:
        return await self._local.ready(version)

    async def close(self) -> None:
        """Nothing of its own to close."""

    def _turn(self, request: InferRequest) -> AbstractAsyncContextManager[None]:
        assert request.sequence is not None, "only sequences have owners"  # noqa: S101
        return self._turns.of(request.sequence.id, self.name, request.context)

    def _own(self, answer: InferResponse, request: InferRequest, signature: Signature) -> InferResponse:
        requested = request.outputs
        if requested is not None:
            # not every answer of a stream has every output, nor has one with an error
            names = {tensor.name for tensor in answer.outputs}
            requested = tuple(output for output in requested if output.name in names)
        answer.outputs = self._names.chosen(answer.outputs, requested, signature)
        answer.model, answer.id = self.name, request.id
        return answer
