"""Inference over a gRPC stream: ModelStreamInfer messages to and from the IR, as server and as client.

Requests are those of ``codec_grpc``. An answer has a flag that marks the last one to its request; an error is
a message of its own, because the stream continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import DecodeError

from interlingua.protocols.dialect import Action, GrpcEndpoint, Opened, UpstreamCall
from interlingua.protocols.oip import codec_grpc
from interlingua.protocols.oip.codec import EMPTY_FINAL_RESPONSE, WHILE_RUNNING
from interlingua.protocols.oip.codec_grpc import (
    OipGrpcReplyForm,
    decode_infer,
    encode_infer,
    open_infer,
)
from interlingua.protocols.oip.grpc_messages import SERVICE, fail, unwritable
from interlingua.protocols.protobuf_message import unparsable
from interlingua.protocols.protobuf_wire import leads, read_fields
from interlingua.protocols.wire import Buffer, GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    SharedMemoryRef,
    Signature,
    bad_upstream,
)
from interlingua.schemas.errors import MODEL_RAN, RESTRICTED_HEADER
from interlingua.schemas.oip import MESSAGES

METHOD = f"{SERVICE}ModelStreamInfer"
FINAL_RESPONSE = "triton_final_response"
"""The response parameter (bool) that marks the last answer to a request."""

_STATUS_METADATA = "triton_grpc_error"
"""With the value ``true`` an error of a model ends the stream with its status."""

_ANSWER: Any = MESSAGES["inference.ModelStreamInferResponse"]
_RESPONSE: Any = MESSAGES["inference.ModelInferResponse"]
_ERROR_MESSAGE: int = _ANSWER.ERROR_MESSAGE_FIELD_NUMBER
INFER_RESPONSE: int = _ANSWER.INFER_RESPONSE_FIELD_NUMBER


@dataclass(frozen=True, slots=True)
class Form:
    """The form of the answers: ``each`` as over a unary call; the ``version`` of errors and of the bare final
    flag; whether the caller wants that flag, and errors as the status of the call."""

    each: OipGrpcReplyForm
    version: str
    empty_final: bool
    errors_as_status: bool


# --- as a server


def open_stream_infer(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """Read the head of one message. Raises MALFORMED."""
    opened = open_infer(request)
    errors_as_status = request.metadata.get(_STATUS_METADATA) == "true"
    return Opened(INFER, opened.model, opened.version, (*opened.message, errors_as_status))


def decode(opened: Opened[GrpcAnswer], signature: Signature) -> tuple[InferRequest, Form]:
    """The request and the form of its answers. Raises as ``codec_grpc.decode_infer``."""
    message, _, errors_as_status, *_ = opened.message
    request, each = decode_infer(opened, signature)
    # a look-up would add it to the message
    wanted = EMPTY_FINAL_RESPONSE in message.parameters
    empty_final = wanted and message.parameters[EMPTY_FINAL_RESPONSE].bool_param
    return request, Form(each, opened.version, empty_final, errors_as_status)


def _encode(form: Form, response: InferResponse) -> GrpcAnswer | None:
    if response.error is not None:
        return _reported(response.error, response.model, form, response.final)
    if response.final and not response.outputs:
        if not form.empty_final:
            return None
        answer = _about(response.model, form.version, form.each.id, final=True)
        return GrpcAnswer(_ANSWER(infer_response=answer).SerializeToString())
    flagged = replace(response, parameters={**response.parameters, FINAL_RESPONSE: response.final})
    return in_stream(encode_infer(form.each, flagged))


def in_stream(answer: GrpcAnswer) -> GrpcAnswer:
    """The message of a stream with the ``answer`` to a request."""
    (lead,) = leads(b"", INFER_RESPONSE, (answer.size,))
    return GrpcAnswer(b"".join((lead, answer.message)), parts=answer.parts)


def _fail(request: GrpcRequest, opened: Opened[GrpcAnswer] | None, error: InferenceError) -> GrpcAnswer:
    """The message for ``error``; the status of the stream if the caller requested that, or if the request is
    unknown."""
    if opened is None or RESTRICTED_HEADER in error.details:
        return fail(request, opened, error)
    message, _, errors_as_status, *_ = opened.message
    form = Form(OipGrpcReplyForm(message.id), opened.version, False, errors_as_status)
    return _reported(error, opened.model, form, final=True)


def _reported(error: InferenceError, model: str, form: Form, final: bool) -> GrpcAnswer:
    """The message for ``error``, which names ``model`` if that was running; then its status instead, if the
    caller requested that."""
    if error.code not in WHILE_RUNNING and MODEL_RAN not in error.details:
        return _error(error, _RESPONSE(id=form.each.id))
    if form.errors_as_status:
        return fail(GrpcRequest(METHOD, b""), None, error)
    return _error(error, _about(model, form.version, form.each.id, final))


def _about(model: str, version: str, identity: str, final: bool) -> Any:
    """An answer without outputs."""
    try:
        answer = _RESPONSE(model_name=model, model_version=version, id=identity)
    except ValueError as fault:
        raise unwritable(fault) from fault
    answer.parameters[FINAL_RESPONSE].bool_param = final
    return answer


def _error(error: InferenceError, answer: Any) -> GrpcAnswer:
    # an empty text means success to clients
    text = fail(GrpcRequest(METHOD, b""), None, error).details or error.code.name
    return GrpcAnswer(_ANSWER(error_message=text, infer_response=answer).SerializeToString())


_UNKNOWN_MODEL = "Request for unknown model"
"""How Triton's message for an unknown model or version begins; its clients match on it."""

