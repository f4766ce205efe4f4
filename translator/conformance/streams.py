"""Rules for streams of answers: where a stream carries one request, and where it carries many.

What is right is what the same request gets in a stream of its own, and, of a model that answers once, what it
gets without a stream. A model that answers any number of times may take its inputs for counts or delays: they
are small here, and not negative.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from interlingua.protocols.transport.grpc.conversation import converse
from interlingua.protocols.wire import GrpcAnswer
from interlingua.schemas import Context, ErrorCode, InferenceError, InferRequest, InferResponse, Signature
from interlingua.translator.conformance.check import Draw, Group, InapplicableError, ViolationError
from interlingua.translator.conformance.comparison import expect_same
from interlingua.translator.conformance.exchange import Exchange, GrpcStream, Sent
from interlingua.translator.conformance.subject import Subject
from interlingua.translator.conformance.values import distinct, inputs, usual
from interlingua.translator.conformance.wire import Mistake, Streams, expect, grpc_request, http_request

STREAMS = Group("streams")

STRANGE = "the server streams in a form of its own"
"""Why nothing is said of what such a stream carries."""

_UNIMPLEMENTED = 12
_MOST = 4
_AT_ONCE = 4
_SOME = st.integers(0, 50)
_NUMBERS = st.lists(_SOME, min_size=2, max_size=_MOST, unique=True)


@dataclass(slots=True)
class Streamed:
    """What came of a stream: an exchange for each answer, whose result is an ``InferResponse``, and how it
    ended. ``strange``: a piece of it had another form than the protocol's."""

    answers: list[Exchange]
    ending: Exchange
    strange: bool = False

    @property
    def results(self) -> list[InferResponse]:
        """The answers that say something, the bare end of the answers to a request left out."""
        found = [exchange.result for exchange in self.answers]
        return [response for response in found if response.outputs or response.error is not None]


@STREAMS("A stream ends when everything has been answered, with nothing but answers in it.")
def ends(subject: Subject, draw: Draw) -> None:
    given = distinct(known_in_streams(subject), draw(_SOME))
    streamed = alone(subject, subject.request(given))
    for exchange in streamed.answers:
        if exchange.result.outputs and subject.binding.transport == "grpc":
            subject.judged(subject.request(given), exchange)


@STREAMS("A stream with the same request has the same answers again.")
def same_twice(subject: Subject, draw: Draw) -> None:
    request = subject.request(distinct(known_in_streams(subject), draw(_SOME)))
    first, second = (alone(subject, request).results for _ in range(2))
    if not first and not second:
        raise InapplicableError("the model streams nothing")
    _expect_same(subject, first, second, "the same request was answered otherwise")


@STREAMS("A model that answers once answers in a stream what it answers without.")
def as_without(subject: Subject, draw: Draw) -> None:
    _many(subject)
    if subject.silent:
        raise InapplicableError(subject.silent)
    request = subject.request(draw(inputs(subject.known, usual)))
    right = subject.answer(request)
    have = alone(subject, request).results
    _expect_same(subject, [right], have, "in a stream the answer is another")


@STREAMS("Of streams at the same time, each has its own answers.")
def at_once(subject: Subject, draw: Draw) -> None:
    known = known_in_streams(subject)
    start = draw(_SOME)
    requests = [subject.request(distinct(known, start + number)) for number in range(_AT_ONCE)]
    own = [alone(subject, request).results for request in requests]
    together = _run(subject, [([request], [0]) for request in requests])
    for right, streamed in zip(own, together, strict=True):
        _ended(streamed)
        _expect_same(subject, right, streamed.results, "beside other streams the answer is another")


@STREAMS("A request that fails gets its error in its stream.")
def refused(subject: Subject, draw: Draw) -> None:
    known_in_streams(subject)
    [streamed] = _run(subject, [([_bad(subject, draw)], [0])])
    _told_so(subject, streamed.answers or [streamed.ending])


@STREAMS("Every request of a stream is answered, under its id, and in the order of the requests.")
def many_requests(subject: Subject, draw: Draw) -> None:
    requests, own = _several(subject, draw)
    [streamed] = _run(subject, [(requests, [0] * len(requests))])
    _expect_each(subject, requests, own, streamed)


@STREAMS("An answer is sent when it is ready, not at the end of the stream.")
def one_by_one(subject: Subject, draw: Draw) -> None:
    requests, own = _several(subject, draw)
    [streamed] = _run(subject, [(requests, [len(results) for results in own])])
    _expect_each(subject, requests, own, streamed)


