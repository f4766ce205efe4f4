"""Inference over gRPC: ModelInfer messages to and from the IR, as a server and as a client.

A received message is split into its raw contents, as views, and the small rest, which protobuf parses. An
outgoing message copies tensor bytes once. Requests are read as Triton reads them: all inputs in raw contents
or all in typed ones. Answers are read in every form that servers send, and written in raw contents, which all
clients read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from interlingua.protocols.dialect import Action, Opened, UpstreamCall
from interlingua.protocols.oip.classes import NO_CLASSES, RequestedClasses, requested_classes, with_classes
from interlingua.protocols.oip.codec import (
    EMPTY_FINAL_RESPONSE,
    NO_FIELDS,
    check_id,
    distinct_outputs,
    input_tensor,
    join_parameters,
    output_parameters,
    own_parameters,
    requested_output,
    shared_memory_parameters,
    shared_memory_ref,
    split_parameters,
)
from interlingua.protocols.oip.content_type import decode_base64, encode_base64
from interlingua.protocols.oip.grpc_messages import (
    MAX_INT64,
    SERVICE,
    read_parameters,
    reader,
    unwritable,
    write_parameters,
)
from interlingua.protocols.oip.long_messages import LONG_BYTES, shortened
from interlingua.protocols.oip.typed_contents import read_contents
from interlingua.protocols.protobuf_message import parse, split_off, unparsable
from interlingua.protocols.protobuf_wire import join_parts, split
from interlingua.protocols.templates import LONGEST
from interlingua.protocols.wire import NO_CONTEXT, NO_PARAMS, Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    Datatype,
    InferRequest,
    InferResponse,
    Operation,
    Parameter,
    RequestedOutput,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorHead,
    element_count,
    invalid_tensor,
    unrepresentable,
)
from interlingua.schemas.datatypes import DATATYPES
from interlingua.schemas.oip import MESSAGES

METHOD = f"{SERVICE}ModelInfer"

REQUEST: Any = MESSAGES["inference.ModelInferRequest"]
RESPONSE: Any = MESSAGES["inference.ModelInferResponse"]
RAW_INPUT: int = REQUEST.RAW_INPUT_CONTENTS_FIELD_NUMBER
RAW_OUTPUT: int = RESPONSE.RAW_OUTPUT_CONTENTS_FIELD_NUMBER

Raws = list[memoryview]


@dataclass(frozen=True, slots=True)
class OipGrpcReplyForm:
    """The form of an answer: its id, and which outputs are classes."""

    id: str = ""
    classes: RequestedClasses = field(default_factory=lambda: NO_CLASSES)


# --- as a server


def open_infer(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read the head of a ModelInfer request. Raises MALFORMED."""
    rest, raws = split_off(REQUEST, request.message, RAW_INPUT)
    if len(rest) > LONG_BYTES:
        rest, raws = shortened("Request", rest, raws)
    message = parse(REQUEST, rest)
    return Opened(INFER, message.model_name, message.model_version, (message, raws))


def decode_infer(opened: Opened[GrpcAnswer], signature: Signature) -> tuple[InferRequest, OipGrpcReplyForm]:
    """The request, and the form of its answer. Raises INVALID_TENSOR naming input or parameter."""
    message, raws, *_ = opened.message
    given = message.parameters
    fields = split_parameters(_request_parameters(given), streams=True) if given else NO_FIELDS
    request = InferRequest(
        model=message.model_name,
        inputs=tuple(_inputs(message.model_name, message.inputs, raws)),
        outputs=distinct_outputs(map(_requested, message.outputs)) if message.outputs else None,
        version=message.model_version,
        id=check_id(message.id),
        parameters=fields.parameters,
        sequence=fields.sequence,
        priority=fields.priority,
        timeout_us=fields.timeout_us,
    )
    outputs = request.outputs
    classes = NO_CLASSES if outputs is None else requested_classes(outputs, signature)
    return request, OipGrpcReplyForm(request.id, classes)


