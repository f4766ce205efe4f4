"""Errors, statuses and metadata of the IR as messages of ``schemas.trtis``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from interlingua.protocols.dialect import Opened
from interlingua.protocols.trtis.codec import version_number
from interlingua.protocols.trtis.words import in_own_words
from interlingua.schemas import (
    Context,
    Duration,
    ErrorCode,
    InferenceError,
    ModelState,
    ModelStatus,
    Operation,
    Readiness,
    RequestStatistics,
    ServerState,
    ServerStatus,
    SharedMemoryRegion,
    VersionStatus,
)
from interlingua.schemas.trtis import MESSAGES

SUCCESS, UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS = range(1, 9)
"""``RequestStatusCode``. Its 0, the default, is a failure too."""

STATUS_CODES: Mapping[ErrorCode, int] = {
    ErrorCode.MALFORMED: INVALID_ARG,
    ErrorCode.INVALID_TENSOR: INVALID_ARG,
    ErrorCode.UNREPRESENTABLE: UNSUPPORTED,
    ErrorCode.NOT_FOUND: NOT_FOUND,
    ErrorCode.ALREADY_EXISTS: ALREADY_EXISTS,
    ErrorCode.UNSUPPORTED: UNSUPPORTED,
    ErrorCode.UNAUTHENTICATED: INVALID_ARG,
    ErrorCode.FORBIDDEN: INVALID_ARG,
    ErrorCode.TOO_LARGE: INVALID_ARG,
    ErrorCode.OVERLOADED: UNAVAILABLE,
    ErrorCode.UNAVAILABLE: UNAVAILABLE,
    ErrorCode.DEADLINE_EXCEEDED: UNAVAILABLE,
    ErrorCode.CANCELLED: UNAVAILABLE,
    ErrorCode.MODEL_FAILED: INTERNAL,
    ErrorCode.BAD_UPSTREAM: INTERNAL,
    ErrorCode.INTERNAL: INTERNAL,
}
"""The code of each error, unless the operation has its own."""

_UNKNOWN_MODEL = {Operation.INFER: UNAVAILABLE, Operation.STATUS: INVALID_ARG}
"""The original server's code for an unknown model, by operation."""

_NAMES = (
    *("INVALID", "SUCCESS", "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED"),
    "ALREADY_EXISTS",
)
"""Of ``RequestStatusCode``, by number."""

REQUEST_STATUS: Any = MESSAGES["nvidia.inferenceserver.RequestStatus"]
SERVER_STATUS: Any = MESSAGES["nvidia.inferenceserver.ServerStatus"]
SHARED_MEMORY_STATUS: Any = MESSAGES["nvidia.inferenceserver.SharedMemoryStatus"]
REPOSITORY_INDEX: Any = MESSAGES["nvidia.inferenceserver.ModelRepositoryIndex"]

_RELEASE = "1.15.0"
"""The version in the metadata: the last release of this protocol."""

_MODEL_STATES = {
    ModelState.UNKNOWN: "MODEL_UNKNOWN",
    ModelState.READY: "MODEL_READY",
    ModelState.UNAVAILABLE: "MODEL_UNAVAILABLE",
    ModelState.LOADING: "MODEL_LOADING",
    ModelState.UNLOADING: "MODEL_UNLOADING",
}
_SERVER_STATES = {
    ServerState.INITIALIZING: "SERVER_INITIALIZING",
    ServerState.READY: "SERVER_READY",
    ServerState.EXITING: "SERVER_EXITING",
}
_COUNTED = {
    "status_stats": (Operation.STATUS,),
    "health_stats": (Operation.LIVE, Operation.READY),
    "model_control_stats": (Operation.MODEL_LOAD, Operation.MODEL_UNLOAD),
    "repository_stats": (Operation.REPOSITORY_INDEX,),
}
"""The counters of the server, and the operations that each one counts."""


_MAX_TEXT_BYTES = 8192
"""The limit of an error's text: a header has it escaped, at up to four times its size, and clients accept
lines of 64 KiB."""


# --- the outcome of a request


