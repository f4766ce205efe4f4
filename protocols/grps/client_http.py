"""Calls to an upstream over HTTP: JSON or plain bytes both ways.

One server repeats the code of an answer in the HTTP status, the other answers 200 to any readable request, so
both codes are checked. Both accept the same JSON: numbers as numbers, quoted if they are not finite.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from interlingua.protocols.brpc_status import ERROR_CODES
from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.grps.client import QUESTIONS, STREAM, Question, Read, upstream_call
from interlingua.protocols.grps.client_bytes import NoPythonBytes
from interlingua.protocols.grps.client_pieces import Piece, Pieces
from interlingua.protocols.grps.codec_json import read_body
from interlingua.protocols.grps.json_quirks import COMPACT, REPLY
from interlingua.protocols.grps.json_writer import write_message
from interlingua.protocols.grps.message import DIALECT_NAME, GrpsMessage, Kind, StatusFlag
from interlingua.protocols.grps.status import TEXT_CHARS, check, last_line
from interlingua.protocols.upstream_reply import read_reply
from interlingua.protocols.wire import Buffer, HttpCall, HttpReply
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferResponse,
    Operation,
    Signature,
    bad_upstream,
    not_carried,
)

Call = UpstreamCall[HttpCall, HttpReply]
Calls = Mapping[Operation, Call]

CODE_OF_HTTP_STATUS: Mapping[int, ErrorCode] = {
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    413: ErrorCode.TOO_LARGE,
    429: ErrorCode.OVERLOADED,
    503: ErrorCode.UNAVAILABLE,
    504: ErrorCode.DEADLINE_EXCEEDED,
}
"""The meaning of a status without a message; any other is BAD_UPSTREAM."""

_BRPC_ERROR = "x-bd-error-code"
_OCTETS = {"Content-Type": "application/octet-stream"}
# servers refuse a parameter
_JSON = {"Content-Type": "application/json"}
_STREAMING = "streaming=true"
_SHOWN_CHARS = 2000
_TAG = re.compile(r"<[^>]*>")

# text that is equal after decoding a query, which the C++ server does not do
_PLAIN = re.compile(r"[A-Za-z0-9\-._~!$'()*,;:@/]*")


# --- what goes out


def _get(question: Question, argument: Any, signature: Signature | None) -> tuple[HttpCall, Read]:
    return HttpCall("GET", f"/grps/v1/{question.path}"), question.encode(argument, signature)[1]


def _predict(
    question: Question, argument: Any, signature: Signature | None, *, query: Sequence[str], flavor: str
) -> tuple[HttpCall, Read]:
    message, read = question.encode(argument, signature)
    path = f"/grps/v1/{question.path}"
    if message.kind is Kind.BIN_DATA:
        # the body cannot carry it
        query = [*query, f"model={_queried(message.model, flavor)}"] if message.model else query
        return HttpCall("POST", path, "&".join(query), _OCTETS, parts=[message.bin_data]), read
    return HttpCall("POST", path, "&".join(query), _JSON, parts=[write_message(message, COMPACT)]), read


def _queried(model: str, flavor: str) -> str:
    if _PLAIN.fullmatch(model):
        return model
    if flavor == "cpp":
        raise not_carried(
            DIALECT_NAME, f"the model name {model!a} in a query, which this server does not decode"
        )
    try:
        return quote(model, safe="")
    except UnicodeEncodeError:
        raise not_carried(DIALECT_NAME, f"the model name {model!a}: it is not Unicode text") from None


# --- what comes back


def _decode(read: Read, reply: HttpReply) -> Any:
    message = _message(reply)
    failed = message.status is not None and message.status.flag == StatusFlag.FAILURE
    if reply.status != 200 and not failed:  # whatever its tensors are
        check(message)
        raise _error(reply)
    return read(message)


def _message(reply: HttpReply) -> GrpsMessage:
    """The message in a reply. Raises an error that only the HTTP status reports."""
    media = _media_type(reply)
    if media == "application/json":
        message = read_reply(lambda: _document(reply.body))
        if reply.status == 200 or message.status is not None:
            return message
    elif reply.status == 200 and media == "application/octet-stream":
        return GrpsMessage(Kind.BIN_DATA, bin_data=reply.body)
    raise _error(reply)


def _media_type(reply: HttpReply) -> str:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower()


def _document(body: Buffer) -> GrpsMessage:
    _, message = read_body(body, REPLY)
    if isinstance(message, InferenceError):
        try:
            raise message
        finally:
            del message  # its traceback refers to this frame
    return message


def _error(reply: HttpReply) -> InferenceError:
    """The error in a reply that is not from the dialect, with its text, if any."""
    number = reply.headers.get(_BRPC_ERROR, "")
    code = CODE_OF_HTTP_STATUS.get(reply.status, ErrorCode.BAD_UPSTREAM)
    if number.isascii() and number.isdigit():
        code = ERROR_CODES.get(int(number[:9]), code)
    text, details = last_line(bytes(reply.body[:TEXT_CHARS]).decode(errors="backslashreplace"))
    words = " ".join(_TAG.sub(" ", text[:_SHOWN_CHARS]).split()) or "no message"
    return InferenceError(code, f"the upstream answered HTTP status {reply.status}: {words}", details=details)


# --- streams


class _Stream:
    """The replies to one question, from the pieces of the body; ``bytes_check`` is for a server that may
    write bytes as text."""

    def __init__(self, read: Read, bytes_check: NoPythonBytes | None) -> None:
        self._read = read
        self._pieces = Pieces()
        self._bytes_check = bytes_check

    def take(self, reply: HttpReply) -> Iterator[InferResponse]:
        """The responses that this part of the body completes, up to the first error."""
        if reply.status != 200:
            yield _decode(self._read, reply)
            return
        if reply.body:
            pieces = self._pieces.feed(reply.body)
        elif self._pieces.unfinished:
            raise bad_upstream("the upstream's stream ended within a document")
        else:
            pieces = self._pieces.end()
        if self._bytes_check is not None:
            pieces = self._bytes_check.checked(pieces, ended=not reply.body)
        media = _media_type(reply)
        for piece in pieces:
            yield self._read(_message_of(piece, media))


def _message_of(piece: Piece, media: str) -> GrpsMessage:
    if not piece.octets:
        return read_reply(lambda: _document(piece.content))
    if media == "application/json":
        raise bad_upstream("the upstream's answer is not valid: it is no document")
    return GrpsMessage(Kind.BIN_DATA, bin_data=piece.content)


def _encode_stream(argument: Any, signature: Signature | None, *, flavor: str) -> tuple[HttpCall, _Stream]:
    request, read = _predict(STREAM, argument, signature, query=[_STREAMING], flavor=flavor)
    return request, _Stream(read, NoPythonBytes() if flavor == "py" else None)


def _calls(flavor: str) -> Calls:
    return {
        **{
            operation: upstream_call(question, partial(_get, question), _decode)
            for operation, question in QUESTIONS.items()
        },
        Operation.INFER: UpstreamCall(
            partial(_predict, QUESTIONS[Operation.INFER], query=(), flavor=flavor),
            _decode,
            passthrough=QUESTIONS[Operation.INFER].passthrough,
        ),
        Operation.INFER_STREAM: UpstreamCall(partial(_encode_stream, flavor=flavor), _Stream.take),
    }


HTTP_CALLS: Calls = _calls("py")
HTTP_CPP_CALLS: Calls = _calls("cpp")
"""For the C++ server."""
