"""Correlation ids above 64-bit signed integers, where Open Inference Protocol over gRPC has none: a peer
gets them as text, with a parameter for the type."""

from __future__ import annotations

from dataclasses import replace

from interlingua.schemas import InferRequest

_MAX, _WIDEST = 2**63 - 1, 2**64 - 1
_PARAMETER = "interlingua_number"


def narrowed(request: InferRequest) -> InferRequest:
    """``request``, as a peer gets it."""
    sequence = request.sequence
    if sequence is None or isinstance(sequence.id, str) or sequence.id <= _MAX:
        return request
    parameters = {**request.parameters, _PARAMETER: True}
    return replace(request, sequence=replace(sequence, id=str(sequence.id)), parameters=parameters)


def widen(request: InferRequest) -> None:
    """Give a ``request`` from a peer the id that it had there. A client's own parameter of that name changes
    no other id."""
    sequence = request.sequence
    if sequence is None or request.parameters.get(_PARAMETER) is not True:
        return
    text = str(sequence.id)
    if len(text) <= len(str(_WIDEST)) and text.isdecimal() and _MAX < int(text) <= _WIDEST:
        request.parameters = {key: each for key, each in request.parameters.items() if key != _PARAMETER}
        request.sequence = replace(sequence, id=int(text))
