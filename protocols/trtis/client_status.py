"""What an upstream's statuses mean: why a request failed, and what the server tells of its models.

Contract: pure functions from ``RequestStatus`` and ``ServerStatus`` messages to the IR. Version 1 has one
answer for metadata and readiness, which holds the whole configuration of every model asked for; how it
was asked belongs to ``client_http`` and ``client_grpc``.
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
"""What a ``RequestStatusCode`` means; any other is BAD_UPSTREAM."""

_UNKNOWN_MODEL = re.compile(
    "no status available for unknown model|Inference request for unknown model"
    "|Request for unknown model: .* is not found",
    re.DOTALL,
)
"""What a server says of a model that it does not know; the codes beside it are INVALID_ARG and
UNAVAILABLE, which say less."""

_READY = 1
_DATATYPES = {number: datatype for datatype, number in DATATYPE_NUMBERS.items()}


def check_status(status: Any) -> None:
    """Raise the error that a ``RequestStatus`` tells, in the upstream's words."""
    if status.code == SUCCESS:
        return
    code = CODES.get(status.code, ErrorCode.BAD_UPSTREAM)
    if _UNKNOWN_MODEL.match(status.msg):
        code = ErrorCode.NOT_FOUND
    raise InferenceError(code, status.msg or f"the upstream failed with code {status.code} and no message")


def server_metadata(status: Any, model: None) -> ServerMetadata:
    """The server's id, which tells replicas apart, and its release."""
    return ServerMetadata(status.id, status.version)


def model_metadata(status: Any, model: ModelRef) -> ModelMetadata:
    """The model as its configuration has it, with the versions that are ready. That configuration can be
    read as version 2's: it has kept the fields of version 1.

    Raises NOT_FOUND for a version that is not known, BAD_UPSTREAM where the configuration makes no sense,
    UNREPRESENTABLE for a shape tensor of a model with batches. Of a model with ``reshape`` clients use
    the ``dims``, and so do we.
    """
    told = _told(status, model)
    if model.version and int(model.version) not in told.version_status:
        raise InferenceError(
            ErrorCode.NOT_FOUND,
            f"Request for unknown model: '{model.name}' version {model.version} is not found",
        )
    config = told.config
    batched = config.max_batch_size > 0
    signature = Signature(
        _specs("input", config.input, batched),
        _specs("output", config.output, batched),
        max(config.max_batch_size, 0),
    )
    versions = tuple(str(version) for version in sorted(_ready(told)))
    return ModelMetadata(model.name, signature, versions, config.platform, config=config.SerializeToString())


def model_readiness(status: Any, model: ModelRef) -> Readiness:
    """Whether the version asked for is ready, any version where none is asked."""
    ready = _ready(_told(status, model))
    if not ready:
        return Readiness(False, f"model '{model.name}' has no version that is ready")
    if model.version and int(model.version) not in ready:
        return Readiness(False, f"version {model.version} of model '{model.name}' is not ready")
    return Readiness(True)


def _told(status: Any, model: ModelRef) -> Any:
    if model.name not in status.model_status:
        _invalid(f"it holds no status of model '{model.name}'")
    return status.model_status[model.name]


def _ready(told: Any) -> set[int]:
    return {version for version, state in told.version_status.items() if state.ready_state == _READY}


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
    """Whether a tensor is one element that the model sees without a dimension; the dialect itself has no
    scalars."""
    return tensor.HasField("reshape") and not tensor.reshape.shape and list(tensor.dims) == [1]


def _invalid(what: str) -> NoReturn:
    raise bad_upstream(f"the upstream's status is not valid: {what}")
