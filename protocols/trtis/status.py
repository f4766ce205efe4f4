"""What became of a request, and what a server tells of itself: all of version 1 but inference.

Contract: pure functions from the IR's errors and status to the messages of ``schemas.trtis``. Where
these travel (headers, bodies, gRPC messages) belongs to ``server`` and ``codec_grpc``.
"""

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
"""The code that we answer with for each error, where the operation has none of its own for it."""

_UNKNOWN_MODEL = {Operation.INFER: UNAVAILABLE, Operation.STATUS: INVALID_ARG}
"""What the original server says of a model that it does not know, by what was asked of it."""

REQUEST_STATUS: Any = MESSAGES["nvidia.inferenceserver.RequestStatus"]
SERVER_STATUS: Any = MESSAGES["nvidia.inferenceserver.ServerStatus"]
SHARED_MEMORY_STATUS: Any = MESSAGES["nvidia.inferenceserver.SharedMemoryStatus"]
REPOSITORY_INDEX: Any = MESSAGES["nvidia.inferenceserver.ModelRepositoryIndex"]

_RELEASE = "1.15.0"
"""The release whose protocol this is, the last of version 1: what its servers told of themselves."""

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
"""The counters of the server, and the operations that each one adds up."""


_MAX_TEXT_BYTES = 8192
"""How much of an error's text is told: it travels in a header line, escaped to four times its size, and
clients take lines of 64 KiB."""


# --- what became of a request


class UnknownRequestError(InferenceError):
    """A request without a known type: the original server answers ``UNKNOWN``, to no other error."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED, message)


def status_code(error: InferenceError, operation: Operation | None) -> int:
    """The ``RequestStatusCode`` of ``error``; ``operation`` is what was asked, None where that was not
    understood."""
    if isinstance(error, UnknownRequestError):
        return UNKNOWN
    if error.model_not_found:
        return _UNKNOWN_MODEL.get(operation, NOT_FOUND) if operation else NOT_FOUND
    return STATUS_CODES[error.code]


def error_text(error: InferenceError) -> str:
    """The words of ``error`` as version 1 has them, as text that UTF-8 can carry: a message may quote what is
    no Unicode, and names of any length."""
    text = in_own_words(error.message).encode(errors="backslashreplace")
    # no harm is done but to a character that is cut in two
    return text[:_MAX_TEXT_BYTES].decode(errors="ignore")


def success(context: Context) -> Any:
    """The ``RequestStatus`` of a request that was answered."""
    return REQUEST_STATUS(code=SUCCESS, server_id=context.server_id, request_id=context.request_number)


def failure(context: Context, opened: Opened[Any] | None, error: InferenceError) -> Any:
    """The ``RequestStatus`` of a request that failed."""
    return REQUEST_STATUS(
        code=status_code(error, opened.action.operation if opened else None),
        msg=error_text(error),
        server_id=context.server_id,
        request_id=context.request_number,
    )


def probed(context: Context, state: Readiness) -> Any:
    """The ``RequestStatus`` of a probe. To be told that a server is not ready is a success; that it will
    not be again is none."""
    if state.leaving:
        return failure(context, None, InferenceError(ErrorCode.UNAVAILABLE, "Server exiting"))
    return success(context)


# --- what a server tells


def server_status(told: ServerStatus) -> Any:
    """A ``ServerStatus``. Raises INTERNAL for a model whose configuration is no message."""
    message = SERVER_STATUS(
        id=told.id, version=_RELEASE, uptime_ns=told.uptime_ns, ready_state=_SERVER_STATES[told.state]
    )
    for field, operations in _COUNTED.items():
        counted = [told.requests[each.value] for each in operations if each.value in told.requests]
        _write_sum(getattr(message, field).success, counted)
    for name, model in told.models.items():
        _write_model(message.model_status[name], model)
    return message


def repository_index(models: Iterable[ModelStatus]) -> Any:
    """A ``ModelRepositoryIndex``, which has the names alone."""
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
    # what version 2 has added; a client would print it as numbers
    config.DiscardUnknownFields()
    # a route may lead to another model, and one that could not be read says nothing
    config.name = model.name
    for tensor in (*config.input, *config.output):
        if not tensor.dims and not tensor.HasField("reshape"):
            # version 1 has no scalars: they are declared, and sent, as one element that is reshaped
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
    # one figure here: the parts have fields of their own only for version 2
    parts = (statistics.compute_input, statistics.compute_infer, statistics.compute_output)
    target.compute.count = statistics.compute_infer.count
    target.compute.total_time_ns = sum(part.ns for part in parts)


def _write_sum(target: Any, durations: Iterable[Duration]) -> None:
    """The sum of ``durations``; written where it is zero too, for clients that look for it."""
    target.SetInParent()
    for duration in durations:
        target.count += duration.count
        target.total_time_ns += duration.ns
