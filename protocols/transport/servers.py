"""The server of each transport, by the name that a configuration gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from interlingua.protocols.transport.address import Address
from interlingua.protocols.transport.any.server import AnyServer
from interlingua.protocols.transport.brpc.server import BrpcServer
from interlingua.protocols.transport.framed.server import FramedServer
from interlingua.protocols.transport.grpc.server import GrpcServer
from interlingua.protocols.transport.h2.options import DEFAULT_OPTIONS, Http2Options
from interlingua.protocols.transport.http.server import HttpServer
from interlingua.protocols.transport.listener import Listener, listener_at
from interlingua.protocols.transport.load import ListenerLoad
from interlingua.protocols.transport.timeouts import DEFAULT_TIMEOUTS, Timeouts
from interlingua.protocols.transport.tls import TlsContext
from interlingua.schemas.offload import DEFAULT_LIMITS, DecodingLimits

Handlers = Mapping[str, Any]
"""The handler of each transport. HTTP and gRPC on the port of bRPC have ``brpc/http`` and ``brpc/grpc``."""


class Server(Protocol):
    """Listens at one address. Start it once, stop it once."""

    async def start(self) -> Address:
        """Listen. Returns the bound address, port filled in. Raises ``OSError``."""

    def retire(self) -> None:
        """Accept nothing more, and have clients move to a successor. See ``ConnectionSet.retire``."""

    async def stop(self, grace_secs: float) -> int:
        """Stop; returns how many requests were cut. See ``ConnectionSet.drain``."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The options of a listener; each transport has its own use for them. ``tls`` is for connections of a
    port of any protocol that begin with a handshake; without ``plain`` all have to."""

    max_request_bytes: int
    max_response_bytes: int | None = None
    max_concurrency: int | None = None
    engine: Literal["native", "library"] = "native"
    accept_te_with_length: bool = False
    load: ListenerLoad = field(default_factory=ListenerLoad)
    limits: DecodingLimits = DEFAULT_LIMITS
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    http2: Http2Options = DEFAULT_OPTIONS
    tls: TlsContext | None = None
    plain: bool = True


def _http(handlers: Handlers, address: Address | Listener, settings: ServerSettings) -> Server:
    return HttpServer(
        handlers["http"],
        address,
        engine=settings.engine,
        max_response_bytes=settings.max_response_bytes,
        load=settings.load,
        accept_te_with_length=settings.accept_te_with_length,
        timeouts=settings.timeouts,
        http2=settings.http2,
    )


def _grpc(handlers: Handlers, address: Address | Listener, settings: ServerSettings) -> Server:
    if settings.engine == "native":
        create: Callable[..., Server] = partial(GrpcServer, limits=settings.limits)
    else:
        from interlingua.protocols.transport.grpc.library import GrpcioServer  # takes 50 ms to import

        create = GrpcioServer
        address = address.address if isinstance(address, Listener) else address
    return create(
        handlers["grpc"],
        address,
        max_request_bytes=settings.max_request_bytes,
        max_response_bytes=settings.max_response_bytes,
        load=settings.load,
        timeouts=settings.timeouts,
        http2=settings.http2,
    )


def _brpc(
    handlers: Handlers, address: Address | Listener, settings: ServerSettings, port: str = "brpc/"
) -> BrpcServer:
    return BrpcServer(
        handlers["brpc"],
        handlers[f"{port}http"],
        handlers[f"{port}grpc"],
        address,
        max_request_bytes=settings.max_request_bytes,
        max_response_bytes=settings.max_response_bytes,
        load=settings.load,
        limits=settings.limits,
        max_concurrency=settings.max_concurrency,
        timeouts=settings.timeouts,
        http2=settings.http2,
    )


def _tcp(handlers: Handlers, address: Address | Listener, settings: ServerSettings) -> Server:
    return FramedServer(
        handlers["tcp"],
        address,
        max_request_bytes=settings.max_request_bytes,
        max_response_bytes=settings.max_response_bytes,
        timeouts=settings.timeouts,
        load=settings.load,
    )


def _any(handlers: Handlers, address: Address | Listener, settings: ServerSettings) -> Server:
    listener = listener_at(address)
    servers = _brpc(handlers, listener, settings, port="")
    return AnyServer(servers, listener, settings.tls, plain=settings.plain)


SERVERS: Mapping[str, Callable[[Handlers, Address | Listener, ServerSettings], Server]] = {
    "http": _http,
    "grpc": _grpc,
    "brpc": _brpc,
    "tcp": _tcp,
    "any": _any,
}
