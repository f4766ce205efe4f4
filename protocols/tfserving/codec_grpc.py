"""Predict over gRPC: messages to and from the IR, as a server and as a client.

A message is walked as far as its tensors, whose bytes become views; protobuf parses the small rest. The
messages to a model repeat all but these bytes, so recent ones are recognized by the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from interlingua.protocols.dialect import Action, Opened, UpstreamCall
from interlingua.protocols.protobuf_message import parse, split_off, unparsable
from interlingua.protocols.protobuf_wire import (
    LENGTH_DELIMITED,
    MAX_MESSAGE_BYTES,
    fields,
    in_parts,
    varint,
)
from interlingua.protocols.tfserving.codec import (
    DEFAULT_SIGNATURE,
    DIALECT_NAME,
    check_names,
    check_signature_name,
)
from interlingua.protocols.tfserving.grpc_messages import (
    PREDICTION_SERVICE,
    message_of,
    reader,
    spec_of,
    unwritable,
)
from interlingua.protocols.tfserving.tensor_proto import content, described, read_tensor, typed_values
from interlingua.protocols.wire import NO_CONTEXT, NO_PARAMS, Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Operation,
    RequestedOutput,
    Signature,
    Tensor,
    TensorHead,
    invalid_tensor,
    malformed,
    not_carried,
)

METHOD = f"{PREDICTION_SERVICE}Predict"

REQUEST: Any = message_of("PredictRequest")
RESPONSE: Any = message_of("PredictResponse")
INPUTS: int = REQUEST.INPUTS_FIELD_NUMBER
OUTPUTS: int = RESPONSE.OUTPUTS_FIELD_NUMBER
_KEY, _VALUE = 1, 2


class PredictHead(NamedTuple):
    """A message without the bytes of its tensors: ``outputs`` are the names of requested ones, ``heads`` the
    heads of its tensors, and ``plain`` whether an upstream may get it as it is: it names neither a version 0
    nor a signature of which upstreams know nothing."""

    model: str
    version: str
    tensors: tuple[TensorHead, ...] = ()
    outputs: tuple[RequestedOutput, ...] | None = None
    heads: InferHeads | None = None
    plain: bool = False


@dataclass(slots=True)
class ViewedMessage:
    """A request as it was read: its head, and the data of its tensors."""

    head: PredictHead
    data: Sequence[memoryview]
    request: GrpcRequest


@dataclass(slots=True)
class UnreadMessage:
    """A request of which the ``entries`` of its map of tensors are not read. ``plain`` as
    in ``PredictHead``."""

    request: GrpcRequest
    entries: Sequence[memoryview]
    signature: str
    outputs: tuple[str, ...]
    plain: bool


# --- as a server


def _decode(opened: Opened[GrpcAnswer], signature: Signature) -> tuple[InferRequest, None]:
    read = opened.message
    if isinstance(read, ViewedMessage):
        head, tensors = read.head, []
        if head.outputs is not None:  # the model may have another signature than when they were read
            _requested(tuple([output.name for output in head.outputs]), signature)
        for (name, datatype, shape), data in zip(head.tensors, read.data, strict=True):
            tensors.append(Tensor(name, datatype, shape, data))
        return InferRequest(head.model, tuple(tensors), head.outputs, head.version), None
    check_signature_name(read.signature)
    inputs = _tensors(REQUEST, read.entries)
    requested = _requested(read.outputs, signature)
    return InferRequest(opened.model, inputs, requested, opened.version), None


def _requested(names: tuple[str, ...], signature: Signature) -> tuple[RequestedOutput, ...] | None:
    """The outputs of an ``output_filter``; None, for all, if it is empty. Raises INVALID_TENSOR in the words
    of the original server."""
    if not names:
        return None
    known = signature.output_names
    for index, name in enumerate(names):
        if known and name not in known:
            raise invalid_tensor(
                f"output tensor alias not found in signature: {name} Outputs expected to be in the set "
                f"{{{','.join(sorted(known))}}}."
            )
        if name in names[:index]:
            raise invalid_tensor(f"duplicate output tensor alias: {name}")
    return tuple(map(RequestedOutput, names))


def _encode(form: None, response: InferResponse) -> GrpcAnswer:
    """The answer, in typed values. Raises UNREPRESENTABLE, TOO_LARGE."""
    spec = _answered_spec(response.model, response.version)
    message, parts = in_parts(_pieces(spec, OUTPUTS, response.outputs, typed_values))
    return GrpcAnswer(message, parts=parts)


def _answered_spec(model: str, version: str) -> bytes:
    spec = spec_of(model, version, DEFAULT_SIGNATURE)
    return bytes(RESPONSE(model_spec=spec).SerializeToString())


PREDICT: Action[GrpcAnswer] = Action(Operation.INFER, _encode, _decode)


# --- as a client


def _encode_call(request: InferRequest, signature: Signature | None) -> tuple[GrpcRequest, str]:
    """The call, with every input as bytes. The dialect has no form for "no outputs": a request for none gets
    all. Raises UNREPRESENTABLE, TOO_LARGE."""
    check_names(request.inputs)
    for output in request.outputs or ():
        if output.classification or output.placement is not None:
            raise not_carried(DIALECT_NAME, f"classes or shared memory of requested output '{output.name}'")
    outputs = tuple([output.name for output in request.outputs or ()])
    rest = _requested_spec(request.model, request.version, outputs)
    message, parts = in_parts(_pieces(rest, INPUTS, request.inputs, content))
    return GrpcRequest(METHOD, message, NO_PARAMS, NO_CONTEXT, parts), request.model


def _requested_spec(model: str, version: str, outputs: tuple[str, ...]) -> bytes:
    try:
        message = REQUEST(model_spec=spec_of(model, version), output_filter=outputs)
        return bytes(message.SerializeToString())
    except ValueError as error:
        raise unwritable(error) from error


@reader
def _decode_reply(model: str, message: Buffer) -> InferResponse:
    """An upstream's answer, in bytes or typed values. Older servers do not name the model."""
    rest, entries = split_off(RESPONSE, message, OUTPUTS)
    spec = parse(RESPONSE, rest).model_spec
    version = str(spec.version.value) if spec.HasField("version") else spec.version_label
    return InferResponse(spec.name or model, _tensors(RESPONSE, entries), version)


