"""Passthrough from grps to grps, between any transports: the whole message goes to the upstream.

Without a signature nothing is checked, as on the original servers: their models may accept tensors that
contradict themselves. With a signature gtensors pass whose numbers are as wide as the datatypes that it
declares, under the same names. Only the model's name is rewritten, also in an answer that repeats it.
Requests for an ndarray go through ``codec``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames
from interlingua.protocols.grps import codec
from interlingua.protocols.grps.client_deployment import joined
from interlingua.protocols.grps.message import OK, GenericTensor, GrpsMessage, Kind
from interlingua.protocols.grps.tensors import DATATYPES
from interlingua.protocols.upstream_reply import read_reply
from interlingua.schemas import (
    Datatype,
    InferenceError,
    InferHeads,
    InferRequest,
    InferResponse,
    Signature,
    TensorHead,
    TensorSpec,
    element_count,
)

_UNREAD = InferHeads((), ())


@dataclass(frozen=True, slots=True)
class Call:
    """A decoded request, the writer of its answer, and whether that must be an ndarray."""

    message: GrpsMessage
    write: Callable[[GrpsMessage], Any]
    ndarray: bool = False


@dataclass(frozen=True, slots=True)
class WholeMessage:
    """The ``wire_form`` of a request or a response without tensors: the received ``message``."""

    message: GrpsMessage


def _heads(opened: Opened[Any], signature: Signature) -> InferHeads | None:
    """No heads for a model without a signature, which accepts any tensors."""
    call: Call = opened.message
    if call.ndarray:
        return None
    if not (signature.inputs or signature.outputs):
        return _UNREAD
    if call.message.kind is not Kind.GTENSORS:
        return None
    heads = _tensors(call.message.tensors, signature.input_names)
    return None if heads is None else InferHeads(heads, ())


def _tensors(
    given: Sequence[GenericTensor], specs: Mapping[str, TensorSpec]
) -> tuple[TensorHead, ...] | None:
    """The heads of tensors that are what ``specs`` declare; None if one has to be converted or is invalid."""
    heads = []
    for tensor in given:
        spec, datatype = specs.get(tensor.name), DATATYPES.get(tensor.dtype)
        if spec is None or spec.datatype is not datatype or not _is_plain(tensor, datatype):
            return None
        heads.append(TensorHead(tensor.name, datatype, tensor.shape))
    return tuple(heads)


def _is_plain(tensor: GenericTensor, datatype: Datatype) -> bool:
    """Whether the numbers fill the shape and are as wide as ``datatype``."""
    flat = tensor.flat
    if not isinstance(flat, np.ndarray) or flat.dtype != datatype.dtype:
        return False
    try:
        return element_count(tensor.shape) == len(flat)
    except InferenceError:
        return False


def _call(opened: Opened[Any], names: PassthroughNames) -> InferRequest | None:
    call: Call = opened.message
    if names.inputs or names.outputs or (names.declared and not names.order):
        return None
    message = call.message
    # HTTP alone has ndarrays; one with tensors is a tensor message to every model
    kind = Kind.GTENSORS if message.kind is Kind.NDARRAY and message.tensors else message.kind
    form = WholeMessage(replace(message, kind=kind, status=None))
    return InferRequest(names.remote, (), version=names.version, wire_form=form)


def _answer(
    opened: Opened[Any], names: PassthroughNames, response: InferResponse
) -> tuple[Any, str] | InferResponse:
    call: Call = opened.message
    form: Any = response.wire_form  # a WholeMessage, as that of the request
    answer: GrpsMessage = form.message
    if names.declared:
        return _checked(call, names, answer)
    model = answer.model
    if model and model == joined(names.remote, names.version):
        model = call.message.model
    return call.write(replace(answer, model=model, status=OK)), ""


def _checked(call: Call, names: PassthroughNames, answer: GrpsMessage) -> tuple[Any, str] | InferResponse:
    """The answer with the outputs that the signature declares, in its order; any other is decoded."""
    signature = names.signature
    if answer.kind is Kind.GTENSORS and tuple([each.name for each in answer.tensors]) == names.order:
        heads = _tensors(answer.tensors, signature.output_names)
        if heads is not None:
            return call.write(replace(answer, model="", status=OK)), names.version
    outputs, wire_form = read_reply(lambda: codec.decode_response(answer, signature))
    return InferResponse(names.remote, outputs, names.version, wire_form=wire_form)


PASSTHROUGH: Passthrough[Any, Any, Any] = Passthrough(_heads, _call, _answer, observable=False)
