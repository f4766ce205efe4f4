"""The client of each transport, by the name that a configuration gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from interlingua.protocols.transport.address import Url
from interlingua.protocols.transport.brpc.client import BrpcConnectionClient
from interlingua.protocols.transport.framed.client import PooledFramedClient
from interlingua.protocols.transport.grpc.client import GrpcChannelClient
from interlingua.protocols.transport.http.client import PooledHttpClient
from interlingua.protocols.wire import BrpcClient, FramedClient, GrpcClient, HttpClient

Client = HttpClient | GrpcClient | BrpcClient | FramedClient


class Connect(Protocol):
    """Makes a client; connections are opened when they are first needed."""

    def __call__(
        self,
        url: Url,
        *,
        connect_timeout_secs: float = ...,
        max_response_bytes: int | None = ...,
        at: str = ...,
    ) -> Client:
        """The client of the server at ``url``; ``at`` is the numeric address of its host, where that has been
        looked up."""


CLIENTS: Mapping[str, Connect] = {
    "http": PooledHttpClient,
    "grpc": GrpcChannelClient,
    "brpc": BrpcConnectionClient,
    "tcp": PooledFramedClient,
}
