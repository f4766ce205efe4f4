"""What happens to a request between its decoding and its encoding: route, decode, execute, encode.

The same for every dialect and transport: what each step does in a dialect stands in that dialect's tables.
How a request comes and how its answer goes is for ``translator.pipeline``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

from protocols.dialect import Opened
from runtime.shared_memory import Placement, is_used
from runtime.target import Target
from runtime.upstream_model import UpstreamModel
from schemas import Context, Duration, ErrorCode, InferenceError, InferRequest, InferResponse, Operation
from translator.interleave import Told
from translator.observation import Watch
from translator.operations import OF_A_MODEL, OF_SHARED_MEMORY, OPERATIONS, Asked, Service
from translator.peers import is_local

T = TypeVar("T")

Found = tuple[Target, str, str]
"""Whom to ask, by which name the caller knows it, and for which version."""

Prepared = tuple[Target, InferRequest, Any, Placement | None, Watch | None]
"""Whom to ask what, the form of the answer, where in shared memory outputs go, and who looks on."""

_WATCH_SECS = 5.0
"""How often what is watched is looked at where an upstream may change without a word."""

_log = logging.getLogger(__name__)


class Exchange:
    """What the handlers of listener ``listener`` ask with a message that they have opened.

    ``service`` answers. Requests that name no model go to ``default_model``.
    """

    def __init__(self, service: Service, listener: str, default_model: str = "") -> None:
        self.service = service
        self._listener = listener
        self._default_model = default_model

    def admit(self, context: Context) -> None:
        """Number a request, as dialects that show a number in every answer want it."""
        context.server_id = self.service.id
        context.request_number = next(self.service.numbers)

    async def perform(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        """Carry out what ``opened`` asks and encode the result. Raises ``InferenceError``."""
        if opened.action.operation is Operation.INFER:
            began, failed = time.monotonic_ns(), True
            try:
                # targets keep to the deadline in the context themselves
                answer = await self._infer(opened, dialect, context)
                failed = False
            finally:
                self.service.trends.count(time.monotonic_ns() - began, failed)
            return answer
        return await _within(context.deadline, self._operate(opened, dialect, context))

    async def stream(
        self, opened: Opened[Any], dialect: str, context: Context
    ) -> AsyncGenerator[Told[Any], None]:
        """Every answer to an INFER_STREAM, and whether it is the last. Raises ``InferenceError`` in place
        of the first answer; what fails later is told in an answer of its own."""
        found = await self._find(opened, dialect)
        target, request, form, placement, watch = await self._prepare(opened, dialect, found, context)
        encode, model = opened.action.encode, request.model
        answered = False
        ended: BaseException | None = None
        began = time.monotonic_ns()
        responses = target.stream(request)
        try:
            async for response in responses:
                if watch is not None:
                    watch.heard(response)
                if placement is not None and response.outputs:
                    placement.fill(response)
                response.model = model
                answer = encode(form, response)
                answered = answered or answer is not None
                yield answer, response.final
            return
        except InferenceError as error:
            ended = error
            if not answered:
                raise
            failure = error
        except Exception as error:
            ended = error
            if not answered:
                raise
            failure = unforeseen(f"a stream of model '{model}'")
        except BaseException as error:
            ended = error
            raise
        finally:
            self.service.trends.count(time.monotonic_ns() - began, isinstance(ended, Exception))
            if watch is not None:
                watch.ended(ended)
            # to close it is to cancel it; an iterator that is no generator has nothing to close
            if (close := getattr(responses, "aclose", None)) is not None:
                await close()
        context.failure = failure.code
        yield encode(form, InferResponse(model, (), request.version, request.id, error=failure)), True

    async def watch(
        self, opened: Opened[Any], dialect: str, context: Context
    ) -> AsyncGenerator[Told[Any], None]:
        """The answer to an operation that is watched, now and each time that it has changed. Raises
        ``InferenceError``."""
        catalog = self.service.catalog
        told, leaving = None, False
        while not leaving:
            # looked at before, so that the last answer tells of it
            leaving, count = self.service.draining, catalog.changes.count
            # asked for once, however often it is looked at
            look = self._operate if told is None else self._carry_out
            answer = await look(opened, dialect, context)
            if answer != told:
                yield answer, False
                told = answer
            if not leaving:
                await catalog.changes.since(count, None if catalog.tells_all_changes else _WATCH_SECS)

    async def _infer(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        found = await self._find(opened, dialect)
        if (
            opened.action.passage is not None
            and isinstance(found[0], UpstreamModel)
            and not self.service.observers
        ):
            relayed = await found[0].relay(opened, found[1], context)
            if relayed is not None:
                return relayed
        target, request, form, placement, watch = await self._prepare(opened, dialect, found, context)
        if watch is None:
            return await self._ask(opened, target, request, form, placement)
        try:
            answer = await self._ask(opened, target, request, form, placement, watch)
        except BaseException as failure:
            watch.ended(failure)
            raise
        watch.ended()
        return answer

    async def _ask(
        self,
        opened: Opened[Any],
        target: Target,
        request: InferRequest,
        form: Any,
        placement: Placement | None,
        watch: Watch | None = None,
    ) -> Any:
        model = request.model
        response = await target.infer(request)
        if watch is not None:
            watch.heard(response)
        answered = time.monotonic_ns()
        if placement is not None:
            placement.fill(response)
        # a route may have sent the request elsewhere; the caller gets the name it knows
        response.model = model
        answer = opened.action.encode(form, response)
        request.context.timings["encode"] = time.monotonic_ns() - answered
        return answer

    async def _find(self, opened: Opened[Any], dialect: str) -> Found:
        """The model that is asked. Raises ``InferenceError``."""
        model, version = opened.model or self._default_model, opened.version
        if not model:
            raise InferenceError(
                ErrorCode.NOT_FOUND,
                f"the request names no model and listener '{self._listener}' has no default_model",
            )
        if opened.joined:
            named = await self.service.catalog.joined(model)
            model, version = named.name, named.version
        return self.service.router.resolve(model, dialect, self._listener, version), model, version

    async def _prepare(self, opened: Opened[Any], dialect: str, found: Found, context: Context) -> Prepared:
        """Read the request with the signature of its model. Raises ``InferenceError``."""
        target, model, version = found
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
            placement = self.service.shared_memory.resolve(request)
        # to find inputs in shared memory is to decode them, as to place outputs there is to encode them
        context.timings["decode"] = time.monotonic_ns() - began
        watch = None
        if self.service.observers:
            streamed = opened.action.operation is Operation.INFER_STREAM
            watch = Watch.over(
                self.service.observers, request, dialect, self._listener, target.name, streamed
            )
        return target, request, form, placement, watch

    async def _operate(self, opened: Opened[Any], dialect: str, context: Context) -> Any:
        """Carry out an operation that is not inference and count it."""
        began = time.monotonic_ns()
        answer = await self._carry_out(opened, dialect, context)
        spent = time.monotonic_ns() - began
        self.service.counted.setdefault(opened.action.operation.value, Duration()).add(spent)
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
        name = self.service.router.name(model, dialect, self._listener)
        target = self.service.router.models.get(name)
        result = await perform(
            Asked(self.service, model, opened.version, name, target, opened.argument, self._default_model)
        )
        return opened.action.encode(opened, result)

    def _admit_to_shared_memory(self, context: Context) -> None:
        allowed = self.service.shared_memory_for
        if allowed == "none":
            raise InferenceError(ErrorCode.UNSUPPORTED, "this server does not allow shared memory")
        if allowed == "local" and not is_local(context.peer, self._listener):
            raise InferenceError(
                ErrorCode.UNSUPPORTED,
                "this server allows shared memory to clients on its own machine alone, over a loopback "
                "address or a unix socket",
            )


def unforeseen(where: str) -> InferenceError:
    """A fault of ours: logged whole here, told to the caller without internals."""
    _log.exception("unforeseen failure while answering %s", where)
    return InferenceError(ErrorCode.INTERNAL, "internal error; the server's log has the details")


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
