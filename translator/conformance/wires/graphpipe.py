"""GraphPipe over HTTP and tcp: valid responses and refusals, and the rules of both wires."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import BinaryIO

from hypothesis import strategies as st

from interlingua.protocols.graphpipe import codec
from interlingua.protocols.graphpipe.client import HTTP_CALLS, TCP_CALLS
from interlingua.protocols.wire import Buffer, FramedReply, HttpCall
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, InferResponse, Operation
from interlingua.translator.conformance.check import Draw, Group
from interlingua.translator.conformance.errors import ViolationError, expect, skip_if
from interlingua.translator.conformance.exchange import Sent, WireExchange
from interlingua.translator.conformance.replies import http_reply, http_request, json_object
from interlingua.translator.conformance.server import ServerUnderTest
from interlingua.translator.conformance.values import distinct
from interlingua.translator.conformance.wire import Mistake, Wire

_RULES = Group("graphpipe", infers=True)
_HTTP_RULES = Group("graphpipe-http", infers=True)
_TCP_RULES = Group("graphpipe-tcp", infers=True)

_SECS = 10.0

_FAULTS = (
    *(ErrorCode.OVERLOADED, ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED),
    *(ErrorCode.BAD_UPSTREAM, ErrorCode.INTERNAL),
)
"""Errors that are not the caller's mistake."""


def _in_band(message: Buffer) -> codec.CarriedError | None:
    """The error in an InferResponse, if it has one."""
    try:
        codec.decode_response(message, None, None)
    except codec.CarriedError as error:
        return error
    except InferenceError:
        pass  # unreadable, so without an error
    return None


# --- over HTTP


def _succeeded(exchange: WireExchange) -> bool:
    if exchange.reply is None or http_reply(exchange).status != 200:
        return False
    return _in_band(http_reply(exchange).body) is None


def _check_error(exchange: WireExchange, mistake: Mistake) -> None:
    """Errors in the InferResponse, or status 4xx with a text as body."""
    reply = http_reply(exchange)
    if reply.status == 200:
        return
    expect(bytes(reply.body).strip(), f"status {reply.status} without a text", exchange)
    expect(400 <= reply.status < 500, f"status {reply.status} for the caller's mistake, not 4xx", exchange)


def _check_answer(request: InferRequest, exchange: WireExchange) -> None:
    """Status 200 and a body; the codec checks the InferResponse."""
    reply = http_reply(exchange)
    expect(reply.status == 200, f"status {reply.status} of an answer, not 200", exchange)
    expect(reply.body, "an answer without a body", exchange)


# --- over tcp


def _framed(exchange: WireExchange | None) -> bytes:
    """The message of the reply. Raises ``ViolationError`` if there is none."""
    if exchange is None or not isinstance(exchange.reply, FramedReply):
        raise ViolationError("no answer", exchange)
    return bytes(exchange.reply.message)


def _succeeded_framed(exchange: WireExchange) -> bool:
    return exchange.reply is not None and _in_band(_framed(exchange)) is None


def _check_framed_error(exchange: WireExchange, mistake: Mistake) -> None:
    """An InferResponse whose error has a text and a code for the caller's mistake."""
    error = _in_band(_framed(exchange))
    if error is not None:
        expect(error.message.strip(), "an error without a text", exchange)
        expect(error.code not in _FAULTS, f"{error.code.name} for the caller's mistake", exchange)


def _check_framed_answer(request: InferRequest, exchange: WireExchange) -> None:
    """An InferResponse without errors."""
    error = _in_band(_framed(exchange))
    expect(error is None, f"an answer with the error {error}", exchange)


# --- rules for both


@_RULES("Unnamed inputs are the model's, in its order; a request without output names gets all outputs.")
def without_names(server: ServerUnderTest, draw: Draw) -> None:
    given = distinct(server.known, draw(st.integers(0, 50)))
    right = server.answer(server.request(given, [spec.name for spec in server.known.outputs]))
    have = server.answer(server.request([tensor.renamed("") for tensor in given]))
    expect(_bytes(right) == _bytes(have), "without names the answer differs", server.last)


@_RULES("Outputs are in the requested order.")
def outputs_in_order(server: ServerUnderTest, draw: Draw) -> None:
    names = [spec.name for spec in server.known.outputs]
    skip_if(len(names) < 2, "there is only one output")
    given = distinct(server.known, 1)
    straight = dict(_bytes(server.answer(server.request(given, names))))
    for name, data in _bytes(server.answer(server.request(given, draw(st.permutations(names))))):
        expect(straight[name] == data, f"in another order, output '{name}' differs", server.last)


@_RULES("Bytes after the message are ignored.")
def bytes_after(server: ServerUnderTest, draw: Draw) -> None:
    sent = server.encoded(server.sample())
    right = server.send(sent)
    more = server.form.with_body(sent, server.form.body(sent) + draw(st.binary(min_size=1, max_size=9)))
    _same_body(server, right, more, "with bytes after the message")


