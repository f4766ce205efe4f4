"""grps messages to and from the IR: which tensor is which, and the form of an answer.

gtensors bind by name, or by order if none has one; an ndarray is the first input, in FP32; ``str_data`` and
``bin_data`` are one BYTES element of the first input; every entry of a gmap is a tensor of one element. For a
model without a signature, tensors keep their names, and text and bytes have that of their field. From grps to
grps a message keeps its ``WireForm``. ``codec_grpc``, ``codec_json`` and ``json_writer`` have the wire
formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from interlingua.protocols.grps.gmap import entry_of, fits_gmap, read_gmap, write_gmap
from interlingua.protocols.grps.message import OK, GenericTensor, GrpsMessage, Kind
from interlingua.protocols.grps.tensors import read_tensor, write_tensor
from interlingua.schemas import (
    Datatype,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
    invalid_tensor,
    pack_bytes,
    unrepresentable,
)
from interlingua.schemas.bounded_text import listed

_ONE_ELEMENT = frozenset({Kind.STR_DATA, Kind.BIN_DATA})
_MAY_BE_EMPTY = frozenset({Kind.GTENSORS, Kind.GMAP, Kind.NDARRAY})


@dataclass(frozen=True, slots=True)
class WireForm:
    """The form of a message, for a message of the same dialect with its data.

    ``kind`` is that of the payload. ``names`` are names on the wire that differ from those here: of an entry
    of a gmap that the model declares by its key alone, and of several tensors without a name (empty).
    """

    kind: Kind
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GrpsReplyForm:
    """The form of an answer: an ``ndarray``, where ``first_tensor_only`` drops further outputs, which else
    are an error; otherwise the form of the ``request``."""

    request: WireForm
    ndarray: bool = False
    first_tensor_only: bool = False


# --- as a server


def decode_request(
    message: GrpsMessage,
    signature: Signature,
    *,
    model: str = "",
    version: str = "",
    return_ndarray: bool = False,
    first_tensor_only: bool = False,
) -> tuple[InferRequest, GrpsReplyForm]:
    """The request in ``message`` and the form of its answer. Raises INVALID_TENSOR naming the tensor,
    UNREPRESENTABLE for data that cannot be the model's input."""
    inputs, form = _tensors(message, signature.inputs, "input")
    return (
        # one model serves Predict and PredictStreaming: a streaming model may give its only answer
        InferRequest(model, inputs, version=version, answers="only", wire_form=form),
        GrpsReplyForm(form, return_ndarray, first_tensor_only),
    )


def encode_response(form: GrpsReplyForm, response: InferResponse) -> GrpsMessage:
    """The answer with status OK, without a model.

    The answer of a grps server keeps its form. Otherwise one BYTES element or a gmap has the form of the
    request, if the outputs allow; invalid text becomes ``bin_data``. Raises UNREPRESENTABLE naming the
    output, also for an ndarray that is not possible.
    """
    outputs = response.outputs
    if form.ndarray:
        return GrpsMessage(Kind.NDARRAY, status=OK, tensors=(_ndarray(form, outputs),))
    wire_form = response.wire_form if isinstance(response.wire_form, WireForm) else form.request
    if wire_form.kind in _ONE_ELEMENT and len(outputs) == 1 and _is_one_element(outputs[0]):
        message = _one_element(wire_form.kind, outputs[0].elements()[0])
    else:
        message = _in_form(outputs, wire_form)
    message.status = OK
    return message


def _ndarray(form: GrpsReplyForm, outputs: Sequence[Tensor]) -> GenericTensor:
    """The output for an ndarray; the messages are those of the original servers."""
    if form.first_tensor_only:
        refusal = "No float32 tensors in output. Cannot convert to ndarray."
    elif all(output.datatype is Datatype.BYTES for output in outputs):
        refusal = "No tensors in output. Cannot convert to ndarray."
    else:
        refusal = "NDArray only support one tensor" if len(outputs) > 1 else "NDArray only support float32"
    fits = bool(outputs) and outputs[0].datatype is Datatype.FP32
    if not fits or (len(outputs) > 1 and not form.first_tensor_only):
        found = listed(f"'{output.name}' is {output.datatype.value}" for output in outputs)
        raise unrepresentable(f"{refusal} ({found or 'there is no output'})")
    return write_tensor(outputs[0])


def _is_one_element(tensor: Tensor) -> bool:
    return tensor.datatype is Datatype.BYTES and tensor.count == 1


def _one_element(kind: Kind, element: bytes) -> GrpsMessage:
    if kind is Kind.STR_DATA:
        try:
            return GrpsMessage(Kind.STR_DATA, str_data=element.decode())
        except UnicodeDecodeError:
            pass  # bytes are what bin_data is for
    return GrpsMessage(Kind.BIN_DATA, bin_data=element)


# --- as a client