INFER: Action[GrpcAnswer] = Action(Operation.INFER_STREAM, _encode, decode)

STREAM_ENDPOINT = GrpcEndpoint(
    METHOD, open_stream_infer, _fail, streaming=True, operations=(Operation.INFER_STREAM,)
)


# --- as a client


def encode_call(
    request: InferRequest, signature: Signature | None
) -> tuple[GrpcRequest, Mapping[str, SharedMemoryRef]]:
    """The one message of a stream of its own: its end marks the last answer."""
    call, placements = codec_grpc.encode_call(request, signature)
    call.method = METHOD
    return call, placements


def decode_reply(placements: Mapping[str, SharedMemoryRef], answer: GrpcAnswer) -> tuple[InferResponse]:
    """One answer: wrapped, as Triton and OpenVINO Model Server send it, or bare, as MLServer does. Both use
    field 1 for a text, so the other fields distinguish them."""
    if answer.code:
        return (codec_grpc.decode_reply(placements, answer),)
    fields = reply_fields(answer.message)
    if not fields.keys() <= {_ERROR_MESSAGE, INFER_RESPONSE}:
        return (replace(codec_grpc.decode_reply(placements, answer), final=False),)
    response = codec_grpc.decode_reply(placements, GrpcAnswer(fields.get(INFER_RESPONSE, b"")))
    parameters = dict(response.parameters)
    final = parameters.pop(FINAL_RESPONSE, False) is True
    error = None
    if text := bytes(fields.get(_ERROR_MESSAGE, b"")).decode(errors="backslashreplace"):
        error = InferenceError(_code_of(text, bool(response.model)), text)
    return (replace(response, parameters=parameters, final=final, error=error),)


def _code_of(text: str, answered: bool) -> ErrorCode:
    """Errors come without a code. One without a model was refused before a model ran; its text reveals an
    unknown model."""
    if answered:
        return ErrorCode.MODEL_FAILED
    return ErrorCode.NOT_FOUND if text.startswith(_UNKNOWN_MODEL) else ErrorCode.INVALID_TENSOR


def reply_fields(message: Buffer) -> Mapping[int, Buffer]:
    """The fields of one answer by number. Raises BAD_UPSTREAM."""
    try:
        fields = read_fields(message)
    except DecodeError as fault:
        raise bad_upstream(f"unusable answer: {unparsable(_ANSWER, fault).message}") from fault
    # like protobuf, skip numbers in place of messages
    return {number: value for number, value in fields.items() if not isinstance(value, int)}


STREAM_CALL: UpstreamCall[GrpcRequest, GrpcAnswer] = UpstreamCall(encode_call, decode_reply)
