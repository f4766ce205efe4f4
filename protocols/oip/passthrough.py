"""Passthrough from gRPC to gRPC: the message goes to the upstream, its tensors unread.

If names differ, they are rewritten, and the raw contents are copied once, as bytes. Requests with parameters
and answers of another form go through ``codec_grpc``. What messages have besides their raw contents repeats:
recent ones without an id are cached by these bytes; number and size are bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

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
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import Datatype, InferenceError, InferHeads, InferResponse, Signature, TensorHead
from interlingua.schemas.datatypes import DATATYPES

_MOST = 256
_LONGEST = 4096
"""The size in bytes of the longest cached message, without its raw contents."""


@dataclass(slots=True)
class _KnownRequest:
    """A parsed request without its raw contents, never changed; ``heads`` is the result of :func:`heads_of`
    for contents of these ``sizes``."""

    head: Any
    sizes: tuple[int, ...] | None = None
    heads: InferHeads | None = None


class _KnownAnswer(NamedTuple):
    """An answer without its raw contents, of these ``sizes``: model, version, and names of the outputs."""

    model: str
    version: str
    outputs: tuple[str, ...]
    sizes: tuple[int, ...]


_requests: dict[bytes, _KnownRequest] = {}
_answers: dict[bytes, _KnownAnswer] = {}


def _remember(known: dict[bytes, Any], message: bytes, facts: Any) -> None:
    if len(known) >= _MOST:
        del known[next(iter(known))]
    known[message] = facts


def _heads(opened: Opened[GrpcAnswer], signature: Signature) -> InferHeads | None:
    known: _KnownRequest
    head, raws, _, known = opened.message
    sizes = tuple(map(len, raws))
    if known.sizes != sizes:
        known.heads = None if head.parameters else heads_of(head, raws)
        known.sizes = sizes
    return known.heads


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
    head, raws, request, _ = opened.message
    message = request.message
    parts: Sequence[Buffer] = ()
    if head.model_name != names.remote or names.inputs or names.outputs:
        message, parts = renamed_request(head, raws, message, names)
    # the context is replaced before the call: a new one would cost more
    return GrpcRequest(METHOD, message, {}, request.context, parts)


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
    for tensors, theirs in ((renamed.inputs, names.inputs), (renamed.outputs, names.outputs)):
        for tensor in tensors:
            tensor.name = theirs.get(tensor.name, tensor.name)
    return join_parts(renamed.SerializeToString(), RAW_INPUT, raws)


def _answer(
    opened: Opened[GrpcAnswer], names: PassthroughNames, answer: GrpcAnswer
) -> tuple[GrpcAnswer, str] | InferResponse:
    try:
        found = None if answer.code else _renamed(opened, names, answer.message)
    except InferenceError:
        found = None
    return decode_reply({}, answer) if found is None else found


def _renamed(
    opened: Opened[GrpcAnswer], names: PassthroughNames, message: Buffer
) -> tuple[GrpcAnswer, str] | None:
    """The caller's answer and the version that gave it; None if it must be decoded. Raises MALFORMED."""
    request = opened.message[0]
    rest, raws = split_off(RESPONSE, message, RAW_OUTPUT)
    key = bytes(rest) if len(rest) <= _LONGEST else b""  # a long one is not cached
    sizes = tuple(map(len, raws))
    known = _answers.get(key) if key else None
    if (
        known is not None
        and known.sizes == sizes
        and known.model == names.model
        and known.outputs == names.order
        and not (names.back or request.outputs or request.id)
    ):
        return GrpcAnswer(message), known.version
    head = parse(RESPONSE, key or rest)
    wanted = {output.name for output in request.outputs} or names.order
    outputs = [names.back.get(tensor.name, tensor.name) for tensor in head.outputs]
    if len(raws) != len(outputs) or outputs != [name for name in names.order if name in wanted]:
        return None
    if not all(map(is_usual, head.outputs, raws)):
        return None
    if head.model_name == names.model and head.id == request.id and not names.back:
        if key and not head.id:
            facts = _KnownAnswer(head.model_name, head.model_version, tuple(outputs), sizes)
            _remember(_answers, key, facts)
        return GrpcAnswer(message), head.model_version
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


PASSTHROUGH: Passthrough[GrpcRequest, GrpcAnswer, GrpcAnswer] = Passthrough(_heads, _call, _answer)

_INFER = replace(codec_grpc.INFER, passthrough=PASSTHROUGH)

INFER_CALL = replace(codec_grpc.INFER_CALL, passthrough=PASSTHROUGH)


def open_infer(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read the head of a ModelInfer request for a passthrough. Raises MALFORMED."""
    rest, raws = split_off(REQUEST, request.message, RAW_INPUT)
    if len(rest) > LONG_BYTES:
        return codec_grpc.open_infer(request)
    key = bytes(rest) if len(rest) <= _LONGEST else b""  # a long one is not cached
    known = _requests.get(key) if key else None
    if known is None:
        known = _KnownRequest(parse(REQUEST, key or rest))
        if key and not known.head.id:
            _remember(_requests, key, known)
    head = known.head
    return Opened(_INFER, head.model_name, head.model_version, (head, raws, request, known))
