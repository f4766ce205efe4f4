"""BYTES that MLServer sends as base64, with the parameter ``content_type`` on the tensor.

The IR has the elements of an output decoded, because callers of other dialects cannot read the parameter. A
response to a caller of this dialect has the parameter, and the elements encoded again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import replace

from interlingua.schemas import Datatype, SharedMemoryRef, Tensor, pack_bytes


def decode_base64(tensor: Tensor) -> Tensor:
    """``tensor`` with its elements decoded, if its parameters declare base64. An element that is not base64
    stays as it is, as on MLServer."""
    return _each(_decoded, tensor)


def encode_base64(tensor: Tensor) -> Tensor:
    """The output ``tensor`` as a response has it: what :func:`decode_base64` reads."""
    return _each(base64.b64encode, tensor)


def _each(change: Callable[[bytes], bytes], tensor: Tensor) -> Tensor:
    given = tensor.parameters
    if given is None or tensor.datatype is not Datatype.BYTES or given.get("content_type") != "base64":
        return tensor
    if isinstance(tensor.data, SharedMemoryRef):
        return tensor  # the server has written it there
    return replace(tensor, data=memoryview(pack_bytes(map(change, tensor.elements()))))


def _decoded(element: bytes) -> bytes:
    try:
        return base64.b64decode(element, validate=True)
    except (binascii.Error, ValueError):
        return element
