"""GraphPipe over HTTP, as it must stand on the wire."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import strategies as st

from protocols.graphpipe import codec
from protocols.graphpipe.client import HTTP_CALLS
from protocols.wire import HttpRequest
from schemas import ErrorCode, InferenceError, InferRequest, InferResponse, Operation
from translator.conformance.check import Draw, Group, InapplicableError, ViolationError
from translator.conformance.exchange import Exchange, body_of, with_body
from translator.conformance.subject import Subject
from translator.conformance.values import distinct
from translator.conformance.wire import Mistake, Wire, expect, http_reply, http_request

_RULES = Group("graphpipe-http", asks=True)

_NOT_READ = frozenset({ErrorCode.MALFORMED, ErrorCode.INVALID_TENSOR, ErrorCode.BAD_UPSTREAM})


def _told_in_band(exchange: Exchange) -> bool:
    """Whether the answer is an InferResponse with errors in it."""
    try:
        codec.decode_response(http_reply(exchange).body, None, None)
    except InferenceError as error:
        return error.code not in _NOT_READ
    return False


def _succeeded(exchange: Exchange) -> bool:
    if exchange.reply is None or http_reply(exchange).status != 200:
        return False
    return not _told_in_band(exchange)


def _check_error(exchange: Exchange, mistake: Mistake) -> None:
    """A status that is an error with a text as body, or errors in the InferResponse; for a mistake of the
    caller's the status is one of 4xx."""
    reply = http_reply(exchange)
    if reply.status == 200:
        return
    expect(bytes(reply.body).strip(), f"status {reply.status} without a text", exchange)
    expect(400 <= reply.status < 500, f"status {reply.status} for the caller's mistake, not 4xx", exchange)


def _check_answer(request: InferRequest, exchange: Exchange) -> None:
    """Status 200 and an InferResponse with as many tensors as were asked for, whose data fit their shapes."""
    reply = http_reply(exchange)
    expect(reply.status == 200, f"status {reply.status} of an answer, not 200", exchange)
    expect(reply.body, "an answer without a body", exchange)


@_RULES("Inputs without names are the model's, in its order; without names of outputs all of them come.")
def without_names(subject: Subject, draw: Draw) -> None:
    given = distinct(subject.known, draw(st.integers(0, 50)))
    right = subject.answer(subject.request(given, [spec.name for spec in subject.known.outputs]))
    have = subject.answer(subject.request([tensor.renamed("") for tensor in given]))
    expect(_bytes(right) == _bytes(have), "without names the answer is another", subject.last)


@_RULES("Outputs come in the order in which they were asked for.")
def outputs_in_order(subject: Subject, draw: Draw) -> None:
    names = [spec.name for spec in subject.known.outputs]
    if len(names) < 2:
        raise InapplicableError("there is but one output")
    given = distinct(subject.known, 1)
    straight = dict(_bytes(subject.answer(subject.request(given, names))))
    for name, data in _bytes(subject.answer(subject.request(given, draw(st.permutations(names))))):
        expect(straight[name] == data, f"in another order, output '{name}' is another", subject.last)


@_RULES("Bytes behind the message are ignored.")
def bytes_behind(subject: Subject, draw: Draw) -> None:
    sent = subject.encoded(subject.request(distinct(subject.known, 1)))
    right = subject.send(sent)
    more = with_body(sent, body_of(sent) + draw(st.binary(min_size=1, max_size=9)))
    _same_body(subject, right, more, "with bytes behind the message")


@_RULES("The Content-Type of a request does not matter.")
def any_content_type(subject: Subject, draw: Draw) -> None:
    sent = http_request(subject.encoded(subject.request(distinct(subject.known, 1))))
    right = subject.send(sent)
    media = draw(
        st.sampled_from((None, "application/x-www-form-urlencoded", "text/plain", "application/json"))
    )
    other = replace(sent, headers={} if media is None else {"Content-Type": media})
    _same_body(subject, right, other, f"with the Content-Type {media}")


@_RULES("GET tells the metadata as JSON.", once=True)
def get_tells_metadata(subject: Subject, draw: Draw) -> None:
    path = http_request(subject.encoded(subject.request(distinct(subject.known, 1)))).path
    exchange = subject.send(HttpRequest("GET", path))
    reply = http_reply(exchange)
    expect(reply.status == 200, f"GET was answered {reply.status}", exchange)
    try:
        document = orjson.loads(bytes(reply.body))
    except orjson.JSONDecodeError as error:
        raise ViolationError(f"GET was not answered with JSON: {error}", exchange) from error
    missing = {"Name", "Version", "Server", "Description", "Inputs", "Outputs"} - set(document)
    expect(not missing, f"the metadata lack {', '.join(sorted(missing))}", exchange)
    names = [port["Name"] for port in document["Inputs"] or ()]
    declared = [spec.name for spec in subject.known.inputs]
    expect(set(declared) <= set(names), f"the metadata have the inputs {names}, not {declared}", exchange)


def _bytes(response: InferResponse) -> list[tuple[str, bytes]]:
    return [(tensor.name, bytes(tensor.view)) for tensor in response.outputs]


def _same_body(subject: Subject, right: Exchange, sent: object, what: str) -> None:
    exchange = subject.send(http_request(sent))  # type: ignore[arg-type]
    status = http_reply(exchange).status
    expect(status == 200, f"{what} the status is {status}", exchange)
    expect(
        bytes(http_reply(exchange).body) == bytes(http_reply(right).body),
        f"{what} the answer is another",
        exchange,
    )


WIRE = Wire(
    _succeeded,
    _check_error,
    _check_answer,
    {"flatbuffer": HTTP_CALLS[Operation.INFER]},
    tuple(_RULES.checks),
    exempt={"refusals/input-twice": "the last of two inputs of one name counts"},
    # the zero behind a string, and what aligns the end of a message
    padding=8,
)
