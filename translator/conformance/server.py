"""The server under test with one of its models.

It sends requests, one at a time or several at once, with the dialect's own calls, as to an upstream, or raw.
It runs a private event loop, because checks are plain functions."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from interlingua.protocols.dialect import Binding, Capability, UpstreamCall
from interlingua.protocols.transport.address import Address, parse_url
from interlingua.protocols.transport.client_options import ClientOptions
from interlingua.protocols.transport.clients import client_of
from interlingua.protocols.wire import FramedCall, HttpCall
from interlingua.schemas import (
    Context,
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
from interlingua.translator.conformance.errors import InapplicableError, ViolationError, expect
from interlingua.translator.conformance.exchange import Sent, WireExchange
from interlingua.translator.conformance.relations import Relation
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import Mistake, Wire
from interlingua.translator.conversion.raw import FORMS, RawForm

T = TypeVar("T")

Call = UpstreamCall[Any, Any]

_ID = "1"

_NUMBERS = itertools.count(1)
"""Shared by all instances: a server keeps state between them."""

_NO_ANSWER = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.BAD_UPSTREAM})
"""Transport errors that, without a reply, mean that the server did not answer."""


class ServerUnderTest:
    """A server at ``url`` that speaks ``binding``, and its ``model``.

    ``discovery`` sets ``signature``, ``config`` (an ``inference.ModelConfig``), ``extensions`` and
    ``relations``. ``silent`` is the reason why the model answers no generated requests, empty if it does.
    ``last`` is the latest exchange. ``client`` replaces the one made for the URL. Use as a context manager.
    Raises ``ValueError`` for an invalid URL."""

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
        self.last: WireExchange | None = None
        self.place = parse_url(url, binding.transport)
        self.timeout_secs = timeout_secs
        self.client: Any = client or client_of(binding.transport)(
            self.place, ClientOptions(connect_timeout_secs=timeout_secs)
        )
        self._runner = asyncio.Runner()
        # exchanges report broken connections
        self._runner.get_loop().set_exception_handler(lambda loop, context: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self.client.close())
        finally:
            self._runner.close()

    @property
    def capability(self) -> Capability:
        return self.binding.capability

    @property
    def form(self) -> RawForm:
        """The server's messages as bytes."""
        return FORMS[self.binding.transport]

    @property
    def address(self) -> Address:
        return self.place.address

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of requests that the server accepts, the usual one first."""
        return tuple(filter(self.has, self.wire.calls))

    @property
    def sequential(self) -> bool:
        return self.config is not None and self.config.WhichOneof("scheduling_choice") == "sequence_batching"

    @property
    def decoupled(self) -> bool:
        return self.config is not None and self.config.model_transaction_policy.decoupled

    @property
    def known(self) -> Signature:
        """The signature. Raises ``InapplicableError`` if it is unknown."""
        if self.signature is None:
            raise InapplicableError("the server reports no signature of the model: give one")
        return self.signature

    def has(self, name: str) -> bool:
        """Whether the server has what the wire calls ``name``, according to its list of extensions."""
        return self.wire.extensions.get(name, "") in ("", *self.extensions)

    def fresh(self) -> int:
        """An unused number of 31 bits, very likely unused by other processes too."""
        return ((os.getpid() & 0x3FF) << 20) + next(_NUMBERS) % (1 << 20)

    # --- calls of the dialect

    def call(self, operation: Operation, argument: Any = None) -> WireExchange:
        """Call ``operation``; it may fail. Raises ``InapplicableError`` if the dialect lacks it."""
        call = self.binding.calls.get(operation)
        if call is None:
            raise InapplicableError(f"the dialect has no {operation.value}")
        return self.exchange(call, argument)

    def exchange(self, call: Call, argument: Any = None) -> WireExchange:
        """Make ``call``; it may fail."""
        sent, form = self.written(call, argument)
        return _decoded(call, form, self._run([sent])[0])

    def request(self, inputs: Sequence[Tensor], outputs: Sequence[str] | None = None) -> InferRequest:
        """A request to the model. It has an id, because some servers need one; a model with sequence batching
        gets a sequence of one request."""
        chosen = None if outputs is None else tuple(RequestedOutput(name) for name in outputs)
        whole = Place(self.fresh(), start=True, end=True) if self.sequential else None
        return InferRequest(self.model, tuple(inputs), chosen, version=self.version, id=_ID, sequence=whole)

    def sample(self, number: int = 1) -> InferRequest:
        """A valid request with moderate inputs that differ for each ``number``."""
        return self.request(distinct(self.known, number))

    def infer(self, request: InferRequest, form: str = "") -> WireExchange:
        """Send an inference request in one of ``forms``."""
        return self.together([request], form)[0]

    def together(self, requests: Sequence[InferRequest], form: str = "") -> list[WireExchange]:
        call = self.wire.calls[form or self.forms[0]]
        calls = [self.written(call, request) for request in requests]
        exchanges = self._run([sent for sent, _ in calls])
        return [_decoded(call, kept, exchange) for exchange, (_, kept) in zip(exchanges, calls, strict=True)]

    def encoded(self, request: InferRequest, form: str = "") -> Sent:
        return self.written(self.wire.calls[form or self.forms[0]], request)[0]

    def answer(self, request: InferRequest, form: str = "") -> InferResponse:
        """The answer to a request that must succeed, in the dialect's form."""
        return self.judged(request, self.infer(request, form))

    def judged(self, request: InferRequest, exchange: WireExchange) -> InferResponse:
        """The answer in ``exchange``. Raises ``ViolationError`` for a failed or invalid one."""
        if not self.wire.succeeded(exchange) and exchange.error is not None:
            raise ViolationError(f"a good request was refused: {exchange.error.message}", exchange)
        self.wire.check_answer(request, exchange)
        if exchange.error is not None:
            raise ViolationError(f"not a valid answer: {exchange.error.message}", exchange)
        response: InferResponse = exchange.result
        return response

    def refuses(self, exchange: WireExchange, mistake: Mistake, what: str = "") -> None:
        """Raise ``ViolationError`` unless ``exchange`` is a refusal in the dialect's form."""
        self.answered(exchange)
        what = what or mistake.value
        expect(not self.wire.succeeded(exchange), f"{what} was not refused", exchange)
        self.wire.check_error(exchange, mistake)

    def answered(self, exchange: WireExchange) -> None:
        if exchange.reply is None and exchange.error is not None and exchange.error.code in _NO_ANSWER:
            raise ViolationError(f"no answer: {exchange.error.message}", exchange)

    # --- raw messages

    def send(self, sent: Sent) -> WireExchange:
        """Send a message; the reply is not decoded."""
        return self._run([sent])[0]

    def written(self, call: Call, argument: Any) -> tuple[Sent, Any]:
        """The message of ``call``, and the form to decode its answer with. Raises ``InapplicableError`` if
        the dialect cannot encode it."""
        try:
            return call.encode(argument, self.signature)
        except InferenceError as error:
            raise InapplicableError(f"the dialect cannot carry it: {error.message}") from error

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def _run(self, sent: Sequence[Sent]) -> list[WireExchange]:
        exchanges = self.wait_for(self._exchange_all(sent))
        self.last = exchanges[-1]
        return exchanges

    async def _exchange_all(self, sent: Sequence[Sent]) -> list[WireExchange]:
        return list(await asyncio.gather(*map(self._exchange, sent)))

    async def _exchange(self, sent: Sent) -> WireExchange:
        # a copy with its own deadline
        bounded: Sent = replace(sent, context=Context(deadline=time.monotonic() + self.timeout_secs))
        if isinstance(bounded, HttpCall | FramedCall):
            # some servers close a connection after an error: only connection_kept checks that
            bounded.repeatable = True
        try:
            return WireExchange(sent, await self.client.send(bounded))
        except InferenceError as error:
            return WireExchange(sent, error=error)


def _decoded(call: Call, kept: Any, exchange: WireExchange) -> WireExchange:
    if exchange.reply is not None:
        try:
            exchange.result = call.decode(kept, exchange.reply)
        except InferenceError as error:
            exchange.error = error
    return exchange
