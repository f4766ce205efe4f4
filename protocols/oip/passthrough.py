"""Passthrough from gRPC to gRPC: the message goes to the upstream, its tensors unread.

If names differ, they are rewritten, and the raw contents are copied once, as bytes. Requests with parameters
and answers of another form go through ``codec_grpc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames
from interlingua.protocols.oip import codec_grpc
from interlingua.protocols.oip.codec_grpc import (
    METHOD,
    RAW_INPUT,
    RAW_OUTPUT,
    REQUEST,
    RESPONSE,
    Raws,
    decode_reply,
)
from interlingua.protocols.oip.long_messages import LONG_BYTES
from interlingua.protocols.protobuf_message import parse, split_off
from interlingua.protocols.protobuf_wire import join_parts
from interlingua.protocols.wire import NO_PARAMS, ArrivingMessage, Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferHeads,
    InferResponse,
    Signature,
    TensorHead,
)
from interlingua.schemas.datatypes import DATATYPES


def _heads(opened: Opened[GrpcAnswer], signature: Signature) -> InferHeads | None:
    head, raws, _ = opened.message
    return None if head.parameters else heads_of(head, raws)


def heads_of(head: Any, raws: Raws) -> InferHeads | None:
    """The tensors of a request with the contents ``raws``; None if it needs decoding for them."""
    if len(raws) != len(head.inputs):
        return None
    inputs = []
    for tensor, raw in zip(head.inputs, raws, strict=True):
        # servers read typed contents next to raw ones differently
        if tensor.parameters or tensor.HasField("contents"):
            return None
        datatype, shape = DATATYPES.get(tensor.datatype), tuple(tensor.shape)
        if datatype is None or not _may_fill(len(raw), datatype, shape):
            return None
        inputs.append(TensorHead(tensor.name, datatype, shape))
    outputs = head.outputs
    if not outputs:
        return InferHeads(tuple(inputs), ())
    if any(each.parameters for each in outputs):
        return None
    return InferHeads(tuple(inputs), tuple([each.name for each in outputs]))


def _may_fill(nbytes: int, datatype: Datatype, shape: tuple[int, ...]) -> bool:
    """Whether a tensor of ``shape`` may have so many bytes. An element of BYTES has at least four."""
    if shape and min(shape) < 0:
        return False
    count = prod(shape)
    if datatype.itemsize:
        return nbytes == count * datatype.itemsize
    return nbytes >= 4 * count if count else not nbytes


def _call(opened: Opened[GrpcAnswer], names: PassthroughNames) -> GrpcRequest:
    head, raws, request = opened.message
    message = request.message
    parts: Sequence[Buffer] = ()
    if opened.model != names.remote or names.inputs or names.outputs:
        message, parts = renamed_request(head, raws, message, names)
    # the context is replaced before the call: a new one would cost more
    return GrpcRequest(METHOD, message, NO_PARAMS, request.context, parts)


def renamed_request(
    head: Any, raws: Raws, message: Buffer, names: PassthroughNames
) -> tuple[Buffer, Sequence[Buffer]]:
    """The ``message`` of ``head`` and ``raws`` in the upstream's names, without parameters, in parts."""
    if head.model_name == names.remote and not (names.inputs or names.outputs or head.parameters):
        return message, ()
    renamed: Any = REQUEST()
    renamed.CopyFrom(head)
    renamed.ClearField("parameters")
    renamed.model_name = names.remote
    for tensors, renames in ((renamed.inputs, names.inputs), (renamed.outputs, names.outputs)):
        for tensor in tensors:
            tensor.name = renames.get(tensor.name, tensor.name)
    return join_parts(renamed.SerializeToString(), RAW_INPUT, raws)


def _answer(
    opened: Opened[GrpcAnswer], names: PassthroughNames, answer: GrpcAnswer
) -> tuple[GrpcAnswer, str] | InferResponse:
    try:
        found = None if answer.code else _renamed(opened, names, answer)
    except InferenceError:
        found = None
    return decode_reply({}, answer) if found is None else found


def _renamed(
    opened: Opened[GrpcAnswer], names: PassthroughNames, answer: GrpcAnswer
) -> tuple[GrpcAnswer, str] | None:
    """The caller's answer and the version that gave it; None if it must be decoded. Raises MALFORMED."""
    request, message = opened.message[0], answer.message
    rest, raws = split_off(RESPONSE, message, RAW_OUTPUT)
    head = parse(RESPONSE, rest)
    wanted = {output.name for output in request.outputs} or names.order
    outputs = [names.back.get(tensor.name, tensor.name) for tensor in head.outputs]
    if len(raws) != len(outputs) or outputs != [name for name in names.order if name in wanted]:
        return None
    if not all(map(is_usual, head.outputs, raws)):
        return None
    if head.model_name == names.model and head.id == request.id and not names.back:
        return answer, head.model_version
    head.model_name, head.id = names.model, request.id
    for tensor, name in zip(head.outputs, outputs, strict=True):
        tensor.name = name
    first, parts = join_parts(head.SerializeToString(), RAW_OUTPUT, raws)
    return GrpcAnswer(first, parts=parts), head.model_version


def is_usual(tensor: Any, raw: memoryview) -> bool:
    """Whether an output has only raw contents, of the size of its shape."""
    datatype = DATATYPES.get(tensor.datatype)
    if datatype is None or tensor.parameters or tensor.HasField("contents"):
        return False
    # elements of BYTES may have any size
    return not datatype.itemsize or datatype.itemsize * prod(tensor.shape) == len(raw)


def _without_contents(opened: Opened[GrpcAnswer]) -> Opened[GrpcAnswer]:
    return replace(opened, message=(opened.message[0], (), None))


PASSTHROUGH: Passthrough[GrpcRequest, GrpcAnswer, GrpcAnswer] = Passthrough(
    _heads, _call, _answer, without_contents=_without_contents
)


_INFER = replace(codec_grpc.INFER, passthrough=PASSTHROUGH)

INFER_CALL = replace(codec_grpc.INFER_CALL, passthrough=PASSTHROUGH)


def open_infer(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read the head of a ModelInfer request for a passthrough. Raises MALFORMED."""
    message: Any = request.message
    arriving = message if type(message) is ArrivingMessage else None
    rest, raws = split_off(REQUEST, message if arriving is None else arriving.like(), RAW_INPUT)
    if len(rest) > LONG_BYTES:
        return codec_grpc.open_infer(request)
    head = parse(REQUEST, rest)
    return Opened(_INFER, head.model_name, head.model_version, (head, raws, request), None, arriving)