class UnknownRequestError(InferenceError):
    """A request of an unknown type, the only error for which the original server answers ``UNKNOWN``."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED, message)


def status_code(error: InferenceError, operation: Operation | None) -> int:
    """The ``RequestStatusCode`` of ``error``; ``operation`` is None if the request was not understood."""
    if isinstance(error, UnknownRequestError):
        return UNKNOWN
    if error.model_not_found:
        return _UNKNOWN_MODEL.get(operation, NOT_FOUND) if operation else NOT_FOUND
    return STATUS_CODES[error.code]


def status_name(error: InferenceError, operation: Operation | None) -> str:
    """The name of :func:`status_code`, for the log."""
    return _NAMES[status_code(error, operation)]


def error_text(error: InferenceError) -> str:
    """The message of ``error`` in version 1's words, of limited length and in valid Unicode, which a quoted
    name may lack."""
    text = in_own_words(error.message).encode(errors="backslashreplace")
    # the cut may split a character, which is dropped
    return text[:_MAX_TEXT_BYTES].decode(errors="ignore")


def success(context: Context) -> Any:
    """The ``RequestStatus`` of a success."""
    return REQUEST_STATUS(code=SUCCESS, server_id=context.server_id, request_id=context.request_number)


def failure(context: Context, opened: Opened[Any] | None, error: InferenceError) -> Any:
    """The ``RequestStatus`` of a failure."""
    return REQUEST_STATUS(
        code=status_code(error, opened.action.operation if opened else None),
        msg=error_text(error),
        server_id=context.server_id,
        request_id=context.request_number,
    )


def probed(context: Context, state: Readiness) -> Any:
    """The ``RequestStatus`` of a probe: a success also if the server is not ready, unless it is shutting
    down."""
    if state.leaving:
        return failure(context, None, InferenceError(ErrorCode.UNAVAILABLE, "Server exiting"))
    return success(context)


# --- metadata


def server_status(status: ServerStatus) -> Any:
    """A ``ServerStatus``. Raises INTERNAL for a model whose configuration is no message."""
    message = SERVER_STATUS(
        id=status.id, version=_RELEASE, uptime_ns=status.uptime_ns, ready_state=_SERVER_STATES[status.state]
    )
    for field, operations in _COUNTED.items():
        counted = [status.requests[each.value] for each in operations if each.value in status.requests]
        _write_sum(getattr(message, field).success, counted)
    for name, model in status.models.items():
        _write_model(message.model_status[name], model)
    return message


def repository_index(models: Iterable[ModelStatus]) -> Any:
    """A ``ModelRepositoryIndex``, which has only names."""
    return REPOSITORY_INDEX(models=[{"name": model.name} for model in models])


def shared_memory_status(regions: Iterable[SharedMemoryRegion]) -> Any:
    """A ``SharedMemoryStatus``."""
    message = SHARED_MEMORY_STATUS()
    for region in regions:
        place = {"shared_memory_key": region.key, "offset": region.offset}
        message.shared_memory_region.add(
            name=region.name, system_shared_memory=place, byte_size=region.byte_size
        )
    return message


def _write_model(target: Any, model: ModelStatus) -> None:
    config = target.config
    try:
        config.MergeFromString(model.config)
    except DecodeError as error:
        raise InferenceError(
            ErrorCode.INTERNAL, f"the configuration of model '{model.name}' is no message: {error}"
        ) from error
    # fields of version 2, which a client would print as numbers
    config.DiscardUnknownFields()
    # a route may lead to another model, and an unreadable configuration is empty
    config.name = model.name
    if model.elsewhere and config.HasField("ensemble_scheduling"):
        # clients would look for the models of its steps in this status
        del config.ensemble_scheduling.step[:]
    for tensor in (*config.input, *config.output):
        if not tensor.dims and not tensor.HasField("reshape"):
            # version 1 has no scalars: they are one element with a reshape
            tensor.dims.append(1)
            tensor.reshape.SetInParent()
    for version in model.versions:
        number = version_number(version.version)
        if number is not None:
            _write_version(target.version_status[number], version)


def _write_version(target: Any, version: VersionStatus) -> None:
    counted = version.statistics
    target.ready_state = _MODEL_STATES[version.state]
    target.model_execution_count = counted.execution_count
    target.model_inference_count = counted.inference_count
    target.last_inference_timestamp_milliseconds = counted.last_inference_ms
    if version.reason:
        target.ready_state_reason.message = version.reason
    for size, statistics in counted.by_batch_size.items():
        _write_statistics(target.infer_stats[size], statistics)


def _write_statistics(target: Any, statistics: RequestStatistics) -> None:
    _write_sum(target.success, [statistics.success])
    _write_sum(target.failed, [statistics.failed])
    _write_sum(target.queue, [statistics.queue])
    # only version 2 has fields for the parts
    parts = (statistics.compute_input, statistics.compute_infer, statistics.compute_output)
    target.compute.count = statistics.compute_infer.count
    target.compute.total_time_ns = sum(part.ns for part in parts)


def _write_sum(target: Any, durations: Iterable[Duration]) -> None:
    """The sum of ``durations``; present even if zero, for clients that expect it."""
    target.SetInParent()
    for duration in durations:
        target.count += duration.count
        target.total_time_ns += duration.ns