PREDICT_CALL: UpstreamCall[GrpcRequest, GrpcAnswer] = UpstreamCall(_encode_call, _decode_reply)


# --- both


def _tensors(message_type: Any, entries: Iterable[memoryview]) -> tuple[Tensor, ...]:
    """The tensors of a map; of equal names the last one. Raises as ``read_tensor``."""
    return tuple([read_tensor(*entry) for entry in entries_by_name(message_type, entries).items()])


def entries_by_name(message_type: Any, entries: Iterable[memoryview]) -> dict[str, memoryview]:
    """The entries of a map; of equal names the last one. Raises MALFORMED."""
    found: dict[str, memoryview] = {}
    for entry in entries:
        name = value = memoryview(b"")
        try:
            for number, kind, part in fields(entry):
                if kind == LENGTH_DELIMITED and not isinstance(part, int):
                    if number == _KEY:
                        name = part
                    elif number == _VALUE:
                        value = part
            found[str(name, "utf-8")] = value
        except DecodeError as error:
            raise unparsable(message_type, error) from error
        except UnicodeDecodeError:
            raise malformed("the name of a tensor is not UTF-8") from None
    return found


def with_heads(head: PredictHead, tensors: Sequence[TensorHead]) -> PredictHead:
    """``head`` with the heads of its tensors."""
    inputs, outputs = tuple(tensors), tuple([output.name for output in head.outputs or ()])
    return head._replace(tensors=inputs, heads=InferHeads(inputs, outputs))


def _pieces(
    rest: bytes,
    field: int,
    tensors: Sequence[Tensor],
    values: Callable[[Tensor], tuple[int, Buffer]],
) -> list[Buffer]:
    """A message of ``rest`` and a map ``field`` of ``tensors`` with their ``values``, in pieces. Raises
    TOO_LARGE."""
    pieces: list[Buffer] = [rest]
    total = len(rest)
    for tensor in tensors:
        number, data = values(tensor)
        size = len(data)
        name, shape = tensor.name, tensor.shape
        lead = _lead(field, name, tensor.datatype, shape, number, size)
        pieces += (lead, data)
        total += len(lead) + size
    if total > MAX_MESSAGE_BYTES:
        raise InferenceError(
            ErrorCode.TOO_LARGE, f"{total} bytes of tensors do not fit into one protobuf message of 2 GiB"
        )
    return pieces


def _lead(field: int, name: str, datatype: Datatype, shape: tuple[int, ...], number: int, size: int) -> bytes:
    """The entry of a map up to the ``size`` bytes of the values, which are field ``number``, or whole
    fields."""
    head = described(datatype, shape)
    if number and size:
        head += _tag(number) + varint(size)
    try:
        key = name.encode()
    except UnicodeEncodeError as error:
        raise unwritable(error) from error
    entry = _tag(_KEY) + varint(len(key)) + key + _tag(_VALUE) + varint(len(head) + size) + head
    return _tag(field) + varint(len(entry) + size) + entry


def _tag(number: int) -> bytes:
    return varint(number << 3 | LENGTH_DELIMITED)
