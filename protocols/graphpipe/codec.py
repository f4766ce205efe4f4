"""GraphPipe inference messages to and from the IR: names, defaults, widening, errors.

Pure functions over whole messages, for listeners and upstreams. ``reader`` and ``writer`` have the layout of
messages, ``metadata`` that of a model, ``server`` and ``client`` paths and status codes. For any bytes a
function here raises only ``InferenceError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from interlingua.protocols.graphpipe import reader, writer
from interlingua.protocols.graphpipe.capability import OVER_HTTP
from interlingua.protocols.wire import Buffer
from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    RequestedOutput,
    Signature,
    Tensor,
    TensorSpec,
    bad_upstream,
    invalid_tensor,
    malformed,
    offload,
    unrepresentable,
)
from interlingua.schemas.bounded_text import listed
from interlingua.schemas.graphpipe import INFER_REQUEST, METADATA_REQUEST, TYPES

CONFIG = "config"
"""The one request parameter of GraphPipe: text for the model, or bytes that are not UTF-8."""

OutputNames = tuple[str, ...] | None
"""The reply form: the outputs of the answer in this order, one maybe twice; None for all."""

WRITTEN_TYPES = {**TYPES, **{narrow: TYPES[wide] for narrow, wide in OVER_HTTP.widened.items()}}
"""The ``Type`` on the wire of every datatype that the dialect carries."""

_CODES = {code.value: code for code in ErrorCode}
_ADVICE = "declare the model's signature, with every output that the server has, in its order"


@dataclass(slots=True)
class Message:
    """A ``Request`` read as far as its union. ``table`` is the position of the ``InferRequest``, None for a
    ``MetadataRequest``. ``read`` are the inputs and the requested outputs that a passthrough has read."""

    view: memoryview
    table: int | None
    read: tuple[tuple[Tensor, ...], OutputNames] | None = None


class CarriedError(InferenceError):
    """The error in the ``errors`` of an answer, in the server's words."""


def open_request(body: Buffer) -> Message:
    """The ``Request`` in ``body``. Raises MALFORMED, also for an unknown union tag."""
    view = reader.view_of(body)
    try:
        table = reader.root(view)
        tag_slot, union_slot = reader.slots(view, table, 2)
        tag = reader.byte(view, table, tag_slot)
        if tag == METADATA_REQUEST:
            return Message(view, None)
        if tag == INFER_REQUEST and union_slot:
            return Message(view, reader.follow(view, table + union_slot))
    except reader.OUTSIDE as error:
        raise reader.outside(view) from error
    raise malformed(
        f"the request with union tag {tag} holds neither an InferRequest ({INFER_REQUEST}) "
        f"nor a MetadataRequest ({METADATA_REQUEST})"
    )


def decode_request(
    message: Message, signature: Signature, model: str = "", version: str = ""
) -> tuple[InferRequest, OutputNames]:
    """The ``InferRequest`` of ``message``, its tensors bound to the model's inputs.

    A tensor without a name is the model's input at its index; surplus names are ignored; of several tensors
    with one name the last counts. Raises MALFORMED, INVALID_TENSOR.
    """
    view, table = message.view, message.table
    if table is None:
        raise malformed("a MetadataRequest has no tensors to infer from")
    try:
        config_slot, names_slot, tensors_slot, outputs_slot = reader.slots(view, table, 4)
        positions = reader.offsets(view, table, tensors_slot)
        names = reader.strings(view, table, names_slot, most=len(positions))
        bound = _bind(names, positions, signature)
        specs = signature.input_names
        inputs = [_narrowed(reader.tensor(view, at, name), specs[name]) for name, at in bound.items()]
        _check_count(reader.length(view, table, outputs_slot), signature)
        form = _output_names(reader.strings(view, table, outputs_slot), signature)
        config = reader.string(view, table, config_slot)
    except reader.OUTSIDE as error:
        raise reader.outside(view) from error
    request = InferRequest(model, tuple(inputs), version=version)
    if form is not None:
        request.outputs = tuple([RequestedOutput(name) for name in dict.fromkeys(form)])
    if config:
        request.parameters = {CONFIG: _config(config)}
    return request, form


