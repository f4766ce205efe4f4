"""Inference from grps to grps: the whole message goes on, over whichever transports.

Contract: for a model that declares nothing. The payload is not checked, as the original servers do not: their
models may take tensors that contradict themselves. Names are the server's own; of the message only its model
is rewritten, and in an answer that repeats it. What has to be understood here, an ndarray to be made of the
answer or a declared signature, is left to ``codec``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from interlingua.protocols.dialect import Opened, Passage, Passed
from interlingua.protocols.grps.client_deployment import joined
from interlingua.protocols.grps.message import OK, GrpsMessage, Kind
from interlingua.schemas import InferHeads, InferRequest, InferResponse

_UNREAD = InferHeads((), ())


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was read, what makes an answer of a message, and whether that shall be an ndarray."""

    message: GrpsMessage
    write: Callable[[GrpsMessage], Any]
    ndarray: bool = False


@dataclass(frozen=True, slots=True)
class WholeMessage:
    """The ``wire_form`` of a request or a response without tensors, which is ``message`` as it came."""

    message: GrpsMessage


def _heads(opened: Opened[Any]) -> InferHeads | None:
    """A message that passes says nothing of its tensors, for there is nothing to hold them against."""
    call: Call = opened.message
    return None if call.ndarray else _UNREAD


def _ask(opened: Opened[Any], passed: Passed) -> InferRequest | None:
    call: Call = opened.message
    if passed.declared or passed.inputs or passed.outputs:
        return None
    message = call.message
    # one with contents is a tensor to every model, and HTTP alone has it
    kind = Kind.GTENSORS if message.kind is Kind.NDARRAY and message.tensors else message.kind
    form = WholeMessage(replace(message, kind=kind, status=None))
    return InferRequest(passed.remote, (), version=passed.version, wire_form=form)


def _answer(opened: Opened[Any], passed: Passed, response: InferResponse) -> tuple[Any, str]:
    call: Call = opened.message
    assert isinstance(response.wire_form, WholeMessage)  # noqa: S101 - as it was asked for
    answer = response.wire_form.message
    model = answer.model
    if model and model == joined(passed.remote, passed.version):
        model = call.message.model
    return call.write(replace(answer, model=model, status=OK)), ""


PASSAGE: Passage[Any, Any, Any] = Passage(_heads, _ask, _answer)
