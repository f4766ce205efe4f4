"""generate_stream as a call to an upstream: the only way over HTTP to a model with any number of answers.

A request is a flat JSON object, each event of the answer a response (see ``generate``). The form has no
shapes and no datatypes; the signature has them. A tensor whose shape would be lost is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.json_document import write_json
from interlingua.protocols.numeric_json import json_values, pack_values
from interlingua.protocols.oip.client_http import failure, model_path
from interlingua.protocols.oip.codec import EMPTY_FINAL_RESPONSE, join_parameters
from interlingua.protocols.oip.generate import shape_of
from interlingua.protocols.oip.http_tensors import BINARY_ONLY, not_as_json
from interlingua.protocols.oip.json_members import text
from interlingua.protocols.oip.metadata_json import parse_object
from interlingua.protocols.wire import HttpCall, HttpReply
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
    bad_upstream,
    unrepresentable,
)

_DATA = b"data: "
_END = b"\n\n"


@dataclass(slots=True)
class _Events:
    """The signature to read events with, whether there were ``any``, and the start of the next one."""

    signature: Signature
    version: str = ""
    any: bool = False
    begun: bytearray = field(default_factory=bytearray)


def _encode(request: InferRequest, signature: Signature | None) -> tuple[HttpCall, _Events]:
    if signature is None:
        raise InferenceError(ErrorCode.UNSUPPORTED, "generate_stream needs the signature of the model")
    document: dict[str, Any] = {"id": request.id} if request.id else {}
    parameters = join_parameters(request)
    parameters.pop(EMPTY_FINAL_RESPONSE, None)
    if parameters:
        document["parameters"] = parameters
    for tensor in request.inputs:
        document[tensor.name] = _value(tensor, signature.input_names.get(tensor.name))
    body = [write_json(document)]
    call = HttpCall("POST", f"{model_path(request.model, request.version)}/generate_stream", parts=body)
    return call, _Events(signature, request.version)


def _value(tensor: Tensor, spec: TensorSpec | None) -> Any:
    if tensor.datatype in BINARY_ONLY:
        raise unrepresentable(not_as_json("sending", "input", tensor.name, tensor.datatype))
    if spec is None or shape_of(spec, tensor.count) != tensor.shape:
        raise unrepresentable(
            f"input '{tensor.name}' of shape {list(tensor.shape)} would not come back out of the flat form "
            "of generate_stream, which is the only way to this model over HTTP"
        )
    return json_values(tensor, unwrap=True)


def _decode(events: _Events, reply: HttpReply) -> Sequence[InferResponse]:
    """The responses of the events that ``reply`` completes. Raises the upstream's own error if it refuses the
    request, BAD_UPSTREAM for invalid events."""
    # an error of the running model has its own status, and the stream continues
    if reply.status != 200 and not events.any and not bytes(reply.body).startswith(_DATA):
        raise failure(reply, events.version)
    events.any = True
    if not reply.body:
        if events.begun.strip():
            raise _invalid("ended within an event")
        return ()
    begun, seen = events.begun, max(len(events.begun) - 1, 0)
    begun += reply.body
    end = begun.rfind(_END, seen)
    if end < 0:
        return ()
    whole = bytes(begun[:end]).split(_END)
    del begun[: end + len(_END)]
    return tuple(_response(events.signature, event) for event in whole)


def _response(signature: Signature, event: bytes) -> InferResponse:
    if not event.startswith(_DATA):
        raise _invalid("is no event")
    try:
        document = parse_object(event.removeprefix(_DATA))
        if "error" in document:
            error = InferenceError(ErrorCode.MODEL_FAILED, text(document, "error"))
            return InferResponse("", (), final=False, error=error)
        outputs = tuple(
            _tensor(spec, document[spec.name]) for spec in signature.outputs if spec.name in document
        )
        model, version = text(document, "model_name"), text(document, "model_version")
        return InferResponse(model, outputs, version, text(document, "id"), final=False)
    except InferenceError as fault:
        raise _invalid(f"is not valid: {fault.message}") from fault


def _tensor(spec: TensorSpec, value: Any) -> Tensor:
    values = value if isinstance(value, list) else [value]
    shape = shape_of(spec, len(values))
    if shape is None or spec.datatype is Datatype.BF16:
        raise _invalid(f"has {len(values)} elements for '{spec.name}' of shape {list(spec.shape)}")
    return Tensor(spec.name, spec.datatype, shape, pack_values(spec.name, spec.datatype, len(values), values))


def _invalid(what: str) -> InferenceError:
    return bad_upstream(f"the upstream's answer {what}")


GENERATE_CALL: UpstreamCall[HttpCall, HttpReply] = UpstreamCall(_encode, _decode, last_resort=True)
