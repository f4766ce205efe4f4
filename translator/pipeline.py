"""The way of a request through the program: open, route, decode, execute, encode.

One pipeline per listener, the same for every dialect; the transports call it with requests and get
answers, never exceptions. What each step does in a dialect stands in that dialect's tables.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, TypeVar

from protocols.dialect import BrpcEndpoint, Dialect, GrpcEndpoint, HttpEndpoint, Opened
from protocols.path_table import PathTable
from protocols.reflection import REFLECTION_METHODS, Reflection
from protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    Buffer,
    GrpcAnswer,
    GrpcRequest,
    HttpAnswer,
    HttpRequest,
    parts_of,
)
from runtime.shared_memory import Placement, is_used
from runtime.target import Target
from schemas import (
    Context,
    Duration,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
)
from translator.interleave import Told, interleave
from translator.operations import OF_A_MODEL, OF_SHARED_MEMORY, OPERATIONS, Asked, Service
from translator.peers import is_local

T = TypeVar("T")

Prepared = tuple[Target, InferRequest, Any, Placement | None]
"""Whom to ask what, the form of the answer, and where in shared memory outputs go."""

_STREAM_WINDOW = 64
"""How many messages of one stream are at work, or answered and not yet taken, at a time."""

_WATCH_SECS = 5.0
"""How often what is watched is looked at where an upstream may change without a word."""

_log = logging.getLogger(__name__)


class Pipeline:
    """Answers the requests of one listener. Use a side of it as a handler: ``http``, ``grpc``, ``brpc``, or
    ``brpc_http`` for what comes to a bRPC listener over HTTP."""

    def __init__(
        self,
        service: Service,
        listener: str,
        dialects: Sequence[Dialect],
        default_model: str = "",
        max_request_bytes: int | None = None,
        nonfinite_json: bool = False,
    ) -> None:
        self._service = service
        self._listener = listener
        self._default_model = default_model
        self.http = HttpPipeline(self, dialects, max_request_bytes, nonfinite_json)
        self.grpc = GrpcPipeline(self, dialects)
        self.brpc = BrpcPipeline(self, dialects)
        beside = [
            replace(dialect, http_endpoints=dialect.brpc_http_endpoints, unmatched=dialect.brpc_unmatched)
            for dialect in dialects
        ]
        self.brpc_http = HttpPipeline(self, beside, max_request_bytes, nonfinite_json)

    @property
    def service(self) -> Service:
        """What is asked."""
        return self._service

    def admit(self, context: Context) -> None:
        """Number a request, as dialects that show a number in every answer want it."""
        context.server_id = self._service.id
        context.request_number = next(self._service.numbers)

    async def perform(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        """Carry out what ``opened`` asks and encode the result. Raises ``InferenceError``."""
        if opened.action.operation is Operation.INFER:
            began, failed = time.monotonic_ns(), True
            try:
                # targets keep to the deadline in the context themselves
                answer = await self._infer(opened, dialect, context)
                failed = False
            finally:
                self._service.trends.count(time.monotonic_ns() - began, failed)
            return answer
        return await _within(context.deadline, self._operate(opened, dialect, context))

    async def stream(
        self, opened: Opened[Any], dialect: str, context: Context
    ) -> AsyncGenerator[Told[Any], None]:
        """Every answer to an INFER_STREAM, and whether it is the last. Raises ``InferenceError`` in place
        of the first answer; what fails later is told in an answer of its own."""
        target, request, form, placement = await self._prepare(opened, dialect, context)
        encode, model = opened.action.encode, request.model
        answered = failed = False
        began = time.monotonic_ns()
        responses = target.stream(request)
        try:
            async for response in responses:
                if placement is not None and response.outputs:
                    placement.fill(response)
                response.model = model
                answer = encode(form, response)
                answered = answered or answer is not None
                yield answer, response.final
            return
        except InferenceError as error:
            failed = True
            if not answered:
                raise
            failure = error
        except Exception:
            failed = True
            if not answered:
                raise
            failure = _unforeseen(f"a stream of model '{model}'")
        finally:
            self._service.trends.count(time.monotonic_ns() - began, failed)
            # to close it is to cancel it; an iterator that is no generator has nothing to close
            if (close := getattr(responses, "aclose", None)) is not None:
                await close()
        yield encode(form, InferResponse(model, (), request.version, request.id, error=failure)), True

    async def watch(
        self, opened: Opened[Any], dialect: str, context: Context
    ) -> AsyncGenerator[Told[Any], None]:
        """The answer to an operation that is watched, now and each time that it has changed. Raises
        ``InferenceError``."""
        catalog = self._service.catalog
        told, leaving = None, False
        while not leaving:
            # looked at before, so that the last answer tells of it
            leaving, count = self._service.draining, catalog.changes.count
            # asked for once, however often it is looked at
            look = self._operate if told is None else self._carry_out
            answer = await look(opened, dialect, context)
            if answer != told:
                yield answer, False
                told = answer
            if not leaving:
                await catalog.changes.since(count, None if catalog.tells_all_changes else _WATCH_SECS)

    async def _infer(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        target, request, form, placement = await self._prepare(opened, dialect, context)
        model = request.model
        response = await target.infer(request)
        answered = time.monotonic_ns()
        if placement is not None:
            placement.fill(response)
        # a route may have sent the request elsewhere; the caller gets the name it knows
        response.model = model
        answer = opened.action.encode(form, response)
        context.timings["encode"] = time.monotonic_ns() - answered
        return answer

    async def _prepare(self, opened: Opened[Any], dialect: str, context: Context) -> Prepared:
        """Find the model and read the request with its signature. Raises ``InferenceError``."""
        model, version = opened.model or self._default_model, opened.version
        if not model:
            raise InferenceError(
                ErrorCode.NOT_FOUND,
                f"the request names no model and listener '{self._listener}' has no default_model",
            )
        if opened.joined:
            named = await self._service.catalog.joined(model)
            model, version = named.name, named.version
        target = self._service.router.resolve(model, dialect, self._listener, version)
        decode = opened.action.decode
        assert decode is not None, "an action for inference has a decoder"  # noqa: S101
        signature = await target.signature(version)
        began = time.monotonic_ns()
        request, form = decode(opened, signature)
        request.model, request.context = model, context
        if opened.joined:
            request.version = version
        placement = None
        if is_used(request):
            self._admit_to_shared_memory(context)
            placement = self._service.shared_memory.resolve(request)
        # to find inputs in shared memory is to decode them, as to place outputs there is to encode them
        context.timings["decode"] = time.monotonic_ns() - began
        return target, request, form, placement

    async def _operate(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        """Carry out an operation that is not inference and count it."""
        began = time.monotonic_ns()
        answer = await self._carry_out(opened, dialect, context)
        spent = time.monotonic_ns() - began
        self._service.counted.setdefault(opened.action.operation.value, Duration()).add(spent)
        context.timings["exec"] = spent
        return answer

    async def _carry_out(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        operation = opened.action.operation
        perform = OPERATIONS.get(operation)
        if perform is None:
            raise InferenceError(ErrorCode.UNSUPPORTED, f"this server does not offer {operation.value}")
        if operation in OF_SHARED_MEMORY:
            self._admit_to_shared_memory(context)
        model = opened.model
        if operation in OF_A_MODEL:
            model = model or self._default_model
        name = self._service.router.name(model, dialect, self._listener)
        target = self._service.router.models.get(name)
        result = await perform(
            Asked(self._service, model, opened.version, name, target, opened.argument, self._default_model)
        )
        return opened.action.encode(opened, result)

    def _admit_to_shared_memory(self, context: Context) -> None:
        allowed = self._service.shared_memory_for
        if allowed == "none":
            raise InferenceError(ErrorCode.UNSUPPORTED, "this server does not allow shared memory")
        if allowed == "local" and not is_local(context.peer, self._listener):
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                "this server allows shared memory to clients on its own machine alone, over a loopback "
                "address or a unix socket",
            )


class HttpPipeline:
    """The HTTP side of a pipeline: an ``HttpHandler``."""

    def __init__(
        self,
        pipeline: Pipeline,
        dialects: Sequence[Dialect],
        max_request_bytes: int | None,
        nonfinite_json: bool,
    ) -> None:
        self._pipeline = pipeline
        self._dialects = dialects
        self._limit = max_request_bytes
        self._nonfinite_json = nonfinite_json
        alone = len(dialects) == 1
        self._owners: dict[HttpEndpoint, str] = {
            endpoint: dialect.name
            for dialect in dialects
            for endpoint in dialect.http_endpoints
            if alone or endpoint.path != "*"
        }
        self._paths = PathTable(self._owners)

    def head(self, request: HttpRequest) -> HttpAnswer | None:
        """Choose the endpoint; refuse unknown paths and methods before the body is read."""
        methods, params = self._paths.find(request.path)
        endpoint = methods.get(request.method) or methods.get("*")
        if endpoint is None:
            return self._unmatched(request, tuple(methods))
        request.endpoint = endpoint
        request.params = params
        request.max_body_bytes = self._limit
        request.nonfinite_json = self._nonfinite_json
        return None

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request whose endpoint ``head`` has chosen."""
        began = time.monotonic_ns()
        endpoint: HttpEndpoint = request.endpoint
        self._pipeline.admit(request.context)
        opened: Opened[HttpAnswer] | None = None
        answer: HttpAnswer
        try:
            opened = endpoint.open(request)
            if opened.action.operation is Operation.INFER_STREAM:
                answers = self._pipeline.stream(opened, self._owners[endpoint], request.context)
                answer = await _streamed(answers)
            else:
                answer = await self._pipeline.perform(opened, self._owners[endpoint], request.context)
        except InferenceError as error:
            answer = endpoint.fail(request, opened, error)
        except Exception:
            answer = endpoint.fail(request, opened, _unforeseen(f"{request.method} {request.path}"))
        if endpoint.timed:
            # what failed before any stage was over had got no further than the first
            timings = request.context.timings or {"decode": time.monotonic_ns() - began}
            answer.headers = (*answer.headers, ("Server-Timing", _timing(timings)))
        return answer

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        """The transport's own refusal (body too large, say) in the dialect's form."""
        endpoint: HttpEndpoint | None = request.endpoint
        if endpoint is None:
            return _plain(400, error.message)
        if not request.context.request_number:  # it was not served
            self._pipeline.admit(request.context)
        return endpoint.fail(request, None, error)

    def _unmatched(self, request: HttpRequest, allowed: tuple[str, ...]) -> HttpAnswer:
        owner = next(
            (dialect for dialect in self._dialects if request.path.startswith(dialect.prefixes)),
            self._dialects[0],
        )
        if owner.unmatched is not None:
            return owner.unmatched(request, allowed)
        return _plain(405 if allowed else 404, "Method Not Allowed" if allowed else "Not Found")


