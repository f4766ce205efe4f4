"""BYTES that MLServer sends as base64, which it tells by the parameter ``content_type`` of an output."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from interlingua.schemas import Datatype, Tensor, pack_bytes


def as_meant(tensor: Tensor, parameters: Mapping[str, Any]) -> Tensor:
    """``tensor`` of an answer with its elements decoded where ``parameters`` say that they are base64; an
    element that is none is taken as it is, as MLServer does."""
    if tensor.datatype is not Datatype.BYTES or parameters.get("content_type") != "base64":
        return tensor
    elements = pack_bytes([_decoded(element) for element in tensor.elements()])
    return Tensor(tensor.name, tensor.datatype, tensor.shape, memoryview(elements))


def _decoded(element: bytes) -> bytes:
    try:
        return base64.b64decode(element, validate=True)
    except (binascii.Error, ValueError):
        return element
