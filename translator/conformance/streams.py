"""Rules for streams of answers to one request or to many.

The expected answers are those to the same request in a separate stream and, for a model that is not
decoupled, without a stream. A decoupled model may use its inputs as counts or delays, so inputs are small and
not negative."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from interlingua.protocols.transport.grpc.conversation import converse
from interlingua.protocols.wire import GrpcAnswer
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, InferResponse
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.comparison import expect_same
from interlingua.translator.conformance.errors import InapplicableError, ViolationError, expect, skip_if
from interlingua.translator.conformance.exchange import GrpcStream, Sent, WireExchange
from interlingua.translator.conformance.replies import grpc_request, http_request
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import inputs, usual
from interlingua.translator.conformance.wire import Mistake, Streams

STREAMS = Group("streams")

STRANGE = "the server streams in a form that is not the protocol's"
"""Why rules about ids and order are skipped."""

_UNIMPLEMENTED = 12
_MOST = 4
_AT_ONCE = 4
_SOME = st.integers(0, 50)
_NUMBERS = st.lists(_SOME, min_size=2, max_size=_MOST, unique=True)


@dataclass(slots=True)
class Streamed:
    """The answers of a stream, each an exchange with an ``InferResponse`` as result, and its end.
    ``strange``: a chunk did not have the protocol's form."""

    answers: list[WireExchange]
    ending: WireExchange
    strange: bool = False

    @property
    def results(self) -> list[InferResponse]:
        """The answers with content, without empty final responses."""
        found = [exchange.result for exchange in self.answers]
        return [response for response in found if response.outputs or response.error is not None]


@STREAMS("A stream ends when everything has been answered, with nothing but answers in it.")
def ends(server: ServerUnderTest, draw: Draw) -> None:
    needs_streams(server)
    request = server.sample(draw(_SOME))
    streamed = alone(server, request)
    for exchange in streamed.answers:
        if exchange.result.outputs and server.binding.transport == "grpc":
            server.judged(request, exchange)


@STREAMS("A stream with the same request has the same answers again.")
def same_twice(server: ServerUnderTest, draw: Draw) -> None:
    needs_streams(server)
    request = server.sample(draw(_SOME))
    first, second = (alone(server, request).results for _ in range(2))
    skip_if(not first and not second, "the model streams nothing")
    _expect_same(server, first, second, "the same request got another answer")


@STREAMS("A model that answers once answers in a stream what it answers without.")
def as_without(server: ServerUnderTest, draw: Draw) -> None:
    _many(server)
    skip_if(server.silent, server.silent)
    request = server.request(draw(inputs(server.known, usual)))
    right = server.answer(request)
    have = alone(server, request).results
    _expect_same(server, [right], have, "in a stream the answer differs")


@STREAMS("Of streams at the same time, each has its own answers.")
def at_once(server: ServerUnderTest, draw: Draw) -> None:
    needs_streams(server)
    start = draw(_SOME)
    requests = [server.sample(start + number) for number in range(_AT_ONCE)]
    own = [alone(server, request).results for request in requests]
    together = _run(server, [([request], [0]) for request in requests])
    for right, streamed in zip(own, together, strict=True):
        _ended(streamed)
        _expect_same(server, right, streamed.results, "next to other streams the answer differs")


@STREAMS("A request that fails gets its error in its stream.")
def refused(server: ServerUnderTest, draw: Draw) -> None:
    needs_streams(server)
    [streamed] = _run(server, [([_bad(server, draw)], [0])])
    _expect_refusal(server, streamed.answers or [streamed.ending])


@STREAMS("Every request of a stream is answered, under its id, and in the order of the requests.")
def many_requests(server: ServerUnderTest, draw: Draw) -> None:
    requests, own = _several(server, draw)
    [streamed] = _run(server, [(requests, [0] * len(requests))])
    _expect_each(server, requests, own, streamed)


@STREAMS("An answer is sent when it is ready, not at the end of the stream.")
def one_by_one(server: ServerUnderTest, draw: Draw) -> None:
    requests, own = _several(server, draw)
    [streamed] = _run(server, [(requests, [len(results) for results in own])])
    _expect_each(server, requests, own, streamed)


