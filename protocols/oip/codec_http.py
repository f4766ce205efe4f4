"""Inference over HTTP: JSON, with the binary tensor data extension.

Pure functions between bodies and the IR, for listeners and upstreams. A body is the JSON part, then the
buffers of the tensors that have a ``binary_data_size``, in their order; the header
``Inference-Header-Content-Length`` is the length of the JSON part. Tensors are views over the received body,
and a written body is a list of parts. Paths and statuses belong to ``server`` and ``client``, metadata to
``metadata_json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interlingua.protocols.content_coding import accepted_coding, deflate, plain_body
from interlingua.protocols.json_document import LONG_BYTES, check_elements, is_long, parse_json, write_json
from interlingua.protocols.oip.classes import NO_CLASSES, RequestedClasses, requested_classes, with_classes
from interlingua.protocols.oip.codec import (
    EMPTY_FINAL_RESPONSE,
    SCALARS,
    check_id,
    distinct_outputs,
    join_parameters,
    output_parameters,
    requested_output,
    split_parameters,
)
from interlingua.protocols.oip.http_tensors import (
    BINARY_ONLY,
    FromJson,
    Tail,
    describe_tensor,
    finite,
    not_as_json,
    raw_tensor,
    read_answers,
    read_inputs,
    write_answer,
    write_tensor,
)
from interlingua.protocols.oip.json_members import mapping, members, name_of, text
from interlingua.protocols.wire import Buffer, Headers, HttpRequest
from interlingua.schemas import (
    Context,
    InferRequest,
    InferResponse,
    Parameter,
    RequestedOutput,
    SharedMemoryRef,
    Signature,
    invalid_tensor,
    malformed,
    offload,
    unrepresentable,
)

HEADER_LENGTH = "Inference-Header-Content-Length"

JSON_HEADERS: Headers = (("Content-Type", "application/json"),)

Body = tuple[Headers, list[Buffer]]
"""The headers that describe a body, and its parts."""

ReaderOf = Callable[[Mapping[str, Any], Signature], FromJson]
"""Gives the reader of a request's inputs, from its JSON and the signature of its model."""

_LONG_BYTES = 1 << 17
"""An answer of more bytes takes more than about 2 ms to compress."""

_LAZY = frozenset({"data"})
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class OipHttpReplyForm:
    """The form of an answer: its id, which outputs are binary data, which are classes.

    ``order`` has the output names in the order of the answer, empty for the model's; ``always`` are members
    that the answer has even if they are empty. ``coding`` is the content coding, if any.
    """

    id: str = ""
    binary: frozenset[str] = frozenset()
    all_binary: bool = False
    classes: RequestedClasses = field(default_factory=lambda: NO_CLASSES)
    order: tuple[str, ...] = ()
    always: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    coding: str = ""


_Read = tuple[InferRequest, OipHttpReplyForm]


def decode_request(
    message: HttpRequest, model: str, version: str, signature: Signature, reader_of: ReaderOf | None = None
) -> tuple[InferRequest, OipHttpReplyForm]:
    """The request in ``message``, and the form of its answer. ``reader_of`` is for servers whose parameters
    affect the reading of inputs in JSON, and may be lists and objects, which are the ``wire_form``.

    Raises MALFORMED for a body that is not a request, INVALID_TENSOR naming the tensor or parameter,
    UNSUPPORTED for an unknown content coding, TOO_LARGE for a body that inflates beyond the limit.
    """
    body = plain_body(message)
    length = header_length(message.headers, len(body))
    coding = accepted_coding(message.headers.get("accept-encoding", ""))
    if length == 0:
        tensor = raw_tensor(model, body, signature)
        request = InferRequest(model, (tensor,), version=version, context=message.context)
        return request, OipHttpReplyForm(all_binary=True, coding=coding)
    text_length = len(body) if length is None else length
    if text_length > LONG_BYTES and is_long(memoryview(body)[:text_length]):
        read = offload.call(_read_long, body, length, model, version, signature, coding, reader_of)
    else:
        read = _read(body, length, model, version, signature, coding, reader_of)
    request, form = read
    request.context = message.context
    return request, form


