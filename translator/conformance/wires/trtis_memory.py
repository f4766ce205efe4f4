"""Shared memory calls of version 1, release 1.8 and later, over HTTP and gRPC. Upstreams need none, so the
dialect does not have them. Arguments and results are those of ``protocols.dialect.Action``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import text_format

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.trtis.client_status import check_status
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpCall, HttpReply
from interlingua.schemas import ErrorCode, InferenceError, Operation, SharedMemoryRegion, Signature
from interlingua.schemas.trtis import MESSAGES

_PACKAGE = "nvidia.inferenceserver"
_CONTROL: Any = MESSAGES[f"{_PACKAGE}.SharedMemoryControlRequest"]
_ANSWER: Any = MESSAGES[f"{_PACKAGE}.SharedMemoryControlResponse"]
_STATUS: Any = MESSAGES[f"{_PACKAGE}.SharedMemoryStatus"]

Regions = tuple[SharedMemoryRegion, ...]


def _regions(status: Any) -> Regions:
    return tuple(
        SharedMemoryRegion(
            region.name,
            region.system_shared_memory.shared_memory_key,
            region.system_shared_memory.offset,
            region.byte_size,
        )
        for region in status.shared_memory_region
    )


# --- HTTP


def _path(verb: str) -> str:
    return f"/api/sharedmemorycontrol/{verb}"


def _register(region: SharedMemoryRegion, signature: Signature | None) -> tuple[HttpCall, None]:
    # the key begins with a slash of its own
    place = f"{region.name}/{region.key}/{region.offset}/{region.byte_size}"
    return HttpCall("POST", _path(f"register/{place}")), None


def _unregister(name: str | None, signature: Signature | None) -> tuple[HttpCall, None]:
    return HttpCall("POST", _path("unregisterall" if name is None else f"unregister/{name}")), None


def _ask_status(name: str | None, signature: Signature | None) -> tuple[HttpCall, str | None]:
    return HttpCall("GET", _path("status"), "format=binary"), name


def _done(form: Any, reply: HttpReply) -> None:
    text = reply.headers.get("nv-status")
    if text is None:
        raise InferenceError(ErrorCode.BAD_UPSTREAM, f"status {reply.status} without NV-Status")
    check_status(text_format.Parse(text, MESSAGES[f"{_PACKAGE}.RequestStatus"]()))


def _listed(name: str | None, reply: HttpReply) -> Regions:
    _done(None, reply)
    return _regions(_STATUS.FromString(bytes(reply.body)))


HTTP_MEMORY: Mapping[Operation, UpstreamCall[HttpCall, HttpReply]] = {
    Operation.SHARED_MEMORY_REGISTER: UpstreamCall(_register, _done),
    Operation.SHARED_MEMORY_UNREGISTER: UpstreamCall(_unregister, _done),
    Operation.SHARED_MEMORY_STATUS: UpstreamCall(_ask_status, _listed),
}


# --- gRPC


def _call(
    fields: Callable[[Any], Mapping[str, Any]], read: Callable[[Any], Any] = lambda answer: None
) -> UpstreamCall[GrpcRequest, GrpcAnswer]:
    def encode(argument: Any, signature: Signature | None) -> tuple[GrpcRequest, None]:
        message = _CONTROL(**fields(argument)).SerializeToString()
        return GrpcRequest(f"/{_PACKAGE}.GRPCService/SharedMemoryControl", message), None

    def decode(form: None, reply: GrpcAnswer) -> Any:
        if reply.code:
            raise InferenceError(ErrorCode.BAD_UPSTREAM, f"gRPC status {reply.code}: {reply.details}")
        answer = _ANSWER.FromString(bytes(reply.message))
        check_status(answer.request_status)
        return read(answer)

    return UpstreamCall(encode, decode)


def _described(region: SharedMemoryRegion) -> Mapping[str, Any]:
    place = {"shared_memory_key": region.key, "offset": region.offset}
    return {"register": {"name": region.name, "system_shared_memory": place, "byte_size": region.byte_size}}


def _unregistered(name: str | None) -> Mapping[str, Any]:
    return {"unregister_all": {}} if name is None else {"unregister": {"name": name}}


def _listed_over_grpc(answer: Any) -> Regions:
    # the original server writes the regions into another field than the contract has
    return _regions(_STATUS.FromString(answer.shared_memory_status.SerializeToString()))


GRPC_MEMORY: Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]] = {
    Operation.SHARED_MEMORY_REGISTER: _call(_described),
    Operation.SHARED_MEMORY_UNREGISTER: _call(_unregistered),
    Operation.SHARED_MEMORY_STATUS: _call(lambda name: {"status": {}}, _listed_over_grpc),
}
