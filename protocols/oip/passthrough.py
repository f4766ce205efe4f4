"""Passthrough from gRPC to gRPC: the message goes to the upstream, its tensors unread.

If names differ, they are rewritten, and the raw contents are copied once, as bytes. Requests with parameters
and answers of another form go through ``codec_grpc``. What messages have besides their raw contents repeats:
recent ones without an id are cached by these bytes, and with the places of these contents once they have
repeated; number and size are bounded.
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
    OipGrpcReplyForm,
    Raws,
    decode_reply,
)
from interlingua.protocols.oip.long_messages import LONG_BYTES
from interlingua.protocols.protobuf_message import parse, split_off
from interlingua.protocols.protobuf_wire import join_parts
from interlingua.protocols.repeated_messages import RepeatedMessages
from interlingua.protocols.wire import NO_PARAMS, ArrivingMessage, Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorHead,
)
from interlingua.schemas.datatypes import DATATYPES

_MOST = 256
_LONGEST = 4096
"""The size in bytes of the longest cached message, without its raw contents."""


@dataclass(slots=True)
class _KnownRequest:
    """A parsed request without its raw contents, never changed, with the names of its model and version;
    ``bare``: it has neither an id nor requested outputs. ``heads`` is the result of :func:`heads_of` for
    contents of these ``sizes``."""

    head: Any
    model: str
    version: str
    bare: bool
    sizes: tuple[int, ...] | None = None
    heads: InferHeads | None = None

    def heads_for(self, raws: Raws, sizes: tuple[int, ...]) -> InferHeads | None:
        """``heads`` for these contents."""
        if self.sizes != sizes:
            self.heads = None if self.head.parameters else heads_of(self.head, raws)
            self.sizes = sizes
        return self.heads


class _KnownAnswer(NamedTuple):
    """An answer without its raw contents, of these ``sizes``: model, version, and names of the outputs."""

    model: str
    version: str
    outputs: tuple[str, ...]
    sizes: tuple[int, ...]

    def fits(self, known: _KnownRequest, names: PassthroughNames) -> bool:
        """Whether a caller gets it as it is."""
        return self.model == names.model and self.outputs == names.order and known.bare and not names.back


_requests: dict[bytes, _KnownRequest] = {}
_answers: dict[bytes, _KnownAnswer] = {}
_repeated_requests: RepeatedMessages[_KnownRequest] = RepeatedMessages()
_repeated_answers: RepeatedMessages[_KnownAnswer] = RepeatedMessages()


def _remember(known: dict[bytes, Any], message: bytes, facts: Any) -> None:
    if len(known) >= _MOST:
        del known[next(iter(known))]
    known[message] = facts


def _heads(opened: Opened[GrpcAnswer], signature: Signature) -> InferHeads | None:
    known: _KnownRequest
    _, raws, _, known, repeated = opened.message
    return known.heads if repeated else known.heads_for(raws, tuple(map(len, raws)))


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
    head, raws, request, *_ = opened.message
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
    if not answer.code and (repeated := _repeated_answers.find(answer.message)) is not None:
        known = repeated.facts
        if known.fits(opened.message[3], names):
            return answer, known.version
    message: Any = answer.message
    if type(message) is ArrivingMessage:
        raise message.passed()
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
    key = bytes(rest) if len(rest) <= _LONGEST else b""  # a long one is not cached
    sizes = tuple(map(len, raws))
    known = _answers.get(key) if key else None
    if known is not None and known.sizes == sizes and known.fits(opened.message[3], names):
        _repeated_answers.remember(message, raws, known)
        return answer, known.version
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
    head, _, _, *rest = opened.message
    return replace(opened, message=(head, (), None, *rest))


PASSTHROUGH: Passthrough[GrpcRequest, GrpcAnswer, GrpcAnswer] = Passthrough(
    _heads, _call, _answer, without_contents=_without_contents
)


def _decode(opened: Opened[GrpcAnswer], signature: Signature) -> tuple[InferRequest, OipGrpcReplyForm]:
    """As ``codec_grpc.decode_infer``; a request that repeats is not parsed."""
    _, raws, _, known, repeated = opened.message
    if not (repeated and known.bare and known.heads):
        return codec_grpc.decode_infer(opened, signature)
    inputs = []
    for (name, datatype, shape), raw in zip(known.heads.inputs, raws, strict=True):
        read = Tensor.checked if datatype is Datatype.BYTES else Tensor
        inputs.append(read(name, datatype, shape, raw))
    return InferRequest(known.model, tuple(inputs), None, known.version), _BARE_FORM


_BARE_FORM = OipGrpcReplyForm()

_INFER = replace(codec_grpc.INFER, decode=_decode, passthrough=PASSTHROUGH)

INFER_CALL = replace(codec_grpc.INFER_CALL, passthrough=PASSTHROUGH)


def open_infer(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read the head of a ModelInfer request for a passthrough. Raises MALFORMED."""
    message: Any = request.message
    repeated = _repeated_requests.find(message)
    if repeated is not None:
        known = repeated.facts
        raws = repeated.contents(message)
        arriving = message if type(message) is ArrivingMessage else None
        parts = known.head, raws, request, known, True
        return Opened(_INFER, known.model, known.version, parts, None, arriving)
    if type(message) is ArrivingMessage:  # it is no longer cached
        raise message.passed()
    rest, raws = split_off(REQUEST, message, RAW_INPUT)
    if len(rest) > LONG_BYTES:
        return codec_grpc.open_infer(request)
    key = bytes(rest) if len(rest) <= _LONGEST else b""  # a long one is not cached
    found = _requests.get(key) if key else None
    if found is None:
        head = parse(REQUEST, key or rest)
        found = _KnownRequest(head, head.model_name, head.model_version, not (head.id or head.outputs))
        if key and not head.id:
            _remember(_requests, key, found)
    elif found.sizes is None:
        found.heads_for(raws, tuple(map(len, raws)))
    elif found.sizes == tuple(map(len, raws)):
        # a copy: the entry of _requests may get other sizes
        _repeated_requests.remember(message, raws, replace(found))
    return Opened(_INFER, found.model, found.version, (found.head, raws, request, found, False))
