"""ModelInfer messages with more than raw contents: millions of numbers or strings in typed contents.

They are read by ``offload.call``, which returns the same message with its typed contents as raw ones.
"""

from __future__ import annotations

from typing import Any

from interlingua.protocols.oip.typed_contents import count_of, read_contents
from interlingua.protocols.protobuf_message import parse
from interlingua.protocols.wire import Buffer
from interlingua.schemas import offload
from interlingua.schemas.datatypes import DATATYPES
from interlingua.schemas.oip import MESSAGES

LONG_BYTES = 1 << 14
"""A message without its raw contents up to this size is parsed on the event loop."""

_TYPES: dict[str, Any] = {name: MESSAGES[f"inference.ModelInfer{name}"] for name in ("Request", "Response")}
_TENSORS = {"Request": "inputs", "Response": "outputs"}

Raws = list[memoryview]


def shortened(kind: str, rest: Buffer, raws: Raws) -> tuple[Buffer, Raws]:
    """The long ``rest`` of a Request or Response (``kind``), whose raw contents are ``raws``, with its typed
    contents as raw ones. Raises MALFORMED, INVALID_TENSOR for contents of another datatype, TOO_LARGE."""
    short, typed = offload.call(_typed_as_raw, kind, rest, bool(raws))
    return short, typed or raws


def _typed_as_raw(kind: str, rest: Buffer, has_raws: bool) -> tuple[Buffer, Raws]:
    message = parse(_TYPES[kind], rest)
    tensors = getattr(message, _TENSORS[kind])
    _check_elements(kind, message, tensors)
    if has_raws or not all(_is_convertible(tensor) for tensor in tensors):
        return rest, []
    contents: Raws = []
    for tensor in tensors:
        if tensor.HasField("contents"):
            owner = f"{kind.lower()} tensor '{tensor.name}'"
            contents.append(memoryview(read_contents(owner, DATATYPES[tensor.datatype], tensor.contents)))
            tensor.ClearField("contents")
    return message.SerializeToString(), contents


def _check_elements(kind: str, message: Any, tensors: Any) -> None:
    keys = len(message.parameters) + len(message.outputs)
    elements = 0
    for tensor in tensors:
        keys += 1 + len(tensor.parameters) + len(tensor.shape)
        elements += count_of(tensor.contents)
    if kind == "Request":
        keys += sum(len(output.parameters) for output in message.outputs)
    offload.limits().check_elements(elements + offload.KEY_WEIGHT * keys, f"the ModelInfer{kind}")


def _is_convertible(tensor: Any) -> bool:
    """Whether a tensor has typed contents, of a known datatype; in shared memory it has no contents."""
    if tensor.HasField("contents"):
        return tensor.datatype in DATATYPES and "shared_memory_region" not in tensor.parameters
    return "shared_memory_region" in tensor.parameters
