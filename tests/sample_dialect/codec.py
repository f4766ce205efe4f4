"""JSON documents to IR and back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from interlingua.schemas import (
    Datatype,
    ErrorCode,
    InferenceError,
    SharedMemoryRef,
    Signature,
    Tensor,
    TensorSpec,
)

JSON = {"content-type": "application/json"}


def write(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


def read(body: Any, member: str = "") -> dict[str, Any]:
    """The object in ``body``, or in its ``member``. Raises MALFORMED."""
    try:
        document = json.loads(bytes(body), object_pairs_hook=_unique)
        found: Any = document[member] if member else document
        if not isinstance(found, dict):
            raise TypeError("not an object")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InferenceError(ErrorCode.MALFORMED, f"the body cannot be read: {error}") from error
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def write_tensors(tensors: Iterable[Tensor]) -> dict[str, Any]:
    """Raises UNREPRESENTABLE for tensors that an object has no place for."""
    written: dict[str, Any] = {}
    for tensor in tensors:
        if tensor.name in written:
            raise InferenceError(ErrorCode.UNREPRESENTABLE, f"two tensors have the name '{tensor.name}'")
        data = base64.b64encode(_data(tensor)).decode()
        written[tensor.name] = {"datatype": tensor.datatype.value, "shape": list(tensor.shape), "b64": data}
    return written


def _data(tensor: Tensor) -> memoryview:
    if isinstance(tensor.data, SharedMemoryRef):
        raise InferenceError(ErrorCode.UNREPRESENTABLE, f"tensor '{tensor.name}' is in shared memory")
    return tensor.data


def read_tensors(document: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Raises MALFORMED or INVALID_TENSOR."""
    return tuple(_tensor(name, given) for name, given in document.items())


def _tensor(name: str, given: Any) -> Tensor:
    try:
        datatype, shape = Datatype(given["datatype"]), given["shape"]
        if not all(type(side) is int for side in shape):
            raise TypeError("a dimension is an integer")
        data = base64.b64decode(given["b64"], validate=True)
    except (ValueError, LookupError, TypeError) as error:
        raise InferenceError(ErrorCode.INVALID_TENSOR, f"tensor '{name}' cannot be read: {error}") from error
    return Tensor.checked(name, datatype, shape, data)


def write_signature(signature: Signature) -> dict[str, Any]:
    return {
        "inputs": [_spec(spec) for spec in signature.inputs],
        "outputs": [_spec(spec) for spec in signature.outputs],
        "max_batch_size": signature.max_batch_size,
    }


def read_signature(document: Mapping[str, Any]) -> Signature:
    inputs, outputs = (
        tuple(
            TensorSpec(spec["name"], Datatype(spec["datatype"]), tuple(spec["shape"]))
            for spec in document[side]
        )
        for side in ("inputs", "outputs")
    )
    return Signature(inputs, outputs, document["max_batch_size"])


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype.value, "shape": list(spec.shape)}
