"""The names and attributes of the spans of messages, on the side of a server and of a client.

They are those of OpenTelemetry's semantic conventions for HTTP and for RPC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from interlingua.protocols.wire import (
    BrpcAnswer,
    BrpcRequest,
    FramedCall,
    FramedRequest,
    GrpcAnswer,
    GrpcRequest,
    HttpAnswer,
    HttpCall,
    HttpReply,
    HttpRequest,
)

Attributes = dict[str, str | int | bool]


class Named(NamedTuple):
    """The name of a span and its first attributes."""

    name: str
    attributes: Attributes


def of_message(message: Any) -> Named:
    """The span for a request or a call."""
    return _MESSAGES[type(message)](message)


def of_answer(answer: Any) -> Attributes:
    """What the answer or reply to it adds; nothing for one that is not known, such as a stream."""
    known = _ANSWERS.get(type(answer))
    return {} if known is None else known(answer)


def of_peer(url: str) -> Attributes:
    """The server at ``url``, which may follow a scheme, have a path, or be that of a unix socket."""
    place = url.partition(" ")[0].partition("://")[2] or url.partition(" ")[0]
    if place.startswith("unix:"):
        return {"server.address": place[5:], "network.transport": "unix"}
    host, _, port = place.partition("/")[0].rpartition(":")
    if not host or not port.isdecimal():
        return {"server.address": place.partition("/")[0]}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def _request(request: HttpRequest) -> Named:
    attributes: Attributes = {"http.request.method": request.method, "url.path": request.path}
    route = getattr(request.endpoint, "path", "*")
    if route == "*":
        return Named(request.method, attributes)
    return Named(f"{request.method} {route}", {**attributes, "http.route": route})


def _call(call: HttpCall) -> Named:
    return Named(call.method, {"http.request.method": call.method, "url.path": call.path})


def _grpc(request: GrpcRequest) -> Named:
    service, _, method = request.method[1:].rpartition("/")
    return Named(request.method[1:], _rpc("grpc", service, method))


def _brpc(request: BrpcRequest) -> Named:
    name = f"{request.service}/{request.method}"
    return Named(name, _rpc("brpc", request.service, request.method))


def _frame(message: FramedRequest | FramedCall) -> Named:
    return Named("message", {"network.transport": "tcp"})


def _rpc(system: str, service: str, method: str) -> Attributes:
    return {"rpc.system": system, "rpc.service": service, "rpc.method": method}


_MESSAGES: Mapping[type, Callable[[Any], Named]] = {
    HttpRequest: _request,
    HttpCall: _call,
    GrpcRequest: _grpc,
    BrpcRequest: _brpc,
    FramedRequest: _frame,
    FramedCall: _frame,
}

_ANSWERS: Mapping[type, Callable[[Any], Attributes]] = {
    HttpAnswer: lambda answer: {"http.response.status_code": answer.status},
    HttpReply: lambda reply: {"http.response.status_code": reply.status},
    GrpcAnswer: lambda answer: {"rpc.grpc.status_code": answer.code},
    BrpcAnswer: lambda answer: {"rpc.brpc.status_code": answer.code},
}
