"""The clients of upstreams, by transport and engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.brpc.client import BrpcConnectionClient
from interlingua.protocols.transport.framed.client import PooledFramedClient
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.http.client import PooledHttpClient
from interlingua.protocols.transport.tls import ClientTls, TlsContext
from interlingua.protocols.wire import BrpcClient, FramedClient, GrpcClient, HttpClient
from interlingua.schemas.offload import DecodingLimits

Client = HttpClient | GrpcClient | BrpcClient | FramedClient


class Connect(Protocol):
    """Makes a client, which opens connections on demand."""

    def __call__(
        self,
        url: Url,
        *,
        connect_timeout_secs: float = ...,
        max_response_bytes: int | None = ...,
        limits: DecodingLimits = ...,
        at: str = ...,
        tls: TlsContext | None = ...,
    ) -> Client:
        """The client of the server at ``url``. ``at`` is the numeric address of its host, if it is known.
        Libraries take no ``tls``: aiohttp has its own for https."""


# a library is imported with its first client: aiohttp takes a fifth of a second


def _http_library(url: Url, *, tls: TlsContext | None = None, **options: Any) -> Client:
    from interlingua.protocols.transport.http.library_client import AiohttpClient

    return AiohttpClient(url, **options)


def _http_native(url: Url, *, tls: TlsContext | None = None, **options: Any) -> Client:
    if tls is None and url.scheme == "https":
        tls = TlsContext(ClientTls(protocols=("http/1.1",)))
    return PooledHttpClient(url, tls=tls, **options)


def _grpc_library(url: Url, *, tls: TlsContext | None = None, **options: Any) -> Client:
    from interlingua.protocols.transport.grpc.library_client import GrpcioClient

    return GrpcioClient(url, **options)


CLIENTS: Mapping[tuple[str, str], Connect] = {
    ("http", "native"): _http_native,
    ("http", "library"): _http_library,
    ("grpc", "native"): GrpcChannelClient,
    ("grpc", "library"): _grpc_library,
    ("brpc", "native"): BrpcConnectionClient,
    ("tcp", "native"): PooledFramedClient,
}
"""By transport and engine: ``native`` is this project's own, ``library`` that of aiohttp or grpcio."""


def client_of(transport: str, engine: str = "native") -> Connect:
    """What makes clients for ``transport``."""
    return CLIENTS[transport, engine]
