"""Messages that an upstream's model gets, and answers, undecoded: one answer, or a stream of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames, StreamPassthrough
from interlingua.runtime.models.statistics import batch_size
from interlingua.runtime.target import Observe, PassedMessage
from interlingua.runtime.upstream.counts import UpstreamCounts
from interlingua.runtime.upstream.forward import SentCall
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


class _Prepared(NamedTuple):
    """A message to send, the heads of its tensors, and the names written into it."""

    message: Any
    heads: InferHeads
    names: PassthroughNames


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
            known = sent.forward.known  # with which it was sent
        passthrough = opened.action.passthrough
        if passthrough is None:
            return None
        try:
            prepared = self.prepared(passthrough, opened, known, model, version)
        except OffloadRequired as required:
            run, limits = required.offloader.run, self.upstream.limits
            prepared = await run(limits, self.prepared, passthrough, opened, known, model, version)
        if prepared is None:
            return None
        read: Callable[[Any], Any] = partial(passthrough.answer, opened, prepared.names)
        passed = None if observe is None else observe()
        if opened.arriving is not None and (passed is not None or _has_strings(prepared.heads)):
            # a copy needs all of it; a reply to strings may need decoding, and the form of the answer them
            await opened.arriving.collect()
            prepared = prepared._replace(message=passthrough.call(opened, prepared.names))
        if passed is not None:
            passed.signature, passed.nbytes = known.local, nbytes_of(prepared.message)
            read = partial(self._keep, passed, known, read)
        return await self._exchange(opened, prepared, known, read, context)

    async def _exchange(
        self,
        opened: Opened[Any],
        prepared: _Prepared,
        known: KnownSignature,
        read: Callable[[Any], Any],
        context: Context,
    ) -> Any:
        """The answer to the message, with the reply's result of ``read``. Counts the request."""
        message, heads, names = prepared
        signature, version = known.local, names.version
        size = batch_size(heads, signature) if signature.max_batch_size else 1
        began = time.monotonic_ns() if context.sent is None else context.sent.began
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
        context.version = version = answer[1] if undecoded else answer.version
        context.timings["upstream"] = received - began
        context.ended["upstream"] = received
        if undecoded and answer[0].rest is not None:
            answer[0].rest.on_end(partial(self._arrived, version, size, began, context))
            return answer[0]
        course = began, began, began, received, time.monotonic_ns(), 0
        self.counts.success(version, size, course, context)
        if undecoded:
            return answer[0]
        answer.model = names.model
        return await self.upstream.offloaded(_encoded, opened, signature, answer)

    async def stream(
        self, opened: Opened[Any], model: str, version: str, context: Context
    ) -> AsyncGenerator[tuple[Any, bool], None]:
        """See ``Target.pass_stream``. Nothing also if the request does not fit the signature."""
        passthrough = opened.action.stream_passthrough
        if not self.streams or passthrough is None:
            return
        known = self.signatures.known(version) or await self.discover(version, context)
        prepared = self.prepared(passthrough, opened, known, model, version)
        if prepared is None:
            return
        message, heads, names = prepared
        size = batch_size(heads, known.local)
        began = time.monotonic_ns()
        answered = final = False
        encoder = _StreamEncoder(opened, heads, names, self.names, self.upstream)
        try:
            read = partial(passthrough.answer, opened, names)
            async with aclosing(self.upstream.forward_stream(message, context, read)) as replies:
                async for reply in replies:
                    if isinstance(reply, InferResponse):
                        if not answered and reply.error and reply.error.code is ErrorCode.NOT_FOUND:
                            raise reply.error  # no model has run
                        reply = await encoder.encode(reply)
                    answer, context.version, last = reply
                    self.counts.answered = context.version or self.counts.answered
                    answered = True
                    if last and not final:
                        final = True
                        self.counts.streamed(size, began, context)
                    yield answer, last
        except InferenceError as error:
            if final:
                return  # nothing is missing
            if not answered and error.code is ErrorCode.UNSUPPORTED:
                self.streams = False
                return
            self.count_end(error, version, size, began, context)
            if not answered:
                raise
            context.failure = error
            yield encoder.last(error), True
            return
        except (asyncio.CancelledError, GeneratorExit) as end:
            if not final:
                self.count_end(end, version, size, began, context)
            raise
        if not final:
            self.counts.streamed(size, began, context)
            # some servers report the end by ending the stream alone
            yield encoder.last(), True

    def prepared(
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
        if self.strict and not known.check.passes(heads):
            return None
        names = known.passing.get((model, version)) or self._names(known, model, version)
        message = passthrough.call(opened, names)
        return None if message is None else _Prepared(message, heads, names)

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


@dataclass(slots=True, eq=False)
class _StreamEncoder:
    """Encodes what a stream answers to the message ``opened``, where that does not pass."""

    opened: Opened[Any]
    heads: InferHeads
    names: PassthroughNames
    upstream_names: UpstreamNames
    upstream: Upstream
    _form: Any = None

    async def encode(self, answer: InferResponse) -> tuple[Any, str, bool]:
        """The caller's answer, the version that ran, and whether this is the last."""
        offloaded, signature = self.upstream.offloaded, self.names.signature
        form = self._form = self._form or await offloaded(_reply_form, self.opened, signature)
        last, version = answer.final, answer.version
        requested = tuple([RequestedOutput(name) for name in self.heads.outputs]) or None
        answer.outputs = self.upstream_names.chosen_present(answer, requested, signature)
        if answer.error is not None:
            answer.error.origin = self.upstream.name
        answer.model = self.names.model
        return await offloaded(self.opened.action.encode, form, answer), version, last

    def last(self, error: InferenceError | None = None) -> Any:
        """The caller's last answer, after which nothing comes; with the ``error`` that has ended the
        stream."""
        form = self._form or _reply_form(self.opened, self.names.signature)
        response = InferResponse(self.names.model, (), self.names.version, error=error)
        return self.opened.action.encode(form, response)


def _has_strings(heads: InferHeads) -> bool:
    return any(head.datatype is Datatype.BYTES for head in heads.inputs)


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