def encode_infer(form: OipGrpcReplyForm, response: InferResponse) -> GrpcAnswer:
    """The answer, every output in raw contents. Raises UNREPRESENTABLE, TOO_LARGE."""
    outputs = tuple(map(encode_base64, with_classes(response, form.classes)))
    try:
        head = RESPONSE(model_name=response.model, model_version=response.version, id=form.id)
        if response.parameters:
            write_parameters(head.parameters, response.parameters)
        for tensor in outputs:
            written = head.outputs.add(name=tensor.name, datatype=tensor.datatype.value, shape=tensor.shape)
            if tensor.parameters:
                write_parameters(written.parameters, tensor.parameters)
        rest = head.SerializeToString()
    except ValueError as error:
        raise unwritable(error) from error
    # one entry for each output, by position; empty for shared memory
    contents = [b"" if isinstance(tensor.data, SharedMemoryRef) else tensor.data for tensor in outputs]
    message, parts = join_parts(rest, RAW_OUTPUT, contents)
    return GrpcAnswer(message, parts=parts)


INFER: Action[GrpcAnswer] = Action(Operation.INFER, encode_infer, decode_infer)


# --- as a client


def encode_call(
    request: InferRequest, signature: Signature | None
) -> tuple[GrpcRequest, Mapping[str, SharedMemoryRef]]:
    """The call, with every input in raw contents, and the outputs in shared memory. The dialect has no form
    for "no outputs": a request for none gets all.

    Raises UNREPRESENTABLE naming the parameter, TOO_LARGE.
    """
    contents: list[Buffer] = []
    placements: dict[str, SharedMemoryRef] = {}
    try:
        head = REQUEST(model_name=request.model, model_version=request.version, id=request.id)
        parameters = join_parameters(request)
        parameters.pop(EMPTY_FINAL_RESPONSE, None)  # for streams
        if parameters:
            _check_integers(parameters)
            write_parameters(head.parameters, parameters)
        for tensor in request.inputs:
            written = head.inputs.add(name=tensor.name, datatype=tensor.datatype.value, shape=tensor.shape)
            if tensor.parameters:
                write_parameters(written.parameters, tensor.parameters)
            if isinstance(tensor.data, SharedMemoryRef):
                write_parameters(written.parameters, shared_memory_parameters(tensor.data))
            else:
                contents.append(tensor.data)
        for output in request.outputs or ():
            write_parameters(head.outputs.add(name=output.name).parameters, output_parameters(output))
            if output.placement is not None:
                placements[output.name] = output.placement
        rest = head.SerializeToString()
    except ValueError as error:
        raise unwritable(error) from error
    message, parts = join_parts(rest, RAW_INPUT, contents)
    return GrpcRequest(METHOD, message, NO_PARAMS, NO_CONTEXT, parts), placements


@reader
def decode_reply(placements: Mapping[str, SharedMemoryRef], message: Buffer) -> InferResponse:
    """An upstream's answer: raw contents, typed ones, or raw ones with empty typed ones."""
    try:
        rest, raws = split(message, RAW_OUTPUT)
    except DecodeError as error:
        raise unparsable(RESPONSE, error) from error
    if len(rest) > LONG_BYTES:
        rest, raws = shortened("Response", rest, raws)
    known = _plain_answer(bytes(rest)) if not placements and len(rest) <= LONGEST else None
    if known is not None and len(known.outputs) == len(raws):
        outputs = [Tensor.checked(*each, raw) for each, raw in zip(known.outputs, raws, strict=True)]
        return InferResponse(known.model, tuple(outputs), known.version)
    head = parse(RESPONSE, rest)
    return InferResponse(
        model=head.model_name,
        outputs=tuple(_outputs(head.outputs, raws, placements)),
        version=head.model_version,
        id=head.id,
        parameters=read_parameters(head.parameters),
    )


class _PlainAnswer(NamedTuple):
    """An answer without its raw contents."""

    model: str
    version: str
    outputs: tuple[TensorHead, ...]


@lru_cache(256)
def _plain_answer(rest: bytes) -> _PlainAnswer | None:
    """The answer with ``rest`` around its raw contents: servers repeat it. None for one with more than
    these."""
    head, outputs = parse(RESPONSE, rest), []
    for tensor in head.outputs:
        datatype = DATATYPES.get(tensor.datatype)
        if datatype is None or tensor.parameters or tensor.HasField("contents"):
            return None
        outputs.append(TensorHead(tensor.name, datatype, tuple(tensor.shape)))
    if head.id or head.parameters:
        return None
    return _PlainAnswer(head.model_name, head.model_version, tuple(outputs))


