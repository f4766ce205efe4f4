"""Shared memory calls of the Open Inference Protocol, over HTTP and gRPC. Upstreams need none, so the dialect
does not have them. Arguments and results are those of ``protocols.dialect.Action``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import orjson

from interlingua.protocols.dialect import UpstreamCall
from interlingua.protocols.oip.codec import CODE_OF_HTTP_STATUS
from interlingua.protocols.oip.metadata_json import read_error
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest, HttpCall, HttpReply
from interlingua.schemas import ErrorCode, InferenceError, Operation, SharedMemoryRegion, Signature
from interlingua.schemas.oip import MESSAGES

_MEMBERS = ("name", "key", "offset", "byte_size")

Regions = tuple[SharedMemoryRegion, ...]


def _region(members: Mapping[str, Any]) -> SharedMemoryRegion:
    return SharedMemoryRegion(*(members[name] for name in _MEMBERS))


# --- HTTP


def _path(verb: str, name: str | None) -> str:
    region = "" if name is None else f"/region/{quote(name, safe='')}"
    return f"/v2/systemsharedmemory{region}/{verb}"


def _register(region: SharedMemoryRegion, signature: Signature | None) -> tuple[HttpCall, None]:
    document = {member: getattr(region, member) for member in _MEMBERS[1:]}
    return HttpCall("POST", _path("register", region.name), parts=[orjson.dumps(document)]), None


def _unregister(name: str | None, signature: Signature | None) -> tuple[HttpCall, None]:
    return HttpCall("POST", _path("unregister", name)), None


def _status(name: str | None, signature: Signature | None) -> tuple[HttpCall, None]:
    return HttpCall("GET", _path("status", name)), None


def _done(form: None, reply: HttpReply) -> None:
    if reply.status != 200:
        code = CODE_OF_HTTP_STATUS.get(reply.status, ErrorCode.BAD_UPSTREAM)
        raise InferenceError(code, read_error(reply.status, reply.body))


def _regions(form: None, reply: HttpReply) -> Regions:
    _done(form, reply)
    return tuple(map(_region, orjson.loads(bytes(reply.body))))


HTTP_MEMORY: Mapping[Operation, UpstreamCall[HttpCall, HttpReply]] = {
    Operation.SHARED_MEMORY_REGISTER: UpstreamCall(_register, _done),
    Operation.SHARED_MEMORY_UNREGISTER: UpstreamCall(_unregister, _done),
    Operation.SHARED_MEMORY_STATUS: UpstreamCall(_status, _regions),
}


# --- gRPC


def _described(region: Any) -> Mapping[str, Any]:
    return {member: getattr(region, member) for member in _MEMBERS}


def _listed(message: Any) -> Regions:
    return tuple(_region(_described(entry)) for entry in message.regions.values())


_CODES = {
    3: ErrorCode.INVALID_TENSOR,
    5: ErrorCode.NOT_FOUND,
    6: ErrorCode.ALREADY_EXISTS,
    12: ErrorCode.UNSUPPORTED,
}


def _call(
    verb: str, fields: Callable[[Any], Mapping[str, Any]], read: Callable[[Any], Any] = lambda message: None
) -> UpstreamCall[GrpcRequest, GrpcAnswer]:
    def encode(argument: Any, signature: Signature | None) -> tuple[GrpcRequest, None]:
        message: Any = MESSAGES[f"inference.SystemSharedMemory{verb}Request"](**fields(argument))
        method = f"/inference.GRPCInferenceService/SystemSharedMemory{verb}"
        return GrpcRequest(method, message.SerializeToString()), None

    def decode(form: None, answer: GrpcAnswer) -> Any:
        if answer.code:
            raise InferenceError(_CODES.get(answer.code, ErrorCode.INTERNAL), answer.details)
        response: Any = MESSAGES[f"inference.SystemSharedMemory{verb}Response"]
        return read(response.FromString(bytes(answer.message)))

    return UpstreamCall(encode, decode)


GRPC_MEMORY: Mapping[Operation, UpstreamCall[GrpcRequest, GrpcAnswer]] = {
    Operation.SHARED_MEMORY_REGISTER: _call("Register", _described),
    Operation.SHARED_MEMORY_UNREGISTER: _call("Unregister", lambda name: {"name": name or ""}),
    Operation.SHARED_MEMORY_STATUS: _call("Status", lambda name: {"name": name or ""}, _listed),
}
