"""The way of a request through the program: open, route, decode, execute, encode.

One pipeline per listener, the same for every dialect; the transports call it with requests and get
answers, never exceptions. What each step does in a dialect stands in that dialect's tables.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from protocols.dialect import Dialect, GrpcEndpoint, HttpEndpoint, Opened
from protocols.path_table import PathTable
from protocols.wire import Buffer, GrpcAnswer, GrpcRequest, HttpAnswer, HttpRequest
from runtime.shared_memory import is_used
from schemas import Context, Duration, ErrorCode, InferenceError, Operation
from translator.operations import OF_A_MODEL, OF_SHARED_MEMORY, OPERATIONS, Asked, Service
from translator.peers import is_local

T = TypeVar("T")

_STREAM_WINDOW = 64
"""How many messages of one stream are at work, or answered and not yet taken, at a time."""

_log = logging.getLogger(__name__)


class Pipeline:
    """Answers the requests of one listener. Use its ``http`` or ``grpc`` side as a handler."""

    def __init__(
        self,
        service: Service,
        listener: str,
        dialects: Sequence[Dialect],
        default_model: str = "",
        max_request_bytes: int | None = None,
    ) -> None:
        self._service = service
        self._listener = listener
        self._default_model = default_model
        self.http = HttpPipeline(self, dialects, max_request_bytes)
        self.grpc = GrpcPipeline(self, dialects)

    def admit(self, context: Context) -> None:
        """Number a request, as dialects that show a number in every answer want it."""
        context.server_id = self._service.id
        context.request_number = next(self._service.numbers)

    async def perform(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        """Carry out what ``opened`` asks and encode the result. Raises ``InferenceError``."""
        if opened.action.operation is Operation.INFER:
            # targets keep to the deadline in the context themselves
            return await self._infer(opened, dialect, context)
        return await _within(context.deadline, self._operate(opened, dialect, context))

    async def _infer(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        model = opened.model or self._default_model
        if not model:
            raise InferenceError(
                ErrorCode.NOT_FOUND,
                f"the request names no model and listener '{self._listener}' has no default_model",
            )
        target = self._service.router.resolve(model, dialect, self._listener, opened.version)
        decode, encode = opened.action.decode, opened.action.encode
        assert decode is not None, "an action for inference has a decoder"  # noqa: S101
        request, form = decode(opened, await target.signature(opened.version))
        request.model, request.context = model, context
        placement = None
        if is_used(request):
            self._admit_to_shared_memory(context)
            placement = self._service.shared_memory.resolve(request)
        response = await target.infer(request)
        if placement is not None:
            placement.fill(response)
        # a route may have sent the request elsewhere; the caller gets the name it knows
        response.model = model
        return encode(form, response)

    async def _operate(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        operation = opened.action.operation
        perform = OPERATIONS.get(operation)
        if perform is None:
            raise InferenceError(ErrorCode.UNSUPPORTED, f"this server does not offer {operation.value}")
        if operation in OF_SHARED_MEMORY:
            self._admit_to_shared_memory(context)
        began = time.monotonic_ns()
        model = opened.model
        if operation in OF_A_MODEL:
            model = model or self._default_model
        name = self._service.router.name(model, dialect, self._listener)
        target = self._service.router.models.get(name)
        result = await perform(Asked(self._service, model, opened.version, name, target, opened.argument))
        answer = opened.action.encode(opened, result)
        counted = self._service.counted.setdefault(operation.value, Duration())
        counted.add(time.monotonic_ns() - began)
        return answer

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
        self, pipeline: Pipeline, dialects: Sequence[Dialect], max_request_bytes: int | None
    ) -> None:
        self._pipeline = pipeline
        self._dialects = dialects
        self._limit = max_request_bytes
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
        return None

    async def serve(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request whose endpoint ``head`` has chosen."""
        endpoint: HttpEndpoint = request.endpoint
        self._pipeline.admit(request.context)
        opened: Opened[HttpAnswer] | None = None
        try:
            opened = endpoint.open(request)
            answer: HttpAnswer = await self._pipeline.perform(opened, self._owners[endpoint], request.context)
            return answer
        except InferenceError as error:
            return endpoint.fail(request, opened, error)
        except Exception:
            return endpoint.fail(request, opened, _unforeseen(f"{request.method} {request.path}"))

    def refuse(self, request: HttpRequest, error: InferenceError) -> HttpAnswer:
        """The transport's own refusal (body too large, say) in the dialect's form."""
        endpoint: HttpEndpoint | None = request.endpoint
        if endpoint is None:
            return _plain(400, error.message)
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

    def offers(self, method: str) -> Literal["unary", "stream"] | None:
        """Whether, and how, a dialect of this listener has ``method``."""
        found = self._methods.get(method)
        if found is None:
            return None
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
        """Answer every message of a stream, in their order, while later ones are already at work."""
        working: asyncio.Queue[asyncio.Task[GrpcAnswer] | None] = asyncio.Queue(_STREAM_WINDOW)

        async def read() -> None:
            try:
                async for message in messages:
                    request = GrpcRequest(call.method, message, call.metadata, replace(call.context))
                    await working.put(asyncio.create_task(self.serve(request)))
            finally:
                await working.put(None)

        reading = asyncio.create_task(read())
        try:
            while (work := await working.get()) is not None:
                answer = await work
                yield answer
                if answer.code:
                    return
            await reading
        finally:
            reading.cancel()
            while not working.empty():
                unfinished = working.get_nowait()
                if unfinished is not None:
                    unfinished.cancel()


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
