"""A remote server, in any dialect: the client side of the codecs that listeners use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import cached_property, partial
from typing import Any, TypeVar

from interlingua.protocols.dialect import Calls, Passthrough, SharedReply, StreamPassthrough, UpstreamCall
from interlingua.protocols.plans import CallbackClient
from interlingua.protocols.wire import HttpReply
from interlingua.runtime.upstream.forwarding import Forwarding
from interlingua.runtime.upstream.kinds import EVERYWHERE, FLAVORED, HARMLESS, INFERENCE
from interlingua.runtime.upstream.message_size import nbytes_of
from interlingua.runtime.upstream.pool import Attempt, Gate, Member, Pool, spans, unanswered
from interlingua.runtime.upstream.pool.probes import Probe
from interlingua.runtime.upstream.reply_piece import read_piece
from interlingua.runtime.upstream.shared_value import SharedValue
from interlingua.runtime.upstream.time_share import TimeShare
from interlingua.runtime.upstream.unloaded import UnloadedModels
from interlingua.runtime.upstream.unnamed import in_signature_order
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Readiness,
    ServerMetadata,
    Signature,
    unsupported,
)
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits, OffloadRequired

T = TypeVar("T")

_TICK_SECS = 1e-3
"""Calls of a millisecond share a deadline."""


class Upstream:
    """Equivalent servers of one dialect: ``clients``, or their pool. ``gate`` limits the requests in flight.
    ``flavors`` are the calls for servers of this dialect with other forms than ``calls``, by the name in such
    a server's metadata, requested before the first inference. ``forwarding`` adds headers to calls.
    ``named``: the name is more than an address, which clients put into their errors themselves. ``limits``
    are on the decoding of answers."""

    def __init__(
        self,
        name: str,
        calls: Calls,
        clients: Sequence[Any] | Pool,
        request_timeout_secs: float,
        flavors: Mapping[str, Calls] | None = None,
        gate: Gate | None = None,
        forwarding: Forwarding | None = None,
        *,
        named: bool = True,
        limits: DecodingLimits = DEFAULT_LIMITS,
    ) -> None:
        self.name = name
        self.limits = limits
        self._calls = calls
        if not isinstance(clients, Pool):
            clients = Pool([Member(client, str(place)) for place, client in enumerate(clients)])
        self.pool = clients
        self.gate = gate
        self._label = f"upstream '{name}': "
        self._client_label = self._label if named else ""
        self.timeout = request_timeout_secs
        self._limit, self._limit_deadline = Context(), 0.0
        self._flavors: Mapping[str, Calls] = flavors or {}
        self.passthrough: Passthrough[Any, Any, Any] | None = None
        """None until the first inference has found the flavor, which may have other calls."""
        self.stream_passthrough: StreamPassthrough[Any, Any, Any] | None = None
        """The same for streams."""
        self._offer_passthrough()
        self._shared: dict[SharedReply[Any], SharedValue[Any]] = {}
        self.forwarding = forwarding or Forwarding()
        self.learning = TimeShare(0.05, 0.1)
        self.unloaded = UnloadedModels()

    async def call(
        self,
        operation: Operation,
        argument: Any = None,
        signature: Signature | None = None,
        context: Context | None = None,
        *,
        dispensable: bool = False,
    ) -> Any:
        """Carry out ``operation`` there; arguments and results are those of ``UpstreamCall``. An inference
        whose answers have no names returns every output. ``dispensable``: the caller does not need an answer
        from a server that is reachable. Raises the upstream's own error in its words, or UNAVAILABLE,
        DEADLINE_EXCEEDED, OVERLOADED, BAD_UPSTREAM, UNREPRESENTABLE; ``origin`` names the upstream."""
        call = self._calls.get(operation)
        if call is None or self._flavors or not self.pool.watched:
            call = await self._call(operation, context)
        try:
            if call.shared is not None:
                return await self._call_shared(operation, call, call.shared, argument)
            if operation in EVERYWHERE:
                return await self._call_everywhere(call, argument, context)
            if call.unnamed:
                argument = in_signature_order(argument, signature)
            try:
                request, form = call.encode(argument, signature)
            except OffloadRequired as required:
                run = required.offloader.run
                request, form = await run(self.limits, call.encode, argument, signature)
            self.prepare(request, context)
            if call.optional is not None:
                return await self._request_optional(call, request, form, dispensable)
            inference = argument if isinstance(argument, InferRequest) else None
            return await self._request(operation, request, inference, partial(call.decode, form))
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise

    @property
    def relays(self) -> bool:
        """See ``HttpClient``."""
        return all(member.client.relays for member in self.pool.members)

    def forward(self, request: Any, context: Context, read: Callable[[Any], T]) -> Coroutine[Any, Any, T]:
        """The result of ``read`` on the reply to ``request``, an inference. Raises as :meth:`call` does."""
        if self._flavors or not self.pool.watched:
            return self._forward_first(request, context, read)
        try:
            self.prepare(request, context)
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise
        attempt = Attempt(self.pool, context=context)
        if self.gate is None:
            return self._send_attempts(attempt, request, read)
        return self._send_gated(self.gate, attempt, request, read)

    async def _forward_first(self, request: Any, context: Context, read: Callable[[Any], T]) -> T:
        await self._call(Operation.INFER, context)
        return await self.forward(request, context, read)

    def response(self, request: InferRequest, signature: Signature | None, reply: Any) -> InferResponse:
        """The response in the ``reply`` to an inference that was forwarded, which is ``request`` decoded.
        Raises as :meth:`call` does."""
        call = self._calls[Operation.INFER]
        _, form = call.encode(in_signature_order(request, signature) if call.unnamed else request, signature)
        response: InferResponse = call.decode(form, reply)
        return response

    def _request(
        self,
        operation: Operation,
        message: Any,
        request: InferRequest | None,
        read: Callable[[Any], T],
    ) -> Coroutine[Any, Any, T]:
        """The result of ``read`` on the reply to ``message``; see :meth:`call`."""
        attempt = Attempt(self.pool, request, operation in HARMLESS)
        if self.gate is None or operation not in INFERENCE:
            return self._send_attempts(attempt, message, read)
        return self._send_gated(self.gate, attempt, message, read)

    async def _send_gated(self, gate: Gate, attempt: Attempt, message: Any, read: Callable[[Any], T]) -> T:
        try:
            async with gate.passing(self.name, nbytes_of(message), message.context.deadline):
                return await self._send_attempts(attempt, message, read)
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise

    async def _send_attempts(self, attempt: Attempt, message: Any, read: Callable[[Any], T]) -> T:
        try:
            while True:
                with attempt as client:
                    if attempt.trace is not None:
                        attempt.begin_span(message)
                    try:
                        reply = await client.send(message)
                    except InferenceError as error:
                        error.message = f"{self._client_label}{error.message}"
                        raise
                    if attempt.span is not None:
                        spans.answered(attempt.span, reply)
                    if reply.rest is not None:
                        return await self._read_arriving(attempt, message, reply, read)
                    try:  # _read, inlined
                        try:
                            return read(reply)
                        except OffloadRequired as required:
                            return await required.offloader.run(self.limits, read, reply)
                    except InferenceError as error:
                        if error.code is ErrorCode.BAD_UPSTREAM:
                            error.message = f"{self._label}{error.message}"
                        raise
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise

    async def _read_arriving(
        self, attempt: Attempt, message: Any, reply: HttpReply, read: Callable[[Any], T]
    ) -> T:
        """The result of ``read`` on a reply whose body is arriving. The request ends with that body."""
        rest = reply.rest
        assert rest is not None, "it is arriving"  # noqa: S101
        try:
            result = self._read(read, reply)
            if result is None:
                try:
                    await reply.collect()
                except InferenceError as error:
                    error.message = f"{self._client_label}{error.message}"
                    raise
                return await self.offloaded(self._read, read, reply)
        except BaseException:
            rest.close()
            raise
        attempt.extend(rest)
        if self.gate is not None:
            rest.on_end(self.gate.extend(nbytes_of(message)))
        return result

    async def offloaded(self, function: Callable[..., T], *arguments: Any) -> T:
        """``function(*arguments)``, in a thread if that is required."""
        try:
            return function(*arguments)
        except OffloadRequired as required:
            return await required.offloader.run(self.limits, function, *arguments)

    async def read(self, read: Callable[[Any], T], response: Any) -> T:
        """The result of ``read`` on the response of :meth:`call`. Raises as that."""
        try:
            return await self.offloaded(self._read, read, response)
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise

    def _read(self, read: Callable[[Any], T], reply: Any) -> T:
        try:
            return read(reply)
        except InferenceError as error:
            if error.code is ErrorCode.BAD_UPSTREAM:
                error.message = f"{self._label}{error.message}"
            raise

    async def _request_optional(
        self, call: UpstreamCall[Any, Any], message: Any, form: Any, dispensable: bool
    ) -> Any:
        attempt = Attempt(self.pool, harmless=True)
        while True:
            with attempt:
                send, label = self._send, self._label
                return await unanswered.request(
                    attempt.member, call, message, form, send, dispensable=dispensable, label=label
                )

    def stream(
        self, request: InferRequest, signature: Signature | None, context: Context
    ) -> AsyncGenerator[InferResponse, None]:
        """The answers to an INFER_STREAM, as they come. Raises as :meth:`call` does."""

        def encode(call: UpstreamCall[Any, Any]) -> tuple[Any, Callable[[Any], Iterable[InferResponse]]]:
            message, form = call.encode(request, signature)
            return message, partial(call.decode, form)

        return self._stream(encode, request, context)

    def forward_stream(
        self, message: Any, context: Context, read: Callable[[Any], Iterable[T]]
    ) -> AsyncGenerator[T, None]:
        """The results of ``read`` on the pieces of the reply to ``message``, an INFER_STREAM. Raises as
        :meth:`call` does."""
        return self._stream(lambda _: (message, read), None, context)

    async def _stream(
        self,
        encode: Callable[[UpstreamCall[Any, Any]], tuple[Any, Callable[[Any], Iterable[T]]]],
        request: InferRequest | None,
        context: Context,
    ) -> AsyncGenerator[T, None]:
        call = await self._call(Operation.INFER_STREAM, context)
        try:
            message, read = await self.offloaded(encode, call)
            self.prepare(message, context)
            async with self._passing(message):
                attempt = Attempt(self.pool, request, context=context)
                while True:
                    with attempt as client:
                        if attempt.trace is not None:
                            attempt.begin_span(message)
                        async with aclosing(client.stream(message)) as answers:
                            async for answer in answers:
                                attempt.received()
                                for response in read_piece(read, answer):
                                    yield response
                        return
        except InferenceError as error:
            error.origin = error.origin or self.name
            raise

    async def _call_shared(
        self, operation: Operation, call: UpstreamCall[Any, Any], shared: SharedReply[Any], argument: Any
    ) -> Any:
        """The result of the form on the shared reply. No caller's deadline applies to it."""
        request, form = call.encode(argument, None)

        async def fetch() -> Any:
            self.prepare(request, None)
            reply = await self._request(operation, request, None, lambda reply: reply)
            return await asyncio.to_thread(self._read, shared.read, reply)

        if shared not in self._shared:
            self._shared[shared] = SharedValue(shared.keep_secs)
        return form(await self._shared[shared].get(fetch))

    async def _call_everywhere(
        self, call: UpstreamCall[Any, Any], argument: Any, context: Context | None
    ) -> Any:
        """One of the results of all servers. Raises one of their errors after all have answered."""

        async def send(member: Member) -> Any:
            request, form = call.encode(argument, None)
            self.prepare(request, context, forwards=False)
            return await self.offloaded(call.decode, form, await self._send(member.client, request))

        results = await asyncio.gather(*map(send, self.pool.some()), return_exceptions=True)
        failed = [each for each in results if isinstance(each, BaseException)]
        if failed:
            raise failed[0]
        return results[0]

    async def _call(self, operation: Operation, context: Context | None) -> UpstreamCall[Any, Any]:
        if not self.pool.watched:
            await self.pool.watch(self.name, self.probe)
        if self._flavors and operation in FLAVORED:
            await self._find_flavor(context)
        call = self._calls.get(operation)
        if call is None:
            raise unsupported(
                f"upstream '{self.name}' has no {operation.value} in its dialect", origin=self.name
            )
        return call

    def prepare(self, message: Any, context: Context | None, *, forwards: bool = True) -> None:
        """Set the headers of ``message``, those of the caller if it ``forwards`` them, and the earlier of the
        caller's deadline and the upstream's limit: clients read nothing else of a context."""
        deadline = time.monotonic() + self.timeout
        if context is not None and context.deadline is not None and context.deadline <= deadline:
            message.context = context
        else:
            if deadline - self._limit_deadline > _TICK_SECS:
                self._limit_deadline, self._limit = deadline, Context(deadline)
            message.context = self._limit
        forwarding = self.forwarding
        if context is not None and forwards:
            forwarding.of_the_caller(message, context)
        if forwarding.own:
            forwarding.of_our_own(message)

    @property
    def sends_at_once(self) -> bool:
        """Whether nothing holds a call up."""
        if self._flavors or not self.pool.watched or self.gate is not None:
            return False
        return all(isinstance(member.client, CallbackClient) for member in self.pool.members)

    def offers(self, operation: Operation) -> bool:
        return operation in self._calls

    @property
    def infer_call(self) -> UpstreamCall[Any, Any] | None:
        """The call for an inference; None as long as the flavor is not known."""
        return None if self._flavors else self._calls.get(Operation.INFER)

    @property
    def streams_at_need(self) -> bool:
        """Whether its streams are only for models that have no other call."""
        call = self._calls.get(Operation.INFER_STREAM)
        return call is not None and call.last_resort

    async def close(self) -> None:
        await self.pool.close()

    async def leave(self, hurry: asyncio.Future[None]) -> None:
        """Close after the last request of those that are routed here already; see ``Pool.idle``."""
        await self.pool.idle(hurry)
        await self.close()

    async def _find_flavor(self, context: Context | None) -> None:
        flavors, self._flavors = self._flavors, {}
        try:
            limit = None if context is None else Context(deadline=context.deadline)
            answer: ServerMetadata = await self.call(Operation.SERVER_METADATA, context=limit)
        except InferenceError as error:
            if error.retryable:
                # unreachable now, so the next request tries again
                self._flavors = flavors
                raise
            # a server without metadata is not one of the known flavors
            self._offer_passthrough()
            return
        self._calls = flavors.get(answer.name, self._calls)
        self._offer_passthrough()

    def _offer_passthrough(self) -> None:
        if self._flavors:
            return
        infer, stream = self._calls.get(Operation.INFER), self._calls.get(Operation.INFER_STREAM)
        self.passthrough = None if infer is None else infer.passthrough
        self.stream_passthrough = None if stream is None else stream.stream_passthrough

    @cached_property
    def probe(self) -> Probe | None:
        """Requests whether a server is ready, or alive if its dialect has only that."""
        call = self._calls.get(Operation.READY) or self._calls.get(Operation.LIVE)
        if call is None:
            return None

        async def query(member: Member, timeout_secs: float) -> Readiness:
            request, form = call.encode(None, None)
            request.context = Context(deadline=time.monotonic() + timeout_secs)
            self.forwarding.of_our_own(request)
            if call.optional is None:
                answer: Readiness = call.decode(form, await member.client.send(request))
            else:
                answer = await unanswered.request(member, call, request, form, _send, dispensable=True)
            return answer

        return query

    def _passing(self, request: Any) -> AbstractAsyncContextManager[None]:
        """The gate, if there is one."""
        if self.gate is None:
            return nullcontext()
        return self.gate.passing(self.name, nbytes_of(request), request.context.deadline)

    async def _send(self, client: Any, request: Any) -> Any:
        try:
            return await client.send(request)
        except InferenceError as error:
            error.message = f"{self._client_label}{error.message}"
            raise


async def _send(client: Any, request: Any) -> Any:
    return await client.send(request)