class GrpcPipeline:
    """The gRPC side of a pipeline: a ``GrpcHandler``."""

    def __init__(self, pipeline: Pipeline, dialects: Sequence[Dialect]) -> None:
        self._pipeline = pipeline
        self._methods: dict[str, tuple[GrpcEndpoint, str]] = {
            endpoint.method: (endpoint, dialect.name)
            for dialect in dialects
            for endpoint in dialect.grpc_endpoints
        }
        self._reflection = Reflection(contract for dialect in dialects for contract in dialect.contracts)

    def offers(self, method: str) -> Literal["unary", "stream"] | None:
        """Whether, and how, a dialect of this listener has ``method``."""
        found = self._methods.get(method)
        if found is None:
            return "stream" if method in REFLECTION_METHODS else None
        return "stream" if found[0].streaming else "unary"

    async def serve(self, request: GrpcRequest) -> GrpcAnswer:
        """Answer one unary call."""
        endpoint, dialect = self._methods[request.method]
        self._pipeline.admit(request.context)
        opened: Opened[GrpcAnswer] | None = None
        try:
            opened = endpoint.open(request)
            answer: GrpcAnswer = await self._pipeline.perform(opened, dialect, request.context)
            return answer
        except InferenceError as error:
            return endpoint.fail(request, opened, error)
        except Exception:
            return endpoint.fail(request, opened, _unforeseen(request.method))

    async def stream(self, call: GrpcRequest, messages: AsyncIterator[Buffer]) -> AsyncIterator[GrpcAnswer]:
        """Answer every message of a stream, while later ones are already at work."""
        if call.method in REFLECTION_METHODS:
            async for message in messages:
                yield self._reflection.answer(message)
            return
        async with aclosing(interleave(messages, partial(self._answers, call), _STREAM_WINDOW)) as answers:
            async for answer in answers:
                yield answer
                if answer.code:
                    return

    async def _answers(self, call: GrpcRequest, message: Buffer) -> AsyncGenerator[Told[GrpcAnswer], None]:
        """Everything that is answered to one message of a stream."""
        endpoint, dialect = self._methods[call.method]
        request = GrpcRequest(call.method, message, call.metadata, replace(call.context))
        self._pipeline.admit(request.context)
        opened: Opened[GrpcAnswer] | None = None
        try:
            opened = endpoint.open(request)
            several = (
                self._pipeline.stream
                if opened.action.operation is Operation.INFER_STREAM
                else self._pipeline.watch
                if opened.action.watched
                else None
            )
            if several is None:
                yield await self._pipeline.perform(opened, dialect, request.context), True
                return
            async with aclosing(several(opened, dialect, request.context)) as answers:
                async for told in answers:
                    yield told
        except InferenceError as error:
            yield endpoint.fail(request, opened, error), True
        except Exception:
            yield endpoint.fail(request, opened, _unforeseen(request.method)), True