def encode_request(request: InferRequest, *, prefixed: bool = False) -> list[Buffer]:
    """A ``Request`` for an upstream, in parts, with the names of its inputs and of requested outputs;
    ``prefixed`` with its size or not.

    It has no sequence: no model of this dialect keeps one. Raises UNREPRESENTABLE for a datatype, a
    classification, or a parameter ``config`` that is neither text nor bytes; TOO_LARGE.
    """
    config = request.parameters.get(CONFIG, "")
    if isinstance(config, str):
        config = writer.utf8(config, f"parameter '{CONFIG}'")
    elif not isinstance(config, bytes):
        raise unrepresentable(f"parameter '{CONFIG}' must be text or bytes for GraphPipe, it is {config!r}")
    outputs = request.outputs or ()
    for output in outputs:
        if output.classification:
            raise unrepresentable(f"output '{output.name}': GraphPipe has no form for a classification")
    forms, payloads = _encode_tensors(request.inputs)
    return writer.infer_request(
        config,
        tuple([writer.utf8(tensor.name, "the name of an input") for tensor in request.inputs]),
        tuple([writer.utf8(output.name, "the name of an output") for output in outputs]),
        forms,
        payloads,
        prefixed=prefixed,
    )


def _type_of(name: str, datatype: Datatype) -> int:
    code = WRITTEN_TYPES.get(datatype)
    if code is None:
        raise unrepresentable(f"tensor '{name}': GraphPipe has no form for datatype {datatype.value}")
    return code


def encode_response(form: OutputNames, outputs: Sequence[Tensor], *, prefixed: bool = False) -> list[Buffer]:
    """An ``InferResponse``, in parts: one tensor for each name in ``form``; ``prefixed`` with its size or
    not.

    Raises UNREPRESENTABLE for a datatype, MODEL_FAILED for a missing output, TOO_LARGE.
    """
    if form is not None:
        answered = {tensor.name: tensor for tensor in outputs}
        for name in form:
            if name not in answered:
                raise InferenceError(ErrorCode.MODEL_FAILED, f"the model answered without output '{name}'")
        outputs = [answered[name] for name in form]
    forms, payloads = _encode_tensors(outputs)
    return writer.infer_response(forms, payloads, prefixed=prefixed)


def decode_response(body: Buffer, requested: OutputNames, signature: Signature | None) -> tuple[Tensor, ...]:
    """The outputs in an ``InferResponse``. They have no names on the wire and get the ``requested`` ones,
    else the signature's, else ``output0``, ``output1`` and so on.

    Raises the ``CarriedError`` in the answer; MALFORMED, INVALID_TENSOR; BAD_UPSTREAM if number, datatypes or
    shapes of the tensors contradict the signature, because then their names are unknown.
    """
    view = reader.view_of(body)
    try:
        table = reader.root(view)
        tensors_slot, errors_slot = reader.slots(view, table, 2)
        errors = reader.offsets(view, table, errors_slot)
        if errors:
            raise _carried_error(view, errors[0])
        if requested == ():
            return ()  # a request cannot say "none", so the answer has all
        positions = reader.offsets(view, table, tensors_slot)
        specs = signature.output_names if signature is not None else {}
        names = requested or tuple(specs) or tuple([f"output{index}" for index in range(len(positions))])
        if len(names) != len(positions):
            raise bad_upstream(
                f"the answer has {len(positions)} tensors without names where {len(names)} outputs were "
                f"expected ({listed(names)}): {_ADVICE}"
            )
        outputs = tuple(
            [
                _narrowed(reader.tensor(view, at, name), specs.get(name))
                for name, at in zip(names, positions, strict=True)
            ]
        )
    except reader.OUTSIDE as error:
        raise reader.outside(view) from error
    if signature is not None and not says_nothing(signature):
        _check_places(outputs, specs)
    return outputs


def encode_error(error: InferenceError, *, prefixed: bool = False) -> bytes:
    """``error`` in band: an ``InferResponse`` with the stable number of its code and no tensors."""
    message = error.message.encode(errors="backslashreplace")
    return writer.error_response(error.code.value, message, prefixed=prefixed)


def error_of_metadata(body: Buffer) -> CarriedError | None:
    """The error if the answer to a ``MetadataRequest`` is an ``InferResponse`` with one. Only the fields
    distinguish the roots: a ``MetadataResponse`` has more than two."""
    view = reader.view_of(body)
    try:
        table = reader.root(view)
        tensors_slot, errors_slot, *further = reader.slots(view, table, 6)
        if any(further) or not errors_slot or reader.offsets(view, table, tensors_slot):
            return None
        errors = reader.offsets(view, table, errors_slot)
        return _carried_error(view, errors[0]) if errors else None
    except (*reader.OUTSIDE, InferenceError):
        return None


