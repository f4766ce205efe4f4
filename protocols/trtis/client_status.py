"""``RequestStatus`` and ``ServerStatus`` messages of an upstream to the IR: errors, metadata and readiness.

Version 1 has one answer for metadata and readiness, with the whole configuration of every requested model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from interlingua.protocols.trtis.codec import DATATYPE_NUMBERS
from interlingua.protocols.trtis.status import (
    ALREADY_EXISTS,
    INTERNAL,
    INVALID_ARG,
    NOT_FOUND,
    SUCCESS,
    UNAVAILABLE,
    UNKNOWN,
    UNSUPPORTED,
)
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ModelMetadata,
    ModelRef,
    Readiness,
    ServerMetadata,
    Signature,
    TensorSpec,
    bad_upstream,
    unrepresentable,
)

CODES: Mapping[int, ErrorCode] = {
    UNKNOWN: ErrorCode.MODEL_FAILED,
    INTERNAL: ErrorCode.MODEL_FAILED,
    NOT_FOUND: ErrorCode.NOT_FOUND,
    INVALID_ARG: ErrorCode.INVALID_TENSOR,
    UNAVAILABLE: ErrorCode.UNAVAILABLE,
    UNSUPPORTED: ErrorCode.UNSUPPORTED,
    ALREADY_EXISTS: ErrorCode.ALREADY_EXISTS,
}
"""The meaning of a ``RequestStatusCode``; any other is BAD_UPSTREAM."""

_UNKNOWN_MODEL = re.compile(
    "no status available for unknown model|Inference request for unknown model"
    "|Request for unknown model: .* is not found",
    re.DOTALL,
)
"""The messages for an unknown model; their codes, INVALID_ARG and UNAVAILABLE, are less precise."""

_READY = 1
_DATATYPES = {number: datatype for datatype, number in DATATYPE_NUMBERS.items()}


def check_status(status: Any) -> None:
    """Raise the error in a ``RequestStatus``, in the upstream's words."""
    if status.code == SUCCESS:
        return
    code = CODES.get(status.code, ErrorCode.BAD_UPSTREAM)
    if _UNKNOWN_MODEL.match(status.msg):
        code = ErrorCode.NOT_FOUND
    raise InferenceError(code, status.msg or f"the upstream failed with code {status.code} and no message")


def server_metadata(status: Any, model: None) -> ServerMetadata:
    """The server's id, which differs between replicas, and its release."""
    return ServerMetadata(status.id, status.version)


def model_metadata(status: Any, model: ModelRef) -> ModelMetadata:
    """The model by its configuration, with the versions that are ready. Version 2 kept the fields of this
    configuration. For a model with ``reshape``, clients use the ``dims``, and so do we.

    Raises NOT_FOUND for an unknown version, BAD_UPSTREAM for an invalid configuration, UNREPRESENTABLE for a
    shape tensor of a model with batches.
    """
    found = _status_of(status, model)
    if model.version and int(model.version) not in found.version_status:
        raise InferenceError(
            ErrorCode.NOT_FOUND,
            f"Request for unknown model: '{model.name}' version {model.version} is not found",
        )
    config = found.config
    batched = config.max_batch_size > 0
    signature = Signature(
        _specs("input", config.input, batched),
        _specs("output", config.output, batched),
        max(config.max_batch_size, 0),
    )
    versions = tuple(str(version) for version in sorted(_ready(found)))
    return ModelMetadata(model.name, signature, versions, config.platform, config=config.SerializeToString())


def model_readiness(status: Any, model: ModelRef) -> Readiness:
    """Whether the requested version is ready, or any version if none is requested."""
    ready = _ready(_status_of(status, model))
    if not ready:
        return Readiness(False, f"model '{model.name}' has no version that is ready")
    if model.version and int(model.version) not in ready:
        return Readiness(False, f"version {model.version} of model '{model.name}' is not ready")
    return Readiness(True)


def _status_of(status: Any, model: ModelRef) -> Any:
    if model.name not in status.model_status:
        _invalid(f"it holds no status of model '{model.name}'")
    return status.model_status[model.name]


def _ready(found: Any) -> set[int]:
    return {version for version, state in found.version_status.items() if state.ready_state == _READY}


def _specs(role: str, given: Iterable[Any], batched: bool) -> tuple[TensorSpec, ...]:
    specs: list[TensorSpec] = []
    for tensor in given:
        datatype = _DATATYPES.get(tensor.data_type)
        if datatype is None:
            _invalid(f"{role} '{tensor.name}' has the unknown data_type {tensor.data_type}")
        if any(dimension < -1 for dimension in tensor.dims):
            _invalid(f"{role} '{tensor.name}' has the dims {list(tensor.dims)}")
        if batched and tensor.is_shape_tensor:
            raise unrepresentable(
                f"{role} '{tensor.name}' is a shape tensor: it alone has no batch dimension"
            )
        dims = () if _is_scalar(tensor) else tuple(tensor.dims)
        specs.append(TensorSpec(tensor.name, datatype, (-1, *dims) if batched else dims))
    return tuple(specs)


def _is_scalar(tensor: Any) -> bool:
    """Whether a tensor is one element that is a scalar to the model; the dialect has no scalars."""
    return tensor.HasField("reshape") and not tensor.reshape.shape and list(tensor.dims) == [1]


def _invalid(what: str) -> NoReturn:
    raise bad_upstream(f"the upstream's status is not valid: {what}")
