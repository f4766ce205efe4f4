"""Inference in a flat JSON object, for language models: generate and generate_stream.

A member with the name of an input is that tensor, any other a parameter of the request; an answer has one
member for each output. ``generate`` answers once, ``generate_stream`` with server-sent events, one for each
response. Neither takes binary data or compressed bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from interlingua.protocols.dialect import Action, HttpEndpoint, Opened
from interlingua.protocols.json_document import (
    LONG_BYTES,
    Repeating,
    check_elements,
    is_long,
    parse_json,
    write_json,
)
from interlingua.protocols.numeric_json import json_values, pack_values
from interlingua.protocols.oip.codec import (
    EMPTY_FINAL_RESPONSE,
    WHILE_RUNNING,
    check_id,
    check_parameter,
    request_fields,
)
from interlingua.protocols.oip.codec_http import JSON_HEADERS
from interlingua.protocols.oip.http_endpoint import http_error, http_fail, json_answer, of_model
from interlingua.protocols.oip.http_tensors import BINARY_ONLY, OF_TYPE, not_as_json
from interlingua.protocols.oip.json_members import text
from interlingua.protocols.wire import Buffer, Headers, HttpAnswer, HttpRequest, parts_of
from interlingua.schemas import (
    Context,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Operation,
    Parameter,
    Signature,
    Tensor,
    TensorSpec,
    invalid_tensor,
    malformed,
    offload,
    unrepresentable,
)
from interlingua.schemas.errors import HTTP_STATUS

_EVENT_HEADERS: Headers = (("Content-Type", "text/event-stream; charset=utf-8"),)

_NOT_ONE = (
    "generate expects model to produce exactly 1 response, "
    "use generate stream for model that generates various number of responses"
)
_OWN_MEMBERS = frozenset({"id", "parameters"})


@dataclass(slots=True)
class _Form:
    """The id to answer under, and what ``generate`` has received so far."""

    id: str
    first: InferResponse | None = None
    latest: InferResponse | None = None
    responses: int = 0


def _decode(opened: Opened[HttpAnswer], signature: Signature) -> tuple[InferRequest, _Form]:
    message: HttpRequest = opened.message
    if message.headers.get("content-encoding", "identity") != "identity":
        raise malformed("Unsupported content-encoding, only 'identity' is supported.")
    body = message.body
    if len(body) > LONG_BYTES and is_long(body):
        request, form = offload.call(_read_long, body, opened.model, opened.version, signature)
    else:
        request, form = _read(body, opened.model, opened.version, signature)
    request.context = message.context
    return request, form


def _read_long(body: Buffer, model: str, version: str, signature: Signature) -> tuple[InferRequest, _Form]:
    check_elements(body)
    return _read(body, model, version, signature)


def _read(body: Buffer, model: str, version: str, signature: Signature) -> tuple[InferRequest, _Form]:
    document = parse_json(body, repeating=True)
    if not isinstance(document, dict):
        raise malformed("the JSON body is not an object")
    identity = check_id(text(document, "id"))
    found: dict[str, Tensor] = {}
    parameters: dict[str, Any] = {}
    _sort(document, signature, found, parameters)
    inputs = tuple(found[name] for name in signature.input_names if name in found)
    fields = request_fields(parameters)
    return fields.request(model, version, inputs, identity=identity, context=Context()), _Form(identity)


def _sort(
    members: dict[str, Any],
    signature: Signature,
    inputs: dict[str, Tensor],
    parameters: dict[str, Any],
    *,
    nested: bool = False,
) -> None:
    """Put ``members`` into ``inputs`` and ``parameters``, in the order of the document: the first mistake is
    reported, in Triton's words."""
    for key in members.written if isinstance(members, Repeating) else members:
        value, spec = members[key], signature.input_names.get(key)
        if key in _OWN_MEMBERS and not nested:
            if key == "parameters" and value is not None:
                _sort_nested(value, signature, inputs, parameters)
        elif spec is not None:
            tensor = _tensor(spec, value)
            # as on Triton, an input may also be among the parameters
            if key in inputs:
                raise invalid_tensor(f"input '{key}' already exists in request")
            inputs[key] = tensor
        elif key != EMPTY_FINAL_RESPONSE:
            check_parameter(key, value, streams=True)
            parameters[key] = value


def _sort_nested(members: Any, *rest: Any) -> None:
    if not isinstance(members, dict):
        raise malformed(
            "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object"
        )
    try:
        _sort(members, *rest, nested=True)
    except InferenceError as error:
        raise InferenceError(error.code, f"Converting keyword: 'parameters': {error.message}") from error