@STREAMS("A refused request does not end the stream: later ones are answered.")
def refused_between(subject: Subject, draw: Draw) -> None:
    requests, own = _several(subject, draw)
    place = draw(st.integers(0, len(requests) - 1))
    bad = _bad(subject, draw)
    bad.id = str(1000 + len(requests))
    asked = [*requests[:place], bad, *requests[place:]]
    [streamed] = _run(subject, [(asked, [0] * len(asked))])
    refusals = [exchange for exchange in streamed.answers if exchange.result.error is not None]
    good = [exchange for exchange in streamed.answers if exchange.result.error is None]
    _expect_each(subject, requests, own, replace(streamed, answers=good))
    _told_so(subject, refusals)
    told = [exchange.result.id for exchange in refusals]
    expect(told == [bad.id], f"the refusal of '{bad.id}' has the id {told}", refusals[0])


@STREAMS("A stream without a request ends as well.", once=True)
def no_requests(subject: Subject, draw: Draw) -> None:
    _many(subject)
    [streamed] = _run(subject, [([], [])])
    _ended(streamed)
    expect(not streamed.answers, "a stream without a request has answers", streamed.ending)


# --- whom this is asked of


def _form(subject: Subject) -> Streams:
    if subject.wire.streams is None:
        raise InapplicableError("nothing is known of streams over this transport")
    return subject.wire.streams


def _many(subject: Subject) -> None:
    if not _form(subject).many:
        raise InapplicableError("a stream carries one request")


def known_in_streams(subject: Subject) -> Signature:
    """The signature of a model that can be asked in streams."""
    _form(subject)
    if subject.silent and not subject.decoupled and not _answers_in_streams(subject):
        raise InapplicableError(subject.silent)
    return subject.known


def _answers_in_streams(subject: Subject) -> bool:
    """Whether a model that gives no single answer gives some in a stream: dialects without configurations do
    not tell."""
    [streamed] = _run(subject, [([subject.request(distinct(subject.known, 1))], [0])])
    return any(response.error is None for response in streamed.results)


# --- what is asked


def alone(subject: Subject, request: InferRequest, form: Streams | None = None) -> Streamed:
    """What comes of a good request in a stream of its own; ``form`` is the wire's where not given."""
    [streamed] = _run(subject, [([request], [0])], form)
    _ended(streamed)
    for exchange in streamed.answers:
        error = exchange.result.error
        expect(error is None, f"a good request was refused: {error.message if error else ''}", exchange)
    return streamed


def _several(subject: Subject, draw: Draw) -> tuple[list[InferRequest], list[list[InferResponse]]]:
    """Requests with ids of their own, and what each gets in a stream of its own."""
    _many(subject)
    known = known_in_streams(subject)
    requests = [subject.request(distinct(known, number)) for number in draw(_NUMBERS)]
    for number, request in enumerate(requests):
        request.id = str(1000 + number)
    streams = [alone(subject, request) for request in requests]
    if any(streamed.strange for streamed in streams):
        raise InapplicableError(STRANGE)
    return requests, [streamed.results for streamed in streams]


def _bad(subject: Subject, draw: Draw) -> InferRequest:
    request = subject.request(distinct(subject.known, 1))
    kinds = ("model", "inputs") if subject.capability.many_models else ("inputs",)
    kind = draw(st.sampled_from(kinds))
    return replace(request, model="no_such_model") if kind == "model" else replace(request, inputs=())


def _run(
    subject: Subject,
    asked: Sequence[tuple[Sequence[InferRequest], Sequence[int]]],
    form: Streams | None = None,
) -> list[Streamed]:
    """A stream for each of ``asked``, all at once: its requests, and after each of them how many answers are
    waited for."""
    spoken = form or _form(subject)

    async def run_all() -> list[Streamed]:
        return list(await asyncio.gather(*(_stream(subject, spoken, *each) for each in asked)))

    found = subject.wait_for(run_all())
    subject.last = found[-1].ending
    ending = found[0].ending.reply
    if isinstance(ending, GrpcAnswer) and ending.code == _UNIMPLEMENTED and not found[0].answers:
        raise InapplicableError("the server has no streams")
    return found


