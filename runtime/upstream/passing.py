"""Messages that an upstream's model gets, and answers, undecoded: one answer, or a stream of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames, StreamPassthrough
from interlingua.protocols.whole_message import without_message
from interlingua.runtime.models.statistics import batch_size
from interlingua.runtime.target import Observe, PassedMessage
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.fast_path import SentCall, UpstreamFastPath
from interlingua.runtime.upstream.message_size import nbytes_of
from interlingua.runtime.upstream.names import UpstreamNames
from interlingua.runtime.upstream.signature import KnownSignature, UpstreamSignature
from interlingua.runtime.upstream.upstream import Upstream
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Operation,
    RequestedOutput,
    Signature,
)
from interlingua.schemas.offload import OffloadRequired

_KEPT_NAMES = 64


_Prepared = tuple[Any, InferHeads, PassthroughNames]
"""A message to send, the heads of its tensors, and the names written into it."""


@dataclass(slots=True, eq=False)
class UpstreamPassing:
    """Forwards messages to the model ``remote`` of ``upstream``, which clients know as ``name``; if
    ``strict``, only those that fit the signature. ``discover`` returns a signature that is not known yet,
    ``count_end`` counts a failure. ``streams``: the server has the streaming method, as far as known."""

    name: str
    remote: str
    upstream: Upstream
    names: UpstreamNames
    signatures: UpstreamSignature
    counts: UpstreamCounts
    strict: bool
    discover: Callable[[str, Context], Awaitable[KnownSignature]]
    count_end: Callable[[BaseException, str, int, int, Context], None]
    streams: bool

    async def infer(
        self, opened: Opened[Any], model: str, version: str, context: Context, observe: Observe | None
    ) -> Any:
        """See ``Target.pass_through``. None also if the request does not fit the signature."""
        sent: SentCall | None = context.sent
        if sent is None:
            known = self.signatures.known(version) or await self.discover(version, context)
        else:
            known = sent.path.known  # with which it was sent
        passthrough = opened.action.passthrough
        if passthrough is None:
            return None
        try:
            prepared = self._prepared(passthrough, opened, known, model, version)
        except OffloadRequired as required:
            run, limits = required.offloader.run, self.upstream.limits
            prepared = await run(limits, self._prepared, passthrough, opened, known, model, version)
        if prepared is None:
            return None
        message, heads, names = prepared
        signature = known.local
        size = batch_size(heads, signature) if signature.max_batch_size else 1
        read: Callable[[Any], Any] = partial(passthrough.answer, opened, names)
        if opened.arriving is not None and any(head.datatype is Datatype.BYTES for head in heads.inputs):
            # its reply may need decoding, and the form of the answer then the strings
            await opened.arriving.collect()
            message = passthrough.call(opened, names)
        if observe is not None and (passed := observe()) is not None:
            if opened.arriving is not None:
                await opened.arriving.collect()
                message = passthrough.call(opened, names)
            passed.signature, passed.nbytes = signature, nbytes_of(message)
            read = partial(self._keep, passed, known, read)
        began = time.monotonic_ns() if sent is None else sent.began
        try:
            if isinstance(message, InferRequest):
                response = await self.upstream.call(Operation.INFER, message, known.remote, context)
                answer = await self.upstream.read(read, response)
            else:
                answer = await self.upstream.forward(message, context, read)
            received = time.monotonic_ns()
            if isinstance(answer, InferResponse):
                requested = tuple(RequestedOutput(name) for name in heads.outputs) or None
                answer.outputs = self.names.chosen(self.names.answered(answer), requested, signature)
        except (InferenceError, asyncio.CancelledError) as end:
            self.count_end(end, version, size, began, context)
            context.ended["upstream"] = ended = time.monotonic_ns()
            context.timings["upstream"] = ended - began
            raise
        undecoded = isinstance(answer, tuple)
        version = answer[1] if undecoded else answer.version
        context.timings["upstream"] = received - began
        context.ended["upstream"] = received
        context.version = version
        if undecoded and answer[0].rest is not None:
            answer[0].rest.on_end(partial(self._arrived, version, size, began, context))
            return answer[0]
        course = began, began, began, received, time.monotonic_ns(), 0
        self.counts.success(version, size, course, context)
        if undecoded:
            return answer[0]
        answer.model = model
        return await self.upstream.offloaded(_encoded, opened, signature, answer)

    def fast_path(
        self, target: object, opened: Opened[Any], model: str, version: str, context: Context
    ) -> UpstreamFastPath | None:
        """See ``Target.fast_path``."""
        passthrough, known = opened.action.passthrough, self.signatures.known(version)
        if passthrough is None or passthrough.repeats is None or known is None:
            return None
        prepared = self._prepared(passthrough, opened, known, model, version)
        if prepared is None or not self.upstream.sends_at_once:
            return None
        call, heads, names = prepared
        repeats = passthrough.repeats(opened, call)
        if repeats is None:
            return None
        self.upstream.prepare(call, context)
        read = partial(passthrough.answer, passthrough.without_contents(opened), names)
        return UpstreamFastPath(
            target,
            self.upstream,
            self.signatures,
            self.counts,
            known,
            version,
            repeats,
            without_message(call),
            repeats.size,
            read,
            batch_size(heads, known.local),
        )

    async def stream(
        self, opened: Opened[Any], model: str, version: str, context: Context
    ) -> AsyncGenerator[tuple[Any, bool], None]:
        """See ``Target.pass_stream``. Nothing also if the request does not fit the signature."""
        passthrough = opened.action.stream_passthrough
        if not self.streams or passthrough is None:
            return
        known = self.signatures.known(version) or await self.discover(version, context)
        prepared = self._prepared(passthrough, opened, known, model, version)
        if prepared is None:
            return
        message, heads, names = prepared
        size = batch_size(heads, known.local)
        began = time.monotonic_ns()
        final = answered = counted = False
        form: Any = None
        try:
            read = partial(passthrough.answer, opened, names)
            async with aclosing(self.upstream.forward_stream(message, context, read)) as replies:
                async for reply in replies:
                    if isinstance(reply, InferResponse):
                        if not answered and reply.error and reply.error.code is ErrorCode.NOT_FOUND:
                            raise reply.error  # no model has run
                        form = form or await self.upstream.offloaded(_reply_form, opened, known.local)
                        last, ran = reply.final, reply.version
                        self._own(reply, heads, known.local, model)
                        answer = await self.upstream.offloaded(opened.action.encode, form, reply)
                    else:
                        answer, ran, last = reply
                    self.counts.answered = ran or self.counts.answered
                    context.version = ran
                    answered, final = True, final or last
                    if last and not counted:
                        counted = True
                        self.counts.streamed(size, began, context)
                    yield answer, last
        except InferenceError as error:
            if counted:
                return  # nothing is missing
            if not answered and error.code is ErrorCode.UNSUPPORTED:
                self.streams = False
                return
            self.count_end(error, version, size, began, context)
            if not answered:
                raise
            context.failure = error
            form = form or _reply_form(opened, known.local)
            yield opened.action.encode(form, InferResponse(model, (), version, error=error)), True
            return
        except (asyncio.CancelledError, GeneratorExit) as end:
            if not counted:
                self.count_end(end, version, size, began, context)
            raise
        if not counted:
            self.counts.streamed(size, began, context)
        if not final:
            # some servers report the end by ending the stream alone
            form = form or _reply_form(opened, known.local)
            yield opened.action.encode(form, InferResponse(model, (), version)), True

    def _prepared(
        self,
        passthrough: Passthrough[Any, Any, Any] | StreamPassthrough[Any, Any, Any],
        opened: Opened[Any],
        known: KnownSignature,
        model: str,
        version: str,
    ) -> _Prepared | None:
        """The message to send; None if it has to be decoded."""
        heads = passthrough.heads(opened, known.local)
        if heads is None:
            return None
        if self.strict and heads is not known.fitting:
            if not known.check.passes(heads):
                return None
            known.fitting = heads  # heads of messages that repeat are the same object
        names = known.passing.get((model, version)) or self._names(known, model, version)
        message = passthrough.call(opened, names)
        return None if message is None else (message, heads, names)

    def _names(self, known: KnownSignature, model: str, version: str) -> PassthroughNames:
        """The names for messages of callers that use the name ``model``, prepared once."""
        signature, names = known.local, self.names
        if len(known.passing) >= _KEPT_NAMES:  # callers choose the names of a route
            known.passing.clear()
        found = known.passing[model, version] = PassthroughNames(
            model,
            self.remote,
            tuple(signature.output_names),
            names.inputs,
            names.outputs,
            names.outputs_back,
            signature,
            bool(signature.inputs or signature.outputs),
            version,
        )
        return found

    def _own(self, answer: InferResponse, heads: InferHeads, signature: Signature, model: str) -> None:
        """Put the caller's names on an answer of a stream, with the requested outputs that it has."""
        outputs = self.names.answered(answer)
        present = {tensor.name for tensor in outputs}
        requested = tuple(RequestedOutput(name) for name in heads.outputs if name in present)
        answer.outputs = self.names.chosen(outputs, requested if heads.outputs else None, signature)
        if answer.error is not None:
            answer.error.origin = self.upstream.name
        answer.model = model

    def _arrived(
        self, version: str, size: int, began: int, context: Context, failure: BaseException | None
    ) -> None:
        """Count a message whose answer has arrived after its beginning, or has not."""
        if failure is not None:
            self.count_end(failure, version, size, began, context)
            return
        received = time.monotonic_ns()
        self.counts.success(version, size, (began, began, began, received, received, 0), context)

    def _keep(
        self, passed: PassedMessage, known: KnownSignature, read: Callable[[Any], Any], reply: Any
    ) -> Any:
        """``read`` the ``reply``, which stays for ``passed``; see ``Passthrough.answer``."""
        if reply.rest is not None:
            return None
        passed.nbytes += nbytes_of(reply)
        passed.response = partial(self._response, known, reply)
        return read(reply)

    def _response(self, known: KnownSignature, reply: Any, request: InferRequest) -> InferResponse:
        """The response in ``reply`` to the passed message, which is ``request`` decoded."""
        sent = self.names.to_upstream(request, self.remote)
        answer = self.upstream.response(sent, known.remote, reply)
        answer.outputs = self.names.chosen(self.names.answered(answer), request.outputs, known.local)
        answer.model, answer.id = self.name, request.id
        return answer


def _encoded(opened: Opened[Any], signature: Signature, answer: InferResponse) -> Any:
    return opened.action.encode(_reply_form(opened, signature), answer)


def _reply_form(opened: Opened[Any], signature: Signature) -> Any:
    """The form of the answers to ``opened``. Raises as the codec."""
    action = opened.action
    if action.decode is None:
        raise TypeError(f"{action.operation.value} has no decoder")
    _complete(opened)
    return action.decode(opened, signature)[1]


def _complete(opened: Opened[Any]) -> None:
    """Put zeros in the place of data that went to the upstream as they arrived: to learn the form of the
    answers, no code reads them, so they take no memory."""
    request = opened.arriving
    if request is not None and request.rest is not None:
        body = np.zeros(len(request.body) + request.rest.length, np.uint8).data
        body[: len(request.body)] = request.body
        request.body, request.rest = body, None
