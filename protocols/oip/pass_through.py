"""Inference from gRPC to gRPC: the message goes on as it came, its tensors unread.

Names are rewritten where they differ; the raw contents are then copied once, as bytes. What asks for more is
left to ``codec_grpc``, and so is an answer that is not as usual, or wrong.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from interlingua.protocols.dialect import Opened, Passage, Passed
from interlingua.protocols.oip import codec_grpc
from interlingua.protocols.oip.codec_grpc import (
    METHOD,
    RAW_INPUT,
    RAW_OUTPUT,
    REQUEST,
    RESPONSE,
    decode_reply,
    take_raw,
)
from interlingua.protocols.oip.grpc_messages import reader
from interlingua.protocols.protobuf_wire import join
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import Datatype, InferHeads, InferResponse, TensorHead
from interlingua.schemas.datatypes import DATATYPES


def _heads(opened: Opened[GrpcAnswer]) -> InferHeads | None:
    head, raws, _ = opened.message
    if head.parameters or len(raws) != len(head.inputs):
        return None
    inputs = []
    for tensor, raw in zip(head.inputs, raws, strict=True):
        # what typed contents beside raw ones mean is for each kind of server to say
        if tensor.parameters or tensor.HasField("contents"):
            return None
        datatype, shape = DATATYPES.get(tensor.datatype), tuple(tensor.shape)
        if datatype is None or not _may_fill(len(raw), datatype, shape):
            return None
        inputs.append(TensorHead(tensor.name, datatype, shape))
    outputs = head.outputs
    if outputs and any(each.parameters for each in outputs):
        return None
    return InferHeads(tuple(inputs), tuple([each.name for each in outputs]))


def _may_fill(nbytes: int, datatype: Datatype, shape: tuple[int, ...]) -> bool:
    """Whether so many bytes may be a tensor. Of BYTES only reading tells, but that each has four bytes for
    its length."""
    if shape and min(shape) < 0:
        return False
    count = prod(shape)
    if datatype.itemsize:
        return nbytes == count * datatype.itemsize
    return nbytes >= 4 * count if count else not nbytes


def _ask(opened: Opened[GrpcAnswer], passed: Passed) -> GrpcRequest:
    head, raws, message = opened.message
    if head.model_name == passed.remote and not passed.inputs and not passed.outputs:
        return GrpcRequest(METHOD, message)
    told: Any = REQUEST()
    told.CopyFrom(head)
    told.model_name = passed.remote
    for tensors, names in ((told.inputs, passed.inputs), (told.outputs, passed.outputs)):
        for tensor in tensors:
            tensor.name = names.get(tensor.name, tensor.name)
    return GrpcRequest(METHOD, join(told.SerializeToString(), RAW_INPUT, raws))


def _answer(
    opened: Opened[GrpcAnswer], passed: Passed, answer: GrpcAnswer
) -> tuple[GrpcAnswer, str] | InferResponse:
    found = _renamed((opened, passed), answer)
    return decode_reply({}, answer) if found is None else found


@reader
def _renamed(asked: tuple[Opened[GrpcAnswer], Passed], message: Buffer) -> tuple[GrpcAnswer, str] | None:
    """The caller's answer and the version that gave it; None for one that has to be read."""
    opened, passed = asked
    question = opened.message[0]
    head, raws = take_raw(RESPONSE, message, RAW_OUTPUT)
    wanted = {output.name for output in question.outputs} or passed.order
    names = [passed.back.get(tensor.name, tensor.name) for tensor in head.outputs]
    if len(raws) != len(names) or names != [name for name in passed.order if name in wanted]:
        return None
    if not all(map(_is_usual, head.outputs, raws)):
        return None
    if head.model_name == passed.model and head.id == question.id and not passed.back:
        return GrpcAnswer(message), head.model_version
    head.model_name, head.id = passed.model, question.id
    for tensor, name in zip(head.outputs, names, strict=True):
        tensor.name = name
    return GrpcAnswer(join(head.SerializeToString(), RAW_OUTPUT, raws)), head.model_version


def _is_usual(tensor: Any, raw: memoryview) -> bool:
    """Whether an output is but its raw contents, as many as its shape says."""
    datatype = DATATYPES.get(tensor.datatype)
    if datatype is None or tensor.parameters or tensor.HasField("contents"):
        return False
    # of BYTES only reading tells
    return not datatype.itemsize or datatype.itemsize * prod(tensor.shape) == len(raw)


PASSAGE: Passage[GrpcRequest, GrpcAnswer, GrpcAnswer] = Passage(_heads, _ask, _answer)

_INFER = replace(codec_grpc.INFER, passage=PASSAGE)

INFER_CALL = replace(codec_grpc.INFER_CALL, passage=PASSAGE)


def open_infer(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read the head of a ModelInfer request, which may be passed on. Raises MALFORMED."""
    opened = codec_grpc.open_infer(request)
    opened.action, opened.message = _INFER, (*opened.message, request.message)
    return opened