@STREAMS("A refused request does not end the stream: later ones are answered.")
def refused_between(server: ServerUnderTest, draw: Draw) -> None:
    requests, own = _several(server, draw)
    place = draw(st.integers(0, len(requests) - 1))
    bad = _bad(server, draw)
    bad.id = str(1000 + len(requests))
    mixed = [*requests[:place], bad, *requests[place:]]
    [streamed] = _run(server, [(mixed, [0] * len(mixed))])
    refusals = [exchange for exchange in streamed.answers if exchange.result.error is not None]
    good = [exchange for exchange in streamed.answers if exchange.result.error is None]
    _expect_each(server, requests, own, replace(streamed, answers=good))
    _expect_refusal(server, refusals)
    ids = [exchange.result.id for exchange in refusals]
    expect(ids == [bad.id], f"the refusal of '{bad.id}' has the id {ids}", refusals[0])


@STREAMS("A stream without a request ends as well.", once=True)
def no_requests(server: ServerUnderTest, draw: Draw) -> None:
    _many(server)
    [streamed] = _run(server, [([], [])])
    _ended(streamed)
    expect(not streamed.answers, "a stream without a request has answers", streamed.ending)


# --- applicability


def _form(server: ServerUnderTest) -> Streams:
    if server.wire.streams is None:
        raise InapplicableError("the kit has no streams over this transport")
    return server.wire.streams


def _many(server: ServerUnderTest) -> None:
    skip_if(not _form(server).many, "a stream carries one request")


def needs_streams(server: ServerUnderTest) -> None:
    """Raise ``InapplicableError`` unless the model answers in streams."""
    _form(server)
    skip_if(server.silent and not server.decoupled and not _answers_in_streams(server), server.silent)


def _answers_in_streams(server: ServerUnderTest) -> bool:
    """Whether a model without unary answers answers in a stream, by a trial."""
    [streamed] = _run(server, [([server.sample()], [0])])
    return any(response.error is None for response in streamed.results)


# --- requests


def alone(server: ServerUnderTest, request: InferRequest, form: Streams | None = None) -> Streamed:
    """The answers to a valid request in a separate stream; ``form`` defaults to the wire's."""
    [streamed] = _run(server, [([request], [0])], form)
    _all_good(streamed)
    return streamed


def _several(server: ServerUnderTest, draw: Draw) -> tuple[list[InferRequest], list[list[InferResponse]]]:
    """Requests with distinct ids, and the answers to each in a separate stream."""
    _many(server)
    needs_streams(server)
    requests = [server.sample(number) for number in draw(_NUMBERS)]
    for number, request in enumerate(requests):
        request.id = str(1000 + number)
    streams = [alone(server, request) for request in requests]
    skip_if(any(streamed.strange for streamed in streams), STRANGE)
    return requests, [streamed.results for streamed in streams]


def _bad(server: ServerUnderTest, draw: Draw) -> InferRequest:
    request = server.sample()
    kinds = ("model", "inputs") if server.capability.many_models else ("inputs",)
    kind = draw(st.sampled_from(kinds))
    return replace(request, model="no_such_model") if kind == "model" else replace(request, inputs=())


def _run(
    server: ServerUnderTest,
    streams: Sequence[tuple[Sequence[InferRequest], Sequence[int]]],
    form: Streams | None = None,
) -> list[Streamed]:
    """Concurrent ``streams``, each with its requests, and the number of answers to await after each."""
    chosen = form or _form(server)

    async def run_all() -> list[Streamed]:
        return list(await asyncio.gather(*(_stream(server, chosen, *each) for each in streams)))

    found = server.wait_for(run_all())
    server.last = found[-1].ending
    ending = found[0].ending.reply
    if isinstance(ending, GrpcAnswer) and ending.code == _UNIMPLEMENTED and not found[0].answers:
        raise InapplicableError("the server has no streams")
    return found


async def _stream(
    server: ServerUnderTest, form: Streams, requests: Sequence[InferRequest], waits: Sequence[int]
) -> Streamed:
    written = [server.written(form.call, request) for request in requests]
    if server.binding.transport == "grpc":
        return await _over_grpc(server, form, written, waits)
    [(sent, kept)] = written
    return await _over_http(server, form, sent, kept)


