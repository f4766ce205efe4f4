"""BYTES that MLServer sends as base64, with the parameter ``content_type`` on the output."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from interlingua.schemas import Datatype, Tensor, pack_bytes


def decode_base64(tensor: Tensor, parameters: Mapping[str, Any]) -> Tensor:
    """``tensor`` with its elements decoded, if ``parameters`` declare base64. An element that is not base64
    stays as it is, as on MLServer."""
    if tensor.datatype is not Datatype.BYTES or parameters.get("content_type") != "base64":
        return tensor
    elements = pack_bytes([_decoded(element) for element in tensor.elements()])
    return Tensor(tensor.name, tensor.datatype, tensor.shape, memoryview(elements))


def _decoded(element: bytes) -> bytes:
    try:
        return base64.b64decode(element, validate=True)
    except (binascii.Error, ValueError):
        return element
