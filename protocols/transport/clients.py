"""The clients of upstreams, by transport and engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.brpc.client import BrpcConnectionClient
from interlingua.protocols.transport.client_options import DEFAULT_OPTIONS, ClientOptions
from interlingua.protocols.transport.framed.client import PooledFramedClient
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.http.client import PooledHttpClient
from interlingua.protocols.transport.tls import ClientTls, TlsContext
from interlingua.protocols.wire_clients import BrpcClient, FramedClient, GrpcClient, HttpClient

Client = HttpClient | GrpcClient | BrpcClient | FramedClient


class Connect(Protocol):
    """Makes a client, which opens connections on demand."""

    def __call__(self, url: Url, options: ClientOptions = ...) -> Client:
        """The client of the server at ``url``."""


# a library is imported with its first client: aiohttp takes a fifth of a second


def _http_library(url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> Client:
    from interlingua.protocols.transport.http.library_client import AiohttpClient

    return AiohttpClient(url, options)


def _http_native(url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> Client:
    if options.tls is None and url.scheme == "https":
        options = replace(options, tls=TlsContext(ClientTls(protocols=("http/1.1",))))
    return PooledHttpClient(url, options)


def _grpc_library(url: Url, options: ClientOptions = DEFAULT_OPTIONS) -> Client:
    from interlingua.protocols.transport.grpc.library_client import GrpcioClient

    return GrpcioClient(url, options)


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
