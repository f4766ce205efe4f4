"""A model behind another server, as a target like those here.

An ``UpstreamModel`` is a model of an ``Upstream`` under the name, and with the tensor names, that our
clients know it by. What is asked of it is counted here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from protocols.dialect import Opened, Passed
from runtime.absent import all_in
from runtime.left_out import LeftOut
from runtime.model import UNLOADED
from runtime.model_config import ModelConfig
from runtime.model_config_message import config_message, write_signature
from runtime.only_answer import only_answer
from runtime.pool.unanswered import UnansweredError
from runtime.renames import Renames, refuse_hidden, renamed, renamed_signature, reversed_names
from runtime.statistics import Course, batch_size, count_failure, count_success
from runtime.turns import Turns
from runtime.upstream import Upstream
from schemas import (
    Context,
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
    RequestedOutput,
    Signature,
    Tensor,
    VersionStatistics,
    VersionStatus,
)
from schemas.oip import MESSAGES

Signatures = tuple[Signature, Signature]
"""One in our clients' names, and the same in the upstream's."""

_STALE = frozenset({ErrorCode.INVALID_TENSOR, ErrorCode.NOT_FOUND, ErrorCode.BAD_UPSTREAM})
"""Errors after which the upstream's model may have changed under us: ask for its signature again."""

_UNNAMED_VERSION = "1"
"""What an upstream's version is called in statistics while the upstream has not said."""

_KEPT_SIGNATURES = 64
"""Some servers take any text for a version of their model, so clients could make us keep any number."""


