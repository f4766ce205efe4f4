"""The calls to an upstream, in one table for all transports.

A question is a message and a reader of the answer, with a path over HTTP and a method over gRPC and bRPC.
``client_http`` and ``client_rpc`` send the messages.

Metadata of models are read from those of the whole server: a server finds one model by its name without a
version, and one of the originals finds only the first. The dialect cannot report the readiness of a model: a
model is ready when its server is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from interlingua.protocols.dialect import Call, Passthrough, Reply, SharedReply, UpstreamCall
from interlingua.protocols.grps import codec
from interlingua.protocols.grps.client_deployment import DeployedModel, index, joined, metadata, read_models
from interlingua.protocols.grps.message import GrpsMessage, Kind, Status, StatusFlag
from interlingua.protocols.grps.passthrough import PASSTHROUGH, WholeMessage
from interlingua.protocols.grps.status import check
from interlingua.protocols.upstream_reply import read_reply
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    ModelMetadata,
    ModelRef,
    Operation,
    Readiness,
    ServerMetadata,
    Signature,
    bad_upstream,
)

Read = Callable[[GrpsMessage], Any]

KEPT_SECS = 1.0
"""Lifetime of a shared answer: it bounds the fetches that callers cause, and is too short to hide a new
configuration."""


@dataclass(frozen=True, slots=True)
class Question:
    """``encode(argument, signature)`` gives the message to send and ``read``, which makes the result of the
    answer. ``path`` is below ``/grps/v1/``; ``method`` is that of both RPC services. With ``shared`` the
    message is always the same, and ``read`` gets the result of ``shared`` for the answer, which all questions
    share."""

    path: str
    method: str
    encode: Callable[[Any, Signature | None], tuple[GrpsMessage, Callable[[Any], Any]]]
    shared: Read | None = None
    passthrough: Passthrough[Any, Any, Any] | None = None


def upstream_call(
    question: Question,
    encode: Callable[[Any, Signature | None], tuple[Call, Callable[[Any], Any]]],
    decode: Callable[[Callable[[Any], Any], Reply], Any],
) -> UpstreamCall[Call, Reply]:
    """``question`` over a transport: ``decode(read, reply)`` calls ``read`` with the message of the reply."""
    if question.shared is None:
        return UpstreamCall(encode, decode, passthrough=question.passthrough)
    shared = _shared_reply(question.shared, decode)
    return UpstreamCall(encode, lambda form, reply: form(shared.read(reply)), shared=shared)


@cache
def _shared_reply(read: Read, decode: Callable[[Callable[[Any], Any], Reply], Any]) -> SharedReply[Reply]:
    """One for all questions with the same ``read``."""
    return SharedReply(partial(decode, read), KEPT_SECS)


# --- inference


def _encode_infer(request: InferRequest, signature: Signature | None) -> tuple[GrpsMessage, Read]:
    form = request.wire_form
    whole = isinstance(form, WholeMessage)
    message = replace(form.message) if isinstance(form, WholeMessage) else codec.encode_request(request)
    message.model = joined(request.model, request.version)

    def read(answer: GrpsMessage) -> InferResponse:
        check(answer)
        if whole:
            return InferResponse(request.model, (), request.version, wire_form=WholeMessage(answer))
        return _response(request, message, signature, answer)

    return message, read


def _encode_stream(request: InferRequest, signature: Signature | None) -> tuple[GrpsMessage, Read]:
    """As for one answer; a failed piece is a response, the first one fails the call."""
    message, read_one = _encode_infer(request, signature)
    answered = False

    def read(answer: GrpsMessage) -> InferResponse:
        nonlocal answered
        try:
            response: InferResponse = read_one(answer)
        except InferenceError as error:
            if not answered or error.code is ErrorCode.BAD_UPSTREAM:
                raise
            response = InferResponse(request.model, (), error=error)
        answered = True
        # only the end of the stream marks the last piece
        response.final = False
        return response

    return message, read


def _response(
    request: InferRequest, sent: GrpsMessage, signature: Signature | None, answer: GrpsMessage
) -> InferResponse:
    # an empty signature is unknown
    known = signature if signature is not None and signature.outputs else None
    outputs, form = read_reply(lambda: codec.decode_response(answer, known))
    # if the upstream got another kind of message than the caller sent, the answer takes the caller's form
    same = isinstance(request.wire_form, codec.WireForm) and request.wire_form.kind is sent.kind
    return InferResponse(request.model, outputs, request.version, wire_form=form if same else None)


# --- all that is not inference


def _plain(
    read: Callable[[Any], Any],
) -> Callable[[Any, Signature | None], tuple[GrpsMessage, Callable[[Any], Any]]]:
    """A question with an empty message."""
    return lambda argument, signature: (GrpsMessage(), read)


def _readiness(answer: GrpsMessage) -> Readiness:
    """Whether the server succeeds; the codes of failures differ."""
    status = answer.status or Status()
    ready = status.flag == StatusFlag.SUCCESS
    return Readiness(ready, "" if ready else status.msg or "the upstream answered without a status")


def _models(answer: GrpsMessage) -> tuple[DeployedModel, ...]:
    check(answer)
    if answer.kind is not Kind.STR_DATA:
        raise bad_upstream("the upstream's metadata has no str_data")
    return read_models(answer.str_data)


def _server_metadata(answer: GrpsMessage) -> ServerMetadata:
    check(answer)
    return ServerMetadata(flavor_of(answer.str_data), "")


def flavor_of(configuration: str) -> str:
    """The server of ``configuration``: ``py`` begins with the models, ``cpp`` with the interface."""
    first = _PARTS.search(configuration)
    return "cpp" if first is not None and first[1] == "interface" else "py"


def _encode_metadata(
    model: ModelRef, signature: Signature | None
) -> tuple[GrpsMessage, Callable[[tuple[DeployedModel, ...]], ModelMetadata]]:
    return GrpsMessage(), partial(metadata, model=model)


_PARTS = re.compile(r"^(models|interface)\b", re.MULTILINE)
_SERVER = ("metadata/server", "ServerMetadata")
_READY = Question("health/ready", "CheckReadiness", _plain(_readiness))

QUESTIONS: Mapping[Operation, Question] = {
    Operation.INFER: Question("infer/predict", "Predict", _encode_infer, passthrough=PASSTHROUGH),
    Operation.LIVE: Question("health/live", "CheckLiveness", _plain(_readiness)),
    Operation.READY: _READY,
    Operation.MODEL_READY: _READY,
    Operation.SET_ONLINE: Question("health/online", "Online", _plain(check)),
    Operation.SET_OFFLINE: Question("health/offline", "Offline", _plain(check)),
    Operation.SERVER_METADATA: Question(*_SERVER, _plain(_server_metadata)),
    Operation.MODEL_METADATA: Question(*_SERVER, _encode_metadata, shared=_models),
    Operation.REPOSITORY_INDEX: Question(*_SERVER, _plain(index), shared=_models),
}

STREAM = Question("infer/predict", "PredictStreaming", _encode_stream)
"""Not over bRPC."""