INFER_CALL: UpstreamCall[GrpcRequest, GrpcAnswer] = UpstreamCall(encode_call, decode_reply)


# --- tensors


def _inputs(model: str, given: Iterable[Any], raws: Raws) -> Iterator[Tensor]:
    """Inputs in shared memory take no raw contents; surplus raw contents are ignored."""
    unused = iter(raws)
    for tensor in given:
        name, shape = tensor.name, tuple(tensor.shape)
        owner = f"input tensor '{name}' for model '{model}'"
        datatype = _datatype(owner, tensor.datatype)
        typed = tensor.HasField("contents")
        parameters = read_parameters(tensor.parameters) if tensor.parameters else {}
        place = shared_memory_ref(owner, parameters)
        if typed and (place or raws):
            raise invalid_tensor(
                f"contents field must not be specified when using "
                f"{'shared memory' if place else 'raw_input_contents'} for '{name}' for model '{model}'"
            )
        if place:
            element_count(shape, name)
            yield Tensor(name, datatype, shape, place, own_parameters(parameters))
            continue
        data = read_contents(owner, datatype, tensor.contents) if typed else next(unused, None)
        if data is None:
            raise invalid_tensor(f"unable to find data for {owner} in request.")
        read = input_tensor(model, name, datatype, shape, data)
        read.parameters = own_parameters(parameters)
        yield read


def _outputs(
    tensors: Sequence[Any], raws: Raws, placements: Mapping[str, SharedMemoryRef]
) -> Iterator[Tensor]:
    """An answer has raw contents for each of its outputs, those in shared memory included, or none."""
    if raws and len(raws) != len(tensors):
        raise invalid_tensor(f"{len(tensors)} outputs, but {len(raws)} raw_output_contents")
    for index, tensor in enumerate(tensors):
        name, shape = tensor.name, tuple(tensor.shape)
        owner = f"output '{name}'"
        datatype = _datatype(owner, tensor.datatype)
        if name in placements:
            element_count(shape, name)
            answered = Tensor(name, datatype, shape, placements[name])
        else:
            data = raws[index] if raws else read_contents(owner, datatype, tensor.contents)
            answered = Tensor.checked(name, datatype, shape, data)
        if tensor.parameters:
            answered.parameters = own_parameters(read_parameters(tensor.parameters))
        yield decode_base64(answered)


def _datatype(owner: str, name: str) -> Datatype:
    datatype = DATATYPES.get(name)
    if datatype is None:
        raise invalid_tensor(f"{owner} has the unknown datatype '{name}'")
    return datatype


# --- parameters


def _requested(given: Any) -> RequestedOutput:
    count = given.parameters.get("classification")
    if count is not None and count.WhichOneof("parameter_choice") != "int64_param":
        raise invalid_tensor(
            f"invalid value type for 'classification' parameter, expected int64_param for '{given.name}'"
        )
    # unlike over HTTP, Triton refuses a count of 0
    if count is not None and count.int64_param <= 0:
        raise invalid_tensor(
            "invalid value for 'classification' parameter, expected >= 0 and not 0 for "
            f"'{given.name}', got {count.int64_param}"
        )
    return requested_output(given.name, read_parameters(given.parameters))


_CHOICES = {
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
    EMPTY_FINAL_RESPONSE: ("bool_param",),
}
"""The fields that Triton takes for the protocol's own parameters."""
_ANY_CHOICE = ("int64_param", "bool_param", "string_param", "double_param")


def _request_parameters(given: Mapping[str, Any]) -> dict[str, Parameter]:
    """Parameters of a request. Raises INVALID_TENSOR for a field that Triton does not take."""
    for key, value in given.items():
        choices = _CHOICES.get(key)
        if value.WhichOneof("parameter_choice") not in (choices or _ANY_CHOICE):
            expected = " or ".join(choices) if choices else "int64_param, bool_param, or string_param"
            raise invalid_tensor(f"invalid value type for '{key}' parameter, expected {expected}.")
    return read_parameters(given)


def _check_integers(parameters: Mapping[str, Parameter]) -> None:
    for key, value in parameters.items():
        if isinstance(value, int) and value > MAX_INT64 and key != "priority":
            raise unrepresentable(
                f"request parameter '{key}' is {value}, beyond the 64-bit signed integers of dialect 'oip' "
                f"over gRPC"
            )
