"""Passthrough from grps to grps, between any transports: the whole message goes to the upstream.

It is for models without a declared signature. The payload is not checked, as on the original servers: their
models may accept tensors that contradict themselves. Only the model's name is rewritten, also in an answer
that repeats it. Requests for an ndarray go through ``codec``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from interlingua.protocols.dialect import Opened, Passthrough, PassthroughNames
from interlingua.protocols.grps.client_deployment import joined
from interlingua.protocols.grps.message import OK, GrpsMessage, Kind
from interlingua.schemas import InferHeads, InferRequest, InferResponse, Signature

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
    """No heads: a model without a signature accepts any tensors."""
    call: Call = opened.message
    return None if call.ndarray else _UNREAD


def _call(opened: Opened[Any], names: PassthroughNames) -> InferRequest | None:
    call: Call = opened.message
    if names.declared or names.inputs or names.outputs:
        return None
    message = call.message
    # HTTP alone has ndarrays; one with tensors is a tensor message to every model
    kind = Kind.GTENSORS if message.kind is Kind.NDARRAY and message.tensors else message.kind
    form = WholeMessage(replace(message, kind=kind, status=None))
    return InferRequest(names.remote, (), version=names.version, wire_form=form)


def _answer(opened: Opened[Any], names: PassthroughNames, response: InferResponse) -> tuple[Any, str]:
    call: Call = opened.message
    form: Any = response.wire_form  # a WholeMessage, as that of the request
    answer: GrpsMessage = form.message
    model = answer.model
    if model and model == joined(names.remote, names.version):
        model = call.message.model
    return call.write(replace(answer, model=model, status=OK)), ""


PASSTHROUGH: Passthrough[Any, Any, Any] = Passthrough(_heads, _call, _answer, observable=False)