def encode_request(request: InferRequest) -> GrpsMessage:
    """The message to an upstream, without a model: in the form of the grps message that it came in, else
    gtensors. One BYTES element named ``str_data`` or ``bin_data`` becomes that; tensors that all have
    canonical names of entries become a gmap.

    grps carries no ids, parameters or requested outputs. Raises UNREPRESENTABLE naming the tensor.
    """
    inputs, form = request.inputs, request.wire_form
    if not isinstance(form, WireForm):
        entries = bool(inputs) and all(entry_of(tensor.name) for tensor in inputs)
        form = _FORMS[Kind.GMAP if entries else Kind.GTENSORS]
    if form.kind is not Kind.GMAP and len(inputs) == 1 and _is_one_element(inputs[0]):
        name, element = inputs[0].name, inputs[0].elements()[0]
        if name == Kind.BIN_DATA.value:
            return GrpsMessage(Kind.BIN_DATA, bin_data=element)
        if name == Kind.STR_DATA.value:
            (text,) = write_tensor(inputs[0]).flat
            return GrpsMessage(Kind.STR_DATA, str_data=str(text))
    return _in_form(inputs, form)


def decode_response(message: GrpsMessage, signature: Signature | None) -> tuple[tuple[Tensor, ...], WireForm]:
    """The outputs in an upstream's answer, and its form; ``status.check`` reads the status. Raises
    INVALID_TENSOR."""
    return _tensors(message, signature.outputs if signature is not None else (), "output")


# --- the form of a message

_FORMS = {kind: WireForm(kind) for kind in Kind}


def _in_form(tensors: Sequence[Tensor], form: WireForm) -> GrpsMessage:
    """The message of ``tensors``: a gmap if ``form`` is one and can hold them, else gtensors."""
    if not tensors:
        return GrpsMessage(form.kind if form.kind in _MAY_BE_EMPTY else Kind.NOTHING)
    if form.kind is Kind.GMAP and fits_gmap(tensors):
        return GrpsMessage(Kind.GMAP, gmap=write_gmap(tensors, form.names))
    written = tuple(map(write_tensor, tensors))
    if form.kind is Kind.GTENSORS and form.names and all(tensor.name in form.names for tensor in tensors):
        for tensor in written:
            tensor.name = form.names[tensor.name]
    return GrpsMessage(Kind.GTENSORS, tensors=written)


# --- tensors by name


def _tensors(
    message: GrpsMessage, specs: Sequence[TensorSpec], role: str
) -> tuple[tuple[Tensor, ...], WireForm]:
    """The tensors of a message in wire order, bound to ``specs`` if there are any; its form."""
    kind, given = message.kind, message.tensors
    if kind is Kind.GMAP:
        entries, names = read_gmap(message.gmap, specs)
        return entries, WireForm(kind, names)
    if kind is Kind.STR_DATA:
        return (_element(kind, message.str_data.encode(), specs, role),), _FORMS[kind]
    if kind is Kind.BIN_DATA:
        return (_element(kind, bytes(message.bin_data), specs, role),), _FORMS[kind]
    if kind is Kind.NDARRAY:
        if specs and specs[0].datatype is not Datatype.FP32:
            _no_form("ndarray is FP32", role, specs[0])
        # with contents it is a tensor to every model
        kind = Kind.GTENSORS if given else kind
    named = bool(given) and bool(given[0].name)
    declared = {spec.name: spec for spec in specs}
    bound: dict[str, Tensor] = {}
    for index, tensor in enumerate(given):
        if bool(tensor.name) is not named:
            raise invalid_tensor(f"generic tensor error, tensor: {index} names must be all set or all empty")
        name = tensor.name or _name_of(index, len(given), specs, role)
        if name in bound:
            raise invalid_tensor(f"generic tensor error, tensor: {name} duplicated")
        bound[name] = read_tensor(tensor, name, declared.get(name))
    if named or specs or len(given) < 2:
        return tuple(bound.values()), _FORMS[kind]
    return tuple(bound.values()), WireForm(kind, dict.fromkeys(bound, ""))


def _name_of(index: int, count: int, specs: Sequence[TensorSpec], role: str) -> str:
    """The name of a tensor without one; without ``specs`` a single tensor has none."""
    if not specs:
        return str(index) if count > 1 else ""
    if index >= len(specs):
        raise invalid_tensor(
            f"generic tensor error, tensor: {index} has no name, and there are only {len(specs)} {role}s"
        )
    return specs[index].name


def _element(kind: Kind, element: bytes, specs: Sequence[TensorSpec], role: str) -> Tensor:
    """``str_data`` or ``bin_data``: the declared tensor of that name, else the first."""
    spec = next((spec for spec in specs if spec.name == kind.value), specs[0] if specs else None)
    if spec is not None and spec.datatype is not Datatype.BYTES:
        _no_form(f"{kind.value} is one BYTES element", role, spec)
    name, shape = (kind.value, (1,)) if spec is None else (spec.name, (1,) * len(spec.shape))
    return Tensor(name, Datatype.BYTES, shape, memoryview(pack_bytes((element,))))


def _no_form(what: str, role: str, spec: TensorSpec) -> NoReturn:
    raise unrepresentable(f"{what}, and the first {role} '{spec.name}' is {spec.datatype.value}")
