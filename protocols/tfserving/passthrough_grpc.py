"""Passthrough from gRPC to gRPC: the message goes to the upstream, its tensors unread.

A message passes if all elements of its tensors are there as they are in memory: as ``tensor_content`` or as
packed floats. If names differ it is written again around them. An answer passes if its values are typed, as
every caller gets them. Strings, repeated values and varints go through ``codec_grpc``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames
from interlingua.protocols.protobuf_message import parse, split_off
from interlingua.protocols.tfserving import codec_grpc
from interlingua.protocols.tfserving.codec import DEFAULT_SIGNATURE
from interlingua.protocols.tfserving.codec_grpc import (
    INPUTS,
    METHOD,
    OUTPUTS,
    REQUEST,
    RESPONSE,
    PredictHead,
    UnreadMessage,
    ViewedMessage,
    entries_by_name,
    with_heads,
)
from interlingua.protocols.tfserving.grpc_messages import model_of
from interlingua.protocols.tfserving.tensor_proto import viewed
from interlingua.protocols.wire import NO_PARAMS, Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Signature,
    Tensor,
    TensorHead,
)

_PLAIN_SIGNATURES = frozenset({"", DEFAULT_SIGNATURE})


class _ViewedAnswer(NamedTuple):
    """An answer without the bytes of its tensors: model, version, and names of the outputs."""

    model: str
    version: str
    outputs: tuple[str, ...]


def open_predict(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read a PredictRequest as far as its tensors. Raises MALFORMED, INVALID_TENSOR."""
    rest, entries = split_off(REQUEST, request.message, INPUTS)
    parsed = parse(REQUEST, rest)
    model, version, signature = model_of(parsed)
    spec = parsed.model_spec
    plain = signature in _PLAIN_SIGNATURES and not (spec.HasField("version") and not spec.version.value)
    unread = UnreadMessage(request, entries, signature, tuple(parsed.output_filter), plain)
    return Opened(_PREDICT, model, version, unread)


def _heads(opened: Opened[GrpcAnswer], signature: Signature) -> InferHeads | None:
    read = opened.message
    if isinstance(read, UnreadMessage):
        read = _viewed(opened, read, signature)
        if read is None:
            return None
        opened.message = read
    heads: InferHeads | None = read.head.heads
    return heads


def _viewed(opened: Opened[GrpcAnswer], read: UnreadMessage, signature: Signature) -> ViewedMessage | None:
    """The message with its tensors as views; None if it needs decoding."""
    names, known = read.outputs, signature.output_names
    if not (read.plain or read.signature in _PLAIN_SIGNATURES):
        return None
    if len(set(names)) < len(names) or (known and not known.keys() >= set(names)):
        return None
    try:
        entries = entries_by_name(REQUEST, read.entries)
    except InferenceError:
        return None
    if len(entries) < len(read.entries):
        return None
    heads, data = [], []
    for name, entry in entries.items():
        found = viewed(name, entry)
        if found is None:
            return None
        heads.append(TensorHead(name, found.datatype, found.shape))
        data.append(memoryview(found.data))
    outputs = tuple(map(RequestedOutput, names)) or None
    head = with_heads(PredictHead(opened.model, opened.version, outputs=outputs, plain=read.plain), heads)
    return ViewedMessage(head, data, read.request)


def _call(opened: Opened[GrpcAnswer], names: PassthroughNames) -> GrpcRequest:
    read: ViewedMessage = opened.message
    head, request = read.head, read.request
    if head.plain and opened.model == names.remote and not (names.inputs or names.outputs):
        # the context is replaced before the call: a new one would cost more
        return GrpcRequest(METHOD, request.message, NO_PARAMS, request.context)
    inputs = [
        Tensor(names.inputs.get(name, name), datatype, shape, data)
        for (name, datatype, shape), data in zip(head.tensors, read.data, strict=True)
    ]
    outputs = head.outputs
    if outputs is not None:
        outputs = tuple([RequestedOutput(names.outputs.get(each.name, each.name)) for each in outputs])
    renamed = InferRequest(names.remote, tuple(inputs), outputs, names.version)
    return codec_grpc.PREDICT_CALL.encode(renamed, None)[0]


def _answer(
    opened: Opened[GrpcAnswer], names: PassthroughNames, answer: GrpcAnswer
) -> tuple[GrpcAnswer, str] | InferResponse:
    if not answer.code and not names.back:
        known = _viewed_answer(answer.message)
        if known is not None and known.model == names.model:
            requested = opened.message.head.outputs
            if requested is not None:
                wanted = {each.name for each in requested}
                expected = tuple([name for name in names.order if name in wanted])
            else:
                expected = names.order
            if known.outputs == expected:
                return answer, known.version
    response: InferResponse = codec_grpc.PREDICT_CALL.decode(names.remote, answer)
    return response


def _viewed_answer(message: Buffer) -> _ViewedAnswer | None:
    """An answer whose tensors are views of typed values; None for any other."""
    try:
        rest, entries = split_off(RESPONSE, message, OUTPUTS)
        spec = parse(RESPONSE, rest).model_spec
        named = entries_by_name(RESPONSE, entries)
    except InferenceError:
        return None
    if spec.signature_name != DEFAULT_SIGNATURE or len(named) < len(entries):
        return None
    for name, entry in named.items():
        found = viewed(name, entry)
        if found is None or not found.typed:
            return None
    version = str(spec.version.value) if spec.HasField("version") else spec.version_label
    return _ViewedAnswer(spec.name, version, tuple(named))


PASSTHROUGH: Passthrough[GrpcRequest, GrpcAnswer, GrpcAnswer] = Passthrough(_heads, _call, _answer)

_PREDICT = replace(codec_grpc.PREDICT, passthrough=PASSTHROUGH)

PREDICT_CALL = replace(codec_grpc.PREDICT_CALL, passthrough=PASSTHROUGH)
