"""Calls of version 1 with classes instead of outputs.

No upstream request has classes, so the dialect's calls do not have them: these calls add them to the
request and remove them from the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from google.protobuf import text_format

from interlingua.protocols.classification import Ranked
from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.trtis.client import GRPC_CALLS, HTTP_CALLS
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpCall, HttpReply
from interlingua.schemas import ErrorCode, InferenceError, InferRequest, Operation, Signature
from interlingua.schemas.trtis import MESSAGES
from interlingua.translator.conformance.wire import Ranking

_PACKAGE = "nvidia.inferenceserver"
_REQUEST_HEADER: Any = MESSAGES[f"{_PACKAGE}.InferRequestHeader"]
_RESPONSE_HEADER: Any = MESSAGES[f"{_PACKAGE}.InferResponseHeader"]
_CALL: Any = MESSAGES[f"{_PACKAGE}.InferRequest"]
_ANSWER: Any = MESSAGES[f"{_PACKAGE}.InferResponse"]

_HTTP, _GRPC = HTTP_CALLS[Operation.INFER], GRPC_CALLS[Operation.INFER]

Classes = dict[str, list[list[Ranked]]]


def _ask(header: Any, request: InferRequest) -> None:
    counts = {output.name: output.classification for output in request.outputs or ()}
    for output in header.output:
        if counts.get(output.name):
            output.cls.count = counts[output.name]


def _take(header: Any) -> tuple[Classes, list[int]]:
    """Remove the outputs with classes from ``header``; return the classes, and the indices of the outputs."""
    found: Classes = {}
    places = [place for place, output in enumerate(header.output) if output.batch_classes]
    for place in reversed(places):
        output = header.output[place]
        found[output.name] = [
            [Ranked(one.idx, one.value, one.label) for one in entry.cls] for entry in output.batch_classes
        ]
        del header.output[place]
    return found, places


# --- HTTP


def _encode_http(request: InferRequest, signature: Signature | None) -> tuple[HttpCall, Any]:
    sent, form = _HTTP.encode(request, signature)
    header = text_format.Parse(sent.headers["NV-InferRequest"], _REQUEST_HEADER())
    _ask(header, request)
    text = text_format.MessageToString(header, as_one_line=True)
    return replace(sent, headers={**sent.headers, "NV-InferRequest": text}), form


def _decode_http(form: Any, reply: HttpReply) -> Ranking:
    """Only the message at the end of the body has the classes."""
    headers = {name.lower(): value for name, value in reply.headers.items()}
    text = headers.get("nv-inferresponse")
    found: Mapping[str, Any] = {}
    if text and reply.status == 200:
        header = text_format.Parse(text, _RESPONSE_HEADER())
        size = sum(output.raw.batch_byte_size for output in header.output)
        whole = _RESPONSE_HEADER.FromString(bytes(reply.body)[size:])
        found, _ = _take(whole)
        text = text_format.MessageToString(whole, as_one_line=True)
        reply = replace(reply, headers=headers | {"nv-inferresponse": text})
    return Ranking(found, _HTTP.decode(form, reply))


# --- gRPC


def _encode_grpc(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, Any]:
    sent, form = _GRPC.encode(request, signature)
    call = _CALL.FromString(bytes(sent.message))
    _ask(call.meta_data, request)
    return replace(sent, message=call.SerializeToString()), form


def _decode_grpc(form: Any, reply: GrpcAnswer) -> Ranking:
    found: Mapping[str, Any] = {}
    if not reply.code:
        answer = _ANSWER.FromString(bytes(reply.message))
        outputs = len(answer.meta_data.output)
        found, places = _take(answer.meta_data)
        if places and len(answer.raw_output) != outputs:
            words = f"{len(answer.raw_output)} raw outputs for {outputs} outputs, classes among them"
            raise InferenceError(ErrorCode.BAD_UPSTREAM, words)
        raws = [raw for place, raw in enumerate(answer.raw_output) if place not in places]
        del answer.raw_output[:]
        answer.raw_output.extend(raws)
        reply = replace(reply, message=answer.SerializeToString())
    return Ranking(found, _GRPC.decode(form, reply))


HTTP_CLASSES: UpstreamCall[HttpCall, HttpReply] = UpstreamCall(_encode_http, _decode_http)
GRPC_CLASSES: UpstreamCall[GrpcRequest, GrpcAnswer] = UpstreamCall(_encode_grpc, _decode_grpc)