class BrpcPipeline:
    """The bRPC side of a pipeline: a ``BrpcHandler``."""

    def __init__(self, pipeline: Pipeline, dialects: Sequence[Dialect]) -> None:
        self._pipeline = pipeline
        self._methods: dict[tuple[str, str], tuple[BrpcEndpoint, str]] = {
            (service, endpoint.method): (endpoint, dialect.name)
            for dialect in dialects
            for endpoint in dialect.brpc_endpoints
            for service in (endpoint.service, endpoint.service.rpartition(".")[2])
        }
        self._services = frozenset(service for service, _ in self._methods)

    def knows(self, service: str) -> bool:
        """Whether a dialect of this listener has ``service``, with or without its package."""
        return service in self._services

    def offers(self, service: str, method: str) -> bool:
        """Whether a dialect of this listener has ``method`` in ``service``."""
        return (service, method) in self._methods

    async def serve(self, request: BrpcRequest) -> BrpcAnswer:
        """Answer one call."""
        endpoint, dialect = self._methods[request.service, request.method]
        self._pipeline.admit(request.context)
        opened: Opened[BrpcAnswer] | None = None
        try:
            opened = endpoint.open(request)
            answer: BrpcAnswer = await self._pipeline.perform(opened, dialect, request.context)
            return answer
        except InferenceError as error:
            return endpoint.fail(request, opened, error)
        except Exception:
            where = f"{request.service}/{request.method}"
            return endpoint.fail(request, opened, _unforeseen(where))