@dataclass(slots=True)
class _Asked:
    """A question for signatures that is under way, asked once for all who wait for its answer."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    answer: asyncio.Task[Signatures] | None = None


class UpstreamModel:
    """A ``Target`` that asks a model of an upstream.

    ``inputs`` and ``outputs`` map the names that our clients use to the upstream's. ``declared`` is
    the signature in our clients' names, for upstreams whose metadata is missing or wrong. ``controlled``:
    whether clients may have it loaded and unloaded there. ``statistics`` are by version. ``left_out`` takes
    note of what the upstream's dialect has no place for.
    """

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
        left_out: LeftOut | None = None,
    ) -> None:
        self.name = name
        self.left_out = left_out
        self.controlled = controlled
        self.upstream = upstream
        self._remote = remote_model
        self._to_inputs: Renames = inputs or {}
        self._to_outputs: Renames = outputs or {}
        self._from_inputs = reversed_names(self._to_inputs)
        self._from_outputs = reversed_names(self._to_outputs)
        self._declared = declared
        self._description = description
        self._parameters = parameters or {}
        self._signatures: dict[str, Signatures] = {}
        self._asked: dict[str, _Asked] = {}
        self._turns = Turns()
        self.statistics: dict[str, VersionStatistics] = {}
        self._answered = _UNNAMED_VERSION
        self._last = ModelStatus(name, versions=(VersionStatus(_UNNAMED_VERSION, ModelState.READY),))
        self._streams = upstream.offers(Operation.INFER_STREAM)
        self._decoupled: bool | None = None

    @property
    def unloaded(self) -> bool:
        """Whether a client of ours has had the model unloaded there, so that it is not missed."""
        return self._remote in self.upstream.unloaded

    async def infer(self, request: InferRequest) -> InferResponse:
        """Ask the upstream; names are translated both ways, the answer is put in signature order.

        Requests of one sequence are asked one after the other: on their way, each by itself, they could
        overtake each other. Where the only answer of a model that streams will do, such a model is asked for
        a stream as soon as it is known, which is when it has refused to give one answer.
        """
        if request.answers == "only":
            if not self._decoupled:
                try:
                    return await self._infer_in_turn(request)
                except InferenceError as error:
                    unable = error.code is ErrorCode.UNSUPPORTED and self._streams
                    if not unable or not await self._is_decoupled():
                        raise
            return await only_answer(self.stream(request), self.name)
        return await self._infer_in_turn(request)

    async def _infer_in_turn(self, request: InferRequest) -> InferResponse:
        if request.sequence is None:
            return await self._infer(request)
        async with self._turns.of(request.sequence.id):
            return await self._infer(request)

    async def _infer(self, request: InferRequest) -> InferResponse:
        ours, theirs = await self._both_signatures(request.version)
        began = sent = time.monotonic_ns()
        try:
            asked = self._translated(request)
            sent = time.monotonic_ns()
            answer: InferResponse = await self.upstream.call(Operation.INFER, asked, theirs, request.context)
            received = time.monotonic_ns()
            answer.outputs = self._select(renamed(answer.outputs, self._from_outputs), request.outputs, ours)
        except (InferenceError, asyncio.CancelledError) as end:
            self._count_failed(end, request, ours, began)
            request.context.timings["upstream"] = time.monotonic_ns() - sent
            raise
        self._own(answer, request)
        # no queue is ours to see: what the upstream's takes is part of its time
        course = Course(began, sent, sent, received, time.monotonic_ns())
        count_success(self._counted(self._answered), batch_size(request, ours), course)
        request.context.timings["upstream"] = received - sent
        return answer

    async def relay(self, opened: Opened[Any], model: str, version: str, context: Context) -> Any:
        """The answer, in the caller's form, to a message of inference in the dialect of the upstream, passed
        on with its tensors unread; the caller calls this ``model``. None where the request must be read
        here. Raises as :meth:`infer`."""
        passage = opened.action.passage
        if passage is None or not self.upstream.passes(passage):
            return None
        ours, theirs = await self._both_signatures(version)
        passed = Passed(
            model,
            self._remote,
            tuple(ours.output_names),
            self._to_inputs,
            self._to_outputs,
            self._from_outputs,
            bool(ours.inputs or ours.outputs),
            version,
        )
        began = time.monotonic_ns()
        asked = passage.ask(opened, passed)
        if asked is None:
            return None
        message, rows = asked
        size = rows if 0 < rows <= ours.max_batch_size else 1
        sent = time.monotonic_ns()
        try:
            answered = partial(passage.answer, opened, passed)
            if isinstance(message, InferRequest):
                told = answered(await self.upstream.call(Operation.INFER, message, theirs, context))
            else:
                told = await self.upstream.pass_on(message, context, answered)
            received = time.monotonic_ns()
            if isinstance(told, InferResponse):
                told = self._encoded(told, opened, ours, model)
        except (InferenceError, asyncio.CancelledError) as end:
            self._count_end(end, version, size, began)
            context.timings["upstream"] = time.monotonic_ns() - sent
            raise
        answer, version = told
        self._answered = version or self._answered
        course = Course(began, sent, sent, received, time.monotonic_ns())
        count_success(self._counted(self._answered), size, course)
        context.timings["upstream"] = received - sent
        return answer

    def _encoded(
        self, response: InferResponse, opened: Opened[Any], ours: Signature, model: str
    ) -> tuple[Any, str]:
        """The answer to ``opened`` out of a response that could not be passed on, and its version."""
        assert opened.action.decode is not None, "inference has a decoder"  # noqa: S101
        request, form = opened.action.decode(opened, ours)
        response.outputs = self._select(renamed(response.outputs, self._from_outputs), request.outputs, ours)
        response.model = model
        return opened.action.encode(form, response), response.version

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """The upstream's responses as they come; the one that :meth:`infer` gives where it has no streams
        in its dialect, or does not know that method. Sequences are as there."""
        async with AsyncExitStack() as turn:
            if request.sequence is not None:
                await turn.enter_async_context(self._turns.of(request.sequence.id))
            async with aclosing(self._stream(request)) as answers:
                async for answer in answers:
                    if answer.final:
                        # an answer may wait for others to go first, and they for this sequence to go on
                        await turn.aclose()
                    yield answer

    async def _stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        if not self._streams or (self.upstream.streams_at_need and not await self._is_decoupled()):
            yield await self._infer(request)
            return
        ours, theirs = await self._both_signatures(request.version)
        began = time.monotonic_ns()
        final = answered = counted = False
        size = batch_size(request, ours)
        try:
            async with aclosing(
                self.upstream.stream(self._translated(request), theirs, request.context)
            ) as answers:
                async for answer in answers:
                    if not answered and answer.error and answer.error.code is ErrorCode.NOT_FOUND:
                        raise answer.error  # no model has been asked
                    answered, final = True, final or answer.final
                    outputs = renamed(answer.outputs, self._from_outputs)
                    # not every response need have every output
                    names = {tensor.name for tensor in outputs}
                    asked = tuple(output for output in request.outputs or () if output.name in names)
                    answer.outputs = self._select(outputs, None if request.outputs is None else asked, ours)
                    if answer.error is not None:
                        answer.error.origin = self.upstream.name
                    self._own(answer, request)
                    if answer.final and not counted:
                        counted = True
                        self._count_stream(size, began)
                    yield answer
        except InferenceError as error:
            if answered or error.code is not ErrorCode.UNSUPPORTED:
                if not counted:
                    self._count_failed(error, request, ours, began)
                raise
            self._streams = False
        except (asyncio.CancelledError, GeneratorExit) as end:
            if not counted:
                self._count_failed(end, request, ours, began)
            raise
        if not self._streams:
            yield await self._infer(request)
            return
        if not counted:
            self._count_stream(size, began)
        if not final:
            # that it ended is all that some say
            yield InferResponse(self.name, (), request.version, request.id)

    async def decoupled(self, version: str = "") -> bool:
        """Whether its configuration there says so; False where it cannot be asked in streams."""
        return self._streams and await self._is_decoupled()

    async def signature(self, version: str = "") -> Signature:
        """The signature in our clients' names: declared, or asked of the upstream once."""
        return (await self._both_signatures(version))[0]

    async def metadata(self, version: str = "") -> ModelMetadata:
        """What the upstream says now, in our clients' names."""
        try:
            theirs: ModelMetadata = await self._ask_about(Operation.MODEL_METADATA, version)
        except InferenceError as error:
            # a declared signature is there because this upstream cannot tell
            if self._declared is None or not _tells_nothing(error):
                raise
            theirs = ModelMetadata(self._remote, self._declared)
        ours = self._declared or renamed_signature(theirs.signature, self._from_inputs, self._from_outputs)
        return replace(
            theirs,
            name=self.name,
            signature=ours,
            description=self._description or theirs.description,
            parameters={**theirs.parameters, **self._parameters},
        )

    async def status(self) -> ModelStatus:
        """The configuration as the upstream has it, or as its metadata tell it, and what we have asked of its
        versions; as it was last where it was unloaded there through us."""
        if self.unloaded and not (await self.ready()).ready:
            return all_in(self._last, ModelState.UNAVAILABLE, UNLOADED)
        told = await self.metadata()
        versions = told.versions or (self._answered,)
        self._last = ModelStatus(
            self.name,
            await self._stated_config(told.config) or await self._made_config(told),
            tuple(VersionStatus(each, ModelState.READY, "", self._counted(each)) for each in versions),
        )
        return self._last

    async def ready(self, version: str = "") -> Readiness:
        """Whether the upstream says that the model is ready; False where it cannot be asked. A server that
        answers no such question is ready when it can be connected to, if the signature is declared."""
        try:
            said: Readiness = await self._ask_about(Operation.MODEL_READY, version)
        except InferenceError as error:
            if self._declared is not None and isinstance(error, UnansweredError):
                return Readiness(True)
            return Readiness(False, f"model '{self.name}': {error.message}")
        if said.ready:
            self.upstream.unloaded.discard(self._remote)
        return said if said.ready else Readiness(False, said.reason or f"model '{self.name}' is not ready")

    async def _ask_about(self, operation: Operation, version: str) -> Any:
        declared = self._declared is not None
        return await self.upstream.call(operation, ModelRef(self._remote, version), dispensable=declared)

    async def close(self) -> None:
        """Nothing of its own to close: the connections belong to the upstream."""

    def _translated(self, request: InferRequest) -> InferRequest:
        """The request in the upstream's names. Raises UNREPRESENTABLE for what may not be left out of it."""
        if self.left_out is not None:
            self.left_out.note(request, self.upstream.name)
        return replace(
            request,
            model=self._remote,
            inputs=renamed(request.inputs, self._to_inputs),
            outputs=None if request.outputs is None else self._asked_outputs(request.outputs),
        )

    def _own(self, answer: InferResponse, request: InferRequest) -> None:
        """Put our names on an answer, and note which version gives them."""
        answer.model, answer.id = self.name, request.id
        self._answered = answer.version or self._answered

    def _count_stream(self, size: int, began: int) -> None:
        now = time.monotonic_ns()
        count_success(self._counted(self._answered), size, Course(began, began, began, now, now))

    def _count_failed(self, end: BaseException, request: InferRequest, ours: Signature, began: int) -> None:
        self._count_end(end, request.version, batch_size(request, ours), began)

    def _count_end(self, end: BaseException, version: str, size: int, began: int) -> None:
        """Count a request that ended without an answer: by an error, or since its caller has gone away."""
        if isinstance(end, InferenceError) and end.code in _STALE:
            self._forget()
        # a version that never answered may be any text that a client has sent
        known = version if version in self.statistics else self._answered
        count_failure(self._counted(known), size, began, end)

    def _forget(self) -> None:
        """The upstream's model may be another than the one that is known."""
        self._signatures.clear()
        self._decoupled = None

    async def load(self) -> None:
        """Have the upstream load the model. Raises what it says, UNSUPPORTED where its dialect cannot."""
        await self.upstream.call(Operation.MODEL_LOAD, ModelRef(self._remote))
        self.upstream.unloaded.discard(self._remote)
        self._forget()

    async def unload(self) -> None:
        """Have the upstream unload the model. Raises as :meth:`load`."""
        with suppress(InferenceError):
            await self.status()  # which the upstream may not tell of a model that it has unloaded
        await self.upstream.call(Operation.MODEL_UNLOAD, ModelRef(self._remote))
        self.upstream.unloaded.add(self._remote)
        self._forget()

    async def _stated_config(self, known: bytes) -> bytes:
        """The upstream's own configuration, ``known`` or asked for, in our clients' names and with the
        signature that is served; empty where it has none. Where a signature is declared nobody asks: such
        an upstream tells little."""
        stated = known or (b"" if self._declared is not None else await self._asked_config())
        if not stated:
            return b""
        message: Any = MESSAGES["inference.ModelConfig"].FromString(stated)
        message.name = self.name
        for tensors, names in ((message.input, self._from_inputs), (message.output, self._from_outputs)):
            for tensor in tensors:
                tensor.name = names.get(tensor.name, tensor.name)
        write_signature(message, await self.signature())
        written: bytes = message.SerializeToString(deterministic=True)
        return written

    async def _is_decoupled(self) -> bool:
        """Whether the upstream says that the model answers any number of times; asked once."""
        if self._decoupled is None:
            config: Any = MESSAGES["inference.ModelConfig"].FromString(await self._asked_config())
            self._decoupled = bool(config.model_transaction_policy.decoupled)
        return self._decoupled

    async def _asked_config(self) -> bytes:
        if not self.upstream.offers(Operation.MODEL_CONFIG):
            return b""
        try:
            asked: bytes = await self.upstream.call(Operation.MODEL_CONFIG, ModelRef(self._remote))
        except InferenceError as error:
            if error.retryable:
                raise
            return b""
        return asked

    async def _made_config(self, told: ModelMetadata) -> bytes:
        config = ModelConfig(name=self.name, platform=told.platform)
        return config_message(config, await self.signature())

    def _counted(self, version: str) -> VersionStatistics:
        return self.statistics.setdefault(version, VersionStatistics())

    async def _both_signatures(self, version: str) -> Signatures:
        if self._declared is not None:
            version = ""  # the same for all
        known = self._signatures.get(version)
        if known is not None and version not in self._asked:
            return known
        asked = self._asked.setdefault(version, _Asked())
        asked.waiting += 1
        try:
            # one after the other, or who comes when it is just known would overtake those who wait
            async with asked.turn:
                if asked.answer is None:
                    asked.answer = asyncio.create_task(self._ask_signatures(version))
                return await asyncio.shield(asked.answer)
        finally:
            asked.waiting -= 1
            if not asked.waiting:
                del self._asked[version]

    async def _ask_signatures(self, version: str) -> Signatures:
        if self._declared is not None:
            found = (self._declared, renamed_signature(self._declared, self._to_inputs, self._to_outputs))
        else:
            told: ModelMetadata = await self.upstream.call(
                Operation.MODEL_METADATA, ModelRef(self._remote, version)
            )
            theirs = await self._with_batch(told.signature, version)
            found = (renamed_signature(theirs, self._from_inputs, self._from_outputs), theirs)
        if len(self._signatures) >= _KEPT_SIGNATURES:
            self._signatures.clear()
        self._signatures[version] = found
        return found

    async def _with_batch(self, told: Signature, version: str) -> Signature:
        """``told`` with the limit of the batch, where the upstream's metadata leaves that to a
        configuration of its own, and has one: other servers of the same dialect do not."""
        batched = all(spec.shape[:1] == (-1,) for spec in (*told.inputs, *told.outputs))
        if told.max_batch_size or not batched or not self.upstream.offers(Operation.MODEL_CONFIG):
            return told
        try:
            config: bytes = await self.upstream.call(Operation.MODEL_CONFIG, ModelRef(self._remote, version))
            limit: int = MESSAGES["inference.ModelConfig"].FromString(config).max_batch_size  # type: ignore[attr-defined]
        except InferenceError as error:
            if error.retryable:
                raise
            return told
        return replace(told, max_batch_size=max(limit, 0))

    def _asked_outputs(self, outputs: tuple[RequestedOutput, ...]) -> tuple[RequestedOutput, ...]:
        """The outputs under their names there, raw: classes are ranked here, from values that no server
        has rounded."""
        return tuple(
            replace(output, name=self._to_outputs.get(output.name, output.name), classification=0)
            for output in outputs
        )

    def _select(
        self, answered: tuple[Tensor, ...], asked: tuple[RequestedOutput, ...] | None, signature: Signature
    ) -> tuple[Tensor, ...]:
        """The outputs asked for, in signature order; some servers answer with all of them in any."""
        by_name = {tensor.name: tensor for tensor in answered}
        if asked is not None:
            missing = [output.name for output in asked if output.name not in by_name]
            if missing:
                refuse_hidden("output", missing, self._to_outputs, self._from_outputs, self.name)
                raise InferenceError(
                    ErrorCode.BAD_UPSTREAM,
                    f"upstream '{self.upstream.name}' answered without output '{missing[0]}' "
                    f"of model '{self.name}'",
                    origin=self.upstream.name,
                )
            by_name = {output.name: by_name[output.name] for output in asked}
        ordered = [by_name.pop(spec.name) for spec in signature.outputs if spec.name in by_name]
        return (*ordered, *by_name.values())


def _tells_nothing(error: InferenceError) -> bool:
    return isinstance(error, UnansweredError) or error.code is ErrorCode.UNSUPPORTED