async def _over_grpc(
    server: ServerUnderTest, form: Streams, written: Sequence[tuple[Sent, Any]], waits: Sequence[int]
) -> Streamed:
    # a stream without requests needs a method too
    known = written or [server.written(form.call, server.request(()))]
    method = grpc_request(known[0][0]).method
    stream = GrpcStream(method, tuple(bytes(grpc_request(sent).message) for sent, _ in written))
    pieces, status = await converse(server.place, method, stream.messages, waits, server.timeout_secs)
    answers: list[WireExchange] = []
    for number, piece in enumerate(pieces):
        _, kept = known[min(number, len(known) - 1)]
        answers += _read(form, stream, kept, GrpcAnswer(piece))
    strange = not all(form.known(GrpcAnswer(piece)) for piece in pieces)
    return Streamed(answers, WireExchange(stream, status), strange)


async def _over_http(server: ServerUnderTest, form: Streams, sent: Sent, kept: Any) -> Streamed:
    answers: list[WireExchange] = []
    ending = WireExchange(sent)
    bounded = replace(http_request(sent), context=Context(deadline=time.monotonic() + server.timeout_secs))
    try:
        async for reply in server.client.stream(bounded):
            ending.reply = reply
            answers += _read(form, sent, kept, reply)
    except InferenceError as error:
        ending.error = error
    return Streamed(answers, ending)


def _read(form: Streams, sent: Sent | GrpcStream, kept: Any, piece: Any) -> list[WireExchange]:
    """An exchange for each response in a chunk of a reply; an unreadable chunk is a failed one."""
    unwrap: Callable[[Any], Any] = form.unwrap
    try:
        responses: Sequence[InferResponse] = form.call.decode(kept, piece)
    except InferenceError as error:
        responses = (InferResponse("", (), error=error),)
    return [WireExchange(sent, unwrap(piece), response, response.error) for response in responses]


# --- expectations


def _ended(streamed: Streamed) -> None:
    ending = streamed.ending
    if ending.error is not None:
        raise ViolationError(f"the stream broke: {ending.error.message}", ending)
    if isinstance(ending.reply, GrpcAnswer):
        code, details = ending.reply.code, ending.reply.details
        expect(not code, f"the stream ended with status {code}: {details}", ending)


def _all_good(streamed: Streamed) -> None:
    _ended(streamed)
    for exchange in streamed.answers:
        error = exchange.result.error
        expect(error is None, f"a good request was refused: {error.message if error else ''}", exchange)


def _expect_refusal(server: ServerUnderTest, refusals: Sequence[WireExchange]) -> None:
    expect(len(refusals) == 1, f"{len(refusals)} refusals of one request", server.last)
    [refusal] = refusals
    what = "a request that cannot be carried out was answered"
    if server.binding.transport == "grpc":
        expect(not server.wire.succeeded(refusal), what, refusal)
        server.wire.check_error(refusal, Mistake.ANY)
    else:
        # a message may span several chunks of the reply
        expect(refusal.error is not None and refusal.error.code is not ErrorCode.BAD_UPSTREAM, what, refusal)


def _expect_each(
    server: ServerUnderTest,
    requests: Sequence[InferRequest],
    own: Sequence[list[InferResponse]],
    streamed: Streamed,
) -> None:
    """Require for every request its ``own`` answers, under its id, in request order if each has one."""
    _all_good(streamed)
    sent = [request.id for request in requests]
    order = [response.id for response in streamed.results]
    fits = set(order) <= set(sent) if server.decoupled else order == sent
    expect(fits, f"answers with the ids {order} to requests with {sent}", streamed.ending)
    for request, right in zip(requests, own, strict=True):
        answers = [response for response in streamed.results if response.id == request.id]
        _expect_same(server, right, answers, "among other requests of a stream the answer differs")


def _expect_same(
    server: ServerUnderTest, right: Sequence[InferResponse], have: Sequence[InferResponse], what: str
) -> None:
    expect(len(right) == len(have), f"{what}: {len(have)} answers, not {len(right)}", server.last)
    for one, other in zip(right, have, strict=True):
        expect_same(server, one, other, what)