async def _stream(
    subject: Subject, form: Streams, requests: Sequence[InferRequest], waits: Sequence[int]
) -> Streamed:
    written = [subject.written(form.call, request) for request in requests]
    if subject.binding.transport == "grpc":
        return await _over_grpc(subject, form, written, waits)
    [(sent, kept)] = written
    return await _over_http(subject, form, sent, kept)


async def _over_grpc(
    subject: Subject, form: Streams, written: Sequence[tuple[Sent, Any]], waits: Sequence[int]
) -> Streamed:
    # a stream without a request has a method all the same
    known = written or [subject.written(form.call, subject.request(()))]
    method = grpc_request(known[0][0]).method
    said = GrpcStream(method, tuple(bytes(grpc_request(sent).message) for sent, _ in written))
    pieces, status = await converse(subject.place, method, said.messages, waits, subject.timeout_secs)
    answers: list[Exchange] = []
    for number, piece in enumerate(pieces):
        _, kept = known[min(number, len(known) - 1)]
        answers += _read(form, said, kept, GrpcAnswer(piece))
    strange = not all(form.known(GrpcAnswer(piece)) for piece in pieces)
    return Streamed(answers, Exchange(said, status), strange)


async def _over_http(subject: Subject, form: Streams, sent: Sent, kept: Any) -> Streamed:
    answers: list[Exchange] = []
    ending = Exchange(sent)
    bounded = replace(http_request(sent), context=Context(deadline=time.monotonic() + subject.timeout_secs))
    try:
        async for reply in subject.client.stream(bounded):
            ending.reply = reply
            answers += _read(form, sent, kept, reply)
    except InferenceError as error:
        ending.error = error
    return Streamed(answers, ending)


def _read(form: Streams, sent: Sent | GrpcStream, kept: Any, piece: Any) -> list[Exchange]:
    """An exchange for each response in a piece of a reply. What cannot be read is one that failed."""
    unwrap: Callable[[Any], Any] = form.unwrap
    try:
        responses: Sequence[InferResponse] = form.call.decode(kept, piece)
    except InferenceError as error:
        responses = (InferResponse("", (), error=error),)
    return [Exchange(sent, unwrap(piece), response, response.error) for response in responses]


# --- what must come of it


def _ended(streamed: Streamed) -> None:
    """The stream has ended as it should."""
    ending = streamed.ending
    if ending.error is not None:
        raise ViolationError(f"the stream broke: {ending.error.message}", ending)
    if isinstance(ending.reply, GrpcAnswer):
        code, details = ending.reply.code, ending.reply.details
        expect(not code, f"the stream ended with status {code}: {details}", ending)


def _told_so(subject: Subject, refusals: Sequence[Exchange]) -> None:
    expect(len(refusals) == 1, f"{len(refusals)} refusals of one request", subject.last)
    [refusal] = refusals
    what = "a request that cannot be carried out was answered"
    if subject.binding.transport == "grpc":
        expect(not subject.wire.succeeded(refusal), what, refusal)
        subject.wire.check_error(refusal, Mistake.ANY)
    else:
        # a message may stand in several pieces of the reply
        expect(refusal.error is not None and refusal.error.code is not ErrorCode.BAD_UPSTREAM, what, refusal)


def _expect_each(
    subject: Subject, requests: Sequence[InferRequest], own: Sequence[list[InferResponse]], streamed: Streamed
) -> None:
    """Every request has the answers that it has in a stream of its ``own``, under its id; those to a request
    before it come first, where each has one."""
    _ended(streamed)
    for exchange in streamed.answers:
        error = exchange.result.error
        expect(error is None, f"a good request was refused: {error.message if error else ''}", exchange)
    have = streamed.results
    asked = [request.id for request in requests]
    order = [response.id for response in have]
    expect(
        set(order) <= set(asked), f"answers with the ids {order} to requests with {asked}", streamed.ending
    )
    if not subject.decoupled:
        expect(order == asked, f"answers with the ids {order} to requests with {asked}", streamed.ending)
    for request, right in zip(requests, own, strict=True):
        answers = [response for response in have if response.id == request.id]
        _expect_same(subject, right, answers, "beside other requests of a stream the answer is another")


def _expect_same(
    subject: Subject, right: Sequence[InferResponse], have: Sequence[InferResponse], what: str
) -> None:
    expect(len(right) == len(have), f"{what}: {len(have)} answers, not {len(right)}", subject.last)
    for one, other in zip(right, have, strict=True):
        expect_same(subject, one, other, what)