@_HTTP_RULES("The Content-Type of a request does not matter.")
def any_content_type(server: ServerUnderTest, draw: Draw) -> None:
    sent = http_request(server.encoded(server.sample()))
    right = server.send(sent)
    media = draw(
        st.sampled_from((None, "application/x-www-form-urlencoded", "text/plain", "application/json"))
    )
    other = replace(sent, headers={} if media is None else {"Content-Type": media})
    _same_body(server, right, other, f"with the Content-Type {media}")


@_HTTP_RULES("GET returns the metadata as JSON.", once=True)
def metadata_by_get(server: ServerUnderTest, draw: Draw) -> None:
    path = http_request(server.encoded(server.sample())).path
    exchange = server.send(HttpCall("GET", path))
    reply = http_reply(exchange)
    expect(reply.status == 200, f"status {reply.status} of GET, not 200", exchange)
    document = json_object(exchange, bytes(reply.body), "the metadata")
    missing = {"Name", "Version", "Server", "Description", "Inputs", "Outputs"} - set(document)
    expect(not missing, f"the metadata lack {', '.join(sorted(missing))}", exchange)
    names = [port["Name"] for port in document["Inputs"] or ()]
    declared = [spec.name for spec in server.known.inputs]
    expect(set(declared) <= set(names), f"the metadata have the inputs {names}, not {declared}", exchange)


@_TCP_RULES("Pipelined messages are answered in order, refused ones too.")
def pipelined_in_order(server: ServerUnderTest, draw: Draw) -> None:
    requests = [server.encoded(server.sample(number)) for number in range(3)]
    right = [_framed(server.send(sent)) for sent in requests]
    bad = server.form.with_body(requests[0], b"\xff" * draw(st.integers(0, 9)))
    order = draw(st.lists(st.sampled_from((None, 0, 1, 2)), min_size=2, max_size=6))
    frames = [server.form.write(bad if place is None else requests[place]) for place in order]
    for number, (place, got) in enumerate(zip(order, _pipelined(server, frames), strict=True)):
        exchange = WireExchange(bad if place is None else requests[place], FramedReply(got))
        if place is None:
            expect(not _succeeded_framed(exchange), "bytes that are not a message were accepted", exchange)
        else:
            expect(got == right[place], f"message {number} of {len(order)} got the wrong answer", exchange)


def _pipelined(server: ServerUnderTest, frames: list[bytes]) -> list[bytes]:
    """The answers to ``frames``, sent at once over a connection that is then half-closed. Raises
    ``ViolationError`` if answers are missing."""
    try:
        with socket.socket(socket.AF_UNIX if server.address.path else socket.AF_INET) as connection:
            connection.settimeout(_SECS)
            connection.connect(server.address.path or (server.address.host, server.address.port))
            connection.sendall(b"".join(frames))
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as reading:
                return [_read_frame(reading) for _ in frames]
    except OSError as error:
        raise ViolationError(f"the connection broke: {error}") from error


def _read_frame(reading: BinaryIO) -> bytes:
    head = reading.read(4)
    size = int.from_bytes(head, "little")
    message = reading.read(size)
    expect(len(head) == 4 and len(message) == size, "the connection ended before the last answer")
    return message


def _bytes(response: InferResponse) -> list[tuple[str, bytes]]:
    return [(tensor.name, bytes(tensor.view)) for tensor in response.outputs]


def _same_body(server: ServerUnderTest, right: WireExchange, sent: Sent, what: str) -> None:
    exchange = server.send(sent)
    expect(server.wire.succeeded(exchange), f"{what} the request is refused", exchange)
    expect(_body(exchange) == _body(right), f"{what} the answer differs", exchange)


def _body(exchange: WireExchange) -> bytes:
    return _framed(exchange) if isinstance(exchange.reply, FramedReply) else bytes(http_reply(exchange).body)


_EXEMPT = {"refusals/input-twice": "the last of two inputs of one name counts"}
_PADDING = 8
"""The zero after a string, and alignment at the end of a message."""

_HTTP = Wire(
    _succeeded,
    _check_error,
    _check_answer,
    {"flatbuffer": HTTP_CALLS[Operation.INFER]},
    (*_RULES.checks, *_HTTP_RULES.checks),
    exempt=_EXEMPT,
    padding=_PADDING,
)

WIRES = {
    "http": _HTTP,
    "tcp": replace(
        _HTTP,
        succeeded=_succeeded_framed,
        check_error=_check_framed_error,
        check_answer=_check_framed_answer,
        calls={"flatbuffer": TCP_CALLS[Operation.INFER]},
        checks=(*_RULES.checks, *_TCP_RULES.checks),
    ),
}
