"""The gRPC methods of the dialect.

Errors are in ordinary answers, under the gRPC status OK; only bytes that are not a message get INTERNAL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from interlingua.protocols.dialect import Action, GrpcEndpoint, Opened
from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.protobuf_wire import join
from interlingua.protocols.trtis.codec_grpc import SERVICE, open_infer
from interlingua.protocols.trtis.shared_memory_control import read_control
from interlingua.protocols.trtis.status import (
    UnknownRequestError,
    error_text,
    failure,
    probed,
    repository_index,
    server_status,
    shared_memory_status,
    success,
)
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import ErrorCode, InferenceError, Operation, Readiness, SharedMemoryRegion
from interlingua.schemas.trtis import MESSAGES

Open = Callable[[GrpcRequest], Opened[GrpcAnswer]]
Fail = Callable[[GrpcRequest, Opened[GrpcAnswer] | None, InferenceError], GrpcAnswer]
Write = Callable[[Any], Mapping[str, Any]]
Repeated = Callable[[Opened[GrpcAnswer] | None], Mapping[str, Any]]
"""The fields of the request that the answer to a failure repeats."""

_GRPC_INTERNAL = 13

_REGIONS = 2
"""The field of regions in the status of shared memory. The contract says 1; the original server writes 2, and
clients fail on 1."""


def _message(rpc: str, kind: str) -> Any:
    return MESSAGES[f"nvidia.inferenceserver.{rpc}{kind}"]


def _action(operation: Operation, rpc: str, write: Write = lambda result: {}) -> Action[GrpcAnswer]:
    """``operation`` as ``rpc`` answers it: ``write`` makes fields of its result."""
    response = _message(rpc, "Response")

    def encode(opened: Opened[GrpcAnswer], result: Any) -> GrpcAnswer:
        answer = response(request_status=success(opened.message.context), **write(result))
        return GrpcAnswer(answer.SerializeToString())

    return Action(operation, encode)


def _encode_health(opened: Opened[GrpcAnswer], state: Readiness) -> GrpcAnswer:
    answer = _message("Health", "Response")(
        request_status=probed(opened.message.context, state), health=state.ready
    )
    return GrpcAnswer(answer.SerializeToString())


def _encode_regions(opened: Opened[GrpcAnswer], regions: Iterable[SharedMemoryRegion]) -> GrpcAnswer:
    head = _message("SharedMemoryControl", "Response")(request_status=success(opened.message.context))
    found = [region.SerializeToString() for region in shared_memory_status(regions).shared_memory_region]
    return GrpcAnswer(join(head.SerializeToString(), _REGIONS, [join(b"", _REGIONS, found)]))


_STATUS = _action(Operation.STATUS, "Status", lambda status: {"server_status": server_status(status)})
_HEALTH = {"live": Action(Operation.LIVE, _encode_health), "ready": Action(Operation.READY, _encode_health)}
_REPOSITORY = _action(
    Operation.REPOSITORY_INDEX, "Repository", lambda models: {"index": repository_index(models)}
)
# by the number of the request's type
_MODEL_CONTROL = {
    0: _action(Operation.MODEL_UNLOAD, "ModelControl"),
    1: _action(Operation.MODEL_LOAD, "ModelControl"),
}
_SHARED_MEMORY = {
    Operation.SHARED_MEMORY_REGISTER: _action(Operation.SHARED_MEMORY_REGISTER, "SharedMemoryControl"),
    Operation.SHARED_MEMORY_UNREGISTER: _action(Operation.SHARED_MEMORY_UNREGISTER, "SharedMemoryControl"),
    Operation.SHARED_MEMORY_STATUS: Action(Operation.SHARED_MEMORY_STATUS, _encode_regions),
}


def _open_status(request: GrpcRequest) -> Opened[GrpcAnswer]:
    message = parse_bounded(_message("Status", "Request"), request.message)
    return Opened(_STATUS, message.model_name, message=request)


def _open_health(request: GrpcRequest) -> Opened[GrpcAnswer]:
    mode = parse_bounded(_message("Health", "Request"), request.message).mode
    if mode not in _HEALTH:
        raise UnknownRequestError(f"unknown health mode '{mode}'")
    return Opened(_HEALTH[mode], message=request)


def _open_model_control(request: GrpcRequest) -> Opened[GrpcAnswer]:
    message = parse_bounded(_message("ModelControl", "Request"), request.message)
    if message.type not in _MODEL_CONTROL:
        raise UnknownRequestError(f"unknown modelcontrol request type {message.type}")
    return Opened(_MODEL_CONTROL[message.type], message.model_name, message=request)


def _open_repository(request: GrpcRequest) -> Opened[GrpcAnswer]:
    if parse_bounded(_message("Repository", "Request"), request.message).WhichOneof("request_type") is None:
        raise UnknownRequestError("request type is not specified")
    return Opened(_REPOSITORY, message=request)


def _open_shared_memory(request: GrpcRequest) -> Opened[GrpcAnswer]:
    message = read_control(request.message)
    if message is None:
        raise UnknownRequestError("unknown sharedmemorycontrol request type")
    operation, argument = message
    return Opened(_SHARED_MEMORY[operation], message=request, argument=argument)


def _failing(response: type[Message], repeated: Repeated = lambda opened: {}) -> Fail:
    def fail(request: GrpcRequest, opened: Opened[GrpcAnswer] | None, error: InferenceError) -> GrpcAnswer:
        if opened is None and error.code is ErrorCode.MALFORMED:
            return GrpcAnswer(code=_GRPC_INTERNAL, details=error_text(error))
        status = failure(request.context, opened, error)
        return GrpcAnswer(response(request_status=status, **repeated(opened)).SerializeToString())

    return fail


def _request_id(opened: Opened[GrpcAnswer] | None) -> Mapping[str, Any]:
    """The id of an inference: clients of a stream find the request by it, and wait forever without."""
    return {"meta_data": {"id": opened.message[0].id if opened else 0}}


_OPENERS: Mapping[str, tuple[Open, tuple[Operation, ...]]] = {
    "Status": (_open_status, (Operation.STATUS,)),
    "Health": (_open_health, (Operation.LIVE, Operation.READY)),
    "ModelControl": (_open_model_control, (Operation.MODEL_UNLOAD, Operation.MODEL_LOAD)),
    "Repository": (_open_repository, (Operation.REPOSITORY_INDEX,)),
    "SharedMemoryControl": (_open_shared_memory, tuple(_SHARED_MEMORY)),
}

_fail_infer = _failing(_message("Infer", "Response"), _request_id)

GRPC_ENDPOINTS: tuple[GrpcEndpoint, ...] = (
    GrpcEndpoint(f"{SERVICE}Infer", open_infer, _fail_infer, operations=(Operation.INFER,)),
    # a refusal has the id of the message
    GrpcEndpoint(f"{SERVICE}StreamInfer", open_infer, _fail_infer, streaming=True, pinned=True),
    *(
        GrpcEndpoint(
            f"{SERVICE}{rpc}", open_message, _failing(_message(rpc, "Response")), operations=operations
        )
        for rpc, (open_message, operations) in _OPENERS.items()
    ),
)