def _bind(names: list[bytes], positions: list[int], signature: Signature) -> dict[str, int]:
    """The position of each input's tensor. Never longer than the signature: tensors that a hostile message
    repeats are not read."""
    inputs = signature.inputs
    bound: dict[str, int] = {}
    for index, position in enumerate(positions):
        if index < len(names) and names[index]:
            name = reader.text(names[index], f"the name of input tensor {index}")
            if name not in signature.input_names:
                raise invalid_tensor(f"Could not find input '{name}'")
        elif index < len(inputs):
            name = inputs[index].name
        else:
            raise invalid_tensor(
                f"input tensor {index} has no name and the model has only {len(inputs)} inputs"
            )
        bound[name] = position
    return bound


def _check_count(count: int, signature: Signature) -> None:
    if count > reader.MAX_UNFOLDING * len(signature.outputs) + 1:
        raise invalid_tensor(f"{count} outputs are requested of a model that has {len(signature.outputs)}")


def _output_names(raw: list[bytes], signature: Signature) -> OutputNames:
    names = []
    for index, encoded in enumerate(raw):
        if not encoded:
            raise invalid_tensor("Could not init output names")
        name = reader.text(encoded, f"output name {index}")
        if name not in signature.output_names:
            raise invalid_tensor(f"Could not find output '{name}'")
        names.append(name)
    return tuple(names) or None


def _narrowed(tensor: Tensor, spec: TensorSpec | None) -> Tensor:
    """``tensor`` as the model declares it: the widening of BOOL undone."""
    if spec is None or spec.datatype is not Datatype.BOOL or tensor.datatype is not Datatype.UINT8:
        return tensor
    if np.frombuffer(tensor.view, np.uint8).max(initial=0) > 1:
        raise invalid_tensor(f"tensor '{tensor.name}' of datatype BOOL holds bytes other than 0 and 1")
    return Tensor(tensor.name, Datatype.BOOL, tensor.shape, tensor.data)


def says_nothing(signature: Signature) -> bool:
    """Whether the simple API of graphpipe-go may report this signature, which it does for any function: Int64
    everywhere, and the rank in place of the shape."""
    return all(
        spec.datatype is Datatype.INT64 and len(spec.shape) <= 1
        for spec in (*signature.inputs, *signature.outputs)
    )


def _check_places(outputs: Sequence[Tensor], specs: Mapping[str, TensorSpec]) -> None:
    """Raise BAD_UPSTREAM for an output that is not as declared: it may be another output. The first dimension
    is not checked: it is the batch, which many servers declare as 1."""
    for place, output in enumerate(outputs):
        spec = specs.get(output.name)
        if spec is None:
            continue
        free = len(outputs) == 1 or not spec.shape  # an empty shape may be any
        fits = free or (
            len(output.shape) == len(spec.shape)
            and all(want in (-1, have) for want, have in zip(spec.shape[1:], output.shape[1:], strict=True))
        )
        if output.datatype is not spec.datatype or not fits:
            raise bad_upstream(
                f"tensor {place} of the answer, without a name, is {output.datatype.value} "
                f"{list(output.shape)} where output '{spec.name}' is {spec.datatype.value} "
                f"{list(spec.shape)}: {_ADVICE}"
            )


def _encode_tensors(tensors: Sequence[Tensor]) -> tuple[tuple[writer.Form, ...], list[Buffer]]:
    forms: list[writer.Form] = []
    payloads: list[Buffer] = []
    for tensor in tensors:
        code = _type_of(tensor.name, tensor.datatype)
        payload: Buffer = tensor.view
        length = size = len(payload)
        if tensor.datatype is Datatype.BYTES:
            length = tensor.count
            if length <= writer.FEW:
                payload = writer.string_block(tensor.elements())
            else:
                pack = writer.packed_block
                many = length > writer.MANY
                payload = offload.call(pack, tensor.view, length) if many else pack(tensor.view, length)
            size = len(payload)
        forms.append((code, tensor.shape, length, size))
        payloads.append(payload)
    return tuple(forms), payloads


def _carried_error(view: memoryview, table: int) -> CarriedError:
    code_slot, message_slot = reader.slots(view, table, 2)
    code = _CODES.get(reader.int64(view, table, code_slot), ErrorCode.MODEL_FAILED)
    message = str(reader.string(view, table, message_slot), "utf-8", "backslashreplace")
    return CarriedError(code, message or "the upstream reported an error without a message")


def _config(raw: memoryview) -> str | bytes:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        return bytes(raw)
