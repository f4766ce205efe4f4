"""grps messages to and from the IR: which tensor is which, and the form of an answer.

Pure functions, the same for the listener and the upstream client. gtensors bind by name, or by order where
none has one; an ndarray is the first input, in FP32; ``str_data`` and ``bin_data`` are one BYTES element of
the first input; every entry of a gmap is a tensor of one element. Where a model declares nothing, tensors
keep the names that they come with, and text and bytes are called as their field is. The tensors themselves
belong to ``tensors``, bytes and text to ``codec_grpc``, ``codec_json`` and ``json_writer``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from protocols.grps.message import OK, GenericTensor, Gmap, GrpsMessage, Kind
from protocols.grps.tensors import read_tensor, write_tensor
from schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    Signature,
    Tensor,
    TensorSpec,
    pack_bytes,
)

_ENTRIES: Mapping[str, Datatype] = {
    "s_s": Datatype.BYTES,
    "s_b": Datatype.BYTES,
    "s_i32": Datatype.INT32,
    "s_i64": Datatype.INT64,
    "s_f": Datatype.FP32,
    "s_d": Datatype.FP64,
}
"""What an entry of each map of a gmap is."""

_ONE_ELEMENT = frozenset({Kind.STR_DATA, Kind.BIN_DATA})


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How an answer is told: as what ``kind``, text and bytes only where the answer is one BYTES element.
    With ``first_tensor_only`` an ndarray leaves the other outputs out, where they would else be an error."""

    kind: Kind
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
) -> tuple[InferRequest, ReplyForm]:
    """The request in ``message`` and the form of its answer.

    Raises INVALID_TENSOR naming the tensor, UNREPRESENTABLE for data that has no form as the model's input.
    """
    inputs = _tensors(message, signature.inputs, "input")
    kind = message.kind if message.kind in _ONE_ELEMENT else Kind.GTENSORS
    form = ReplyForm(Kind.NDARRAY if return_ndarray else kind, first_tensor_only)
    return InferRequest(model, inputs, version=version), form


def encode_response(form: ReplyForm, response: InferResponse) -> GrpsMessage:
    """The answer with its status OK, without a model.

    One BYTES element goes back the way that the request came; text that is none goes as ``bin_data``. Raises
    UNREPRESENTABLE naming the output, also where an ndarray was asked for and cannot be.
    """
    outputs = response.outputs
    if form.kind is Kind.NDARRAY:
        return GrpsMessage(Kind.NDARRAY, status=OK, tensors=(_ndarray(form, outputs),))
    if form.kind in _ONE_ELEMENT and len(outputs) == 1 and _is_one_element(outputs[0]):
        return _one_element(form.kind, outputs[0].elements()[0])
    if not outputs:
        return GrpsMessage(status=OK)
    return GrpsMessage(Kind.GTENSORS, status=OK, tensors=tuple(map(write_tensor, outputs)))


def _ndarray(form: ReplyForm, outputs: Sequence[Tensor]) -> GenericTensor:
    """The output that an ndarray is made of; the refusals are those of the original servers."""
    if form.first_tensor_only:
        refusal = "No float32 tensors in output. Cannot convert to ndarray."
    elif all(output.datatype is Datatype.BYTES for output in outputs):
        refusal = "No tensors in output. Cannot convert to ndarray."
    else:
        refusal = "NDArray only support one tensor" if len(outputs) > 1 else "NDArray only support float32"
    fits = bool(outputs) and outputs[0].datatype is Datatype.FP32
    if not fits or (len(outputs) > 1 and not form.first_tensor_only):
        told = ", ".join(f"'{output.name}' is {output.datatype.value}" for output in outputs)
        raise InferenceError(ErrorCode.UNREPRESENTABLE, f"{refusal} ({told or 'there is no output'})")
    return write_tensor(outputs[0])


def _is_one_element(tensor: Tensor) -> bool:
    return tensor.datatype is Datatype.BYTES and tensor.count == 1


def _one_element(kind: Kind, element: bytes) -> GrpsMessage:
    if kind is Kind.STR_DATA:
        try:
            return GrpsMessage(Kind.STR_DATA, status=OK, str_data=element.decode())
        except UnicodeDecodeError:
            pass  # bytes are what bin_data is for
    return GrpsMessage(Kind.BIN_DATA, status=OK, bin_data=element)


# --- as a client