def _read_long(body: Buffer, length: int | None, *rest: Any) -> _Read:
    check_elements(body if length is None else memoryview(body)[:length])
    return _read(body, length, *rest)


def _read(
    body: Buffer,
    length: int | None,
    model: str,
    version: str,
    signature: Signature,
    coding: str,
    reader_of: ReaderOf | None,
) -> _Read:
    document = _document(body, length)
    given = mapping(document, "parameters")
    nested: dict[str, Any] = {}
    if reader_of is not None:
        nested = {key: value for key, value in given.items() if type(value) not in SCALARS}
    fields = split_parameters({key: given[key] for key in given if key not in nested} if nested else given)
    identity = check_id(text(document, "id"))
    outputs, form = _read_outputs(document, given, identity, signature, coding)
    from_json = None if reader_of is None else reader_of(document, signature)
    inputs = read_inputs(document, model, Tail(body, length), from_json)
    _check_json_outputs(outputs, form, signature)
    request = fields.request(model, version, inputs, outputs, identity, context=Context())
    request.wire_form = nested or None
    return request, form


def encode_request(request: InferRequest, *, binary: bool) -> Body:
    """A request with binary data for a binary answer, or all in JSON for servers without the extension.

    An empty tuple of outputs has no form here and is written as None, which means all. Raises
    UNREPRESENTABLE naming tensor or parameter.
    """
    document: dict[str, Any] = {"id": request.id} if request.id else {}
    parameters = join_parameters(request)
    # for streams, which this transport does not have
    parameters.pop(EMPTY_FINAL_RESPONSE, None)
    if binary and not request.outputs:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = finite(parameters)
    if not binary and isinstance(request.wire_form, dict):
        document["parameters"] = {**parameters, **request.wire_form}
    buffers: list[Buffer] = []
    document["inputs"] = [write_tensor(tensor, buffers if binary else None) for tensor in request.inputs]
    if request.outputs:
        document["outputs"] = [_write_requested(output, binary) for output in request.outputs]
    return _join(document, buffers, extended=bool(buffers))


def encode_response(form: OipHttpReplyForm, response: InferResponse, nonfinite: bool = False) -> Body:
    """An answer in ``form``. Without binary data it is plain JSON, as on Triton.

    Raises UNREPRESENTABLE naming an output or parameter that JSON cannot carry, INVALID_TENSOR for NaN and
    infinity in an output, unless ``nonfinite`` allows their tokens.
    """
    document: dict[str, Any] = {"id": form.id} if form.id else {}
    document.update(form.always)
    document["model_name"] = response.model
    if response.version:
        document["model_version"] = response.version
    if response.parameters:
        document["parameters"] = finite(response.parameters)
    buffers: list[Buffer] = []
    outputs: list[dict[str, Any]] = []
    tensors = with_classes(response, form.classes)
    if form.order:
        tensors = tuple(sorted(tensors, key=lambda tensor: form.order.index(tensor.name)))
    for tensor in tensors:
        binary = form.all_binary or tensor.name in form.binary
        if isinstance(tensor.data, SharedMemoryRef):
            outputs.append(describe_tensor(tensor))  # the caller knows its place
        elif not binary and tensor.datatype in BINARY_ONLY:
            raise unrepresentable(not_as_json("sending", "output", tensor.name, tensor.datatype))
        else:
            outputs.append(write_answer(tensor, buffers if binary else None, nonfinite))
    document["outputs"] = outputs
    headers, parts = _join(document, buffers, extended=any(map(len, buffers)))
    if form.coding:
        if sum(map(len, parts)) > _LONG_BYTES:
            offload.require()
        return (*headers, ("Content-Encoding", form.coding)), deflate(form.coding, parts)
    return headers, parts


def decode_response(
    headers: Mapping[str, str], body: Buffer, placements: Mapping[str, SharedMemoryRef]
) -> InferResponse:
    """The answer of any server; ``placements`` are the outputs in shared memory. Raises MALFORMED or
    INVALID_TENSOR."""
    length = header_length(headers, len(body))
    text_length = len(body) if length is None else length
    if text_length > LONG_BYTES and is_long(memoryview(body)[:text_length]):
        return offload.call(_read_long_answer, body, length, placements)
    return _read_answer(body, length, placements)


