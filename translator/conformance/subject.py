"""The server under test and one model of it, asked one request at a time, or several at once.

Everything is sent by the dialect's own calls, as to an upstream, and may be sent raw. An event loop of its
own runs underneath, because checks are plain functions.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from interlingua.protocols.dialect import Binding, Capability, UpstreamCall
from interlingua.protocols.transport.address import Address, parse_url
from interlingua.protocols.transport.clients import CLIENTS
from interlingua.protocols.wire import FramedRequest, HttpRequest
from interlingua.schemas import (
    Context,
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
)
from interlingua.schemas import Sequence as Place
from interlingua.translator.conformance.check import InapplicableError, ViolationError
from interlingua.translator.conformance.exchange import Exchange, Sent
from interlingua.translator.conformance.relations import Relation
from interlingua.translator.conformance.wire import Mistake, Wire, expect

T = TypeVar("T")

Call = UpstreamCall[Any, Any]

_ID = "1"

_COUNTED = itertools.count(1)
"""One for all subjects: a server may know of what another one has left there."""

_NO_ANSWER = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.BAD_UPSTREAM})
"""Errors of a transport that say that the server did not answer, where there is no reply."""


class Subject:
    """A server at ``url`` that speaks ``binding``, and its ``model``.

    ``signature``, ``config`` (an ``inference.ModelConfig``), ``extensions`` and ``relations`` are what
    ``discovery`` found out; None and empty before.
    ``silent`` is why the model gives no answers to generated requests, empty where it does. ``last`` is the
    exchange before now. ``client`` is that of a server that is reached otherwise than by its URL. Use as a
    context manager. Raises ``ValueError`` for a URL that is none.
    """

    def __init__(
        self,
        binding: Binding,
        url: str,
        wire: Wire,
        model: str = "",
        *,
        version: str = "",
        timeout_secs: float = 10.0,
        client: Any = None,
    ) -> None:
        self.binding = binding
        self.url = url
        self.wire = wire
        self.model = model
        self.version = version
        self.signature: Signature | None = None
        self.config: Any = None
        self.extensions: tuple[str, ...] = ()
        self.relations: tuple[Relation, ...] = ()
        self.silent = ""
        self.last: Exchange | None = None
        self.place = parse_url(url, binding.transport)
        self.timeout_secs = timeout_secs
        self.client: Any = client or CLIENTS[binding.transport](self.place, connect_timeout_secs=timeout_secs)
        self._runner = asyncio.Runner()
        # of a connection that broke an exchange has told already
        self._runner.get_loop().set_exception_handler(lambda loop, context: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self.client.close())
        finally:
            self._runner.close()

    @property
    def capability(self) -> Capability:
        """What the dialect carries."""
        return self.binding.capability

    @property
    def address(self) -> Address:
        """Where the server listens."""
        return self.place.address

    @property
    def base(self) -> str:
        """What stands before every path."""
        return self.place.base

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms in which the server takes requests, the usual one first."""
        return tuple(filter(self.has, self.wire.calls))

    @property
    def sequential(self) -> bool:
        """Whether the model takes its requests in sequences, by its configuration."""
        return self.config is not None and self.config.WhichOneof("scheduling_choice") == "sequence_batching"

    @property
    def decoupled(self) -> bool:
        """Whether the model answers any number of times, by its configuration."""
        return self.config is not None and self.config.model_transaction_policy.decoupled

    @property
    def known(self) -> Signature:
        """The signature. Raises ``InapplicableError`` where there is none."""
        if self.signature is None:
            raise InapplicableError("the server does not tell what the model takes: give a signature")
        return self.signature

    def has(self, name: str) -> bool:
        """Whether the server has what the wire calls ``name``, as far as it lists its extensions."""
        return self.wire.extensions.get(name, "") in ("", *self.extensions)

    def fresh(self) -> int:
        """A number of 31 bits that was not given before; another process gives others, as a rule."""
        return ((os.getpid() & 0x3FF) << 20) + next(_COUNTED) % (1 << 20)

    # --- questions in the dialect's own calls

    def call(self, operation: Operation, argument: Any = None) -> Exchange:
        """Carry out ``operation``, whatever comes of it. Raises ``InapplicableError`` where the dialect has
        none."""
        call = self.binding.calls.get(operation)
        if call is None:
            raise InapplicableError(f"the dialect has no {operation.value}")
        return self.ask(call, argument)

    def ask(self, call: Call, argument: Any = None) -> Exchange:
        """Make ``call``, whatever comes of it."""
        sent, form = self.written(call, argument)
        return _decoded(call, form, self._run([sent])[0])

    def request(self, inputs: Sequence[Tensor], outputs: Sequence[str] | None = None) -> InferRequest:
        """A request to the model. It has an id, because some servers want one; to a model that takes
        sequences it is one of a single request."""
        chosen = None if outputs is None else tuple(RequestedOutput(name) for name in outputs)
        whole = Place(self.fresh(), start=True, end=True) if self.sequential else None
        return InferRequest(self.model, tuple(inputs), chosen, version=self.version, id=_ID, sequence=whole)

    def infer(self, request: InferRequest, form: str = "") -> Exchange:
        """Ask the model, in one of ``forms``."""
        return self.together([request], form)[0]

    def together(self, requests: Sequence[InferRequest], form: str = "") -> list[Exchange]:
        """Ask several things at once."""
        call = self.wire.calls[form or self.forms[0]]
        calls = [self.written(call, request) for request in requests]
        exchanges = self._run([sent for sent, _ in calls])
        return [_decoded(call, kept, exchange) for exchange, (_, kept) in zip(exchanges, calls, strict=True)]

    def encoded(self, request: InferRequest, form: str = "") -> Sent:
        """The message that asks for ``request``."""
        return self.written(self.wire.calls[form or self.forms[0]], request)[0]

    def answer(self, request: InferRequest, form: str = "") -> InferResponse:
        """The answer to a request that must have one, in the dialect's form."""
        return self.judged(request, self.infer(request, form))

    def judged(self, request: InferRequest, exchange: Exchange) -> InferResponse:
        """The answer in ``exchange``. Raises ``ViolationError`` for anything but a good one."""
        if not self.wire.succeeded(exchange) and exchange.error is not None:
            raise ViolationError(f"a good request was refused: {exchange.error.message}", exchange)
        self.wire.check_answer(request, exchange)
        if exchange.error is not None:
            raise ViolationError(f"not a valid answer: {exchange.error.message}", exchange)
        response: InferResponse = exchange.result
        return response

    def refuses(self, exchange: Exchange, mistake: Mistake, what: str = "") -> None:
        """Raise ``ViolationError`` unless ``exchange`` is a refusal in the dialect's form."""
        self.answered(exchange)
        what = what or mistake.value
        expect(not self.wire.succeeded(exchange), f"{what} was not refused", exchange)
        self.wire.check_error(exchange, mistake)

    def answered(self, exchange: Exchange) -> None:
        """Raise ``ViolationError`` where nothing came back at all."""
        if exchange.reply is None and exchange.error is not None and exchange.error.code in _NO_ANSWER:
            raise ViolationError(f"no answer: {exchange.error.message}", exchange)

    # --- raw messages

    def send(self, sent: Sent) -> Exchange:
        """Send a message as it stands; nothing of the reply is read."""
        return self._run([sent])[0]

    def written(self, call: Call, argument: Any) -> tuple[Sent, Any]:
        """The message of ``call``, and what its answer is read with. Raises ``InapplicableError`` where the
        dialect has no form for it."""
        try:
            return call.encode(argument, self.signature)
        except InferenceError as error:
            raise InapplicableError(f"the dialect cannot carry it: {error.message}") from error

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of ``work``, on the event loop of this subject."""
        return self._runner.run(work)

    def _run(self, sent: Sequence[Sent]) -> list[Exchange]:
        exchanges = self.wait_for(self._exchange_all(sent))
        self.last = exchanges[-1]
        return exchanges

    async def _exchange_all(self, sent: Sequence[Sent]) -> list[Exchange]:
        return list(await asyncio.gather(*map(self._exchange, sent)))

    async def _exchange(self, sent: Sent) -> Exchange:
        # a copy, since a deadline of its own goes with it
        bounded: Sent = replace(sent, context=Context(deadline=time.monotonic() + self.timeout_secs))
        if isinstance(bounded, HttpRequest | FramedRequest):
            # some servers close a connection after an error: a check of its own says so, and no other
            bounded.repeatable = True
        try:
            return Exchange(sent, await self.client.send(bounded))
        except InferenceError as error:
            return Exchange(sent, error=error)


def _decoded(call: Call, kept: Any, exchange: Exchange) -> Exchange:
    if exchange.reply is not None:
        try:
            exchange.result = call.decode(kept, exchange.reply)
        except InferenceError as error:
            exchange.error = error
    return exchange


def carried(subject: Subject, datatype: Datatype) -> bool:
    """Whether the dialect has a form for tensors of ``datatype``."""
    return datatype in subject.capability.exact or datatype in subject.capability.widened
