"""A request from its arrival to its answer: counted, numbered, and on failure answered in its dialect."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from math import inf
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from interlingua.protocols.dialect import Endpoint, Opened
from interlingua.protocols.transport.load import BodyLoad, ListenerLoad
from interlingua.schemas import Context, ErrorCode, InferenceError, Operation
from interlingua.schemas.errors import release_frames
from interlingua.schemas.offload import CLIENT
from interlingua.translator.access.clients import Client, Clients
from interlingua.translator.serving.access_log import EndpointLog, Size
from interlingua.translator.serving.accounting import Account
from interlingua.translator.serving.interleave import StreamItem
from interlingua.translator.serving.operations import Service
from interlingua.translator.serving.processor import unforeseen

T = TypeVar("T")

_INFERENCE = frozenset({Operation.INFER, Operation.INFER_STREAM})
"""Operations with durations, and with a limit on those in flight; all others are quick."""


def refuse_inference(operation: Operation, load: ListenerLoad, context: Context) -> None:
    """Refuse an inference above the limits of ``load``, unless it is sent already; health stays answerable.
    Raises ``InferenceError``."""
    if operation in _INFERENCE and context.sent is None:
        raise load.overloaded()


class AnswerLimit(NamedTuple):
    """The ``most`` bytes of an answer, of which ``frame`` do not count. ``refuse`` writes the refusal where
    the transport has a form for it, else the dialect does."""

    most: float = inf
    frame: int = 0
    refuse: Callable[[InferenceError], Any] | None = None


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A context manager around the work for ``request`` of ``nbytes``, which ``access`` records.

    Set ``opened`` once the message is opened, then ``answer``. If the work fails, ``endpoint`` writes the
    answer; only cancellation propagates. A request for a stream ends with the last item of :meth:`stream`,
    one whose answer is still arriving with that, every other request with the work. ``failure`` is what the
    answer reports; ``number`` is the request's, if it has one already.
    """

    service: Service
    account: Account
    endpoint: Endpoint
    request: Any
    nbytes: int
    access: EndpointLog
    answer: Any = None
    opened: Opened[Any] | None = None
    began: int = field(default_factory=time.monotonic_ns)
    held: BodyLoad | None = None
    clients: Clients | None = None
    client: Client | None = None
    sent: int = 0
    number: int = 0
    failure: InferenceError | None = None
    _refuse: Callable[[InferenceError], Any] | None = None
    _ended: bool = False

    def __enter__(self) -> InFlightRequest:
        self.account.begin(self.nbytes)
        # Service.number, inlined
        context = self.request.context
        if context.sent is not None:
            self.began = context.sent.began
        CLIENT.set(context.peer)
        context.began = self.began
        context.server_id = self.service.id
        context.request_number = self.number or next(self.service.numbers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if failure is None:
            if self.answer is not None and self.answer.rest is not None:
                self.answer.rest.on_end(self._arrived)
            elif self.opened is None or self.opened.action.operation is not Operation.INFER_STREAM:
                self._end(None)
            return False
        if not isinstance(failure, Exception):
            self._end(_DISCONNECTED)
            return False
        if isinstance(failure, MemoryError):
            failure = InferenceError(ErrorCode.OVERLOADED, "no memory for the request")
        self.failure = error = failure if isinstance(failure, InferenceError) else unforeseen(self._name)
        if self.opened is None and self.service.tracer is not None:
            self.service.tracer.begin(self.request.context, "")
        try:
            if self._refuse is None:
                self.answer = self.endpoint.fail(self.request, self.opened, error)
            else:
                self.answer = self._refuse(error)
        finally:
            self._end(error)
            release_frames(failure)
        return True

    @property
    def answered_anew(self) -> bool:
        """Whether it is an inference that the pipeline has answered from its beginning, whose message came
        as it is."""
        opened, context = self.opened, self.request.context
        if self.failure is not None or opened is None or context.sent is not None or self.held is not None:
            return False
        return opened.action.operation is Operation.INFER

    def begin_trace(self, default_model: str) -> None:
        """Sample an inference, once it is opened, or not."""
        tracer, opened, context = self.service.tracer, self.opened, self.request.context
        if tracer is None or opened is None or context.sampling_decided:
            return
        if opened.action.operation in _INFERENCE:
            tracer.begin(context, opened.model or default_model)

    def count(self, clients: Clients, identity: str) -> None:
        """Count it in ``clients``, as it ends, and an inference in the limits of its client. Raises
        OVERLOADED."""
        self.clients = clients
        if self.opened is not None and self.opened.action.operation in _INFERENCE:
            client = clients.client(identity)
            client.begin(self.account.load)
            self.client = client

    def too_large(self, answer: Any, size: int, limit: AnswerLimit) -> InferenceError:
        """The error in place of ``answer``, whose ``size`` is above the ``limit``. The rest of
        it is not read."""
        if answer.rest is not None:
            answer.rest.close()
        self.sent, self._refuse = 0, limit.refuse
        return InferenceError(
            ErrorCode.TOO_LARGE,
            f"the answer has {size - limit.frame} bytes, more than the {limit.most - limit.frame} that "
            "max_response_bytes of this listener allows",
        )

    def hold(self, size: int, others: int = 0) -> None:
        """Count ``size`` bytes until the end, beyond the ``others`` that the transport counts. Raises
        OVERLOADED."""
        self.held = BodyLoad(self.account.load, others)
        error = self.held.grow(size)
        if error is not None:
            raise error

    def hold_decompressed(self) -> None:
        """Count the body as it is decompressed, once it is. Raises OVERLOADED."""
        if self.held is None and self.request.decompressed_bytes:
            self.hold(self.request.decompressed_bytes, self.nbytes)

    async def stream(
        self, items: AsyncGenerator[StreamItem[T], None], limit: AnswerLimit
    ) -> AsyncGenerator[StreamItem[T], None]:
        """``items``, each within ``limit``; the request ends with the last of them. Raises as they do, and
        TOO_LARGE."""
        context, begun = self.request.context, False
        self.account.metrics.streams += 1
        try:
            async with aclosing(items):
                async for item in items:
                    if item[0] is not None:
                        size = answer_size(item[0])
                        if size > limit.most:
                            raise self.too_large(item[0], size, limit)
                        # the status of a streamed answer is that of its first item
                        self.answer, begun = self.answer or item[0], True
                        self.sent += size
                    if item[1]:
                        self._end(context.failure)
                    yield item
            self._end(context.failure)
        except BaseException as failure:
            # an error before the first item goes to __exit__, for its answer
            if begun or not isinstance(failure, Exception):
                self._end(error_of(failure))
            raise
        finally:
            self.account.metrics.streams -= 1

    def _arrived(self, failure: BaseException | None) -> None:
        self._end(None if failure is None else error_of(failure))

    @property
    def _name(self) -> str:
        return self.access.label.format(self.request)

    def _end(self, error: InferenceError | None) -> None:
        """Count it as answered, or as failed; once."""
        if self._ended:
            return
        self._ended = True
        account, opened, operation = self.account, self.opened, None
        if opened is not None:
            operation, opened.count = opened.action.operation, None  # it refers to this object
        if self.held is not None:
            self.held.release()
        context, code = self.request.context, None if error is None else error.code
        account.end(operation, code)
        if self.clients is not None:
            if self.client is not None:
                self.client.end()
            self.clients.count(context.identity, code)
        if operation in _INFERENCE:
            spent = time.monotonic_ns() - self.began
            flow = context.route, context.target
            account.time(flow, spent, context.timings, error is not None)
            if context.trace is not None:
                account.exemplify(context, spent)
        if context.trace is not None:
            self._end_trace(error)
        if error is not None or self.access.log.every:
            self._record(error, operation)

    def _end_trace(self, error: InferenceError | None) -> None:
        tracer, opened = self.service.tracer, self.opened
        if tracer is None:
            return
        context, metrics = self.request.context, self.account.metrics
        attributes = {
            "interlingua.dialect": metrics.dialect,
            "interlingua.listener": metrics.load.listener,
            "interlingua.operation": "unread" if opened is None else opened.action.operation.value,
            "interlingua.model": "" if opened is None else opened.model,
            "interlingua.target": context.target,
            "interlingua.version": context.version,
            "client.address": context.peer,
            "enduser.id": context.identity or "",
        }
        tracer.end(self.request, self.answer, None if error is None else error.code, attributes)

    def _record(self, error: InferenceError | None, operation: Operation | None) -> None:
        """Add it to the access log."""
        opened, access, answer = self.opened, self.access, self.answer
        model, version = ("", "") if opened is None else (opened.model, opened.version)
        sent = self.sent
        if not sent and answer is not None:
            sent = answer_size(answer)
        access.log.add(
            access.place,
            self._name,
            self.request.context,
            access.outcome(answer, error, operation),
            Size(self.nbytes, sent),
            (operation, model, version),
        )


_DISCONNECTED = InferenceError(ErrorCode.CANCELLED, "cancelled before the answer was complete")


def answer_size(answer: Any) -> int:
    """The bytes of the message or body of ``answer``; those of a stream are not known."""
    size: int = answer.size
    return size if answer.rest is None else size + answer.rest.length


def error_of(failure: BaseException) -> InferenceError:
    """The exception that ended a request; CANCELLED for the end of its task or generator."""
    if isinstance(failure, InferenceError):
        return failure
    if isinstance(failure, Exception):
        return InferenceError(ErrorCode.INTERNAL, f"unexpected error: {type(failure).__name__}")
    return _DISCONNECTED