def _read_long_answer(
    body: Buffer, length: int | None, placements: Mapping[str, SharedMemoryRef]
) -> InferResponse:
    check_elements(body if length is None else memoryview(body)[:length])
    return _read_answer(body, length, placements)


def _read_answer(
    body: Buffer, length: int | None, placements: Mapping[str, SharedMemoryRef]
) -> InferResponse:
    document = _document(body, length)
    given = mapping(document, "parameters")
    return InferResponse(
        model=text(document, "model_name"),
        outputs=tuple(read_answers(document, Tail(body, length), placements)),
        version=text(document, "model_version"),
        id=text(document, "id"),
        parameters={name: value for name, value in given.items() if isinstance(value, Parameter)},
    )


def _read_outputs(
    document: Mapping[str, Any],
    parameters: Mapping[str, Any],
    identity: str,
    signature: Signature,
    coding: str,
) -> tuple[tuple[RequestedOutput, ...] | None, OipHttpReplyForm]:
    """The requested outputs and the reply form. ``binary_data_output`` applies if no outputs are listed; a
    listed one has its own ``binary_data``."""
    entries = members(document, "outputs") if document.get("outputs") is not None else ()
    if not entries:
        everything = _flag(parameters, "binary_data_output")
        return None, OipHttpReplyForm(identity, all_binary=everything, coding=coding)
    outputs: list[RequestedOutput] = []
    binary: list[str] = []
    for index, entry in enumerate(entries):
        name = name_of(entry, "outputs", index)
        given = mapping(entry, "parameters")
        outputs.append(requested_output(name, given))
        if given and _flag(given, "binary_data"):
            binary.append(name)
    distinct = distinct_outputs(outputs)
    classes = requested_classes(distinct, signature)
    return distinct, OipHttpReplyForm(identity, frozenset(binary), classes=classes, coding=coding)


def _check_json_outputs(
    outputs: Sequence[RequestedOutput] | None, form: OipHttpReplyForm, signature: Signature
) -> None:
    """Refuse outputs that JSON cannot carry before the model runs."""
    if form.all_binary:
        return
    for spec in signature.outputs:
        if spec.datatype in BINARY_ONLY and spec.name not in form.binary:
            requested = outputs is None or any(
                output.name == spec.name and not output.classification and output.placement is None
                for output in outputs
            )
            if requested:
                raise invalid_tensor(not_as_json("sending", "output", spec.name, spec.datatype))


def _write_requested(output: RequestedOutput, binary: bool) -> dict[str, Any]:
    parameters = output_parameters(output)
    if binary and output.placement is None:
        parameters["binary_data"] = True
    return {"name": output.name, "parameters": finite(parameters)} if parameters else {"name": output.name}


def _join(document: dict[str, Any], buffers: list[Buffer], *, extended: bool) -> Body:
    header = write_json(document)
    if not extended:
        return JSON_HEADERS, [header]
    headers = (("Content-Type", "application/octet-stream"), (HEADER_LENGTH, str(len(header))))
    return headers, [header, *buffers]


def header_length(headers: Mapping[str, str], total: int) -> int | None:
    """The size of the JSON in a body of ``total`` bytes; None if it is all JSON. Raises MALFORMED."""
    given = headers.get(HEADER_LENGTH.lower())
    if given is None:
        return None
    # int() is slow for long numbers, which cannot be lengths
    if not (given.isascii() and given.isdigit() and len(given) < 20 and int(given) <= total):
        raise malformed(f"inference header size should be in range (0, {total}), got: {given[:40]!a}")
    return int(given)


def _document(body: Buffer, length: int | None) -> dict[str, Any]:
    document = parse_json(body if length is None else memoryview(body)[:length], _LAZY)
    if not isinstance(document, dict):
        raise malformed("the JSON body is not an object")
    return document


def _flag(parameters: Mapping[str, Any], key: str) -> bool:
    value = parameters.get(key, False)
    if type(value) is not bool:
        raise invalid_tensor(f"parameter '{key}' must be a boolean")
    return value