async def _streamed(answers: AsyncGenerator[Told[HttpAnswer], None]) -> HttpAnswer:
    """One answer with a streamed body out of ``answers``, whose first one says how it begins. Raises as
    they do before the first."""
    async for first, _ in answers:
        if first is not None:
            break
    else:
        raise RuntimeError("a stream of answers has at least one")

    async def body() -> AsyncIterator[Buffer]:
        async with aclosing(answers):
            for part in parts_of(first):
                yield part
            async for answer, _ in answers:
                for part in () if answer is None else parts_of(answer):
                    yield part

    return HttpAnswer(first.status, first.headers, body())


def _timing(timings: Mapping[str, int]) -> str:
    """``timings`` as the header has them: milliseconds."""
    return _timing_form(*timings) % tuple([spent / 1e6 for spent in timings.values()])


@cache
def _timing_form(*stages: str) -> str:
    return ", ".join(f"{stage};dur=%.3f" for stage in stages)


async def _within(deadline: float | None, work: Awaitable[T]) -> T:
    """Await ``work``, no longer than to ``deadline`` (``time.monotonic()``)."""
    if deadline is None:
        return await work
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await work
    except TimeoutError as timeout:
        raise InferenceError(
            ErrorCode.DEADLINE_EXCEEDED, "the deadline passed before the answer was ready"
        ) from timeout


def _unforeseen(where: str) -> InferenceError:
    """A fault of ours: logged whole here, told to the caller without internals."""
    _log.exception("unforeseen failure while answering %s", where)
    return InferenceError(ErrorCode.INTERNAL, "internal error; the server's log has the details")


def _plain(status: int, text: str) -> HttpAnswer:
    body = f"{text}\n".encode()
    return HttpAnswer(status, (("content-type", "text/plain; charset=utf-8"),), (body,))
