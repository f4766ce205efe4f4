"""grps messages to and from the IR: names, datatypes, ranges, the form of an answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from protocols.grps.message import GrpsMessage, Kind
from schemas import InferRequest, InferResponse, Signature, Tensor


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How an answer is told: as what ``kind``, text and bytes only where the answer is one BYTES element.
    With ``first_tensor_only`` an ndarray leaves the other outputs out, where they would else be an error."""

    kind: Kind
    first_tensor_only: bool = False


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
    raise NotImplementedError


def encode_response(form: ReplyForm, response: InferResponse) -> GrpsMessage:
    """The answer, its status OK, without a model. Raises UNREPRESENTABLE, and MODEL_FAILED where an ndarray
    was asked for and cannot be."""
    raise NotImplementedError


def encode_request(request: InferRequest) -> GrpsMessage:
    """The question to an upstream: gtensors; one BYTES element called ``str_data`` or ``bin_data`` goes
    as that. Raises UNREPRESENTABLE naming the tensor."""
    raise NotImplementedError


def decode_response(
    message: GrpsMessage, signature: Signature | None, asked: Collection[str] | None = None
) -> tuple[Tensor, ...]:
    """The outputs in an upstream's answer, those ``asked`` for in that order, else all. ``message.status`` is
    for ``status.check``. Raises INVALID_TENSOR."""
    raise NotImplementedError