def _tensor(spec: TensorSpec, value: Any) -> Tensor:
    """The input ``spec`` from one value or a flat array. The shape is the model's; the innermost free
    dimension has all elements."""
    if spec.datatype in BINARY_ONLY:
        raise invalid_tensor(not_as_json("receiving", "input", spec.name, spec.datatype))
    values = value if isinstance(value, list) else [value]
    shape = shape_of(spec, len(values))
    if shape is None:
        raise invalid_tensor(f"The schema can not convert input '{spec.name}' to tensor with proper shape")
    data = pack_values(spec.name, spec.datatype, len(values), values, OF_TYPE)
    return Tensor(spec.name, spec.datatype, shape, data)


def shape_of(spec: TensorSpec, count: int) -> tuple[int, ...] | None:
    """The shape of a flat array of ``count`` elements as the tensor ``spec``; None if none fits."""
    fixed = prod(side for side in spec.shape if side != -1)
    shape = [1 if side == -1 else side for side in spec.shape]
    if -1 in spec.shape:
        shape[len(shape) - 1 - spec.shape[::-1].index(-1)] = count // fixed if fixed else 0
    return tuple(shape) if prod(shape) == count else None


def _encode_event(form: _Form, response: InferResponse, nonfinite: bool = False) -> HttpAnswer:
    """One event; none for the bare final flag."""
    if response.error is not None:
        return _error_event(response.error)
    if not response.outputs:
        return HttpAnswer(200, _EVENT_HEADERS)
    return HttpAnswer(
        200, _EVENT_HEADERS, [b"data: ", write_json(_document(form.id, response, nonfinite)), b"\n\n"]
    )


def _encode_whole(form: _Form, response: InferResponse, nonfinite: bool = False) -> HttpAnswer | None:
    """The answer, after the final response."""
    # an answer that takes long to write is encoded twice
    if (response.outputs or response.error is not None) and response is not form.latest:
        form.first = form.first or response
        form.latest = response
        form.responses += 1
    if not response.final:
        return None
    first = form.first
    if first is not None and first.error is not None:
        return http_error(first.error)
    if first is None or form.responses > 1:
        return json_answer(200, {"error": _NOT_ONE})
    return HttpAnswer(200, JSON_HEADERS, [write_json(_document(form.id, first, nonfinite))])


def _document(identity: str, response: InferResponse, nonfinite: bool) -> Mapping[str, Any]:
    members: dict[str, Parameter | Any] = {"model_name": response.model, "model_version": response.version}
    if identity:
        members["id"] = identity
    for tensor in response.outputs:
        if tensor.datatype in BINARY_ONLY:
            raise unrepresentable(not_as_json("sending", "output", tensor.name, tensor.datatype))
        members[tensor.name] = json_values(
            tensor, tokens=nonfinite, refusal=ErrorCode.INVALID_TENSOR, unwrap=True
        )
    return dict(sorted(members.items()))


def _error_event(error: InferenceError) -> HttpAnswer:
    # as the first event a model's failure has status 400; later ones have no status
    status = 400 if error.code is ErrorCode.MODEL_FAILED else HTTP_STATUS[error.code]
    data = b"".join(parts_of(http_error(error)))
    return HttpAnswer(status, _EVENT_HEADERS, [b"data: ", data, b"\n\n"])


def _fail_stream(
    request: HttpRequest, opened: Opened[HttpAnswer] | None, error: InferenceError
) -> HttpAnswer:
    """An event if the model was running, else an ordinary answer."""
    if opened is not None and error.code in WHILE_RUNNING:
        return _error_event(error)
    return http_fail(request, opened, error)


def generate_endpoints(nonfinite: bool = False) -> tuple[HttpEndpoint, ...]:
    """The endpoints; ``nonfinite`` allows the tokens of NaN and infinity, which strict JSON lacks."""
    encode_whole = partial(_encode_whole, nonfinite=nonfinite)
    encode_event = partial(_encode_event, nonfinite=nonfinite)
    generate = of_model(Action(Operation.INFER_STREAM, encode_whole, _decode))
    generate_stream = of_model(Action(Operation.INFER_STREAM, encode_event, _decode))
    return tuple(
        HttpEndpoint(
            "POST",
            f"/v2/models/{{model}}{version}/{method}",
            open_request,
            fail,
            timed=True,
            operations=(operation,),
        )
        for version in ("", "/versions/{version}")
        for method, (operation, open_request), fail in (
            ("generate", generate, http_fail),
            ("generate_stream", generate_stream, _fail_stream),
        )
    )