def encode_request(request: InferRequest) -> GrpsMessage:
    """The question to an upstream, without a model: gtensors; one BYTES element called ``str_data`` or
    ``bin_data`` goes as that.

    What else a request has (its id, parameters, the outputs it wants) grps has no place for. Raises
    UNREPRESENTABLE naming the tensor.
    """
    inputs = request.inputs
    if len(inputs) == 1 and _is_one_element(inputs[0]):
        name, element = inputs[0].name, inputs[0].elements()[0]
        if name == Kind.BIN_DATA.value:
            return GrpsMessage(Kind.BIN_DATA, bin_data=element)
        if name == Kind.STR_DATA.value:
            (text,) = write_tensor(inputs[0]).flat
            return GrpsMessage(Kind.STR_DATA, str_data=str(text))
    return GrpsMessage(Kind.GTENSORS, tensors=tuple(map(write_tensor, inputs)))


def decode_response(message: GrpsMessage, signature: Signature | None) -> tuple[Tensor, ...]:
    """The outputs in an upstream's answer. What its status says is for ``status.check``.

    Raises INVALID_TENSOR.
    """
    return _tensors(message, signature.outputs if signature is not None else (), "output")


# --- tensors by name


def _tensors(message: GrpsMessage, specs: Sequence[TensorSpec], role: str) -> tuple[Tensor, ...]:
    """The tensors of a message in the order of the wire, bound to ``specs`` where there are any."""
    if message.kind is Kind.GMAP:
        return _entries(message.gmap, specs)
    if message.kind is Kind.STR_DATA:
        return (_element(message.kind, message.str_data.encode(), specs, role),)
    if message.kind is Kind.BIN_DATA:
        return (_element(message.kind, bytes(message.bin_data), specs, role),)
    if message.kind is Kind.NDARRAY and specs and specs[0].datatype is not Datatype.FP32:
        _no_form("ndarray is FP32", role, specs[0])
    given = message.tensors
    named = bool(given) and bool(given[0].name)
    declared = {spec.name: spec for spec in specs}
    bound: dict[str, Tensor] = {}
    for index, tensor in enumerate(given):
        if bool(tensor.name) is not named:
            _refuse(f"generic tensor error, tensor: {index} names must be all set or all empty")
        name = tensor.name or _name_of(index, len(given), specs, role)
        if name in bound:
            _refuse(f"generic tensor error, tensor: {name} duplicated")
        bound[name] = read_tensor(tensor, name, declared.get(name))
    return tuple(bound.values())


def _name_of(index: int, count: int, specs: Sequence[TensorSpec], role: str) -> str:
    """The name of a tensor without one. Where nothing is declared, one alone stays without."""
    if not specs:
        return str(index) if count > 1 else ""
    if index >= len(specs):
        _refuse(f"generic tensor error, tensor: {index} has no name, and there are only {len(specs)} {role}s")
    return specs[index].name


def _element(kind: Kind, element: bytes, specs: Sequence[TensorSpec], role: str) -> Tensor:
    """``str_data`` or ``bin_data``: the tensor of that name where there is one, else the first."""
    spec = next((spec for spec in specs if spec.name == kind.value), specs[0] if specs else None)
    if spec is not None and spec.datatype is not Datatype.BYTES:
        _no_form(f"{kind.value} is one BYTES element", role, spec)
    name = spec.name if spec is not None else kind.value
    return Tensor(name, Datatype.BYTES, _shape(spec, (1,)), memoryview(pack_bytes((element,))))


def _entries(gmap: Gmap, specs: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
    declared = {spec.name: spec for spec in specs}
    found: dict[str, tuple[str, Tensor]] = {}
    for field, entries in gmap.items():
        datatype = _ENTRIES[field]
        for key, value in entries.items():
            if key in found:
                _refuse(f"gmap has the key '{key}' twice, in {found[key][0]} and in {field}")
            found[key] = (field, _scalar(key, datatype, value, declared.get(key)))
    return tuple([tensor for _, tensor in found.values()])


def _scalar(name: str, datatype: Datatype, value: object, spec: TensorSpec | None) -> Tensor:
    shape = _shape(spec, ())
    if datatype is Datatype.BYTES:
        element = value.encode() if isinstance(value, str) else value
        assert isinstance(element, bytes)  # noqa: S101 - by its map
        return Tensor(name, datatype, shape, memoryview(pack_bytes((element,))))
    return Tensor(name, datatype, shape, memoryview(np.array(value, datatype.dtype).tobytes()))


def _shape(spec: TensorSpec | None, undeclared: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one element: in as many dimensions as are declared."""
    return undeclared if spec is None else (1,) * len(spec.shape)


def _no_form(what: str, role: str, spec: TensorSpec) -> NoReturn:
    raise InferenceError(
        ErrorCode.UNREPRESENTABLE, f"{what}, and the first {role} '{spec.name}' is {spec.datatype.value}"
    )


def _refuse(message: str) -> NoReturn:
    raise InferenceError(ErrorCode.INVALID_TENSOR, message)
